"""Thinking comes back unmodified, in order, complete in a tool loop, and behind its own prefix - or is refused."""

from __future__ import annotations

import base64
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from tests.support.simulator_talk import Talk, continued, request

SUMMARIZED = {"type": "adaptive", "display": "summarized"}
MODIFIED = "blocks in the latest assistant message cannot be modified. These blocks must remain as they were"
BOUND = (
    "Invalid `signature` in `thinking` block. The block is bound to a different conversation. Remove the block, or "
    'set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block".'
)
BINDING_BETA = "thinking-binding-controls-2026-08-01"
Content = list[dict[str, Any]]


def in_loop(talk: Talk, **changes: Any) -> dict[str, Any]:
    """The third request of a tool loop: two answers with thinking stand before it."""
    body = request(thinking=SUMMARIZED, **changes)
    body = continued(body, talk.good(body))
    return continued(body, talk.good(body))


def other_byte(text: str, position: int) -> str:
    return text[:position] + ("A" if text[position] != "A" else "B") + text[position + 1 :]


def change_signature(content: Content) -> None:
    content[0]["signature"] = other_byte(content[0]["signature"], 100)


def change_last_byte(content: Content) -> None:
    content[0]["signature"] = other_byte(content[0]["signature"], len(content[0]["signature"]) - 1)


def cut_signature(content: Content) -> None:
    content[0]["signature"] = content[0]["signature"][:-4]


def reencode(content: Content) -> None:
    """The same bytes in another base64 alphabet."""
    content[0]["signature"] = base64.urlsafe_b64encode(base64.b64decode(content[0]["signature"])).decode() + "="


def change_data(content: Content) -> None:
    content[1]["data"] = other_byte(content[1]["data"], 50)


def exchange_kinds(content: Content) -> None:
    content[1]["data"] = content[0]["signature"]


def change_text(content: Content) -> None:
    content[0]["thinking"] += " "


def empty_text(content: Content) -> None:
    content[0]["thinking"] = ""


def drop_redacted(content: Content) -> None:
    del content[1]


def drop_first(content: Content) -> None:
    del content[0]


def drop_all(content: Content) -> None:
    content[:] = [block for block in content if "thinking" not in block["type"]]


def swap(content: Content) -> None:
    content[0], content[2] = content[2], content[0]


def behind_calls(content: Content) -> None:
    content.append(content.pop(0))


def double(content: Content) -> None:
    content.insert(0, dict(content[0]))


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (change_signature, "messages.1.content.0: Invalid `signature` in `thinking` block"),
        (change_last_byte, "messages.1.content.0: Invalid `signature` in `thinking` block"),
        (cut_signature, "messages.1.content.0: Invalid `signature` in `thinking` block"),
        (reencode, "messages.1.content.0: Invalid `signature` in `thinking` block"),
        (change_data, "messages.1.content.1: Invalid `data` in `redacted_thinking` block"),
        (exchange_kinds, "messages.1.content.1: Invalid `data` in `redacted_thinking` block"),
        (change_text, f"messages.1.content.0: `thinking` or `redacted_thinking` {MODIFIED}"),
        (empty_text, f"messages.1.content.0: `thinking` or `redacted_thinking` {MODIFIED}"),
        (drop_redacted, f"messages.1.content.1: `thinking` or `redacted_thinking` {MODIFIED}"),
        (drop_first, f"messages.1.content.0: `thinking` or `redacted_thinking` {MODIFIED}"),
        (drop_all, f"messages.1.content.1: `thinking` or `redacted_thinking` {MODIFIED}"),
        (swap, f"messages.1.content.0: `thinking` or `redacted_thinking` {MODIFIED}"),
        (behind_calls, f"messages.1.content.0: `thinking` or `redacted_thinking` {MODIFIED}"),
        (double, f"messages.1.content.1: `thinking` or `redacted_thinking` {MODIFIED}"),
    ],
)
@pytest.mark.parametrize("model", ["claude-opus-4-8", "claude-mythos-5-1"])
def test_a_changed_replay_is_refused(change: Callable[[Content], None], expected: str, model: str) -> None:
    talk = Talk()
    body = in_loop(talk, model=model)
    assert talk.good(body)["stop_reason"] == "end_turn"
    change(body["messages"][1]["content"])
    message = talk.refused(body)
    assert message.startswith(expected)
    if "Invalid" in expected:
        assert message == expected


