"""A conversation outgrows a small window again and again: never refused, its cost bounded, its goal kept.

`tests/slow` has it with a window and a length as users have them.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.support.long_conversation import GOAL, hold
from thinklsp.core.messages import find_compaction_origin
from thinklsp.providers.anthropic import AnthropicAdapter
from thinklsp.providers.base import Endpoint, ModelRequest, Thinking
from thinklsp.providers.catalogue import find_model

WINDOW = 20_000


@pytest.mark.parametrize("way", ["anthropic", "openai", "google", "deepseek"])
async def test_it_is_never_refused_and_costs_no_more_at_its_end(tmp_path: Path, way: str) -> None:
    long = await hold(tmp_path, way, 30, window=WINDOW, words=6_000)
    assert long.refused == []
    assert long.outcomes == ["end_turn"] * 30
    assert len(long.compactions) >= 2
    assert long.size > 2 * long.largest
    # Two calls, and a compaction at most; the simulator has seen that no call alone was larger than the window.
    assert max(long.inputs) <= 3 * WINDOW
    assert all(long.thoughts)
    assert "thinking.mode" not in long.choices


@pytest.mark.parametrize("way", ["anthropic", "openai", "google", "deepseek"])
async def test_one_turn_that_is_larger_than_the_window_ends_well(tmp_path: Path, way: str) -> None:
    long = await hold(tmp_path, way, 3, window=WINDOW, words=24_000, reads=10)
    assert long.refused == []
    assert long.outcomes == ["end_turn"] * 3
    folded = [event for event in long.compactions if "<note>Your steps" in str(event.after[1])]
    assert len(folded) >= 3
    # The results that no call has held stay, as text if the model binds its thinking.
    for event in folded:
        kept = "\n".join(getattr(block, "text", "") for block in event.after[-1].blocks)
        assert all(block.text in kept for block in event.before[-1].blocks)


async def test_a_prompt_that_is_larger_than_the_window_ends_its_turn(tmp_path: Path) -> None:
    long = await hold(tmp_path, "anthropic", 1, window=1_000, words=2_000)
    assert long.outcomes == ["context_window"]
    assert long.compactions == []


async def test_thinking_stays_off_where_the_user_wants_that(tmp_path: Path) -> None:
    # A model whose thinking can be switched off.
    long = await hold(tmp_path, "openai", 12, window=WINDOW, words=8_000, settings={"compaction.thinkingAfter": "off"})
    assert (long.refused, len(long.compactions) > 0) == ([], True)
    assert long.choices["thinking.mode"] == "off"
    assert (long.thoughts[0], long.thoughts[-1]) == (True, False)


async def test_provider_compaction_keeps_the_whole_session(tmp_path: Path) -> None:
    long = await hold(tmp_path, "openai", 30, window=WINDOW, words=6_000, settings={"compaction.by": "provider"})
    assert (long.refused, long.compactions) == ([], [])
    assert long.outcomes == ["end_turn"] * 30
    assert max(long.inputs) <= 3 * WINDOW
    notes = [message for message in long.conversation if find_compaction_origin(message) is not None]
    assert len(notes) >= 2
    # Another service is sent every word, and nothing of the notes.
    model = find_model("anthropic", "claude-opus-5-5")
    request = ModelRequest(model, "", (), long.conversation, Thinking(), None)
    body = bytes(AnthropicAdapter().encode(request, Endpoint("anthropic", "http://localhost", "k")).body).decode()
    assert GOAL in json.loads(body)["messages"][0]["content"][0]["text"]
    assert all(f"part {number}." in body for number in range(1, 30))
    assert not any(word in body for word in ("encrypted_content", "compaction", "cmp_"))


async def test_missing_provider_compaction_is_reported_and_replaced(tmp_path: Path) -> None:
    long = await hold(tmp_path, "google", 12, window=WINDOW, words=8_000, settings={"compaction.by": "provider"})
    assert (long.refused, len(long.compactions) > 0) == ([], True)
    assert any("cannot compact conversations" in said for said in long.said)


async def test_a_service_that_refuses_to_shorten_is_asked_once(tmp_path: Path) -> None:
    """Which models it does that for is not published, so that a row can be wrong."""
    wish = {"compaction.by": "provider"}
    row = {"model": "gpt-5.1", "said_of_model": "compacts = true"}
    long = await hold(tmp_path, "openai", 12, window=WINDOW, words=8_000, settings=wish, **row)
    assert len(long.refused) == 1
    assert long.outcomes == ["end_turn"] * 12
    assert len(long.compactions) >= 2
    assert max(long.inputs) <= 3 * WINDOW
    told = [said for said in long.said if "does not compact conversations with gpt-5.1" in said]
    assert len(told) == 1
