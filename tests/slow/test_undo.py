"""Random turns with random typing after them are taken back: nothing of the turn is left, nothing typed is lost."""

from __future__ import annotations

import random
from pathlib import Path

from tests.slow.running import running, say
from tests.support.line_edits import UndoCase, play
from tests.support.sizes import SEED, lots, sized

PER_TURN = 4


async def test_random_turns_are_undone_under_what_was_typed_since(tmp_path: Path) -> None:
    chance = random.Random(SEED)
    outcomes: list[bool] = []
    for lot, turns in enumerate(lots(sized(commit=50, nightly=2_000), 50)):
        place = tmp_path / str(lot)
        place.mkdir()
        async with running(place) as outside:
            for number in range(turns):
                cases = [UndoCase(f"t{number}-{file}.py", chance) for file in range(chance.randint(1, PER_TURN))]
                outcomes += await play(outside, cases, tmp_path)
    say(f"{len(outcomes)} files of undone turns, {outcomes.count(False)} conflicts")
    assert 0.1 < outcomes.count(False) / len(outcomes) < 0.6
