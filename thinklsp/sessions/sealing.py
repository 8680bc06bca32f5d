"""How opaque state lies on disk: encrypted with a key from the system's keyring where there is one, else as it is in
files that only their owner can read.

Encryption needs the optional `keyring` extra. It guards a copied or backed-up file, not against programs of the same
user. What was encrypted with a key that is gone stays shut: its blocks are left out, text is kept.
"""

from __future__ import annotations

import importlib
import secrets
import threading
from collections.abc import Callable
from typing import Any, NamedTuple, Protocol

from thinklsp.core.installation import install_command
from thinklsp.core.messages import OpaqueState, Origin
from thinklsp.sessions.codec import contents, crc, origin_id, to_text

_PLAIN, _AES_GCM = 0, 1
_NONCE = 12
_REQUIREMENTS = ("cryptography>=44.0.1", "keyring>=25")
_SERVICE, _NAME = "thinklsp", "session store"
KEYRING_PATIENCE = 5.0
BY_MODE = "Signatures and encrypted thinking lie unencrypted in files that only you can read."
BY_KEYRING = "Signatures and encrypted thinking are encrypted with a key from the system's keyring."


class Vault(Protocol):
    """Where the key is kept. Either method may raise anything."""

    def read(self) -> str | None: ...

    def write(self, secret: str) -> None: ...


class KeyringVault:
    """The system's keyring, by the optional package of that name."""

    def __init__(self) -> None:
        # Optional and heavy: it is looked for in the store's thread, when the store is opened.
        self._keyring: Any = importlib.import_module("keyring")

    def read(self) -> str | None:
        found = self._keyring.get_password(_SERVICE, _NAME)
        return None if found is None else str(found)

    def write(self, secret: str) -> None:
        self._keyring.set_password(_SERVICE, _NAME, secret)


class SealedRow(NamedTuple):
    """As it stands in the database, so `content` may be anything at all."""

    origin: str
    sealed: int
    content: Any
    crc: int


class Seals:
    """Closes and opens rows of opaque state. `cipher` None: new rows are not encrypted and encrypted ones stay shut."""

    def __init__(self, cipher: Any = None, protection: str = BY_MODE) -> None:
        self._cipher = cipher
        self.protection = protection

    def close(self, state: OpaqueState) -> SealedRow:
        origin, content = origin_id(state.origin), contents(state)
        if self._cipher is None:
            return SealedRow(origin, _PLAIN, content, crc(content))
        nonce = secrets.token_bytes(_NONCE)
        content = nonce + self._cipher.encrypt(nonce, content, origin.encode())
        return SealedRow(origin, _AES_GCM, content, crc(content))

    def open(self, row: SealedRow, origin: Origin) -> OpaqueState | None:
        """None when it is damaged, or shut."""
        if not isinstance(row.content, bytes) or crc(row.content) != row.crc:
            return None
        content: bytes = row.content
        if row.sealed == _AES_GCM:
            if self._cipher is None:
                return None
            try:
                content = self._cipher.decrypt(content[:_NONCE], content[_NONCE:], row.origin.encode())
            except (ValueError, self._wrong):
                return None
        try:
            return OpaqueState(to_text(content), origin)
        except UnicodeDecodeError:
            return None

    @property
    def _wrong(self) -> type[Exception]:
        wrong: type[Exception] = importlib.import_module("cryptography.exceptions").InvalidTag
        return wrong


def load_seals(vault: Callable[[], Vault] = KeyringVault, patience: float = KEYRING_PATIENCE) -> Seals:
    """Encryption if the extra is installed and the keyring answers in time; else says in `protection` why not."""
    try:
        opened = vault()
        aead: Any = importlib.import_module("cryptography.hazmat.primitives.ciphers.aead")
    except ImportError:
        return Seals(protection=f"{BY_MODE} To encrypt them, run {install_command(*_REQUIREMENTS)}.")
    except Exception as error:  # noqa: BLE001 - keyring's parts raise errors of their own; the store must open anyway
        return Seals(protection=f"{BY_MODE} The keyring cannot be used ({type(error).__name__}).")
    answer: list[bytes | str] = []
    # A locked keyring may wait for its password for ever, and cannot be interrupted.
    asking = threading.Thread(target=lambda: answer.append(_key(opened)), daemon=True, name="thinklsp-keyring")
    asking.start()
    asking.join(patience)
    if not answer:
        return Seals(protection=f"{BY_MODE} The keyring did not answer within {patience:.0f} s.")
    [key] = answer
    if isinstance(key, str):
        return Seals(protection=f"{BY_MODE} The keyring cannot be used ({key}).")
    return Seals(aead.AESGCM(key), BY_KEYRING)


def _key(vault: Vault) -> bytes | str:
    """The key, made at the first time; or the name of what went wrong. Never a text of the keyring's own."""
    try:
        found = vault.read()
        if found is None:
            vault.write(secrets.token_hex(32))
            # Read again: two programs may have made one at the same time, and some keyrings keep nothing.
            found = vault.read()
        key = bytes.fromhex(found or "")
    except Exception as error:  # noqa: BLE001 - as above; and nothing may escape from this thread
        return type(error).__name__
    return key if len(key) == 32 else "it holds no key"
