"""`python -m tests.sessions.migrating_sessions`: processes that bring old databases up to date and wait to be killed.

For each line of stdin, a folder, it forks such a process and prints its number. A process writes to the file `told` in
the folder when it begins, and how many seconds it took when it is done.
"""

from __future__ import annotations

import os
import signal
import sqlite3
import sys
import time
from contextlib import closing
from pathlib import Path

from tests.support.stored_sessions import database, fork_for_each_line, run_sql
from thinklsp.sessions.sqlite_store import OpenedDatabase, open_database
from thinklsp.sessions.tables import load_migrations

MIGRATING = (sys.executable, "-m", "tests.sessions.migrating_sessions")
FIXTURES = sorted((Path(__file__).parents[1] / "fixtures" / "sessions").glob("version_*.sql"))
_NEXT = max(load_migrations()) + 1
# Stands for three later versions.
LATER = {
    **load_migrations(),
    _NEXT: "ALTER TABLE session ADD COLUMN colour TEXT;\nUPDATE session SET colour = 'red';",
    _NEXT + 1: "CREATE TABLE more (id INTEGER PRIMARY KEY);\nINSERT INTO more SELECT rowid FROM session;",
    _NEXT + 2: "ALTER TABLE more ADD COLUMN name TEXT;\nUPDATE more SET name = 'x';\n"
    "CREATE INDEX more_by_name ON more (name);",
}


def laid_out(folder: Path, fixture: Path) -> None:
    """Create a database as an older version wrote it."""
    (folder / "sessions").mkdir(mode=0o700)
    with closing(sqlite3.connect(database(folder))) as connection:
        connection.executescript(fixture.read_text("utf-8"))


def version(path: Path) -> int:
    return int(run_sql(path, "PRAGMA user_version")[0][0])


def connection_of(opened_: OpenedDatabase) -> sqlite3.Connection:
    assert opened_.connection is not None, opened_.problems
    return opened_.connection


def check_migrated(folder: Path) -> None:
    """Check that the next process finds the newest schema and all rows, and that every copy has all rows."""
    opened_ = open_database(str(folder), migrations=LATER)
    with closing(connection_of(opened_)) as connection:
        assert opened_.problems == ()
        assert connection.execute("SELECT count(*) FROM message").fetchone() == (4,)
        assert connection.execute("SELECT colour FROM session").fetchall() == [("red",)]
        assert connection.execute("SELECT name FROM more").fetchall() == [("x",)]
    assert version(database(folder)) == max(LATER)
    for copy in database(folder).parent.glob("*.before-version-*"):
        assert run_sql(copy, "SELECT count(*) FROM message") == [(4,)]


def migrate(folder: Path) -> None:
    out = os.open(folder / "told", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    at = time.perf_counter()
    os.write(out, b"begun\n")
    connection_of(open_database(str(folder), migrations=LATER)).close()
    os.write(out, f"{time.perf_counter() - at}\n".encode())
    signal.pause()


if __name__ == "__main__":
    fork_for_each_line(migrate)
