"""The tables of a session store: its migrations, its transactions, and copies of the rows of sessions.

There is one SQL script per version of the schema. For example, `0001_….sql` creates version 1. Never change a released
script. Add a new script for each change of the schema.
"""

from __future__ import annotations

import math
import sqlite3
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from sqlite3 import Connection
from typing import Any

from thinklsp.core.errors import SessionError
from thinklsp.sessions.codec import build_corruption_error, compute_message_crc, read_number
from thinklsp.sessions.encryption import NO_ENCRYPTION, UNENCRYPTED, RowConnection, SessionCipher
from thinklsp.sessions.session_rows import read_revision
from thinklsp.sessions.spending import read_utc_date

# The tables with their session id columns, in the order that foreign keys require.
SESSION_TABLES = {
    "session": "id", "message": "session", "opaque": "session", "archive": "session", "ledger": "session",
    "remedy": "session", "image": "session",
}  # fmt: skip
_DAMAGE_CODES = frozenset({sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB})
_DISK_ERRORS = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_BUSY: "another program is holding a lock on it",
    sqlite3.SQLITE_LOCKED: "another program is holding a lock on it",
    sqlite3.SQLITE_IOERR: "the disk reports an error",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_PERM: "access to it is denied",
    sqlite3.SQLITE_AUTH: "access to it is denied",
    sqlite3.SQLITE_TOOBIG: "a value is too large for it",
}
Row = tuple[Any, ...]
# The encrypted columns of each table, and the columns that identify a row in its session.
_CONTENTS: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "session": (("title", "prompts"), ()),
    "message": (("blocks",), ("generation", "sequence")),
    "archive": (("note",), ("id",)),
    "image": (("content",), ("digest",)),
    "opaque": (("content",), ("generation", "sequence", "position")),
    "ledger": (("before", "after", "before_sha256", "after_sha256"), ("edit", "uri")),
}


@cache
def load_migrations(folder: str = "migrations") -> Mapping[int, str]:
    """Return the SQL scripts in a folder of this package by the schema version that they create."""
    scripts = files("thinklsp.sessions").joinpath(folder)
    names = sorted(entry.name for entry in scripts.iterdir() if entry.name.endswith(".sql"))
    return {int(name[:4]): scripts.joinpath(name).read_text("utf-8") for name in names}


def migrate(connection: Connection, migrations: Mapping[int, str]) -> None:
    """Apply each missing migration in a separate transaction, so that a crash cannot leave half a migration.

    The caller must hold the opening lock.
    """
    for version in sorted(migrations):
        if read_version(connection) < version:
            script = f"BEGIN IMMEDIATE;\n{migrations[version]}\n;PRAGMA user_version = {version};\nCOMMIT;"
            connection.executescript(script)


def read_version(connection: Connection) -> int:
    """Return the version of the schema."""
    [(version,)] = connection.execute("PRAGMA user_version")
    return int(version)


class SqliteConnection(Connection):
    """A connection with the ciphers of the sessions in its database."""

    cipher = NO_ENCRYPTION


def connect(path: str, timeout_seconds: float = 0.0, *, uri: bool = False) -> SqliteConnection:
    """Open a database. Damaged text is read with replacement characters."""
    # Each connection is used in only one thread. For an in-memory store, this is the caller's thread.
    connection = sqlite3.connect(
        path, timeout=timeout_seconds, isolation_level=None, check_same_thread=False, uri=uri, factory=SqliteConnection
    )
    connection.text_factory = lambda data: data.decode("utf-8", "replace")
    return connection


def open_memory_database() -> SqliteConnection:
    """Open a new database in memory."""
    connection = connect(":memory:")
    connection.execute("PRAGMA foreign_keys = ON")
    migrate(connection, load_migrations())
    return connection


