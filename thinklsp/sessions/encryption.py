"""Ciphers for the contents of the rows of sessions.

The store of one user encrypts only opaque state, with a key from the system keyring. That requires the optional
`keyring` extra. Without it, opaque state is stored unencrypted in private files. Encryption protects copies and
backups, but not against other programs of the same user. If the key is lost, encrypted blocks are omitted, and the
conversation's text is still readable. The store of a team can encrypt all contents, with a key per session.
"""

from __future__ import annotations

import importlib
import secrets
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, cast

from thinklsp.core.errors import format_install_command
from thinklsp.core.messages import OpaqueState, Origin
from thinklsp.sessions.codec import compute_crc, compute_origin_id, reveal_content, to_text

_PLAIN, _AES_GCM = 0, 1
_NONCE_BYTES = 12
_REQUIREMENTS = ("cryptography>=44.0.1", "keyring>=25")
_SERVICE, _NAME = "thinklsp", "session store"
KEYRING_TIMEOUT_SECONDS = 5.0
FILE_MODE_PROTECTION = (
    "Signatures and encrypted thinking are stored without further encryption in files that only you can read."
)
MEMORY_PROTECTION = "Sessions are not written to disk."
KEYRING_PROTECTION = "Signatures and encrypted thinking are stored encrypted with a key from the system's keyring."
RowKey = tuple[str | int, ...]


class Keyring(Protocol):
    """The part of the optional `keyring` package that stores the encryption key.

    Both functions may raise any exception.
    """

    def get_password(self, service: str, name: str, /) -> str | None: ...

    def set_password(self, service: str, name: str, secret: str, /) -> None: ...


def import_keyring() -> Keyring:
    """Import the package, which is slow. Raises ImportError."""
    keyring: Any = importlib.import_module("keyring")
    return cast("Keyring", keyring)


class OpaqueRow(NamedTuple):
    """A database row with opaque state. `content` can have any type, because the database may be damaged."""

    origin: str
    encryption: int
    content: Any
    crc: int


class OpaqueCipher:
    """The cipher for opaque state.

    Without a key, new rows are stored unencrypted, and encrypted rows are not readable.
    """

    def __init__(self, aead: Any = None, protection: str = FILE_MODE_PROTECTION) -> None:
        self._aead = aead
        self.protection = protection

    def encrypt(self, state: OpaqueState) -> OpaqueRow:
        """Encrypt an opaque state and return its database row."""
        origin, content = compute_origin_id(state.origin), reveal_content(state)
        if self._aead is None:
            return OpaqueRow(origin, _PLAIN, content, compute_crc(content))
        nonce = secrets.token_bytes(_NONCE_BYTES)
        content = nonce + self._aead.encrypt(nonce, content, origin.encode())
        return OpaqueRow(origin, _AES_GCM, content, compute_crc(content))

    def decrypt(self, row: OpaqueRow, origin: Origin) -> OpaqueState | None:
        """Return the opaque state in a row, or None if the row is damaged or cannot be decrypted."""
        if not isinstance(row.content, bytes) or compute_crc(row.content) != row.crc:
            return None
        content: bytes = row.content
        if row.encryption == _AES_GCM:
            if self._aead is None:
                return None
            wrong: type[Exception] = importlib.import_module("cryptography.exceptions").InvalidTag
            try:
                content = self._aead.decrypt(content[:_NONCE_BYTES], content[_NONCE_BYTES:], row.origin.encode())
            except (ValueError, wrong):
                return None
        try:
            return OpaqueState(to_text(content), origin)
        except UnicodeDecodeError:
            return None


def load_cipher(
    load_keyring: Callable[[], Keyring] = import_keyring, timeout_seconds: float = KEYRING_TIMEOUT_SECONDS
) -> OpaqueCipher:
    """Return a cipher with the key from the keyring, or a cipher without a key.

    There is no key if the optional packages are missing or the keyring does not respond in time. In this case,
    `protection` explains the reason.
    """
    try:
        keyring = load_keyring()
        aead: Any = importlib.import_module("cryptography.hazmat.primitives.ciphers.aead")
    except ImportError:
        return OpaqueCipher(
            protection=f"{FILE_MODE_PROTECTION} To encrypt them, run {format_install_command(*_REQUIREMENTS)}."
        )
    except Exception as error:  # noqa: BLE001 - keyring backends raise any error; the store must open anyway
        return OpaqueCipher(protection=f"{FILE_MODE_PROTECTION} The keyring is not usable ({type(error).__name__}).")
    answer: list[bytes | str] = []
    # A locked keyring waits for its password without a time limit and cannot be interrupted.
    asking = threading.Thread(target=lambda: answer.append(_load_key(keyring)), daemon=True, name="thinklsp-keyring")
    asking.start()
    asking.join(timeout_seconds)
    if not answer:
        return OpaqueCipher(
            protection=f"{FILE_MODE_PROTECTION} The keyring did not respond within {timeout_seconds:.0f} s."
        )
    [key] = answer
    if isinstance(key, str):
        return OpaqueCipher(protection=f"{FILE_MODE_PROTECTION} The keyring is not usable ({key}).")
    return OpaqueCipher(aead.AESGCM(key), KEYRING_PROTECTION)


