"""The rows of a session as values, to copy them between stores of different kinds.

The rows of both kinds of stores have the same columns.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from thinklsp.core.errors import SessionError
from thinklsp.core.messages import Origin
from thinklsp.sessions.codec import compute_message_crc
from thinklsp.sessions.database import open_memory_database
from thinklsp.sessions.encryption import OpaqueRow
from thinklsp.sessions.row_connection import RowConnection
from thinklsp.sessions.session_cipher import UNENCRYPTED, SessionCipher, StoreCipher
from thinklsp.sessions.session_rows import read_revision
from thinklsp.sessions.tables import SESSION_TABLES

Row = tuple[Any, ...]
# The encrypted columns of each table, and the columns that identify a row in its session.
_CONTENTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "session": (("title", "prompts"), ()),
    "message": (("blocks",), ("generation", "sequence")),
    "archive": (("note",), ("id",)),
    "image": (("content",), ("digest",)),
    "ledger": (("before", "after", "before_sha256", "after_sha256"), ("edit", "uri")),
}
_OPAQUE_KEY = ("generation", "sequence", "position")


@dataclass(frozen=True, slots=True)
class SessionRows:
    """The rows of a session by table, in the order of their values. `origins` belongs to the opaque state, and `usage`
    to the model calls."""

    session_id: str
    tables: Mapping[str, tuple[Row, ...]]
    origins: tuple[Row, ...]
    usage: tuple[Row, ...]

    @property
    def count(self) -> int:
        """The number of rows, without origins."""
        return sum(map(len, self.tables.values())) + len(self.usage)


def read_rows(connection: RowConnection, session_id: str, cipher: StoreCipher) -> SessionRows:
    """Return all rows of a session, decrypted. Opaque state that cannot be decrypted is left out. Raises SessionError
    if other contents cannot be decrypted."""
    session_cipher = cipher.find(connection, session_id)
    tables = {table: _select(connection, table, f"{key} = ?", session_id) for table, key in SESSION_TABLES.items()}
    origins = _select(connection, "origin", "id IN (SELECT origin FROM opaque WHERE session = ?)", session_id)
    tables = {table: tuple(recode(table, rows, origins, session_cipher, UNENCRYPTED)) for table, rows in tables.items()}
    return SessionRows(session_id, tables, origins, _select(connection, "usage", "session = ?", session_id))


def write_rows(connection: RowConnection, session_id: str, rows: SessionRows, cipher: StoreCipher) -> bool:
    """Store the rows, encrypted as in this store. Returns False if the session is there already, with the same or a
    newer revision."""
    revision = list_columns("session").index("revision")
    new = max((row[revision] for row in rows.tables["session"]), default=0)
    if (read_revision(connection, session_id) or 0) >= new:
        return False
    for table, key in reversed(SESSION_TABLES.items()):
        connection.execute(f"DELETE FROM {table} WHERE {key} = ?", (session_id,))  # noqa: S608 - constants
    connection.execute("DELETE FROM usage WHERE session = ?", (session_id,))
    for row in rows.origins:
        _insert(connection, "origin", row, "ON CONFLICT DO NOTHING")
    session_cipher = cipher.ensure(connection, session_id)
    for table, values in rows.tables.items():
        for row in recode(table, values, rows.origins, UNENCRYPTED, session_cipher):
            _insert(connection, table, row)
    for row in rows.usage:
        _insert(connection, "usage", row)
    return True


def recode(
    table: str, rows: Iterable[Row], origins: Iterable[Row], before: SessionCipher, after: SessionCipher
) -> Iterator[Row]:
    """Yield the rows of a session with another encryption.

    Opaque state that cannot be decrypted is left out. Raises SessionError if other contents cannot be decrypted.
    """
    columns = list_columns(table)
    origins_by_id = {key: Origin(*fields) for key, *fields in origins} if table == "opaque" else {}
    for row in rows:
        values = dict(zip(columns, row, strict=True))
        if table != "opaque":
            _recode_contents(table, values, before, after)
        elif not _recode_opaque(values, origins_by_id, before, after):
            continue
        yield tuple(values.values())


def _recode_contents(table: str, values: dict[str, Any], before: SessionCipher, after: SessionCipher) -> None:
    columns, keys = _CONTENTS.get(table, ((), ()))
    row = tuple(values[key] for key in keys)
    # A wrong checksum stays wrong.
    fault = values["crc"] ^ _compute_crc(values) if table == "message" else 0
    for column in columns:
        stored, name = values[column], f"{table}.{column}"
        if isinstance(stored, bytes) and (content := before.decrypt(name, row, stored)) is not None:
            values[column] = after.encrypt(name, row, content)
        elif isinstance(stored, str) and (text := before.decrypt_text(name, row, stored)) is not None:
            values[column] = after.encrypt_text(name, row, text)
        elif isinstance(stored, bytes | str):
            raise SessionError("A part of this session is damaged, or was encrypted with another key.")
    if table == "message":
        values["crc"] = _compute_crc(values) ^ fault


def _compute_crc(message: Mapping[str, Any]) -> int:
    blocks = message["blocks"]
    return compute_message_crc(message["role"], message["stop_reason"], blocks if isinstance(blocks, bytes) else b"")


def _recode_opaque(
    values: dict[str, Any], origins: Mapping[object, Origin], before: SessionCipher, after: SessionCipher
) -> bool:
    """Change the columns of opaque state. Returns False if it cannot be decrypted."""
    row = tuple(values[key] for key in _OPAQUE_KEY)
    names = ("origin", "sealed", "content", "crc")
    if values["origin"] not in origins:
        return False
    state = before.decrypt_opaque(row, OpaqueRow(*(values[name] for name in names)), origins[values["origin"]])
    if state is None:
        return False
    values.update(zip(names, after.encrypt_opaque(row, state), strict=True))
    return True


@cache
def list_columns(table: str) -> tuple[str, ...]:
    """Return the columns that a table has in stores of all kinds."""
    connection = open_memory_database()
    try:
        return tuple(str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})"))
    finally:
        connection.close()


def _select(connection: RowConnection, table: str, condition: str, session_id: str) -> tuple[Row, ...]:
    columns = ", ".join(list_columns(table))
    rows = connection.execute(f"SELECT {columns} FROM {table} WHERE {condition}", (session_id,))  # noqa: S608 - constants
    return tuple(sorted(map(tuple, rows), key=_identify))


def _identify(row: Row) -> str:
    """Return a text that is different for each row of a session. Contents are left out, because they can be large."""
    return repr([value for value in row if not isinstance(value, bytes)])


def _insert(connection: RowConnection, table: str, row: Row, suffix: str = "") -> None:
    columns = list_columns(table)
    marks = ", ".join("?" * len(columns))
    connection.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) {suffix}", row)  # noqa: S608 - constants
