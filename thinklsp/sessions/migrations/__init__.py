"""The schemas of the store, one file for each step: `0001_…` leads from an empty file to version 1.

A file that has been released is never changed again; a new schema is a new file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files


@cache
def released() -> Mapping[int, str]:
    """The SQL that leads to each version."""
    names = sorted(entry.name for entry in files(__package__).iterdir() if entry.name.endswith(".sql"))
    return {int(name[:4]): files(__package__).joinpath(name).read_text("utf-8") for name in names}


def statements(script: str) -> Iterator[str]:
    """The statements of a script. `executescript` would commit in front of each script, and so tear a migration."""
    gathered = ""
    for line in script.splitlines(keepends=True):
        gathered += line
        if sqlite3.complete_statement(gathered):
            yield gathered
            gathered = ""
    if gathered.strip():
        raise ValueError("the last statement of a migration is not complete")
