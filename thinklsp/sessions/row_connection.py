"""The interface of a database connection that the functions on rows use.

Their SQL works in SQLite and in PostgreSQL: placeholders are question marks, truth values are the integers 0 and 1, and
no statement depends on the database's own functions, except `instr` on bytes, which the schema adds to PostgreSQL.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from typing import Any, Protocol


class Rows(Protocol):
    """The result of a statement. Each row is a tuple with the values of the columns."""

    def fetchone(self) -> Any: ...

    def fetchall(self) -> list[Any]: ...

    def __iter__(self) -> Iterator[Any]: ...


class RowConnection(Protocol):
    """A connection inside a transaction, for example a `sqlite3.Connection`."""

    def execute(self, statement: str, parameters: Sequence[Any] = (), /) -> Rows: ...


def build_corruption_error(message: str) -> sqlite3.DatabaseError:
    """Return an error like the one that SQLite raises for a damaged file."""
    error = sqlite3.DatabaseError(message)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error
