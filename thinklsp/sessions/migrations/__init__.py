"""The database schema, with one SQL script per version. For example, `0001_….sql` creates version 1.

Never change a released script. Add a new script for each change of the schema.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files


@cache
def load_migrations() -> Mapping[int, str]:
    """Return the SQL scripts by the schema version that they create."""
    names = sorted(entry.name for entry in files(__package__).iterdir() if entry.name.endswith(".sql"))
    return {int(name[:4]): files(__package__).joinpath(name).read_text("utf-8") for name in names}


def split_statements(script: str) -> Iterator[str]:
    """Split a script into its statements.

    `executescript` is not suitable, because it commits the open transaction first.
    """
    statement = ""
    for line in script.splitlines(keepends=True):
        statement += line
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
    if statement.strip():
        raise ValueError("the last statement of a migration is incomplete")
