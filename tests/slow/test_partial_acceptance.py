"""Editors that make random parts of edits and say that they applied them: no file has a text that nobody wrote."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from tests.slow.partial_cases import PartialCase, Round
from tests.slow.running import Tally, running, say
from tests.support.outside import Connect, server_with
from tests.support.sizes import SEED, tries

PER_TURN = 10


async def played(place: Path, total: int, servers: Connect) -> int:
    done = rounds = 0
    async with running(place, connect=servers) as outside:
        while done < total:
            chance = random.Random(f"{SEED}-{rounds}")
            cases = [PartialCase(f"r{rounds}-{number}.py", chance) for number in range(PER_TURN)]
            turn = Round(outside, cases, chance)
            await turn.play()
            done += turn.acceptances
            rounds += 1
    say(f"{done} acceptances in {rounds} turns")
    return done


async def test_random_parts_of_edits_with_random_typing_between(tmp_path: Path, servers: Connect, tally: Tally) -> None:
    """T-B1."""
    tally("A-37", await played(tmp_path, tries("A-37"), servers))


BELIEVES = """
from thinklsp.core.edits import count_hunks
from thinklsp.engine.results import HunkCounts
from thinklsp.lsp.edits import edit_comparison
from thinklsp.lsp.edits.edit_comparison import SplitEdit
def believe(change, observed, exact=False):
    return SplitEdit(change, HunkCounts(count_hunks(change), 0), change, None)
edit_comparison.compare_edit = believe
"""


async def test_a_server_that_believes_the_editor_is_found(tmp_path: Path) -> None:
    with pytest.raises(AssertionError):
        await played(tmp_path, PER_TURN, server_with(BELIEVES))