@pytest.mark.parametrize("change", [drop_redacted, drop_all, swap, change_text])
def test_a_changed_replay_is_refused_on_bound_models_too(change: Callable[[Content], None]) -> None:
    talk = Talk()
    body = in_loop(talk)
    change(body["messages"][1]["content"])
    assert "messages.1.content" in talk.refused(body) or "messages.3.content" in talk.refused(body)


def test_a_block_of_another_process_is_refused() -> None:
    body = in_loop(Talk())
    assert "Invalid `signature`" in Talk().refused(body)


def test_text_in_an_omitted_block_is_ignored_and_display_may_change() -> None:
    talk = Talk()
    body = request()
    answer = talk.good(body)
    assert [block["thinking"] for block in answer["content"] if block["type"] == "thinking"] == ["", ""]
    body = continued(body, answer)
    body["messages"][1]["content"][0]["thinking"] = "filled in by the client"
    assert talk.good({**body, "thinking": SUMMARIZED})["content"][0]["thinking"] == "In between."


def test_outside_a_tool_loop_earlier_thinking_may_be_left_out() -> None:
    talk = Talk()
    body = request("plain", "claude-opus-4-8", thinking=SUMMARIZED)
    body = continued(body, talk.good(body), "plain")
    drop_all(body["messages"][1]["content"])
    talk.good(body)


def test_changed_thinking_of_an_earlier_turn_has_an_invalid_signature() -> None:
    talk = Talk()
    body = request("plain", thinking=SUMMARIZED)
    body = continued(body, talk.good(body), "plain")
    change_text(body["messages"][1]["content"])
    assert talk.refused(body) == "messages.1.content.0: Invalid `signature` in `thinking` block"


@dataclass(frozen=True)
class Prefix:
    """A change to a request in a tool loop, and whether thinking still belongs to it on models that bind it."""

    id: str
    harmless: bool
    change: Callable[[dict[str, Any]], None]


def first_text(body: dict[str, Any]) -> dict[str, Any]:
    return body["messages"][0]


PREFIXES = [
    Prefix("same", True, lambda body: None),
    Prefix("effort", True, lambda body: body.update(output_config={"effort": "low"})),
    Prefix("max_tokens", True, lambda body: body.update(max_tokens=4000)),
    Prefix("tool_choice", True, lambda body: body.update(tool_choice={"type": "none"})),
    Prefix("metadata", True, lambda body: body.update(metadata={"user_id": "u"})),
    Prefix("display", True, lambda body: body.update(thinking={"type": "adaptive", "display": "omitted"})),
    Prefix("cache_control", True, lambda body: body["tools"][0].update(cache_control={"type": "ephemeral"})),
    Prefix("text_as_block", True, lambda b: first_text(b).update(content=[{"type": "text", "text": "loop"}])),
    Prefix("system_as_block", True, lambda body: body.update(system=[{"type": "text", "text": "You help."}])),
    Prefix(
        "deferred_tool",
        True,
        lambda body: body["tools"].append({"name": "late", "input_schema": {"type": "object"}, "defer_loading": True}),
    ),
    Prefix("system", False, lambda body: body.update(system="You help. Today is Friday.")),
    Prefix("tool_description", False, lambda body: body["tools"][0].update(description="Another")),
    Prefix("tool_order", False, lambda body: body["tools"].reverse()),
    Prefix("first_message", False, lambda body: first_text(body).update(content="loop, please")),
    Prefix("result", False, lambda body: body["messages"][2]["content"][0].update(content="another")),
]


