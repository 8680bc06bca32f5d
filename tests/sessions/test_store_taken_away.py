"""Files of the store that somebody takes away or replaces at work: it is noticed, told, and nothing written is lost."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from tests.support.stored_sessions import USAGE, connection_of, files_of, full_session, one_turn, opened
from thinklsp.core.errors import SessionError
from thinklsp.sessions.ledger import PlannedWrite
from thinklsp.sessions.values import Spent

SPENT = Spent("t", "p", "m", USAGE)
EDIT = PlannedWrite("file:///a", "a", "1", "2")
Take = Callable[[Path], object]


def database(folder: Path) -> Path:
    return folder / "sessions" / "sessions.db"


def the_state_folder(folder: Path) -> None:
    shutil.rmtree(folder)


def the_folder(folder: Path) -> None:
    shutil.rmtree(folder / "sessions")


def the_database(folder: Path) -> None:
    database(folder).unlink()


def the_log(folder: Path) -> None:
    Path(f"{database(folder)}-wal").unlink()


def what_others_share(folder: Path) -> None:
    Path(f"{database(folder)}-shm").unlink()


def moved_away(folder: Path) -> None:
    database(folder).rename(folder / "moved.db")


def replaced_by_nothing(folder: Path) -> None:
    (folder / "empty").touch(mode=0o600)
    (folder / "empty").replace(database(folder))


def replaced_by_an_older_copy(folder: Path) -> None:
    with closing(sqlite3.connect(database(folder))) as source, closing(sqlite3.connect(folder / "copy")) as copy:
        source.backup(copy)
        copy.execute("UPDATE session SET revision = 1, title = 'old'")
        copy.commit()
    (folder / "copy").chmod(0o600)
    (folder / "copy").replace(database(folder))


WAYS: list[Take] = [
    the_state_folder, the_folder, the_database, the_log, what_others_share, moved_away, replaced_by_nothing,
    replaced_by_an_older_copy,
]  # fmt: skip


@pytest.mark.parametrize("take", WAYS, ids=lambda take: take.__name__)
async def test_what_this_process_has_written_stays(take: Take, tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with opened(state) as store:
        session = await store.update((await store.create("w")).id, full_session, SPENT)
        short, archive = await store.compact(session.id, lambda now: now.compacted(now.conversation[-2:]), "short")
        idle = await store.update((await store.create("w")).id, full_session, SPENT)
        await store.release(idle.id)
        deleted = await store.update((await store.create("w")).id, full_session)
        await store.delete(deleted.id, "w")
        intent = await store.intend(session.id, "w", "t", (EDIT,))
        before = (await store.usage(session.id)).total
        take(state)
        grown = await store.update(session.id, lambda now: one_turn(0, now), SPENT)
        await store.settle(intent, {EDIT.uri: "applied"})
        [told] = store.problems
        assert "while it was in use" in told
        # Others find it locked at the new place, too.
        async with opened(state) as other:
            with pytest.raises(SessionError, match="in use by another thinklsp"):
                await other.update(session.id, lambda now: now.with_user("Mine."))
            assert await other.get(session.id, "w") == grown
        assert (await store.condition()).kind == "file"
        # As after a kill: what was told is on disk already.
        copied = tmp_path / "copied"
        shutil.copytree(state, copied)
        async with opened(copied) as after:
            assert after.problems == ()
            assert await after.get(session.id, "w") == grown
            assert await after.get(idle.id, "w") == idle
            assert {summary.id for summary in await after.list(None)} == {session.id, idle.id}
            assert (await after.archived(session.id, archive)).conversation == session.conversation
            assert (await after.usage(session.id)).total == before + USAGE
            assert (await after.last_written("w")) is not None
    assert {path.stat().st_mode & 0o077 for path in files_of(state / "sessions")} == {0}
    assert short.id == session.id


async def test_a_database_that_was_moved_is_left_whole(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with opened(state) as store:
        session = await store.update((await store.create("w")).id, full_session)
        moved_away(state)
        await store.update(session.id, lambda now: one_turn(0, now))
        with closing(sqlite3.connect(state / "moved.db")) as moved:
            assert moved.execute("SELECT steps FROM session").fetchall() == [(2,)]


async def test_of_two_processes_neither_overwrites_what_the_other_has_brought(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with opened(state) as first, opened(state) as second:
        session = await first.update((await first.create("w")).id, full_session)
        await first.release(session.id)
        mine = await first.update((await first.create("w")).id, full_session)
        await second.update(session.id, lambda now: one_turn(0, now))
        the_folder(state)
        grown = await second.update(session.id, lambda now: one_turn(1, now))
        await second.release(session.id)
        mine = await first.update(mine.id, lambda now: one_turn(2, now))
        for store in (first, second):
            assert await store.get(session.id, "w") == grown
            assert await store.get(mine.id, "w") == mine
        assert (await first.update(session.id, lambda now: one_turn(3, now))).steps == grown.steps + 2


async def test_a_folder_that_cannot_be_made_again_is_tried_again(tmp_path: Path) -> None:
    state = tmp_path / "state"
    async with opened(state, retry_after=0.0) as store:
        session = await store.update((await store.create("w")).id, full_session)
        the_state_folder(state)
        state.write_text("in the way")
        session = await store.update(session.id, lambda now: one_turn(0, now))
        assert (await store.condition()).kind == "memory"
        assert ["was removed" in problem or "is not a folder" in problem for problem in store.problems] == [True, True]
        state.unlink()
        session = await store.update(session.id, lambda now: one_turn(1, now))
        assert (await store.condition()).kind == "file"
        assert len(store.problems) == 3
    async with opened(state) as store:
        assert await store.get(session.id, "w") == session


async def test_what_a_lost_database_has_left_behind_is_no_part_of_a_new_one(tmp_path: Path) -> None:
    """The process that had it was killed: only its log is still there."""
    state = tmp_path / "state"
    async with opened(state) as store:
        await store.update((await store.create("w")).id, full_session)
        shutil.copytree(state, tmp_path / "left")
    the_database(tmp_path / "left")
    async with opened(tmp_path / "left") as store:
        assert await store.list(None) == ()
        await store.update((await store.create("w")).id, full_session)
        assert store.problems == ()


async def test_files_that_are_still_there_are_not_opened_again(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        await store.update((await store.create("w")).id, full_session)
        file = connection_of(store)
        for _ in range(3):
            await store.list("w")
        assert connection_of(store) is file
