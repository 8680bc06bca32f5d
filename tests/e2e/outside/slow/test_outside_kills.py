"""kill -9 of the real server at random points of running turns: what was told is there, and the next turn is taken."""

from __future__ import annotations

import random

import pytest

from tests.e2e.conftest import Begin
from tests.support.killing import Killing

KILLS = 6


@pytest.mark.timing
async def test_kills_at_random_points_lose_nothing_that_was_told(begin: Begin) -> None:
    chance = random.Random(20_261_121)
    killing = Killing(await begin(files={"a.py": "x = 1\n"}))
    await killing.begin()
    for number in range(1, KILLS + 1):
        await killing.round(number, chance)
    assert max(killing.reopened) < 1.0, killing.reopened
    # Otherwise the points were too much alike to say anything.
    assert len(killing.moments) >= 3
