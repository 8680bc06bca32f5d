"""Encryption of the sessions of a team, with a key per session.

The key of a session is a row of the database, encrypted with the key of its tenant. Sessions without such a row are
not encrypted: they were stored before the tenant had a key.
"""

from __future__ import annotations

import base64
import hashlib
import json
import logging
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import NamedTuple

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from thinklsp.core.errors import SessionError
from thinklsp.core.server_context import ClientIdentity
from thinklsp.sessions.codec import replace_null_characters
from thinklsp.sessions.encryption import (
    UNENCRYPTED,
    KeysOutdated,
    RowConnection,
    RowKey,
    SessionCipher,
    StoreCipher,
)
from thinklsp.sessions.session_rows import read_workspace

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
_ENCRYPTED = "New sessions are encrypted in the database with a key for each session."
_UNKNOWN_KEY = (
    "The key of this session is missing in the database, so the session cannot be decrypted. Restore the table "
    "`session_key` from a backup."
)
_PLAIN = "Sessions are stored in the database without further encryption."
_NO_KEY = "The session is encrypted, but [store] key_command is not set, so it cannot be decrypted."
_WITH_SESSION_KEY = 2
Owner = tuple[str, str, str]
"""The tenant, the user and the id of a session."""


class WrappedKey(NamedTuple):
    """The key of a session, encrypted with the tenant key `tenant_key`, which is an id and not the key itself."""

    tenant_key: str
    content: bytes


class TenantKeys:
    """The keys of one tenant. Several stores may share them.

    `load` returns one key per line: 32 bytes in hexadecimal or in Base64. The first one is the current key. The others
    only decrypt, until the keys of all sessions have been encrypted with the current one. `load` may take a few seconds
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
        except ValueError:
            continue
        if len(key) == KEY_BYTES:
            return key
    raise SessionError(
        "The command in [store] key_command printed something that is not a key. It must print 32 random bytes in "
        "hexadecimal, for example from `openssl rand -hex 32`."
    )


# The same function has the same object.
share_tenant_keys = cache(TenantKeys)


class TeamCipher(StoreCipher):
    """The ciphers of one user's sessions. Without `keys`, new sessions are not encrypted."""

    def __init__(self, identity: ClientIdentity, keys: TenantKeys | None) -> None:
        self.protection = _PLAIN if keys is None else _ENCRYPTED
        self._identity = identity
        self._keys = keys

    def find_all(self, connection: RowConnection, session_ids: Iterable[str]) -> Mapping[str, SessionCipher]:
        ids = list(session_ids)
        ciphers: dict[str, SessionCipher] = dict.fromkeys(ids, UNENCRYPTED)
        query = "SELECT session, tenant_key, content FROM session_key WHERE session = ANY(?)"
        for session_id, tenant_key, content in connection.execute(query, (ids,)):
            ciphers[session_id] = self._open_session(session_id, WrappedKey(tenant_key, content))
        return ciphers

    def _open_session(self, session_id: str, wrapped: WrappedKey) -> SessionCipher:
        if self._keys is None:
            return _LockedCipher(_NO_KEY)
        if self._keys.can_reload(wrapped.tenant_key):
            raise KeysOutdated(wrapped.tenant_key)
        owner = self._build_owner(session_id)
        try:
            return KeyedCipher(self._keys.unwrap(wrapped, owner), owner)
        except SessionError as error:
            return _LockedCipher(str(error))

    def find(self, connection: RowConnection, session_id: str) -> SessionCipher:
        cipher = super().find(connection, session_id)
        if isinstance(cipher, _LockedCipher):
            raise SessionError(cipher.reason)
        if cipher is UNENCRYPTED and self._keys is not None and _has_encrypted_message(connection, session_id):
            raise SessionError(_UNKNOWN_KEY)
        return cipher

    def ensure(self, connection: RowConnection, session_id: str) -> SessionCipher:
        cipher = self.find(connection, session_id)
        if cipher is UNENCRYPTED and self._keys is not None and read_workspace(connection, session_id) is None:
            wrapped = self._keys.wrap(secrets.token_bytes(KEY_BYTES), self._build_owner(session_id))
            connection.execute(
                "INSERT INTO session_key (session, tenant_key, content) VALUES (?, ?, ?) ON CONFLICT DO NOTHING",
                (session_id, *wrapped),
            )
            cipher = self.find(connection, session_id)
        return cipher

    def _build_owner(self, session_id: str) -> Owner:
        return self._identity.tenant, self._identity.user, session_id


def _has_encrypted_message(connection: RowConnection, session_id: str) -> bool:
    query = "SELECT substring(blocks FROM 1 FOR 1) FROM message WHERE session = ? ORDER BY generation, sequence LIMIT 1"
    row = connection.execute(query, (session_id,)).fetchone()
    return row is not None and row[0] == ENCRYPTED_PREFIX


class _LockedCipher(SessionCipher):
    """The cipher of a session whose key cannot be used for `reason`.

    Its contents count as damaged, and it is never used to encrypt.
    """

    kind = _WITH_SESSION_KEY
    can_decrypt = False

    def __init__(self, reason: str) -> None:
        self.reason = reason

    def decrypt(self, column: str, row: RowKey, content: object) -> None:  # noqa: ARG002 - nothing can be decrypted
        return None


class KeyedCipher(SessionCipher):
    """The cipher of a session with this key: AES-256-GCM."""

    kind = _WITH_SESSION_KEY
    overhead = SEAL_OVERHEAD

    def __init__(self, key: bytes, owner: Owner) -> None:
        self._aead = AESGCM(key)
        self._owner = owner

    def encrypt(self, column: str, row: RowKey, content: bytes) -> bytes:
        return seal(self._aead, self._build_label(column, row), content)

    def decrypt(self, column: str, row: RowKey, content: object) -> bytes | None:
        return unseal(self._aead, self._build_label(column, row), content) if isinstance(content, bytes) else None

    def _build_label(self, column: str, row: RowKey) -> bytes:
        # The row is identified by values of the database.
        values = (replace_null_characters(value) if isinstance(value, str) else value for value in row)
        return json.dumps([*self._owner, column, *values]).encode()
