"""Worker processes: what they compute, and that nothing that they do lasts longer than it may."""

from __future__ import annotations

import asyncio
import operator
import os
import re
import time

import pytest

from thinklsp.workers import WorkFailed, child, run_in_worker


async def test_a_worker_returns_what_the_function_returns() -> None:
    text = "a\ud800é🙂\n\0"
    assert await run_in_worker(60, operator.mul, text, 2) == text * 2
    assert await run_in_worker(60, operator.concat, [1], [None]) == [1, None]


async def test_a_worker_has_neither_our_environment_nor_our_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SECRET_KEY", "x")
    assert await run_in_worker(60, os.getcwd) == "/"
    assert await run_in_worker(60, os.getenv, "SECRET_KEY") is None


async def run_endless_work(seconds: float) -> None:
    await run_in_worker(seconds, re.match, "(a+)+b", "a" * 60)


async def test_native_work_has_a_time_limit() -> None:
    with pytest.raises(WorkFailed):
        await run_endless_work(0.2)
    assert await run_in_worker(60, operator.add, 1, 2) == 3


@pytest.mark.timing
async def test_native_work_is_ended_at_its_time_limit() -> None:
    begun = time.monotonic()
    with pytest.raises(WorkFailed):
        await run_endless_work(0.2)
    assert time.monotonic() - begun < 2


async def cancel_endless_work() -> float:
    """Fill the pool with work without an end, cancel the work, and return the seconds until the next call is done."""
    endless = [asyncio.create_task(run_endless_work(600)) for _ in range(4)]
    waiting = asyncio.create_task(run_in_worker(60, operator.add, 1, 2))
    done, _ = await asyncio.wait([waiting], timeout=0.3)
    assert not done
    for task in endless:
        task.cancel()
    begun = time.monotonic()
    assert await asyncio.wait_for(waiting, 60) == 3
    seconds = time.monotonic() - begun
    assert all(task.cancelled() or task.cancelling() for task in endless)
    return seconds


async def test_cancelled_work_makes_room() -> None:
    await cancel_endless_work()


@pytest.mark.timing
async def test_cancelled_work_makes_room_at_once() -> None:
    assert await cancel_endless_work() < 2


FAILING = {
    "exception": (operator.truediv, (1, 0)), "memory": (operator.mul, ("x", 2 * child.MAX_MEMORY_BYTES)),
    "answer": (operator.mul, ("x", 2 * child.MAX_ANSWER_BYTES)), "exit": (os._exit, (3,)), "abort": (os.abort, ()),
    "no JSON": (object, ()),
}  # fmt: skip


@pytest.mark.parametrize(("work", "args"), FAILING.values(), ids=FAILING)
async def test_work_that_fails_says_so_and_the_next_call_succeeds(work: object, args: tuple[object, ...]) -> None:
    with pytest.raises(WorkFailed):
        await run_in_worker(60, work, *args)  # type: ignore[arg-type] # a table of functions has no one type
    assert await run_in_worker(60, operator.add, 1, 2) == 3


async def test_what_native_code_prints_is_no_answer() -> None:
    assert await run_in_worker(60, os.system, "echo '{}'") == 0
    assert await run_in_worker(60, operator.add, 1, 2) == 3


def test_a_worker_serves_more_than_one_event_loop() -> None:
    processes = {asyncio.run(run_in_worker(60, os.getpid)) for _ in range(6)}
    assert len(processes) <= 2
    assert os.getpid() not in processes
