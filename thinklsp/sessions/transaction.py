"""Transactions over one connection, and damage that SQLite does not see, told as it tells its own."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from sqlite3 import Connection


@contextmanager
def transaction(connection: Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """Raises sqlite3.Error."""
    try:
        connection.execute(f"BEGIN {kind}")
        yield
        connection.execute("COMMIT")
    except UnicodeDecodeError:
        raise corrupt("what SQLite wanted to say held a piece of the damage") from None
    finally:
        if connection.in_transaction:
            with suppress(sqlite3.Error):
                connection.execute("ROLLBACK")


def expect_rows(
    connection: Connection, query: str, place: tuple[str | int, ...], rows: Sequence[tuple[str | int, ...]]
) -> None:
    """Reads back what was written. In a damaged file a new row can take the number of an old one, so that its index
    finds the old one. SQLite sees nothing wrong with that; for us it is damage like any other.
    """
    if connection.execute(query, place).fetchall() != rows:
        raise corrupt("an index finds other rows than those that were written")


def corrupt(what: str) -> sqlite3.DatabaseError:
    """The error that SQLite raises for a damaged file."""
    error = sqlite3.DatabaseError(what)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error
