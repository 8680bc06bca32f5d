"""The search of `test_canaries.py` can fail: a server that leaks is caught, wherever and however it does."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.slow.canary_sessions import FILES, course, leaks_after, with_watched_children
from tests.slow.leaking import DRESSES, LOOSE, SINKS
from tests.slow.running import Tally, running
from tests.support.forking import Nursery
from tests.support.outside import Connect
from tests.support.services import SeveralServices
from tests.support.sizes import figures


@pytest.fixture(scope="module")
def connect() -> Iterator[Connect]:
    with Nursery("tests.slow.leaking") as nursery:
        yield with_watched_children(nursery.connect)


async def found(place: Path, connect: Connect, **planted: str) -> list[str]:
    services = SeveralServices()
    # The key represents the first host, because its signatures are not known yet.
    env: dict[str, str | None] = {"LEAK_OF_BEFORE": services.first.key, **planted}
    async with running(place, files=FILES, finish=False, env=env, provider=services, connect=connect) as outside:
        await course(outside)
        return await leaks_after(outside)


def test_the_row_says_how_many_there_are() -> None:
    assert figures()["A-19"]["commit"] == len(SINKS) + len(DRESSES)


@pytest.mark.parametrize("sink", SINKS)
async def test_a_leak_that_was_planted_is_found(tmp_path: Path, connect: Connect, sink: str, tally: Tally) -> None:
    leaks = await found(tmp_path, connect, LEAK=sink)
    assert [leak for leak in leaks if leak.startswith(("first, ", "second, "))]
    tally("A-19", 1)


async def test_a_leak_is_found_in_every_dress(tmp_path: Path, connect: Connect, tally: Tally) -> None:
    leaks = await found(tmp_path, connect, LEAK="all dresses")
    undressed = [dress for dress in DRESSES if not any(leak.endswith(f"/state/{dress}") for leak in leaks)]
    assert undressed == []
    tally("A-19", len(DRESSES))


@pytest.mark.parametrize("what", LOOSE)
async def test_what_others_could_read_is_found(tmp_path: Path, connect: Connect, what: str) -> None:
    leaks = await found(tmp_path, connect, LOOSE=what)
    assert leaks
    assert all(leak.startswith(f"{tmp_path}{os.sep}") for leak in leaks)


async def test_the_same_course_without_a_leak_is_clean(tmp_path: Path, connect: Connect) -> None:
    assert await found(tmp_path, connect) == []
