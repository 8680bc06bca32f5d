"""300 turns of about 4 million tokens with a window of 200,000: never refused, and no more expensive at the end."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.slow.test_long_conversation import hold
from tests.slow.histories import play_histories
from tests.slow.running import say
from tests.support.sizes import sized

WINDOW = 200_000
TURNS = sized(commit=60, nightly=300)
# Four bytes count as a token.
WORDS = 54_000


@pytest.mark.parametrize("way", ["anthropic", "openai", "google", "openrouter"])
async def test_a_long_conversation(tmp_path: Path, way: str) -> None:
    long = await hold(tmp_path, way, TURNS, window=WINDOW, words=WORDS)
    say(f"{way}: {long.size // 4:,} tokens said, {len(long.compactions)} compactions, {max(long.inputs):,} in a turn")
    assert long.refused == []
    assert long.outcomes == ["end_turn"] * TURNS
    assert len(long.compactions) >= TURNS // 20
    assert max(long.inputs) <= 3 * WINDOW
    half = TURNS // 2
    assert sum(long.inputs[half:]) <= 1.5 * sum(long.inputs[:half])
    assert all(long.thoughts)


@pytest.mark.parametrize("way", ["anthropic", "google"])
async def test_one_turn_larger_than_the_window(tmp_path: Path, way: str) -> None:
    long = await hold(tmp_path, way, 3, window=WINDOW, words=100_000, reads=25)
    assert (long.refused, long.outcomes) == ([], ["end_turn"] * 3)
    assert len(long.compactions) >= 3


@pytest.mark.parametrize("seed", range(sized(commit=1, nightly=40)))
async def test_every_compacted_conversation_can_be_sent(seed: int) -> None:
    steps = sized(commit=100, nightly=250)
    outcome = await play_histories(1000 + seed, steps, compacting=True)
    assert outcome.refused == []
    assert outcome.seen["compacted in a turn"] > steps // 5
