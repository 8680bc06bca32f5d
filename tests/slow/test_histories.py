"""Random sessions against the strict stand-ins: no service refuses a stored or compacted conversation."""

from __future__ import annotations

import pytest

from tests.slow.histories import play_histories
from tests.support.sizes import SEED, lots, sized

KINDS = ("end_turn", "cancelled", "left", "error", "refusal", "max_tokens", "context_window")
EVENTS = ("tool", "failed tool", "retry", "restart", "notice", "kept thinking", "answered 200", "answered 400")
COMPACTED = ("compacted in a turn", "compacted by command", "kept thinking")
# How conversations are compacted, the number of turns, and what the turns must meet so that the test says enough.
COURSES = {
    "stored": ({}, lots(sized(commit=120, nightly=10_000), 1_000), (*KINDS, *EVENTS)),
    "compacted": (
        {"compacting": True},
        lots(sized(commit=100, nightly=10_000), 250),
        (*COMPACTED, "nothing to compact", "cancelled"),
    ),
    "compacted by the provider": ({"by_service": True}, [80], (*COMPACTED, "shortened by the service")),
}
ROWS = [(course, SEED + number, turns) for course, row in COURSES.items() for number, turns in enumerate(row[1])]


@pytest.mark.parametrize(("course", "seed", "turns"), ROWS)
async def test_every_stored_conversation_can_be_sent(course: str, seed: int, turns: int) -> None:
    how, _, expected = COURSES[course]
    outcome = await play_histories(seed, turns, **how)
    assert outcome.refused == []
    assert outcome.turns >= turns
    assert [kind for kind in expected if not outcome.seen[kind]] == []
