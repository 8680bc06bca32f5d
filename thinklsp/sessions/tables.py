"""Transactions, and functions that delete or copy the rows of sessions.

Rows are copied unchanged, and damaged rows are copied as far as they can be read.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from sqlite3 import Connection

from thinklsp.sessions.row_connection import build_corruption_error
from thinklsp.sessions.session_rows import read_revision
from thinklsp.sessions.spending import COLUMNS

# The tables with their session id columns, in the order that foreign keys require.
SESSION_TABLES = {
    "session": "id", "message": "session", "opaque": "session", "archive": "session", "ledger": "session",
    "remedy": "session", "image": "session",
}  # fmt: skip
_UNREADABLE = (sqlite3.Error, UnicodeError)


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


def delete_session(connection: Connection, session_id: str) -> None:
    """Delete a session.

    Its usage rows are kept, because they count towards the daily budget.
    """
    connection.execute("UPDATE usage SET session = NULL, turn = '' WHERE session = ?", (session_id,))
    _delete_rows(connection, session_id)
    connection.execute("DELETE FROM origin WHERE id NOT IN (SELECT origin FROM opaque)")


def copy_session(source: Connection, target: Connection, session_id: str) -> None:
    """Copy all rows of a session, and replace its rows in the target.

    The source may have an older schema.
    """
    present = {name for (name,) in source.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    _delete_rows(target, session_id)
    _copy_rows(source, target, "SELECT * FROM origin", (), "origin")
    for table, key in SESSION_TABLES.items():
        if table in present:
            _copy_rows(source, target, f"SELECT * FROM {table} WHERE {key} = ?", (session_id,), table)  # noqa: S608 - constants


def copy_newer(source: Connection, target: Connection, session_ids: Iterable[str]) -> None:
    """Copy sessions, except those with a newer revision in the target."""
    for session_id in session_ids:
        if (read_revision(target, session_id) or 0) <= (read_revision(source, session_id) or 0):
            copy_session(source, target, session_id)


def copy_readable(source: Connection, target: Connection, session_id: str, *, with_usage: bool) -> bool:
    """Copy the readable parts of a session. Return True if the copy is complete."""
    try:
        copy_session(source, target, session_id)
        if with_usage:
            copy_usage(source, target, session_id)
    except sqlite3.Error:
        return False
    return True


def copy_usage(source: Connection, target: Connection, session_id: str | None = None) -> None:
    """Copy the usage rows of a session, or of all sessions if `session_id` is None. Rows that the target already
    contains are skipped."""
    query = f"SELECT {', '.join(COLUMNS)} FROM usage"  # noqa: S608 - constants
    values: tuple[str, ...] = ()
    if session_id is not None:
        query, values = f"{query} WHERE session = ?", (session_id,)
    marks = ", ".join(f":{name}" for name in COLUMNS)
    target.executemany(
        f"INSERT INTO usage SELECT {marks} WHERE NOT EXISTS "  # noqa: S608 - constants
        "(SELECT 1 FROM usage WHERE day = :day AND made = :made AND turn = :turn AND purpose = :purpose)",
        (dict(zip(COLUMNS, row, strict=True)) for row in source.execute(query, values)),
    )


def rescue_sessions(source: Connection, target: Connection) -> int:
    """Copy all readable sessions. Return the number of copied sessions.

    Tables are read from both ends without indexes, because parts of them may be damaged.
    """
    with suppress(*_UNREADABLE), begin_transaction(target):
        _copy_rows(source, target, "SELECT * FROM origin NOT INDEXED", (), "origin")
    count = sum(_rescue_session(source, target, session_id) for session_id in _list_session_ids(source))
    with suppress(*_UNREADABLE), begin_transaction(target):
        copy_usage(source, target)
    return count


def _list_session_ids(source: Connection) -> list[str]:
    session_ids: dict[str, None] = {}
    for order in ("ASC", "DESC"):
        with suppress(*_UNREADABLE):
            for (name,) in source.execute(f"SELECT id FROM session NOT INDEXED ORDER BY rowid {order}"):  # noqa: S608 - constants
                if isinstance(name, str):
                    session_ids[name] = None
    return list(session_ids)


def _rescue_session(source: Connection, target: Connection, session_id: str) -> bool:
    """Copy one session with its readable rows. Return True if the session was copied."""
    with suppress(*_UNREADABLE), begin_transaction(target):
        _delete_rows(target, session_id)
        for order in ("ASC", "DESC"):
            for table, key in SESSION_TABLES.items():
                place = f"FROM {table} NOT INDEXED WHERE {key} = ? ORDER BY rowid {order}"
                with suppress(*_UNREADABLE):
                    _copy_rows(source, target, f"SELECT * {place}", (session_id,), table)
        return read_revision(target, session_id) is not None
    return False


def _delete_rows(target: Connection, session_id: str) -> None:
    for table, key in reversed(SESSION_TABLES.items()):
        target.execute(f"DELETE FROM {table} WHERE {key} = ?", (session_id,))  # noqa: S608 - constants


def _copy_rows(source: Connection, target: Connection, query: str, values: tuple[str, ...], table: str) -> None:
    """Copy rows one by one, so that all rows before a damaged row are copied."""
    rows = source.execute(query, values)
    columns = ", ".join('"' + name.replace('"', '""') + '"' for name, *_ in rows.description)
    marks = ", ".join("?" * len(rows.description))
    for row in rows:
        target.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})", row)  # noqa: S608 - names of columns
