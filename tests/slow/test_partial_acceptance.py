"""Editors that make random parts of edits and say that they applied them: no file has a text that nobody wrote."""

from __future__ import annotations

import random
from pathlib import Path

from tests.slow.running import running, say
from tests.support.partial_cases import PartialCase, Round
from tests.support.sizes import SEED, tries

PER_TURN = 10


async def test_random_parts_of_edits_with_random_typing_between(tmp_path: Path) -> None:
    """T-B1."""
    total, done, rounds = tries("A-36"), 0, 0
    async with running(tmp_path) as outside:
        while done < total:
            chance = random.Random(f"{SEED}-{rounds}")
            cases = [PartialCase(f"r{rounds}-{number}.py", chance) for number in range(PER_TURN)]
            played = Round(outside, cases, chance)
            await played.play()
            done += played.acceptances
            rounds += 1
    say(f"{done} acceptances in {rounds} turns")
