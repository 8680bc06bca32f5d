"""kill -9 of the real server at random points of running turns, many of them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.slow.running import running, say
from tests.support.killing import Killing
from tests.support.sizes import SEED, lots, sized

PER_SESSION = 20


@pytest.mark.parametrize(("lot", "count"), list(enumerate(lots(sized(commit=60, nightly=200), PER_SESSION))))
async def test_kills_at_random_points(tmp_path: Path, lot: int, count: int) -> None:
    chance = random.Random(f"{SEED} {lot}")
    async with running(tmp_path, files={"a.py": "x = 1\n"}) as outside:
        killing = Killing(outside)
        await killing.begin()
        for number in range(1, count + 1):
            await killing.round(number, chance)
    say(f"{dict(killing.moments)}, slowest looks at the store {[round(t, 3) for t in sorted(killing.reopened)[-3:]]} s")
    assert max(killing.reopened) < 1.0
    assert len(killing.moments) >= 5
