"""A compaction at any point of any history leaves what every strict simulator takes. `tests/slow` plays thousands."""

from __future__ import annotations

from tests.slow.histories import play_histories


async def test_every_compacted_conversation_can_be_sent() -> None:
    outcome = await play_histories(1, 60, compacting=True)
    assert outcome.refused == []
    for kind in ("compacted in a turn", "compacted by command", "nothing to compact", "kept thinking", "cancelled"):
        assert outcome.seen[kind], f"no history came to {kind}: it tests less than it says"
