"""The keys of a tenant, which encrypt the keys of its sessions."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Mapping
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from thinklsp.core.errors import SessionError

KEY_BYTES = 32
# The times between two successful and after a failed loading of the keys.
_REFRESH_SECONDS, _RETRY_SECONDS = 300.0, 30.0
# The age at which keys no longer encrypt new sessions. The documentation says so, too.
_MAX_AGE_SECONDS = 600.0
# The first byte of encrypted content. No content that is not encrypted begins with it.
ENCRYPTED_PREFIX = b"\x01"
_NONCE_BYTES, _TAG_BYTES = 12, 16
# The number of bytes that encryption adds to content.
SEAL_OVERHEAD = len(ENCRYPTED_PREFIX) + _NONCE_BYTES + _TAG_BYTES
_log = logging.getLogger("thinklsp")


class WrappedKey(NamedTuple):
    """The key of a session, encrypted with the tenant key `tenant_key`, which is an id and not the key itself."""

    tenant_key: str
    content: bytes


class TenantKeys:
    """The keys of one tenant. Several stores may share them.

    `load` returns one key per line: 32 bytes in hexadecimal or in Base64. The first one is the current key. The others
    only decrypt, until the keys of all sessions have been encrypted with the current one. `load` may take some seconds
    and may raise SessionError, so `refresh` and `reload` must not be called in a transaction.
    """

    def __init__(self, load: Callable[[], str], read_clock: Callable[[], float] = time.monotonic) -> None:
        self._load = load
        self._read_clock = read_clock
        # Replaced as a whole, so that other threads see either the old keys or the new ones.
        self._keys: Mapping[str, AESGCM] = {}
        self._loaded_at = self._tried_at = 0.0
        # When a key was last unknown although the keys had just been loaded.
        self._missed_at: dict[str, float] = {}
        self._lock = threading.Lock()

    def refresh(self) -> None:
        """Load the keys if they are five minutes old, because they may have been rotated.

        While another thread loads them, or if they cannot be loaded, the known keys stay. Only keys that no longer
        encrypt are waited for. Raises SessionError if there are none.
        """
        if not self._keys:
            with self._lock:
                if not self._keys:
                    self._replace_keys()
        elif self._is_due() and self._lock.acquire(blocking=self._is_too_old()):
            try:
                if self._is_due():
                    self._try_load()
            finally:
                self._lock.release()

    def reload(self, missing: str) -> None:
        """Load the keys because this one is unknown."""
        with self._lock:
            if missing not in self._keys:
                self._try_load()
                self._missed_at[missing] = self._read_clock()

    def can_reload(self, missing: str) -> bool:
        """Return True if the keys should be loaded again to find this key."""
        missed_at = self._missed_at.get(missing)
        return missing not in self._keys and (missed_at is None or self._read_clock() >= missed_at + _RETRY_SECONDS)

    def get_current_id(self) -> str:
        """Return the id of the current key."""
        return next(iter(self._keys))

    def wrap(self, key: bytes, owner: tuple[str, ...]) -> WrappedKey:
        """Encrypt the key of a session with the current key. `owner` names the session.

        Raises SessionError if the keys could not be loaded for ten minutes, because the current key may have been
        replaced, and the operator may have removed it.
        """
        if self._is_too_old():
            raise SessionError(
                "No session can be encrypted, because the command in [store] key_command has failed for some minutes. "
                "Run it in a terminal to see why."
            )
        current, tenant_key = next(iter(self._keys.items()))
        return WrappedKey(current, seal(tenant_key, _build_label(owner), key))

    def unwrap(self, wrapped: WrappedKey, owner: tuple[str, ...]) -> bytes:
        """Return the key of a session. Raises SessionError if the tenant key is unknown or the key is damaged."""
        tenant_key = self._keys.get(wrapped.tenant_key)
        if tenant_key is None:
            raise SessionError(
                f"The session is encrypted with the tenant key {wrapped.tenant_key}. Let the command in [store] "
                "key_command print this key, too."
            )
        key = unseal(tenant_key, _build_label(owner), wrapped.content)
        if key is None:
            raise SessionError("The key of the session is damaged, so the session cannot be decrypted.")
        return key

    def _is_due(self) -> bool:
        return self._read_clock() >= max(self._loaded_at + _REFRESH_SECONDS, self._tried_at + _RETRY_SECONDS)

    def _is_too_old(self) -> bool:
        return self._read_clock() >= self._loaded_at + _MAX_AGE_SECONDS

    def _try_load(self) -> None:
        try:
            self._replace_keys()
        except SessionError as error:
            _log.warning("%s The earlier keys are still used.", error)

    def _replace_keys(self) -> None:
        self._tried_at = self._read_clock()
        keys = [_parse_key(word) for word in self._load().split() or ("",)]
        self._keys = {hashlib.sha256(key).hexdigest()[:16]: AESGCM(key) for key in keys}
        self._loaded_at = self._read_clock()


def seal(aead: AESGCM, label: bytes, content: bytes) -> bytes:
    """Encrypt content, so that it can only be decrypted with the same label.

    The result is longer by `SEAL_OVERHEAD` bytes.
    """
    nonce = secrets.token_bytes(_NONCE_BYTES)
    return ENCRYPTED_PREFIX + nonce + aead.encrypt(nonce, content, label)


def unseal(aead: AESGCM, label: bytes, sealed: bytes) -> bytes | None:
    """Return the content that `seal` has encrypted, or None if the content is damaged or belongs to another label."""
    if not sealed.startswith(ENCRYPTED_PREFIX):
        return None
    start = len(ENCRYPTED_PREFIX) + _NONCE_BYTES
    try:
        return aead.decrypt(sealed[len(ENCRYPTED_PREFIX) : start], sealed[start:], label)
    except (ValueError, InvalidTag):
        return None


def _build_label(owner: tuple[str, ...]) -> bytes:
    return json.dumps(["key", *owner]).encode()


def _parse_key(line: str) -> bytes:
    key = b""
    for decode in (bytes.fromhex, lambda text: base64.b64decode(text, validate=True)):
        try:
            key = decode(line)
        except (ValueError, binascii.Error):
            continue
        if len(key) == KEY_BYTES:
            return key
    raise SessionError(
        "The command in [store] key_command printed something that is not a key. It must print 32 random bytes in "
        "hexadecimal, for example from `openssl rand -hex 32`."
    )