@pytest.mark.parametrize("case", PREFIXES, ids=lambda case: case.id)
def test_bound_models_want_the_same_prefix(case: Prefix) -> None:
    talk = Talk()
    body = in_loop(talk)
    case.change(body)
    if case.harmless:
        talk.good(body)
        return
    message = talk.refused(body)
    assert BOUND in message
    assert message.endswith(
        "That setting requires the `thinking-binding-controls-2026-08-01` value in the `anthropic-beta` header."
    )
    assert talk.refused(body, anthropic_beta=BINDING_BETA).endswith('to "drop_block".')
    assert BOUND in talk.refused(_counted(body), path="/v1/messages/count_tokens")
    dropping = {**body, "thinking": {"type": "adaptive", "block_binding": {"prefix_mismatch_behavior": "drop_block"}}}
    answer = talk.good(dropping, anthropic_beta=BINDING_BETA)
    paths = [entry["path"] for entry in answer["input_transformations"]]
    assert {entry["reason"] for entry in answer["input_transformations"]} == {"prefix_binding_mismatch"}
    assert paths[-1] == "messages.3.content.0"
    for message in body["messages"][1::2]:
        drop_all(message["content"])
    talk.good(body)


@pytest.mark.parametrize("model", ["claude-opus-5", "claude-mythos-5-1", "claude-sonnet-4-6"])
def test_other_models_do_not_mind_another_prefix(model: str) -> None:
    talk = Talk()
    body = in_loop(talk, model=model)
    body["system"] = "Another."
    talk.good(body)


def _counted(body: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in body.items() if key != "max_tokens"}


def test_thinking_may_go_from_the_front_but_not_from_the_middle_and_never_come_back() -> None:
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


def test_blocks_of_another_model_are_dropped_and_told_with_the_beta_only() -> None:
    talk = Talk()
    body = request("plain")
    body = continued(body, talk.good(body), "plain")
    body["model"] = "claude-sonnet-5-5"
    assert "input_transformations" not in talk.good(body)
    told = talk.good(body, anthropic_beta=BINDING_BETA)["input_transformations"]
    assert told == [{"type": "thinking_dropped", "path": "messages.1.content.0", "reason": "model_binding_mismatch"}]
    start = talk.events(body, anthropic_beta=BINDING_BETA)[0]
    assert start["message"]["input_transformations"] == told


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


def test_manual_thinking_stands_between_tool_calls_only_with_the_header() -> None:
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


def test_manual_thinking_in_a_loop_without_it() -> None:
    talk = Talk()
    body = request(model="claude-opus-4-5")
    body = continued(body, talk.good(body))
    switched = talk.good({**body, "thinking": MANUAL}, **INTERLEAVED)
    assert [block["type"] for block in switched["content"]] == ["tool_use"], "silently without thinking"
    foreign = {**body, "thinking": MANUAL}
    for message in foreign["messages"][1:]:
        for block in message["content"]:
            key = {"tool_use": "id", "tool_result": "tool_use_id"}.get(block["type"])
            if key:
                block[key] = f"foreign_{block[key][-4:]}"
    assert "Expected `thinking` or `redacted_thinking`, but found `text`" in talk.refused(foreign)


def test_thinking_switched_off_in_a_loop_is_no_error() -> None:
    talk = Talk()
    body = in_loop(talk, model="claude-opus-4-8")
    body["thinking"] = {"type": "disabled"}
    assert [block["type"] for block in talk.good(body)["content"]] == ["text"]
    for message in body["messages"][1::2]:
        drop_all(message["content"])
    talk.good(body)


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


def test_merged_and_separate_messages_are_the_same_conversation() -> None:
    talk = Talk()
    body = in_loop(talk)
    results = body["messages"][2]["content"]
    body["messages"][2:3] = [{"role": "user", "content": [result]} for result in results]
    assert talk.good(body)["content"][-1]["text"] == "Done with result 1."
    body = request("pause")
    first = talk.good(body)
    body = continued(body, first)
    body = continued(body, talk.good(body), "plain")
    talk.good(body)
    merged = body["messages"][1]["content"] + body["messages"][2]["content"]
    body["messages"][1:3] = [{"role": "assistant", "content": merged}]
    talk.good(body)


def test_what_was_forgotten_is_not_held_against_anybody() -> None:
    talk = Talk()
    body = in_loop(talk)
    talk.dialect.reset()
    talk.good(body)
