"""Ciphers for the contents of the rows of sessions.

The store of one user encrypts nothing, because only that user can read its files. The store of a team can encrypt all
contents, with a key per session.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

from thinklsp.sessions.codec import replace_null_characters, to_bytes, to_text

_EMPTY_TEXTS = ("", "[]")
FILE_MODE_PROTECTION = (
    "Signatures and encrypted thinking are stored without further encryption in files that only you can read."
)
RowKey = tuple[str | int, ...]


class KeysOutdated(Exception):
    """The tenant key `tenant_key` is unknown. The call should be repeated after the keys of the tenant were loaded."""

    def __init__(self, tenant_key: str) -> None:
        super().__init__(tenant_key)
        self.tenant_key = tenant_key


class SessionCipher:
    """The cipher for the rows of one session. This one encrypts nothing.

    `column` names the table and the column, such as `message.blocks`. `row` identifies the row in its session. Content
    can only be decrypted for the same session, column and row. `kind` is the number of the encryption in the column
    `sealed`. `overhead` is the number of bytes that encryption adds to each content, and `can_decrypt` is false if the
    key of the session cannot be used.
    """

    kind = 0
    overhead = 0
    can_decrypt = True

    def encrypt(self, column: str, row: RowKey, content: bytes) -> bytes:  # noqa: ARG002 - subclasses use the arguments
        """Return the content as it is stored."""
        return content

    def decrypt(self, column: str, row: RowKey, content: object) -> bytes | None:  # noqa: ARG002 - as above
        """Return stored content as it was, or None if it is damaged."""
        return content if isinstance(content, bytes) else None

    def encrypt_text(self, column: str, row: RowKey, text: str) -> str:
        """Return a text as it is stored.

        Empty texts and empty JSON arrays are not changed, because queries look for them.
        """
        if not self.kind or text in _EMPTY_TEXTS:
            return text
        # As in a text column without encryption.
        content = to_bytes(replace_null_characters(text))
        return base64.b64encode(self.encrypt(column, row, content)).decode()

    def decrypt_text(self, column: str, row: RowKey, text: str) -> str | None:
        """Return a stored text as it was, or None if it is damaged."""
        if not self.kind or text in _EMPTY_TEXTS:
            return text
        try:
            content = self.decrypt(column, row, base64.b64decode(text, validate=True))
        except ValueError:
            return None
        return None if content is None else to_text(content)


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
    """The ciphers of all sessions. In this class, no session is encrypted.

    Every method may raise SessionError or KeysOutdated.
    """

    def find(self, connection: RowConnection, session_id: str) -> SessionCipher:
        """Return the cipher of a session for reading. Raises SessionError if its key cannot be used."""
        return self.find_all(connection, (session_id,))[session_id]

    def find_all(self, _connection: RowConnection, session_ids: Iterable[str], /) -> Mapping[str, SessionCipher]:
        """Return the ciphers of several sessions for reading.

        The contents of a session whose key cannot be used count as damaged.
        """
        return dict.fromkeys(session_ids, UNENCRYPTED)

    def ensure(self, connection: RowConnection, session_id: str) -> SessionCipher:
        """Return the cipher of a session for writing. A new session gets its key."""
        return self.find(connection, session_id)


def decrypt_title(cipher: SessionCipher, title: object) -> str:
    """Return the title of a session as it was, or a note if it is damaged."""
    text = cipher.decrypt_text("session.title", (), str(title))
    return "(cannot be decrypted)" if text is None else text


UNENCRYPTED = SessionCipher()
NO_ENCRYPTION = StoreCipher()
