"""A compaction at any point of any history leaves what every strict simulator takes. `tests/slow` plays thousands."""

from __future__ import annotations

from tests.support.histories import play_histories


async def test_every_compacted_conversation_can_be_sent() -> None:
    outcome = await play_histories(1, 60, compacting=True)
    assert outcome.refused == []
    for kind in ("compacted in a turn", "compacted by command", "nothing to compact", "kept thinking", "cancelled"):
        assert outcome.seen[kind], f"no history came to {kind}: it tests less than it says"


async def test_what_a_service_has_shortened_can_be_sent_to_it_and_to_all_others() -> None:
    outcome = await play_histories(1, 80, by_service=True)
    assert outcome.refused == []
    for kind in ("shortened by the service", "compacted in a turn", "compacted by command", "kept thinking"):
        assert outcome.seen[kind], f"no history came to {kind}: it tests less than it says"
