"""A compaction by the provider, at any point of any history, leaves what every strict simulator takes."""

from __future__ import annotations

from tests.slow.histories import play_histories


async def test_provider_compaction_fits_every_provider() -> None:
    outcome = await play_histories(1, 80, by_service=True)
    assert outcome.refused == []
    for kind in ("shortened by the service", "compacted in a turn", "compacted by command", "kept thinking"):
        assert outcome.seen[kind], f"no history came to {kind}: it tests less than it says"
