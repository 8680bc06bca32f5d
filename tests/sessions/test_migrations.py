"""Schemas: an old one is brought up to date after a copy, whenever the process dies; a newer one is only read."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.stored_sessions import full_session, opened
from thinklsp.core.errors import SessionError
from thinklsp.core.usage import Usage
from thinklsp.sessions.database import Opened, in_memory, open_database
from thinklsp.sessions.migrations import released, statements
from thinklsp.sessions.session import Session
from thinklsp.sessions.values import UsageReport

FIXTURES = sorted((Path(__file__).parent.parent / "fixtures" / "sessions").glob("version_*.sql"))
# Stands for three later versions.
LATER = {
    **released(),
    3: "ALTER TABLE session ADD COLUMN colour TEXT;\nUPDATE session SET colour = 'red';",
    4: "CREATE TABLE more (id INTEGER PRIMARY KEY);\nINSERT INTO more SELECT rowid FROM session;",
    5: "ALTER TABLE more ADD COLUMN name TEXT;\nUPDATE more SET name = 'x';\nCREATE INDEX more_by_name ON more (name);",
}


def database(folder: Path) -> Path:
    return folder / "sessions" / "sessions.db"


def laid_out(folder: Path, fixture: Path) -> None:
    """A database as an older version has left it."""
    (folder / "sessions").mkdir(mode=0o700)
    with closing(sqlite3.connect(database(folder))) as connection:
        connection.executescript(fixture.read_text("utf-8"))


def version(path: Path) -> int:
    with closing(sqlite3.connect(path)) as connection:
        return int(connection.execute("PRAGMA user_version").fetchone()[0])


def connection_of(opened_: Opened) -> sqlite3.Connection:
    assert opened_.connection is not None, opened_.problems
    return opened_.connection


def test_versions_have_no_gaps_and_every_one_has_a_fixture() -> None:
    assert list(released()) == list(range(1, len(released()) + 1))
    assert [path.stem for path in FIXTURES] == [f"version_{number}" for number in released()]


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
async def test_every_old_schema_becomes_the_newest(fixture: Path, tmp_path: Path) -> None:
    """Each fixture holds the same session, as that version wrote it."""
    laid_out(tmp_path, fixture)
    async with opened(tmp_path) as store:
        [summary] = await store.list(None)
        session = await store.get(summary.id, "w")
        assert session == full_session(Session(summary.id, "w"))
        assert (await store.update(session.id, lambda now: now.with_user("More."))).unanswered
        assert store.problems == ()
    assert version(database(tmp_path)) == max(released())


def test_a_step_keeps_what_there_is_and_a_copy_from_before(tmp_path: Path) -> None:
    laid_out(tmp_path, FIXTURES[0])
    connection = connection_of(open_database(str(tmp_path), migrations=LATER))
    assert connection.execute("SELECT colour FROM session").fetchall() == [("red",)]
    connection.close()
    assert version(database(tmp_path)) == 5
    [copy] = database(tmp_path).parent.glob("*.before-version-*")
    assert (version(copy), copy.stat().st_mode & 0o777) == (1, 0o600)
    with closing(sqlite3.connect(copy)) as kept:
        assert kept.execute("SELECT count(*) FROM message").fetchone() == (4,)


def test_a_new_file_needs_no_copy(tmp_path: Path) -> None:
    connection_of(open_database(str(tmp_path))).close()
    assert list(database(tmp_path).parent.glob("*before*")) == []


def test_a_step_that_fails_changes_nothing(tmp_path: Path) -> None:
    laid_out(tmp_path, FIXTURES[0])
    broken: Mapping[int, str] = {**released(), 3: "ALTER TABLE session ADD COLUMN x;\nDROP TABLE message;\nBROKEN;"}
    opened_ = open_database(str(tmp_path), migrations=broken)
    assert opened_.connection is None
    assert "syntax error" in opened_.problems[0]
    connection = connection_of(open_database(str(tmp_path)))
    assert connection.execute("SELECT count(*) FROM message").fetchone() == (4,)
    connection.close()


_MIGRATING = """
import sys
from tests.sessions.test_migrations import LATER
from thinklsp.sessions.database import open_database
print("ready", flush=True)
open_database(sys.argv[1], migrations=LATER).connection.close()
print("done", flush=True)
"""


@pytest.mark.parametrize("delay", range(6))
def test_a_process_that_dies_in_a_step_leaves_the_old_schema_or_the_new_one(delay: int, tmp_path: Path) -> None:
    laid_out(tmp_path, FIXTURES[0])
    child = subprocess.Popen(
        [sys.executable, "-c", _MIGRATING, str(tmp_path)], stdout=subprocess.PIPE, cwd=Path(__file__).parents[2]
    )
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    try:
        child.wait(delay * 0.004)
    except subprocess.TimeoutExpired:
        os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    opened_ = open_database(str(tmp_path), migrations=LATER)
    connection = connection_of(opened_)
    assert connection.execute("SELECT count(*) FROM message").fetchone() == (4,)
    assert connection.execute("SELECT name FROM more").fetchall() == [("x",)]
    assert opened_.problems == ()
    connection.close()


async def test_a_store_of_the_future_is_read_and_not_written(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        old = await store.update((await store.create("w")).id, full_session)
    with closing(sqlite3.connect(database(tmp_path))) as connection:
        connection.execute("PRAGMA user_version = 99")
    before = database(tmp_path).read_bytes()
    async with opened(tmp_path) as store:
        assert await store.get(old.id, "w") == old
        changed = await store.update(old.id, lambda now: now.with_user("More."))
        assert await store.get(old.id, "w") == changed, "it goes on in memory"
        new = await store.update((await store.create("w")).id, full_session)
        assert {summary.id for summary in await store.list("w")} == {old.id, new.id}
        [problem] = store.problems
        assert "newer thinklsp" in problem
        assert (await store.condition()).kind == "read-only"
        with pytest.raises(SessionError, match="cannot be deleted"):
            await store.delete(old.id, "w")
    assert database(tmp_path).read_bytes() == before


async def test_a_store_of_the_future_that_cannot_be_understood_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir(mode=0o700)
    with closing(sqlite3.connect(database(tmp_path))) as connection:
        connection.executescript("CREATE TABLE session (other TEXT); PRAGMA user_version = 99;")
    async with opened(tmp_path) as store:
        with pytest.raises(SessionError, match="newer version"):
            await store.get("x", "w")
        assert await store.list("w") == ()
        assert await store.usage(None) == UsageReport(Usage(), {}, {}, {})
        assert (await store.unknown_edits("w"), await store.last_written("w")) == ((), None)
        new = await store.update((await store.create("w")).id, full_session)
        assert await store.latest("w") == new


def test_statements_are_told_apart() -> None:
    assert [one.split()[0] for one in statements("CREATE TABLE a (\n b\n);\nSELECT ';';\n")] == ["CREATE", "SELECT"]
    with pytest.raises(ValueError, match="complete"):
        list(statements("SELECT 1"))
    with closing(in_memory()) as connection:
        assert connection.execute("PRAGMA user_version").fetchone() == (max(released()),)
