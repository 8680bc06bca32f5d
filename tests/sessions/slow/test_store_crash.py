"""The SQLite store after kill -9, removed files and a cut log: every acknowledged step is complete."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from tests.sessions.test_store_damage import copied
from tests.support.scripted_model import check_sendable
from tests.support.stored_sessions import (
    EDIT,
    SPENT,
    check_survival,
    database,
    files_of,
    full_session,
    gone,
    one_turn,
    opened,
    opened_with_session,
    run_sql,
    told,
    until_told,
    writers,
)
from thinklsp.core.errors import SessionError

CUTS = 25


async def test_second_process_cannot_write_until_first_exits(tmp_path: Path) -> None:
    with writers() as source:
        pid = source.start(tmp_path)
        session_id = (await until_told(tmp_path, 10))[0].split()[1]
        async with opened(tmp_path) as store:
            before = await store.get(session_id, "w")
            for writing in (
                lambda: store.update(session_id, lambda now: now.add_user_message("Mine.")),
                lambda: store.delete(session_id, "w"),
                lambda: store.compact(session_id, lambda now: now, ""),
                lambda: store.restore_archive(session_id, "any", lambda message: message),
                lambda: store.record_intent(session_id, "w", "t", ()),
            ):
                with pytest.raises(SessionError, match=rf"in use by another thinklsp \(process {pid}\)\. Fork it"):
                    await writing()
            await until_told(tmp_path, len(told(tmp_path)) + 10)
            assert (await store.get(session_id, "w")).steps > before.steps
            fork = await store.fork(session_id, "w")
            assert (await store.update(fork.id, lambda now: now.add_user_message("Mine."))).unanswered
            source.kill(pid)
            await gone(pid)
            mine = await store.update(session_id, lambda now: now.add_user_message("Mine now."))
            assert mine.steps >= before.steps
            assert "Mine now." in mine.conversation[-1].blocks[-1].text  # type: ignore[union-attr]  # a prompt


async def test_two_stores_take_turns_with_a_session(tmp_path: Path) -> None:
    async with opened(tmp_path) as first, opened(tmp_path) as second:
        session = await first.update((await first.create("w")).id, lambda now: one_turn(0, now))
        with pytest.raises(SessionError, match="in use"):
            await second.update(session.id, lambda now: one_turn(1, now))
        assert await second.get(session.id, "w") == session
        await first.release(session.id)
        changed = await second.update(session.id, lambda now: one_turn(1, now))
        assert await first.get(session.id, "w") == changed, "not what it remembers"
        with pytest.raises(SessionError, match="in use"):
            await first.update(session.id, lambda now: one_turn(2, now))
        await second.delete(session.id, "w")
        with pytest.raises(SessionError, match="deleted"):
            await first.update(session.id, lambda now: one_turn(2, now))


async def test_turn_of_dead_process_is_recovered_by_the_next(tmp_path: Path) -> None:
    async with opened_with_session(tmp_path) as (store, session):
        asked = await store.update(session.id, lambda now: now.add_user_message("Never answered."))
        assert await store.get(session.id, "w") == asked
    async with opened(tmp_path) as store:
        assert await store.get(session.id, "w") == asked, "reading changes nothing"
        after = await store.update(session.id, lambda now: now.add_choices({"effort": "low"}))
        assert after.conversation == session.conversation
        again = await store.update(session.id, lambda now: now.add_user_message("Asked."))
        assert (await store.update(session.id, lambda now: now.add_choices({}))).unanswered, "its own turn goes on"
    assert again.conversation[:-1] == session.conversation


async def test_no_locks_are_left_behind(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for _ in range(70):
            await store.update((await store.create("w")).id, full_session)
        assert len(os.listdir(tmp_path / "sessions" / "locks")) <= 65, "a lease costs a descriptor"
    assert {*os.listdir(tmp_path / "sessions" / "locks")} <= {"opening"}


def replace_with_nothing(folder: Path) -> None:
    (folder / "empty").touch(mode=0o600)
    (folder / "empty").replace(database(folder))


def replace_with_older_copy(folder: Path) -> None:
    with closing(sqlite3.connect(database(folder))) as source, closing(sqlite3.connect(folder / "copy")) as copy:
        source.backup(copy)
        copy.execute("UPDATE session SET revision = 1, title = 'old'")
        copy.commit()
    (folder / "copy").chmod(0o600)
    (folder / "copy").replace(database(folder))


WAYS: dict[str, Callable[[Path], object]] = {
    "the state folder is gone": shutil.rmtree,
    "the folder is gone": lambda folder: shutil.rmtree(folder / "sessions"),
    "the database is gone": lambda folder: database(folder).unlink(),
    "the log is gone": lambda folder: Path(f"{database(folder)}-wal").unlink(),
    "what others share is gone": lambda folder: Path(f"{database(folder)}-shm").unlink(),
    "moved away": lambda folder: database(folder).rename(folder / "moved.db"),
    "replaced by nothing": replace_with_nothing,
    "replaced by an older copy": replace_with_older_copy,
}


@pytest.mark.parametrize("way", WAYS)
async def test_sessions_in_use_are_saved_again(way: str, tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with opened(state) as store:
        session = await store.update((await store.create("w")).id, full_session, SPENT)
        idle = await store.update((await store.create("w")).id, full_session, SPENT)
        await store.release(idle.id)
        deleted = await store.update((await store.create("w")).id, full_session)
        await store.delete(deleted.id, "w")
        intent = await store.record_intent(session.id, "w", "t", (EDIT,))
        WAYS[way](state)
        grown = await store.update(session.id, lambda now: one_turn(0, now), SPENT)
        await store.settle_edit(intent, {EDIT.uri: "applied"})
        [told] = store.problems
        assert "while it was in use" in told
        # Others find it locked at the new place, too.
        async with opened(state) as other:
            with pytest.raises(SessionError, match="in use by another thinklsp"):
                await other.update(session.id, lambda now: now.add_user_message("Mine."))
            assert await other.get(session.id, "w") == grown
        assert (await store.read_status()).kind == "file"
        # As after a kill: what was told is on disk already.
        copied = tmp_path / "copied"
        shutil.copytree(state, copied)
        async with opened(copied) as after:
            assert after.problems == ()
            assert await after.get(session.id, "w") == grown
            assert await after.get(idle.id, "w") == idle
            assert {summary.id for summary in await after.list_sessions(None)} == {session.id, idle.id}
    assert {path.stat().st_mode & 0o077 for path in files_of(state / "sessions")} == {0}


async def test_a_database_that_was_moved_is_left_whole(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with opened_with_session(state) as (store, session):
        database(state).rename(state / "moved.db")
        await store.update(session.id, lambda now: one_turn(0, now))
        assert run_sql(state / "moved.db", "SELECT steps FROM session") == [(2,)]


async def test_two_processes_do_not_overwrite_each_other(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with opened(state) as first, opened(state) as second:
        session = await first.update((await first.create("w")).id, full_session)
        await first.release(session.id)
        mine = await first.update((await first.create("w")).id, full_session)
        await second.update(session.id, lambda now: one_turn(0, now))
        shutil.rmtree(state / "sessions")
        grown = await second.update(session.id, lambda now: one_turn(1, now))
        await second.release(session.id)
        mine = await first.update(mine.id, lambda now: one_turn(2, now))
        for store in (first, second):
            assert await store.get(session.id, "w") == grown
            assert await store.get(mine.id, "w") == mine
        assert (await first.update(session.id, lambda now: one_turn(3, now))).steps == grown.steps + 2


async def test_a_folder_that_cannot_be_made_again_is_tried_again(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with opened_with_session(state, retry_seconds=0.0) as (store, session):
        shutil.rmtree(state)
        state.write_text("in the way")
        session = await store.update(session.id, lambda now: one_turn(0, now))
        assert (await store.read_status()).kind == "memory"
        assert ["was removed" in problem or "is not a folder" in problem for problem in store.problems] == [True, True]
        state.unlink()
        session = await store.update(session.id, lambda now: one_turn(1, now))
        assert (await store.read_status()).kind == "file"
        assert len(store.problems) == 3
    async with opened(state) as store:
        assert await store.get(session.id, "w") == session


async def test_new_database_ignores_files_of_a_lost_one(tmp_path: Path) -> None:
    """The previous process was killed, and only its log is left."""
    state = tmp_path / "state"
    async with opened_with_session(state) as (store, _):
        shutil.copytree(state, tmp_path / "left")
    database(tmp_path / "left").unlink()
    async with opened(tmp_path / "left") as store:
        assert await store.list_sessions(None) == ()
        await store.update((await store.create("w")).id, full_session)
        assert store.problems == ()


async def test_a_log_that_was_cut_keeps_the_commits_before_the_cut(tmp_path: Path) -> None:
    """A power failure can cut the log anywhere; here, it is cut in its second half."""
    random = Random(11)
    folder = tmp_path / "original"
    folder.mkdir(mode=0o700)
    with writers() as source:
        pid = source.start(folder)
        await until_told(folder, 60)
        source.kill(pid)
        await gone(pid)
    await check_survival(copied(folder, tmp_path / "whole"))
    log = (folder / "sessions" / "sessions.db-wal").read_bytes()
    session_id = (folder / "told").read_text().split()[1]
    steps = []
    for number in range(CUTS):
        copy = copied(folder, tmp_path / f"cut{number}")
        part = len(log) // 2 // CUTS
        cut = len(log) - number * part - random.randrange(part)
        (copy / "sessions" / "sessions.db-wal").write_bytes(log[:cut])
        (copy / "sessions" / "sessions.db-shm").unlink(missing_ok=True)
        async with opened(copy) as store:
            session = await store.update(session_id, lambda now: now.add_user_message("More."))
            check_sendable(session.conversation)
            assert store.problems == ()
            steps.append((cut, session.steps))
    assert [count for _, count in sorted(steps)] == sorted(count for _, count in steps)
    assert len({count for _, count in steps}) > 1
