"""Migrations: an old schema is updated after a backup, and a newer one is only read."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.sessions.migrating_sessions import (
    FIXTURES,
    LATER,
    check_migrated,
    connection_of,
    laid_out,
    version,
)
from tests.support.stored_sessions import database, full_session, opened, run_sql
from thinklsp.core.errors import SessionError
from thinklsp.core.usage import Usage
from thinklsp.sessions.session import Session
from thinklsp.sessions.spending import UsageReport
from thinklsp.sessions.sqlite_store import open_database
from thinklsp.sessions.tables import load_migrations


def test_versions_have_no_gaps_and_every_one_has_a_fixture() -> None:
    assert list(load_migrations()) == list(range(1, len(load_migrations()) + 1))
    assert [path.stem for path in FIXTURES] == [f"version_{number}" for number in load_migrations()]


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
async def test_every_old_schema_becomes_the_newest(fixture: Path, tmp_path: Path) -> None:
    """Each fixture contains the same session as written by its version."""
    laid_out(tmp_path, fixture)
    async with opened(tmp_path) as store:
        [summary] = await store.list_sessions(None)
        session = await store.get(summary.id, "w")
        assert replace(session, prompts=()) == full_session(Session(summary.id, "w"))
        assert [prompt.text for prompt in session.prompts] == (["Stopped."] if fixture.stem >= "version_3" else [])
        assert (await store.update(session.id, lambda now: now.add_user_message("More."))).unanswered
        assert store.problems == ()
    assert version(database(tmp_path)) == max(load_migrations())


def test_a_step_keeps_what_there_is_and_a_copy_from_before(tmp_path: Path) -> None:
    laid_out(tmp_path, FIXTURES[0])
    connection_of(open_database(str(tmp_path), migrations=LATER)).close()
    assert run_sql(database(tmp_path), "SELECT colour FROM session") == [("red",)]
    assert version(database(tmp_path)) == max(LATER)
    [copy] = database(tmp_path).parent.glob("*.before-version-*")
    assert (version(copy), copy.stat().st_mode & 0o777) == (1, 0o600)
    assert run_sql(copy, "SELECT count(*) FROM message") == [(4,)]


def test_a_step_that_fails_changes_nothing(tmp_path: Path) -> None:
    laid_out(tmp_path, FIXTURES[0])
    step = "ALTER TABLE session ADD COLUMN x;\nDROP TABLE message;\nBROKEN;"
    opened_ = open_database(str(tmp_path), migrations={**load_migrations(), max(LATER): step})
    assert opened_.connection is None
    assert "syntax error" in opened_.problems[0]
    connection_of(open_database(str(tmp_path))).close()
    assert run_sql(database(tmp_path), "SELECT count(*) FROM message") == [(4,)]


def test_a_step_that_was_made_by_halves_is_noticed(tmp_path: Path) -> None:
    laid_out(tmp_path, FIXTURES[-1])
    run_sql(database(tmp_path), "ALTER TABLE session ADD COLUMN colour TEXT")
    with pytest.raises(AssertionError):
        check_migrated(tmp_path)


async def test_a_store_of_the_future_is_read_and_not_written(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        old = await store.update((await store.create("w")).id, full_session)
    run_sql(database(tmp_path), "PRAGMA user_version = 99")
    before = database(tmp_path).read_bytes()
    async with opened(tmp_path) as store:
        assert await store.get(old.id, "w") == old
        changed = await store.update(old.id, lambda now: now.add_user_message("More."))
        assert await store.get(old.id, "w") == changed, "it goes on in memory"
        new = await store.update((await store.create("w")).id, full_session)
        assert {summary.id for summary in await store.list_sessions("w")} == {old.id, new.id}
        [problem] = store.problems
        assert "newer version of thinklsp" in problem
        assert (await store.read_status()).kind == "read-only"
        with pytest.raises(SessionError, match="cannot be deleted"):
            await store.delete(old.id, "w")
    assert database(tmp_path).read_bytes() == before


async def test_store_of_a_newer_version_is_not_touched(tmp_path: Path) -> None:
    (tmp_path / "sessions").mkdir(mode=0o700)
    with closing(sqlite3.connect(database(tmp_path))) as connection:
        connection.executescript("CREATE TABLE session (other TEXT); PRAGMA user_version = 99;")
    async with opened(tmp_path) as store:
        with pytest.raises(SessionError, match="no such session"):
            await store.get("x", "w")
        assert "newer version" in store.problems[0]
        assert await store.list_sessions("w") == ()
        assert await store.report_usage(None) == UsageReport(Usage(), {}, {}, {})
        assert (await store.list_unknown_edits("w"), await store.find_written_turn("w")) == ((), None)
        new = await store.update((await store.create("w")).id, full_session)
        assert await store.find_latest("w") == new
