"""kill -9 of the real server at random points of running turns, many of them."""

from __future__ import annotations

import random
import shutil
from pathlib import Path

import pytest

from tests.slow.running import Tally, running, say, spread
from tests.support.killing import Killing
from tests.support.outside import Connect
from tests.support.sizes import SEED, lots, tries

PER_SESSION = 20


@pytest.mark.timing
@pytest.mark.parametrize(("lot", "count"), list(enumerate(lots(tries("A-15"), PER_SESSION))))
async def test_kills_at_random_points(tmp_path: Path, lot: int, count: int, servers: Connect, tally: Tally) -> None:
    chance = random.Random(f"{SEED} {lot}")
    async with running(tmp_path, files={"a.py": "x = 1\n"}, connect=servers) as outside:
        killing = Killing(outside)
        await killing.begin()
        for number in range(1, count + 1):
            await killing.round(number, chance)
    say(f"{dict(killing.moments)}, looks at the store: {spread(killing.reopened)}")
    assert max(killing.reopened) < 1.0
    assert len(killing.moments) >= min(count // 2, 5)
    tally("A-15", count)


async def test_a_store_that_falls_back_is_noticed(tmp_path: Path, servers: Connect) -> None:
    """The store of the server is the one from before the acknowledged turn."""
    async with running(tmp_path, files={"a.py": "x = 1\n"}, connect=servers, finish=False) as outside:
        killing = Killing(outside)
        await killing.begin()
        await outside.restart()
        shutil.copytree(outside.home / "state", tmp_path / "before")
        kill = outside.kill

        async def kill_and_fall_back() -> None:
            await kill()
            shutil.rmtree(outside.home / "state")
            shutil.copytree(tmp_path / "before", outside.home / "state")

        outside.kill = kill_and_fall_back  # type: ignore[method-assign] # this is the fault
        with pytest.raises(AssertionError, match=r"^\(1, 1, "):
            await killing.round_at("told", 2, 1)
