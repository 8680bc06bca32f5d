"""kill -9 at random points: what was acknowledged is there, whole. More points in tests/slow."""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from random import Random

import pytest

from tests.support.stored_sessions import full_session, one_turn, opened
from tests.support.writing_sessions import check_survival, gone, killed_at, told, until_told, writers
from thinklsp.core.errors import SessionError

POINTS = 30


async def test_a_killed_process_loses_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    random = Random(5)
    counts = []
    with writers() as source:
        for point in range(POINTS):
            folder = tmp_path / str(point)
            folder.mkdir(mode=0o700)
            counts.append(await killed_at(folder, source, random))
            assert await check_survival(folder) < 1.0
            shutil.rmtree(folder)
    assert len({*counts}) > POINTS // 3, "the points were all the same"


async def test_a_second_process_reads_and_does_not_write_until_the_first_is_gone(tmp_path: Path) -> None:
    with writers() as source:
        pid = source.start(tmp_path)
        session_id = (await until_told(tmp_path, 10))[0].split()[1]
        async with opened(tmp_path) as store:
            before = await store.get(session_id, "w")
            for writing in (
                lambda: store.update(session_id, lambda now: now.with_user("Mine.")),
                lambda: store.delete(session_id, "w"),
                lambda: store.compact(session_id, lambda now: now, ""),
                lambda: store.restore(session_id, "any", lambda message: message),
                lambda: store.intend(session_id, "w", "t", ()),
            ):
                with pytest.raises(SessionError, match=rf"in use by another thinklsp \(process {pid}\)\. Fork it"):
                    await writing()
            await until_told(tmp_path, len(told(tmp_path)) + 10)
            assert (await store.get(session_id, "w")).steps > before.steps
            fork = await store.fork(session_id, "w")
            assert (await store.update(fork.id, lambda now: now.with_user("Mine."))).unanswered
            source.kill(pid)
            await gone(pid)
            mine = await store.update(session_id, lambda now: now.with_user("Mine now."))
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


async def test_a_turn_that_a_dead_process_left_is_recovered_by_the_next_one(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        session = await store.update((await store.create("w")).id, full_session)
        asked = await store.update(session.id, lambda now: now.with_user("Never answered."))
        assert await store.get(session.id, "w") == asked
    async with opened(tmp_path) as store:
        assert await store.get(session.id, "w") == asked, "reading changes nothing"
        after = await store.update(session.id, lambda now: now.with_choices({"effort": "low"}))
        assert after.conversation == session.conversation
        again = await store.update(session.id, lambda now: now.with_user("Asked."))
        assert (await store.update(session.id, lambda now: now.with_choices({}))).unanswered, "its own turn goes on"
    assert again.conversation[:-1] == session.conversation


async def test_no_locks_are_left_behind(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        for _ in range(70):
            await store.update((await store.create("w")).id, full_session)
        assert len(os.listdir(tmp_path / "sessions" / "locks")) <= 65, "a lease costs a descriptor"
    assert {*os.listdir(tmp_path / "sessions" / "locks")} <= {"opening"}
