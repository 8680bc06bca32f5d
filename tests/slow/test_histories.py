"""Random sessions against the strict simulator: the service never refuses a stored conversation."""

from __future__ import annotations

import pytest

from tests.slow.histories import play_histories
from tests.support.sizes import SEED, lots, sized

LOTS = lots(sized(commit=100, nightly=10_000), 1000)
KINDS = ("end_turn", "cancelled", "left", "error", "refusal", "max_tokens", "context_window")
EVENTS = ("tool", "failed tool", "retry", "restart", "notice", "kept thinking", "answered 200", "answered 400")


@pytest.mark.parametrize(("seed", "turns"), [(SEED + number, turns) for number, turns in enumerate(LOTS)])
async def test_every_stored_conversation_can_be_sent(seed: int, turns: int) -> None:
    outcome = await play_histories(seed, turns)
    assert outcome.refused == []
    assert outcome.turns >= turns
    assert [kind for kind in (*KINDS, *EVENTS) if not outcome.seen[kind]] == [], "a run without it says too little"
