"""Schemas: an old one is brought up to date after a copy, whenever the process dies; a newer one is only read."""

from __future__ import annotations

import asyncio
import os
import sqlite3
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from tests.slow.running import say
from tests.support.migrating_sessions import (
    FIXTURES,
    LATER,
    MIGRATING,
    check_migrated,
    connection_of,
    laid_out,
    version,
)
from tests.support.sizes import SEED, tries
from tests.support.stored_sessions import database, full_session, opened
from tests.support.writing_sessions import Writers, gone, told, until_told, writers
from thinklsp.core.errors import SessionError
from thinklsp.core.usage import Usage
from thinklsp.sessions.database import in_memory, open_database
from thinklsp.sessions.migrations import released, statements
from thinklsp.sessions.session import Session
from thinklsp.sessions.values import UsageReport


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
        assert replace(session, prompts=()) == full_session(Session(summary.id, "w"))
        assert [prompt.text for prompt in session.prompts] == (["Stopped."] if fixture.stem >= "version_3" else [])
        assert (await store.update(session.id, lambda now: now.with_user("More."))).unanswered
        assert store.problems == ()
    assert version(database(tmp_path)) == max(released())


def test_a_step_keeps_what_there_is_and_a_copy_from_before(tmp_path: Path) -> None:
    laid_out(tmp_path, FIXTURES[0])
    connection = connection_of(open_database(str(tmp_path), migrations=LATER))
    assert connection.execute("SELECT colour FROM session").fetchall() == [("red",)]
    connection.close()
    assert version(database(tmp_path)) == max(LATER)
    [copy] = database(tmp_path).parent.glob("*.before-version-*")
    assert (version(copy), copy.stat().st_mode & 0o777) == (1, 0o600)
    with closing(sqlite3.connect(copy)) as kept:
        assert kept.execute("SELECT count(*) FROM message").fetchone() == (4,)


def test_a_new_file_needs_no_copy(tmp_path: Path) -> None:
    connection_of(open_database(str(tmp_path))).close()
    assert list(database(tmp_path).parent.glob("*before*")) == []


def test_a_step_that_fails_changes_nothing(tmp_path: Path) -> None:
    laid_out(tmp_path, FIXTURES[0])
    step = "ALTER TABLE session ADD COLUMN x;\nDROP TABLE message;\nBROKEN;"
    broken: Mapping[int, str] = {**released(), max(LATER): step}
    opened_ = open_database(str(tmp_path), migrations=broken)
    assert opened_.connection is None
    assert "syntax error" in opened_.problems[0]
    connection = connection_of(open_database(str(tmp_path)))
    assert connection.execute("SELECT count(*) FROM message").fetchone() == (4,)
    connection.close()


async def killed(folder: Path, fixture: Path, source: Writers, after: float | None) -> float:
    """A process brings it up to date and is killed so many seconds after it has begun. None: when it is done; how many
    it took then."""
    os.mkdir(folder, mode=0o700)
    laid_out(folder, fixture)
    pid = source.start(folder)
    await until_told(folder, 1 if after is not None else 2)
    if after is not None:
        await asyncio.sleep(after)
    source.kill(pid)
    await gone(pid)
    return float(told(folder)[-1]) if after is None else 0.0


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
async def test_a_process_that_dies_in_a_step_leaves_the_old_schema_or_the_new_one(
    fixture: Path, tmp_path: Path, tally: Callable[[str, int], None]
) -> None:
    count, chance, versions = tries("A-17", 1 / len(FIXTURES)) + 1, Random(SEED), Counter[int]()
    with writers(MIGRATING) as source:
        whole = max([await killed(tmp_path / f"whole{n}", fixture, source, None) for n in range(3)])
        for number in range(count):
            folder = tmp_path / str(number)
            await killed(folder, fixture, source, chance.uniform(0, whole))
            versions[version(database(folder))] += 1
            check_migrated(folder)
    say(f"{count} kills in {whole * 1000:.0f} ms, at these versions: {dict(sorted(versions.items()))}")
    tally("A-17", count)


def test_a_step_that_was_made_by_halves_is_noticed(tmp_path: Path) -> None:
    laid_out(tmp_path, FIXTURES[-1])
    with closing(sqlite3.connect(database(tmp_path))) as connection, connection:
        connection.execute("ALTER TABLE session ADD COLUMN colour TEXT")
    with pytest.raises(AssertionError):
        check_migrated(tmp_path)


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
