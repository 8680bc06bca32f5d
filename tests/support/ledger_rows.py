"""The ledger of edits as it stands in the file of the store, read without the product."""

from __future__ import annotations

import hashlib
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import NamedTuple


class Row(NamedTuple):
    name: str
    kind: str
    before: str | None
    after: str | None
    outcome: str | None
    undone: bool


def rows(home: Path) -> list[Row]:
    """In the order in which edits were sent. `before` and `after` are digests."""
    with closing(sqlite3.connect(f"file:{home}/state/sessions/sessions.db?mode=ro", uri=True)) as connection:
        found = connection.execute(
            "SELECT uri, kind, before_sha256, after_sha256, outcome, undone FROM ledger ORDER BY made, edit, position"
        ).fetchall()
    return [Row(uri.rpartition("/")[2], kind, *rest, bool(undone)) for uri, kind, *rest, undone in found]


def digest(text: str | None) -> str | None:
    return None if text is None else hashlib.sha256(text.encode()).hexdigest()
