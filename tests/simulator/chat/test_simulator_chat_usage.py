"""Usage figures of the chat dialect: where each server tells them, and what the prompt cache saves."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.simulator_chat_talk import ECHO, Talk, continued, request

ASKED = {"stream_options": {"include_usage": True}}
FIGURES = (
    "[[turn]]\n[[turn.step]]\nusage={input_tokens=100,cache_read_tokens=60,cache_write_tokens=30,output_tokens=9,"
    'thinking_tokens=4}\nblock=[{thinking="Hm."},{text="Hi."}]'
)


@pytest.mark.parametrize("model", ECHO)
def test_usage_comes_where_it_is_asked_for(model: str) -> None:
    talk = Talk()
    whole = talk.good(request("plain", model))["usage"]
    asked = talk.chunks(request("plain", model, **ASKED))
    silent = talk.chunks(request("plain", model))
    told = [chunk["usage"] for chunk in asked if chunk.get("usage")]
    assert told[-1]["completion_tokens"] == whole["completion_tokens"] > 0
    assert told[-1]["total_tokens"] == told[-1]["prompt_tokens"] + told[-1]["completion_tokens"]
    assert ("usage" in silent[-1]) is ("/" in model), "a router tells it unasked"
    in_chunk_of_its_own = asked[-1]["choices"] == []
    assert in_chunk_of_its_own is (model not in ("strict-1", "plain-1"))
    assert (len(told) == len(asked)) is (model == "plain-1")


@pytest.mark.parametrize("model", ECHO)
def test_scripted_figures_win(model: str) -> None:
    for stream in (True, False):
        body = request("one", model, **(ASKED if stream else {}))
        usage = Talk(FIGURES).chunks(body)[-1]["usage"] if stream else Talk(FIGURES).good(body)["usage"]
        assert (usage["prompt_tokens"], usage["completion_tokens"], usage["total_tokens"]) == (100, 9, 109)
        if model in ("compatible-1", "deepseek-reasoner") or "/" in model:
            assert usage["completion_tokens_details"] == {"reasoning_tokens": 4}
        else:
            assert "completion_tokens_details" not in usage
        if model in ("gpt-oss:20b", "lmstudio-qwen3-4b"):
            assert "prompt_tokens_details" not in usage
        else:
            assert usage["prompt_tokens_details"]["cached_tokens"] == 60
    if model == "deepseek-reasoner":
        assert (usage["prompt_cache_hit_tokens"], usage["prompt_cache_miss_tokens"]) == (60, 40)
    if "/" in model:
        assert usage["prompt_tokens_details"]["cache_write_tokens"] == 30
    if model == "qwen3-8b":
        assert Talk(FIGURES).good(request("one", model))["timings"]["prompt_n"] == 40


def figures(talk: Talk, body: dict[str, Any]) -> tuple[int, int, dict[str, Any]]:
    answer = talk.good(body)
    usage = answer["usage"]
    return usage["prompt_tokens"], usage["prompt_tokens_details"]["cached_tokens"], answer["choices"][0]["message"]


@pytest.mark.parametrize("model", ["compatible-1", "deepseek-reasoner", "openai/gpt-6-sol"])
def test_a_loop_reads_what_the_step_before_sent(model: str) -> None:
    talk = Talk()
    body = request("loop", model)
    held = 0
    for _ in range(3):
        prompt, cached, message = figures(talk, body)
        assert cached == held
        assert cached < prompt
        held = prompt
        body = continued(body, message)
    assert figures(talk, body)[1] == held


def test_prompts_of_claude_are_cached_up_to_a_mark_only() -> None:
    """P-D3: the simulator hid that no request had a mark."""
    model = "anthropic/claude-opus-5.5"
    plain, talk = request("plain", model), Talk()
    assert [figures(talk, plain)[1] for _ in range(2)] == [0, 0]
    *head, last = plain["messages"]
    part = {"type": "text", "text": last["content"], "cache_control": {"type": "ephemeral"}}
    marked = {**plain, "messages": [*head, {**last, "content": [part]}]}
    prompt, cached, _ = figures(talk, marked)
    assert (cached, figures(talk, marked)[1]) == (0, prompt)
    assert figures(talk, plain)[1] == 0


@pytest.mark.parametrize(
    ("changes", "reads"),
    [
        ({}, True),
        ({"max_tokens": 5, "temperature": 0}, True),
        ({"tools": None}, False),
        ({"model": "compatible-2"}, False),
    ],
)
def test_what_keeps_the_cached_prefix(changes: dict[str, Any], reads: bool) -> None:
    talk = Talk(now=(now := [0.0]))
    prompt, cached, _ = figures(talk, request("plain"))
    assert cached == 0
    assert figures(talk, request("plain", **changes))[1] == (prompt if reads else 0)
    now[0] += 301
    assert figures(talk, request("plain"))[1] == 0


def test_images_count_and_seals_do_not() -> None:
    image = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    messages = [{"role": "user", "content": [{"type": "text", "text": "plain"}, image]}]
    seen, _, _ = figures(Talk(), request("plain", messages=messages))
    bare, _, _ = figures(Talk(), request("plain", messages=[{"role": "user", "content": "plain"}]))
    assert seen == bare + 1200
    talk = Talk()
    body = request("loop", "anthropic/claude-opus-5.5")
    first, _, message = figures(talk, body)
    assert figures(talk, continued(body, message))[0] < first + 100