def _load_key(keyring: Keyring) -> bytes | str:
    """Return the encryption key, and create it if necessary. On failure, return the reason instead.

    The reason contains no text from the keyring.
    """
    try:
        secret = keyring.get_password(_SERVICE, _NAME)
        if secret is None:
            keyring.set_password(_SERVICE, _NAME, secrets.token_hex(32))
            # Read the key back, because another process may have written a different key, and some keyrings store
            # nothing.
            secret = keyring.get_password(_SERVICE, _NAME)
        key = bytes.fromhex(secret or "")
    except Exception as error:  # noqa: BLE001 - keyring backends raise any error; none may leave this thread
        return type(error).__name__
    return key if len(key) == 32 else "it holds no key"


class KeysOutdated(Exception):
    """The tenant key `tenant_key` is unknown. The call should be repeated after the keys of the tenant were loaded."""

    def __init__(self, tenant_key: str) -> None:
        super().__init__(tenant_key)
        self.tenant_key = tenant_key


class SessionCipher:
    """The cipher for the rows of one session. This one encrypts only opaque state.

    `column` names the table and the column, such as `message.blocks`. `row` identifies the row in its session. Content
    can only be decrypted for the same session, column and row. `overhead` is the number of bytes that encryption adds
    to each content, and `can_decrypt` is false if the key of the session cannot be used.
    """

    overhead = 0
    can_decrypt = True

    def __init__(self, opaque: OpaqueCipher) -> None:
        self._opaque = opaque

    def encrypt(self, column: str, row: RowKey, content: bytes) -> bytes:  # noqa: ARG002 - subclasses use the arguments
        """Return the content as it is stored."""
        return content

    def decrypt(self, column: str, row: RowKey, content: object) -> bytes | None:  # noqa: ARG002 - as above
        """Return stored content as it was, or None if it is damaged."""
        return content if isinstance(content, bytes) else None

    def encrypt_text(self, column: str, row: RowKey, text: str) -> str:  # noqa: ARG002 - as above
        """Return a text as it is stored.

        Empty texts and empty JSON arrays are not changed, because queries look for them.
        """
        return text

    def decrypt_text(self, column: str, row: RowKey, text: str) -> str | None:  # noqa: ARG002 - as above
        """Return a stored text as it was, or None if it is damaged."""
        return text

    def encrypt_opaque(self, row: RowKey, state: OpaqueState) -> OpaqueRow:  # noqa: ARG002 - as above
        """Encrypt an opaque state and return its columns."""
        return self._opaque.encrypt(state)

    def decrypt_opaque(self, row: RowKey, columns: OpaqueRow, origin: Origin) -> OpaqueState | None:  # noqa: ARG002 - as above
        """Return the opaque state in a row, or None if the row is damaged or cannot be decrypted."""
        return self._opaque.decrypt(columns, origin)


class Rows(Protocol):
    """The result of a statement. Each row is a tuple with the values of the columns."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class RowConnection(Protocol):
    """A connection inside a transaction, with the ciphers of the sessions in its database.

    The SQL of the functions on rows works in SQLite and in PostgreSQL: placeholders are question marks, truth values
    are the integers 0 and 1, and no statement depends on functions of the database, except `instr` on bytes, which the
    schema adds to PostgreSQL.
    """

    cipher: StoreCipher

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Rows: ...


class StoreCipher:
    """The ciphers of all sessions. In this class, it is the same one for all of them.

    `protection` describes the encryption to the user. Every method may raise SessionError or KeysOutdated.
    """

    def __init__(self, opaque: OpaqueCipher) -> None:
        self.protection = opaque.protection
        self._cipher = SessionCipher(opaque)

    def find(self, connection: RowConnection, session_id: str) -> SessionCipher:
        """Return the cipher of a session for reading. Raises SessionError if its key cannot be used."""
        return self.find_all(connection, (session_id,))[session_id]

    def find_all(self, _connection: RowConnection, session_ids: Iterable[str], /) -> Mapping[str, SessionCipher]:
        """Return the ciphers of several sessions for reading.

        The contents of a session whose key cannot be used count as damaged.
        """
        return dict.fromkeys(session_ids, self._cipher)

    def ensure(self, connection: RowConnection, session_id: str) -> SessionCipher:
        """Return the cipher of a session for writing. A new session gets its key."""
        return self.find(connection, session_id)


def decrypt_title(cipher: SessionCipher, title: object) -> str:
    """Return the title of a session as it was, or a note if it is damaged."""
    text = cipher.decrypt_text("session.title", (), str(title))
    return "(cannot be decrypted)" if text is None else text


UNENCRYPTED = SessionCipher(OpaqueCipher())
NO_ENCRYPTION = StoreCipher(OpaqueCipher())
