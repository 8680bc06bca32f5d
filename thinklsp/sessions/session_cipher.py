"""Ciphers for the contents of the rows of sessions.

The store of one user encrypts only opaque state. The store of a team can encrypt all contents, with a key per session.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Protocol

from thinklsp.core.messages import OpaqueState, Origin
from thinklsp.sessions.encryption import OpaqueCipher, OpaqueRow
from thinklsp.sessions.row_connection import RowConnection

RowKey = tuple[str | int, ...]


class KeysOutdated(Exception):
    """The tenant key `tenant_key` is unknown. The call should be repeated after the keys of the tenant were loaded."""

    def __init__(self, tenant_key: str) -> None:
        super().__init__(tenant_key)
        self.tenant_key = tenant_key


class SessionCipher(Protocol):
    """The cipher for the rows of one session.

    `column` names the table and the column, such as `message.blocks`. `row` identifies the row in its session. Content
    can only be decrypted for the same session, column and row. `overhead` is the number of bytes that encryption adds
    to each content, and `can_decrypt` is false if the key of the session cannot be used.
    """

    overhead: int
    can_decrypt: bool

    def encrypt(self, column: str, row: RowKey, content: bytes, /) -> bytes:
        """Return the content as it is stored."""

    def decrypt(self, column: str, row: RowKey, content: object, /) -> bytes | None:
        """Return stored content as it was, or None if it is damaged."""

    def encrypt_text(self, column: str, row: RowKey, text: str, /) -> str:
        """Return a text as it is stored. Empty texts and empty JSON arrays are not changed, because queries look for
        them."""

    def decrypt_text(self, column: str, row: RowKey, text: str, /) -> str | None:
        """Return a stored text as it was, or None if it is damaged."""

    def encrypt_opaque(self, row: RowKey, state: OpaqueState, /) -> OpaqueRow:
        """Encrypt an opaque state and return its columns."""

    def decrypt_opaque(self, row: RowKey, columns: OpaqueRow, origin: Origin, /) -> OpaqueState | None:
        """Return the opaque state in a row, or None if the row is damaged or cannot be decrypted."""


class PlainCipher(SessionCipher):
    """The cipher of a session without a key, which encrypts only opaque state."""

    overhead, can_decrypt = 0, True

    def __init__(self, opaque: OpaqueCipher) -> None:
        self._opaque = opaque

    def encrypt(self, _column: str, _row: RowKey, content: bytes, /) -> bytes:
        return content

    def decrypt(self, _column: str, _row: RowKey, content: object, /) -> bytes | None:
        return content if isinstance(content, bytes) else None

    def encrypt_text(self, _column: str, _row: RowKey, text: str, /) -> str:
        return text

    def decrypt_text(self, _column: str, _row: RowKey, text: str, /) -> str | None:
        return text

    def encrypt_opaque(self, _row: RowKey, state: OpaqueState, /) -> OpaqueRow:
        return self._opaque.encrypt(state)

    def decrypt_opaque(self, _row: RowKey, columns: OpaqueRow, origin: Origin, /) -> OpaqueState | None:
        return self._opaque.decrypt(columns, origin)


class StoreCipher:
    """The ciphers of all sessions. In this class, it is the same one for all of them.

    `protection` describes the encryption to the user. Every method may raise SessionError or KeysOutdated.
    """

    def __init__(self, opaque: OpaqueCipher) -> None:
        self.protection = opaque.protection
        self._cipher: SessionCipher = PlainCipher(opaque)

    def find(self, connection: RowConnection, session_id: str) -> SessionCipher:
        """Return the cipher of a session for reading. Raises SessionError if its key cannot be used."""
        return self.find_all(connection, (session_id,))[session_id]

    def find_all(self, _connection: RowConnection, session_ids: Iterable[str], /) -> Mapping[str, SessionCipher]:
        """Return the ciphers of several sessions for reading. The contents of a session whose key cannot be used count
        as damaged."""
        return dict.fromkeys(session_ids, self._cipher)

    def ensure(self, connection: RowConnection, session_id: str) -> SessionCipher:
        """Return the cipher of a session for writing. A new session gets its key."""
        return self.find(connection, session_id)


def decrypt_title(cipher: SessionCipher, title: object) -> str:
    """Return the title of a session as it was, or a note if it is damaged."""
    text = cipher.decrypt_text("session.title", (), str(title))
    return "(cannot be decrypted)" if text is None else text


UNENCRYPTED: SessionCipher = PlainCipher(OpaqueCipher())
