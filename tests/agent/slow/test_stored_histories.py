"""Invariant: a stored conversation can always be sent. Random sessions against the strict simulator, in small.

`tests/slow/test_histories.py` plays the same by the thousand.
"""

from __future__ import annotations

from tests.slow.histories import play_histories


async def test_every_stored_conversation_can_be_sent() -> None:
    outcome = await play_histories(1, 120)
    assert outcome.refused == []
    assert outcome.turns >= 120
    for kind in ("end_turn", "cancelled", "left", "error", "refusal", "tool", "failed tool", "retry", "restart"):
        assert outcome.seen[kind], f"no history came to {kind}: it tests less than it says"
