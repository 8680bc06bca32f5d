"""Sessions from one database to another, row by row: sound ones as they are, damaged ones as far as can be read."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable
from contextlib import suppress
from sqlite3 import Connection

from thinklsp.sessions import spending
from thinklsp.sessions.rows import SESSION_TABLES, key_of, read_revision
from thinklsp.sessions.transaction import transaction

_UNREADABLE = (sqlite3.Error, UnicodeError)


def copy_session(source: Connection, target: Connection, session_id: str) -> None:
    """Copy every row of a session in place of what the target has of it. The source may be of an older version, whose
    tables lack the newest columns."""
    present = {name for (name,) in source.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")}
    _forget(target, session_id)
    _copy(source, target, "SELECT * FROM origin", (), "origin")
    for table in (table for table in SESSION_TABLES if table in present):
        _copy(source, target, f"SELECT * FROM {table} WHERE {key_of(table)} = ?", (session_id,), table)  # noqa: S608 - constants


def copy_newer(source: Connection, target: Connection, session_ids: Iterable[str]) -> None:
    """Copy sessions, except those that another process has copied earlier and continued in the target."""
    for session_id in session_ids:
        if (read_revision(target, session_id) or 0) <= (read_revision(source, session_id) or 0):
            copy_session(source, target, session_id)


def copy_readable(source: Connection, target: Connection, session_id: str, *, with_usage: bool) -> bool:
    """Copy a session as far as it can be read. Return whether all of it was."""
    try:
        copy_session(source, target, session_id)
        if with_usage:
            spending.copy(source, target, session_id)
    except sqlite3.Error:
        return False
    return True


def salvage(source: Connection, target: Connection) -> int:
    """How many sessions could be brought over. The tables are read from both ends, and without their indexes, which
    may find rows of other sessions; what a row itself has lost is found by its checksum.
    """
    with suppress(*_UNREADABLE), transaction(target):
        _copy(source, target, "SELECT * FROM origin NOT INDEXED", (), "origin")
    saved = sum(_saved(source, target, session_id) for session_id in _names(source))
    with suppress(*_UNREADABLE), transaction(target):
        spending.move(source, target)
    return saved


def _names(source: Connection) -> list[str]:
    found: dict[str, None] = {}
    for order in ("ASC", "DESC"):
        with suppress(*_UNREADABLE):
            for (name,) in source.execute(f"SELECT id FROM session NOT INDEXED ORDER BY rowid {order}"):  # noqa: S608 - constants
                if isinstance(name, str):
                    found[name] = None
    return list(found)


def _saved(source: Connection, target: Connection, session_id: str) -> bool:
    """Its rows in other tables come as far as they can be read."""
    with suppress(*_UNREADABLE), transaction(target):
        _forget(target, session_id)
        for order in ("ASC", "DESC"):
            for table in SESSION_TABLES:
                place = f"FROM {table} NOT INDEXED WHERE {key_of(table)} = ? ORDER BY rowid {order}"
                with suppress(*_UNREADABLE):
                    _copy(source, target, f"SELECT * {place}", (session_id,), table)
        return read_revision(target, session_id) is not None
    return False


def _forget(target: Connection, session_id: str) -> None:
    for table in reversed(SESSION_TABLES):
        target.execute(f"DELETE FROM {table} WHERE {key_of(table)} = ?", (session_id,))  # noqa: S608 - constants


def _copy(source: Connection, target: Connection, query: str, values: tuple[str, ...], table: str) -> None:
    """Row by row: when one cannot be read, those before it are there."""
    rows = source.execute(query, values)
    columns = ", ".join('"' + name.replace('"', '""') + '"' for name, *_ in rows.description)
    marks = ", ".join("?" * len(rows.description))
    for row in rows:
        target.execute(f"INSERT OR IGNORE INTO {table} ({columns}) VALUES ({marks})", row)  # noqa: S608 - names of columns
