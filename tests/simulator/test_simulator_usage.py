"""The prompt cache of the simulator: what a request reads, writes and pays in full."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.simulator_talk import Talk, continued, request

STEPS = "[[turn]]\n" + 25 * (
    '[[turn.step]]\nblock=[{thinking="Hm, the next one."},{tool="read_file",input={path="a.py"}},{tool="list_files"}]\n'
)
LONG = "You help with a long text. " * 400


def marked(body: dict[str, Any]) -> dict[str, Any]:
    """Breakpoints on the system prompt and, moving along, on the last block."""
    last = body["messages"][-1]["content"]
    if isinstance(last, str):
        body["messages"][-1]["content"] = last = [{"type": "text", "text": last}]
    for message in body["messages"]:
        for block in message["content"]:
            block.pop("cache_control", None)
    last[-1]["cache_control"] = {"type": "ephemeral"}
    return body


def figures(answer: dict[str, Any]) -> tuple[int, int, int]:
    usage = answer["usage"]
    written = usage["cache_creation_input_tokens"]
    assert written == sum(usage["cache_creation"].values())
    return usage["cache_read_input_tokens"], written, usage["input_tokens"]


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-haiku-4-5"])
def test_a_loop_of_twenty_steps_reads_what_the_step_before_wrote(model: str) -> None:
    talk = Talk(STEPS)
    system = [{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral"}}]
    body = marked(request("go", model, system=system))
    if model == "claude-haiku-4-5":
        body["thinking"] = {"type": "enabled", "budget_tokens": 2000}
        system[0]["text"] = 3 * LONG
    held = 0
    for step in range(20):
        answer = talk.good(body)
        read, written, rest = figures(answer)
        assert read == held
        assert rest == 0, "the last block carries a breakpoint"
        assert written > 0
        assert step == 0 or written < 400
        held = read + written
        counted = {key: value for key, value in body.items() if key != "max_tokens"}
        assert talk.good(counted, path="/v1/messages/count_tokens") == {"input_tokens": held}
        body = marked(continued(body, answer))


def cached(body: dict[str, Any], **changes: Any) -> dict[str, Any]:
    system = [{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral", **changes}}]
    return {**body, "system": system}


@pytest.mark.parametrize(
    ("changes", "reads"),
    [
        ({}, True),
        ({"messages": [{"role": "user", "content": "plain, but another"}]}, True),
        ({"max_tokens": 5}, True),
        ({"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}}, True),
        ({"tools": []}, False),
        ({"model": "claude-sonnet-5-5"}, False),
    ],
)
def test_what_keeps_the_cached_system_prompt(changes: dict[str, Any], reads: bool) -> None:
    talk = Talk()
    body = cached(request("plain"))
    read, written, rest = figures(talk.good(body))
    assert (read, rest > 0) == (0, True)
    read, rewritten, _ = figures(talk.good({**body, **changes}))
    assert (read, rewritten > 0) == ((written, False) if reads else (0, True))


@pytest.mark.parametrize("changes", [{"output_config": {"effort": "low"}}, {"tool_choice": {"type": "none"}}])
def test_thinking_settings_and_tool_choice_are_part_of_cached_messages(changes: dict[str, Any]) -> None:
    talk = Talk()
    body = marked(request("plain " + LONG))
    _, written, _ = figures(talk.good(body))
    assert figures(talk.good(body)) == (written, 0, 0)
    assert figures(talk.good({**body, **changes})) == (0, written, 0)


@pytest.mark.parametrize(("ttl", "lives"), [("5m", 299.0), ("1h", 3599.0)])
def test_a_cached_prefix_lives_its_time_and_longer_when_read(ttl: str, lives: float) -> None:
    now = [0.0]
    talk = Talk(now=now)
    body = cached(request("plain"), ttl=ttl)
    usage = talk.good(body)["usage"]["cache_creation"]
    assert usage[f"ephemeral_{ttl}_input_tokens"] > 0
    for _ in range(2):
        now[0] += lives
        assert figures(talk.good(body))[0] > 0
    now[0] += lives + 2
    assert figures(talk.good(body))[0] == 0


@pytest.mark.parametrize(
    ("model", "minimum"),
    [("claude-opus-5", 512), ("claude-opus-5-5", 1024), ("claude-opus-4-7", 2048), ("claude-opus-4-6", 4096)],
)
def test_prompts_below_the_minimum_are_not_cached(model: str, minimum: int) -> None:
    talk = Talk()
    sizes = []
    for words in range(40, 3600, 40):
        body = marked({"model": model, "max_tokens": 9, "messages": [{"role": "user", "content": "plain " * words}]})
        _, written, rest = figures(talk.good(body))
        sizes.append((written + rest, written > 0))
    assert all(kept is (size >= minimum) for size, kept in sizes)
    assert {kept for _, kept in sizes} == {True, False}


def test_the_look_back_ends_after_twenty_blocks() -> None:
    talk = Talk()
    first = [{"type": "text", "text": "plain " + LONG}]
    body = marked(request("plain") | {"messages": [{"role": "user", "content": first}]})
    _, written, _ = figures(talk.good(body))
    for more, reads in ((20, False), (19, True)):
        longer = [*({**block} for block in first), *({"type": "text", "text": f"block {i}"} for i in range(more))]
        body = marked(request("plain") | {"messages": [{"role": "user", "content": longer}]})
        assert figures(talk.good(body))[0] == (written if reads else 0), more


def test_thinking_tokens_come_at_the_end_and_scripted_figures_win() -> None:
    talk = Talk(
        '[[turn]]\n[[turn.step]]\nblock=[{thinking="A thought of some length."},{text="Hi."}]\n'
        "[[turn]]\n[[turn.step]]\nusage={input_tokens=100,cache_read_tokens=60,cache_write_tokens=30,"
        'output_tokens=9,thinking_tokens=4}\nblock=[{text="Hi."}]'
    )
    body = request("one")
    start, *_, end, stop = talk.events(body)
    assert "output_tokens_details" not in start["message"]["usage"]
    assert 0 < end["usage"]["output_tokens_details"]["thinking_tokens"] < end["usage"]["output_tokens"]
    assert stop == {"type": "message_stop"}
    usage = talk.good(continued(body, talk.good(body), "two"))["usage"]
    assert (usage["input_tokens"], usage["cache_read_input_tokens"], usage["cache_creation_input_tokens"]) == (
        10,
        60,
        30,
    )
    assert (usage["output_tokens"], usage["output_tokens_details"]["thinking_tokens"]) == (9, 4)


def test_a_prompt_over_the_window_is_too_long() -> None:
    talk = Talk('context_window = 500\n[[turn]]\n[[turn.step]]\nblock=[{text="Hi."}]')
    talk.good(request("short"))
    assert "prompt is too long" in talk.refused(request("long " * 1000))
