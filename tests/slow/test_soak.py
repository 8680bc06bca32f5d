"""A soak of minutes, and servers that leak on purpose and must be caught by one. `python -m tests.soak` takes hours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.slow.running import Tally, needs_proc, planted, say
from tests.soak.run import Plan, soak
from tests.support.sizes import SEED, sized, tries

pytestmark = [needs_proc, pytest.mark.timing]
LEAKS = {
    "memory": "memory grew by",
    "objects": "objects behind",
    "descriptor": "descriptors went from",
    "task": "tasks went from",
    "traceback": "Traceback",
}


async def test_hours_of_use_leave_nothing_behind(tmp_path: Path, tally: Tally) -> None:
    minutes = tries("A-31")
    report = await soak(tmp_path, Plan(minutes=minutes, rate=0.3, every=5, seed=SEED))
    say(str(report))
    assert report.wrong == []
    assert report.done["chat"] >= 10 * minutes
    tally("A-31", minutes)


# A commit run plants all leaks in one server.
GROUPS = [", ".join(LEAKS), *LEAKS][: sized(commit=1, nightly=1 + len(LEAKS))]


@pytest.mark.parametrize("plants", GROUPS)
async def test_a_leak_that_was_planted_is_caught(tmp_path: Path, plants: str) -> None:
    short = Plan(chats=50, rate=0, every=0.5, faults=0)
    report = await soak(tmp_path, short, env=planted(plants))
    for plant in plants.split(", "):
        assert [sentence for sentence in report.wrong if LEAKS[plant] in sentence], (plant, str(report))