@contextmanager
def begin_transaction(connection: Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Run the body of the `with` statement in a transaction. Raises sqlite3.Error on failure."""
    try:
        connection.execute(f"BEGIN {kind}")
        yield
        connection.execute("COMMIT")
    except UnicodeDecodeError:
        raise build_corruption_error("SQLite reported damaged text") from None
    finally:
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")


def explain_error(error: sqlite3.Error) -> str | None:
    """Return a description of the disk error for the user, or None if the disk did not cause the error."""
    return _DISK_ERRORS.get(extract_error_code(error))


def is_damage(error: sqlite3.Error) -> bool:
    """Return True if the error indicates a damaged file."""
    return extract_error_code(error) in _DAMAGE_CODES


def extract_error_code(error: sqlite3.Error) -> int:
    """Return the primary SQLite error code, or 0 for errors raised by Python itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


@cache
def list_columns(table: str) -> tuple[str, ...]:
    """Return the columns that a table has in stores of all kinds."""
    with closing(open_memory_database()) as connection:
        return tuple(str(row[1]) for row in connection.execute(f"PRAGMA table_info({table})"))


def delete_session(connection: SqliteConnection, session_id: str) -> None:
    """Delete a session.

    Its usage rows are kept, because they count towards the daily budget.
    """
    connection.execute("UPDATE usage SET session = NULL, turn = '' WHERE session = ?", (session_id,))
    _delete_rows(connection, session_id)
    connection.execute("DELETE FROM origin WHERE id NOT IN (SELECT origin FROM opaque)")


def copy_readable(source: SqliteConnection, target: SqliteConnection, max_bytes: float = math.inf) -> int:
    """Copy the sessions that can be read whole, and this day's usage, to an empty database in one transaction.

    The newest sessions come first, and the copy ends at `max_bytes`. Return the number of sessions.
    """
    count = size = 0
    with begin_transaction(target):
        with suppress(sqlite3.Error, UnicodeError):
            for row in _select(source, "usage", "day >= ?", read_utc_date().isoformat()):
                _insert(target, "usage", row)
        with suppress(sqlite3.Error, UnicodeError):
            for session_id, stored_size in source.execute("SELECT id, size FROM session ORDER BY updated DESC"):
                size += read_number(stored_size)
                if size > max_bytes:
                    break
                count += _copy_session(source, target, session_id)
    return count


def _copy_session(source: SqliteConnection, target: SqliteConnection, session_id: str) -> bool:
    """Copy a session. Returns False if a row cannot be read or written, and then copies nothing."""
    target.execute("SAVEPOINT session")
    try:
        _replace_rows(target, _read_rows(source, session_id))
    except (sqlite3.Error, UnicodeError):
        target.execute("ROLLBACK TO session")
        return False
    finally:
        target.execute("RELEASE session")
    return True


def copy_newer(source: SqliteConnection, target: SqliteConnection, session_ids: Iterable[str]) -> None:
    """Copy sessions, except those with a newer revision in the target."""
    for session_id in session_ids:
        if (read_revision(target, session_id) or 0) <= (read_revision(source, session_id) or 0):
            _replace_rows(target, _read_rows(source, session_id))


@dataclass(frozen=True, slots=True)
class SessionRows:
    """The rows of a session by table, in the order of their values.

    `origins` belongs to the opaque state, and `usage` to the model calls.
    """

    session_id: str
    tables: Mapping[str, tuple[Row, ...]]
    origins: tuple[Row, ...]
    usage: tuple[Row, ...]


def read_rows(connection: RowConnection, session_id: str) -> SessionRows:
    """Return all rows of a session, decrypted.

    Opaque state that cannot be decrypted is left out. Raises SessionError if other contents cannot be decrypted.
    """
    cipher = connection.cipher.find(connection, session_id)
    return _recode_all(_read_rows(connection, session_id), cipher, UNENCRYPTED)


def write_rows(connection: RowConnection, session_id: str, rows: SessionRows) -> bool:
    """Store the rows, encrypted as in this store.

    Returns False if the session is there already, with the same or a newer revision.
    """
    revision = list_columns("session").index("revision")
    new = max((row[revision] for row in rows.tables["session"]), default=0)
    if (read_revision(connection, session_id) or 0) >= new:
        return False
    _delete_rows(connection, session_id)
    cipher = connection.cipher.ensure(connection, session_id)
    _replace_rows(connection, _recode_all(rows, UNENCRYPTED, cipher))
    return True


def _read_rows(connection: RowConnection, session_id: str) -> SessionRows:
    tables = {table: _select(connection, table, f"{key} = ?", session_id) for table, key in SESSION_TABLES.items()}
    origins = _select(connection, "origin", "id IN (SELECT origin FROM opaque WHERE session = ?)", session_id)
    return SessionRows(session_id, tables, origins, _select(connection, "usage", "session = ?", session_id))


def _replace_rows(connection: RowConnection, rows: SessionRows) -> None:
    _delete_rows(connection, rows.session_id)
    connection.execute("DELETE FROM usage WHERE session = ?", (rows.session_id,))
    for row in rows.origins:
        _insert(connection, "origin", row, "ON CONFLICT DO NOTHING")
    for table, values in (*rows.tables.items(), ("usage", rows.usage)):
        for row in values:
            _insert(connection, table, row)


def _delete_rows(connection: RowConnection, session_id: str) -> None:
    for table, key in reversed(SESSION_TABLES.items()):
        connection.execute(f"DELETE FROM {table} WHERE {key} = ?", (session_id,))  # noqa: S608 - constants


def _recode_all(rows: SessionRows, before: SessionCipher, after: SessionCipher) -> SessionRows:
    """Return the rows with another encryption. Opaque state that is damaged or has no origin is left out."""
    origins = {key for key, *_ in rows.origins}
    tables: dict[str, tuple[Row, ...]] = {}
    for table, stored in rows.tables.items():
        values = [dict(zip(list_columns(table), row, strict=True)) for row in stored]
        if table == "opaque":
            values = [row for row in values if row["origin"] in origins]
        tables[table] = tuple(tuple(row.values()) for row in values if _recode(table, row, before, after))
    return replace(rows, tables=tables)


def _recode(table: str, values: dict[str, Any], before: SessionCipher, after: SessionCipher) -> bool:
    """Change the encryption of a row. Returns False for damaged opaque state.

    Raises SessionError if other contents cannot be decrypted.
    """
    columns, keys = _CONTENTS.get(table, ((), ()))
    row, is_opaque = tuple(values[key] for key in keys), table == "opaque"
    # A wrong checksum stays wrong.
    fault = values["crc"] ^ _compute_crc(values) if "crc" in values else 0
    if is_opaque and (fault or values["sealed"] != before.kind):
        return False
    for column in columns:
        stored, name = values[column], f"{table}.{column}"
        if isinstance(stored, bytes) and (content := before.decrypt(name, row, stored)) is not None:
            values[column] = after.encrypt(name, row, content)
        elif isinstance(stored, str) and (text := before.decrypt_text(name, row, stored)) is not None:
            values[column] = after.encrypt_text(name, row, text)
        elif is_opaque:
            return False
        elif isinstance(stored, bytes | str):
            raise SessionError("A part of this session is damaged, or was encrypted with another key.")
    if "crc" in values:
        values["crc"] = _compute_crc(values) ^ fault
    if is_opaque:
        values["sealed"] = after.kind
    return True


def _compute_crc(values: Mapping[str, Any]) -> int:
    """Return the checksum of a row with a message or with opaque state."""
    content = values["blocks"] if "blocks" in values else values["content"]
    content = content if isinstance(content, bytes) else b""
    is_message = "blocks" in values
    return compute_message_crc(values["role"], values["stop_reason"], content) if is_message else zlib.crc32(content)


def _select(connection: RowConnection, table: str, condition: str, session_id: str) -> tuple[Row, ...]:
    columns = ", ".join(list_columns(table))
    rows = connection.execute(f"SELECT {columns} FROM {table} WHERE {condition}", (session_id,))  # noqa: S608 - constants
    # The order ignores contents, because they can be large.
    return tuple(sorted(map(tuple, rows), key=lambda row: repr([v for v in row if not isinstance(v, bytes)])))


def _insert(connection: RowConnection, table: str, row: Row, suffix: str = "") -> None:
    columns = list_columns(table)
    marks = ", ".join("?" * len(columns))
    connection.execute(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({marks}) {suffix}", row)  # noqa: S608 - constants
