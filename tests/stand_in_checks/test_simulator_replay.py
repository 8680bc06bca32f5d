"""Thinking comes back unmodified, in order and complete, or is refused; and the simulator's prompt cache."""

from __future__ import annotations

import base64
import string
from collections.abc import Callable
from typing import Any

import pytest

from tests.stand_in_checks.talk import Talk, change_letter, continued, request, without_limit
from tests.stand_ins.anthropic.replay import ThinkingSignature
from tests.stand_ins.service_state import StateSigner

SUMMARIZED = {"type": "adaptive", "display": "summarized"}
MODIFIED = "blocks in the latest assistant message cannot be modified. These blocks must remain as they were"
BOUND = (
    "Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block, or "
    'set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
BINDING_BETA = "thinking-binding-controls-2026-08-01"
Content = list[dict[str, Any]]
Change = Callable[[Content], object]


def in_loop(**changes: Any) -> tuple[Talk, dict[str, Any]]:
    """The third request of a tool loop: two answers with thinking stand before it."""
    talk = Talk()
    body = request(thinking=SUMMARIZED, **changes)
    body = continued(body, talk.good(body))
    return talk, continued(body, talk.good(body))


def change_value(index: int, key: str, change: Callable[[str], str]) -> Change:
    return lambda content: content[index].update({key: change(content[index][key])})


def change_byte(index: int, key: str, position: int) -> Change:
    return change_value(index, key, lambda text: change_letter(text, position))


def reencode(signature: str) -> str:
    """The same bytes in another base64 alphabet."""
    return base64.urlsafe_b64encode(base64.b64decode(signature)).decode() + "="


def drop_all(content: Content) -> None:
    content[:] = [block for block in content if "thinking" not in block["type"]]


def reorder(*indexes: int) -> Change:
    """Put the first blocks in this order, which may repeat or leave out some."""
    return lambda content: content.__setitem__(slice(3), [dict(content[index]) for index in indexes])


BAD_SIGNATURE = "messages.1.content.0: Invalid `signature` in `thinking` block"
BAD_DATA = "messages.1.content.1: Invalid `data` in `redacted_thinking` block"
CHANGED = {index: f"messages.1.content.{index}: `thinking` or `redacted_thinking` {MODIFIED}" for index in (0, 1)}
REPLAYS: dict[str, tuple[Change, str]] = {
    "change_signature": (change_byte(0, "signature", 100), BAD_SIGNATURE),
    "change_last_byte": (change_byte(0, "signature", -1), BAD_SIGNATURE),
    "cut_signature": (change_value(0, "signature", lambda text: text[:-4]), BAD_SIGNATURE),
    "reencode": (change_value(0, "signature", reencode), BAD_SIGNATURE),
    "change_data": (change_byte(1, "data", 50), BAD_DATA),
    "exchange_kinds": (lambda content: content[1].update(data=content[0]["signature"]), BAD_DATA),
    "change_text": (change_value(0, "thinking", lambda text: text + " "), CHANGED[0]),
    "empty_text": (change_value(0, "thinking", lambda text: ""), CHANGED[0]),
    "drop_redacted": (reorder(0, 2), CHANGED[1]),
    "drop_first": (reorder(1, 2), CHANGED[0]),
    "drop_all": (drop_all, CHANGED[1]),
    "swap": (reorder(2, 1, 0), CHANGED[0]),
    "behind_calls": (lambda content: content.append(content.pop(0)), CHANGED[0]),
    "double": (reorder(0, 0, 1, 2), CHANGED[1]),
}


@pytest.mark.parametrize("name", REPLAYS)
@pytest.mark.parametrize("model", ["claude-opus-4-8", "claude-mythos-5-1"])
def test_a_changed_replay_is_refused(name: str, model: str) -> None:
    change, expected = REPLAYS[name]
    talk, body = in_loop(model=model)
    assert talk.good(body)["stop_reason"] == "end_turn"
    change(body["messages"][1]["content"])
    message = talk.refused(body)
    assert message.startswith(expected)
    if "Invalid" in expected:
        assert message == expected


def test_a_block_of_another_process_is_refused() -> None:
    assert "Invalid `signature`" in Talk().refused(in_loop()[1])


def test_text_in_an_omitted_block_is_ignored() -> None:
    talk = Talk()
    body = request()
    answer = talk.good(body)
    assert [block["thinking"] for block in answer["content"] if block["type"] == "thinking"] == ["", ""]
    body = continued(body, answer)
    body["messages"][1]["content"][0]["thinking"] = "filled in by the client"
    assert talk.good({**body, "thinking": SUMMARIZED})["content"][0]["thinking"] == "In between."


def test_changed_thinking_of_earlier_turns_is_invalid() -> None:
    talk = Talk()
    body = request("plain", thinking=SUMMARIZED)
    body = continued(body, talk.good(body), "plain")
    body["messages"][1]["content"][0]["thinking"] += " "
    assert talk.refused(body) == BAD_SIGNATURE


# Changes to a request in a tool loop: those of the first table leave the thinking where models bind it.
HARMLESS: dict[str, Callable[[dict[str, Any]], object]] = {
    "same": lambda body: None,
    "effort": lambda body: body.update(output_config={"effort": "low"}),
    "max_tokens": lambda body: body.update(max_tokens=4000),
    "tool_choice": lambda body: body.update(tool_choice={"type": "none"}),
    "metadata": lambda body: body.update(metadata={"user_id": "u"}),
    "display": lambda body: body.update(thinking={"type": "adaptive", "display": "omitted"}),
    "cache_control": lambda body: body["tools"][0].update(cache_control={"type": "ephemeral"}),
    "text_as_block": lambda body: body["messages"][0].update(content=[{"type": "text", "text": "loop"}]),
    "system_as_block": lambda body: body.update(system=[{"type": "text", "text": "You help."}]),
    "deferred_tool": lambda body: body["tools"].append(
        {"name": "late", "input_schema": {"type": "object"}, "defer_loading": True}
    ),
}
HARMFUL: dict[str, Callable[[dict[str, Any]], object]] = {
    "system": lambda body: body.update(system="You help. Today is Friday."),
    "tool_description": lambda body: body["tools"][0].update(description="Another"),
    "tool_order": lambda body: body["tools"].reverse(),
    "first_message": lambda body: body["messages"][0].update(content="loop, please"),
    "result": lambda body: body["messages"][2]["content"][0].update(content="another"),
}


@pytest.mark.parametrize("name", [*HARMLESS, *HARMFUL])
def test_bound_models_want_the_same_prefix(name: str) -> None:
    talk, body = in_loop()
    {**HARMLESS, **HARMFUL}[name](body)
    if name in HARMLESS:
        talk.good(body)
        return
    message = talk.refused(body)
    assert BOUND in message
    assert message.endswith(f"That setting requires the `{BINDING_BETA}` value in the `anthropic-beta` header.")
    assert talk.refused(body, anthropic_beta=BINDING_BETA).endswith('to "drop_block".')
    assert BOUND in talk.refused(without_limit(body), path="/v1/messages/count_tokens")
    dropping = {**body, "thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}}
    answer = talk.good(dropping, anthropic_beta=BINDING_BETA)
    paths = [entry["path"] for entry in answer["input_transformations"]]
    assert {entry["reason"] for entry in answer["input_transformations"]} == {"prefix_binding_mismatch"}
    assert paths[-1] == "messages.3.content.0"
    for message in body["messages"][1::2]:
        drop_all(message["content"])
    talk.good(body)


def test_thinking_may_be_dropped_only_from_the_front() -> None:
    talk = Talk()
    body = request("plain", thinking=SUMMARIZED)
    for _ in range(3):
        body = continued(body, talk.good(body), "plain")
    removed = {}
    for number in (1, 3):
        removed[number] = body["messages"][number]["content"].pop(0)
        talk.good(body)
    body["messages"][1]["content"].insert(0, removed[1])
    assert BOUND in talk.refused(body), "the middle one is missing"
    body["messages"][1]["content"].pop(0)
    body = continued(body, talk.good(body), "plain")
    body["messages"][3]["content"].insert(0, removed[3])
    assert "messages.7.content.0" in talk.refused(body), "the last answer was made without it"


def test_blocks_of_another_model_are_reported_with_the_beta() -> None:
    talk = Talk()
    body = request("plain")
    body = continued(body, talk.good(body), "plain")
    body["model"] = "claude-sonnet-5-5"
    assert "input_transformations" not in talk.good(body)
    told = talk.good(body, anthropic_beta=BINDING_BETA)["input_transformations"]
    assert told == [{"type": "thinking_dropped", "path": "messages.1.content.0", "reason": "model_binding_mismatch"}]
    assert talk.events(body, anthropic_beta=BINDING_BETA)[0]["message"]["input_transformations"] == told


def test_a_paused_turn_goes_on_with_the_assistant_last() -> None:
    talk = Talk()
    body = request("pause")
    answer = talk.good(body)
    assert answer["stop_reason"] == "pause_turn"
    body = continued(body, answer)
    assert body["messages"][-1]["role"] == "assistant"
    assert talk.good(body)["content"][-1]["text"] == "Found."
    body["messages"][-1]["content"] = [{"type": "text", "text": "Searching."}]
    assert "prefill" in talk.refused(body)


MANUAL = {"type": "enabled", "budget_tokens": 2000}
INTERLEAVED = {"anthropic_beta": "interleaved-thinking-2025-05-14"}


def test_manual_thinking_interleaves_only_with_the_header() -> None:
    talk = Talk()
    body = request(model="claude-sonnet-4-5", thinking=MANUAL)
    body = continued(body, talk.good(body))
    assert [block["type"] for block in talk.good(body)["content"]] == ["tool_use"]
    assert [block["type"] for block in talk.good(body, **INTERLEAVED)["content"]] == ["thinking", "tool_use"]
    body = continued(body, talk.good(body))
    assert talk.good(body)["content"][-1]["text"] == "Done with result 1."
    haiku = request(model="claude-haiku-4-5", thinking=MANUAL)
    haiku = continued(haiku, talk.good(haiku))
    assert [block["type"] for block in talk.good(haiku, **INTERLEAVED)["content"]] == ["tool_use"]


def test_between_tools_signs_the_notes_between_calls() -> None:
    talk = Talk()
    body = request(model="claude-sonnet-5-5", thinking={"type": "between_tools"})
    answer = talk.good(body)
    assert [block["type"] for block in answer["content"]] == ["thinking", "tool_use", "tool_use"]
    assert answer["content"][0]["thinking"] == "Looking."
    body = continued(body, answer)
    talk.good(body)
    drop_all(body["messages"][1]["content"])
    assert MODIFIED in talk.refused(body)


@pytest.mark.parametrize("tokens", range(4))
def test_no_other_spelling_of_a_signature_opens(tokens: int) -> None:
    sealer = StateSigner()
    seal = ThinkingSignature("thinking", "m", "a", 0, None, "p", ("s",), tokens)
    text = sealer.sign(seal, tokens)
    assert sealer.verify(text, ThinkingSignature) == seal
    for position in (0, 100, len(text) - 3, len(text) - 2, len(text) - 1):
        for letter in set(string.ascii_letters + "=+/-_ é") - {text[position]}:
            assert sealer.verify(text[:position] + letter + text[position + 1 :], ThinkingSignature) is None
    assert sealer.verify(text + "\n", ThinkingSignature) is None


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
        assert talk.good(without_limit(body), path="/v1/messages/count_tokens") == {"input_tokens": held}
        body = marked(continued(body, answer))


@pytest.mark.parametrize(("ttl", "lives"), [("5m", 299.0), ("1h", 3599.0)])
def test_a_cached_prefix_lives_its_time_and_longer_when_read(ttl: str, lives: float) -> None:
    now = [0.0]
    talk = Talk(now=now)
    body = request("plain", system=[{"type": "text", "text": LONG, "cache_control": {"type": "ephemeral", "ttl": ttl}}])
    assert talk.good(body)["usage"]["cache_creation"][f"ephemeral_{ttl}_input_tokens"] > 0
    for _ in range(2):
        now[0] += lives
        assert figures(talk.good(body))[0] > 0
    now[0] += lives + 2
    assert figures(talk.good(body))[0] == 0
