"""What goes back to the Messages API: own blocks as they came, foreign ones rebuilt, in a shape that it takes."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.anthropic_cases import ENDPOINT, cases, expected, raw, run, stream
from tests.support.anthropic_requests import PLAIN, asked, call, loop, result, said, sealed, text, thinking
from tests.support.anthropic_wire import ADAPTER, body_of, marks, messages_of, unmarked
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    OpaqueBlock,
    RedactedThinkingBlock,
    TextBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.providers.base import Thinking
from thinklsp.providers.catalog import lookup

BUDGET = replace(PLAIN, thinking=Thinking("manual", 10_000))


def test_what_was_issued_here_goes_back_as_it_came() -> None:
    conversation = loop()
    messages = messages_of(conversation)
    assert [message["role"] for message in messages] == ["user", "assistant", "user", "assistant", "user"]
    for index in (1, 3):
        message = conversation[index]
        assert isinstance(message, AssistantMessage)
        assert messages[index]["content"] == [raw(block) for block in message.blocks]


@pytest.mark.parametrize("case", [case for case in cases(failing=False) if expected(case)["blocks"]])
def test_recorded_answers_survive_the_round_trip(case: str) -> None:
    answer, _, _ = run(stream(case))
    sent = messages_of((UserMessage.of("x"), answer, UserMessage.of("y")))[1]["content"]
    # Blank text is refused by the service; a message may not end with thinking.
    assert [block for block in sent if block.get("text") != "(no text)"] == [
        block for block in expected(case)["blocks"] if block.get("text") != ""
    ]


FOREIGN = [{"model": "claude-opus-5"}, {"host": "https://other.example"}, {"key": "0" * 16}, {"provider": "openai"}]


@pytest.mark.parametrize("origin", FOREIGN, ids=lambda origin: next(iter(origin)))
def test_foreign_state_is_dropped_whole_and_text_is_kept(origin: dict[str, str]) -> None:
    request = replace(PLAIN, conversation=loop(**origin))
    sent = bytes(ADAPTER.encode(request, ENDPOINT).body).decode()
    for secret in ("Sig1", "Sig2", "Rd1", "srvtoolu_1", "caller"):
        assert secret not in sent
    read = {"type": "tool_use", "name": "read_file", "input": {"path": "a"}}
    messages = unmarked(body_of(request)["messages"])
    assert messages[1]["content"] == [{"type": "text", "text": "Looking."}, {"id": "toolu_1", **read}]
    assert messages[3]["content"] == [{"id": "toolu_2", **read}, {"id": "toolu_3", **read}]


def test_ids_of_other_services_are_made_fit_on_both_sides() -> None:
    block = ToolUseBlock("call|a.b/é", "read_file", None)
    messages = unmarked(messages_of((UserMessage.of("x"), said(block), asked(result("call|a.b/é")))))
    assert messages[1]["content"][0] == {"type": "tool_use", "id": "call_a_b__", "name": "read_file", "input": {}}
    assert messages[2]["content"][0]["tool_use_id"] == "call_a_b__"


EMPTY = {"type": "text", "text": "(no text)"}
SHAPES: dict[str, tuple[Conversation, list[dict[str, Any]]]] = {
    "same roles are merged": (
        (UserMessage.of("a"), UserMessage.of("b"), said(text("c")), said(text("d")), UserMessage.of("e")),
        [
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "c"}, {"type": "text", "text": "d"}]},
            {"role": "user", "content": [{"type": "text", "text": "e"}]},
        ],
    ),
    "results first, texts after": (
        (
            UserMessage.of("a"),
            said(call("t1"), call("t2")),
            asked(TextBlock("note"), result("t1")),
            asked(result("t2")),
        ),
        [
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "assistant", "content": [raw(call("t1")), raw(call("t2"))]},
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "t1", "content": "content"},
                    {"type": "tool_result", "tool_use_id": "t2", "content": "content"},
                    {"type": "text", "text": "note"},
                ],
            },
        ],
    ),
    "errors say so, empty results stay": (
        (UserMessage.of("a"), said(call("t1")), asked(result("t1", "", is_error=True))),
        [
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "assistant", "content": [raw(call("t1"))]},
            {
                "role": "user",
                "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "", "is_error": True}],
            },
        ],
    ),
    "blank texts go": (
        (asked(TextBlock(""), TextBlock("a"), TextBlock(" \n")), said(text(""), text("b")), UserMessage.of("c")),
        [
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "assistant", "content": [{"type": "text", "text": "b"}]},
            {"role": "user", "content": [{"type": "text", "text": "c"}]},
        ],
    ),
    "an empty message gets a placeholder": (
        (UserMessage.of("a"), said(thinking("S", model="other")), UserMessage.of("b"), said(), UserMessage.of("")),
        [
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "assistant", "content": [EMPTY]},
            {"role": "user", "content": [{"type": "text", "text": "b"}]},
            {"role": "assistant", "content": [EMPTY]},
            {"role": "user", "content": [EMPTY]},
        ],
    ),
    "no message ends with thinking": (
        (UserMessage.of("a"), said(thinking("S")), UserMessage.of("b")),
        [
            {"role": "user", "content": [{"type": "text", "text": "a"}]},
            {"role": "assistant", "content": [raw(thinking("S")), EMPTY]},
            {"role": "user", "content": [{"type": "text", "text": "b"}]},
        ],
    ),
}


@pytest.mark.parametrize("name", SHAPES)
def test_messages(name: str) -> None:
    conversation, wire = SHAPES[name]
    assert unmarked(messages_of(conversation)) == wire


def test_thinking_without_signature_goes_back_only_where_it_came_from() -> None:
    block = said(OpaqueBlock("thinking", sealed({"type": "thinking", "thinking": "hm"})), text("x"))
    conversation = (UserMessage.of("a"), block, UserMessage.of("b"))
    assert {"type": "thinking", "thinking": "hm"} in messages_of(conversation)[1]["content"]
    elsewhere = replace(ENDPOINT, base_url="http://127.0.0.1:8080")
    sent = body_of(replace(PLAIN, conversation=conversation), elsewhere)["messages"]
    assert sent[1]["content"] == [{"type": "text", "text": "x"}]


MANUAL_LOOPS: dict[str, tuple[Conversation, str]] = {
    "own thinking opens the loop": (loop(model="claude-sonnet-4-5"), "enabled"),
    "thinking only at the start of the loop": (
        (
            UserMessage.of("a"),
            said(thinking("S", model="claude-sonnet-4-5"), call("t1")),
            asked(result("t1")),
            said(call("t2")),
            asked(result("t2")),
        ),
        "enabled",
    ),
    "foreign thinking was dropped": (loop(), "disabled"),
    "the loop began without thinking and the user spoke into it": (
        (UserMessage.of("a"), said(call("t1")), asked(result("t1"), TextBlock("go on"))),
        "disabled",
    ),
    "the loop is over": ((*loop(), said(text("done")), UserMessage.of("next")), "enabled"),
    "redacted thinking counts": (
        (
            UserMessage.of("a"),
            said(
                RedactedThinkingBlock(sealed({"type": "redacted_thinking", "data": "d"}, "claude-sonnet-4-5")),
                call("t1"),
            ),
            asked(result("t1")),
        ),
        "enabled",
    ),
    "first question": ((UserMessage.of("a"),), "enabled"),
    "the beginning is cut away": ((said(call("t1")), asked(result("t1"))), "disabled"),
}


@pytest.mark.parametrize("name", MANUAL_LOOPS)
def test_a_budget_needs_a_tool_loop_that_began_with_thinking(name: str) -> None:
    conversation, form = MANUAL_LOOPS[name]
    request = replace(BUDGET, model=lookup("anthropic", "claude-sonnet-4-5"), conversation=conversation)
    encoded = ADAPTER.encode(request, ENDPOINT)
    assert json.loads(bytes(encoded.body))["thinking"]["type"] == form
    assert ("interleaved" in encoded.headers.get("anthropic-beta", "")) is (form == "enabled")
    adaptive = replace(PLAIN, conversation=conversation)
    assert body_of(adaptive)["thinking"]["type"] == "adaptive"


def test_a_model_that_cannot_do_without_thinking_decides_for_itself() -> None:
    model = replace(lookup("anthropic", "claude-sonnet-4-5"), off=None)
    conversation = (UserMessage.of("a"), said(call("t1")), asked(result("t1")))
    body = body_of(replace(BUDGET, model=model, conversation=conversation))
    assert body["thinking"] == {"type": "adaptive", "display": "omitted"}


_TEXTS = st.text(max_size=6)
_USER = st.lists(st.builds(TextBlock, _TEXTS) | st.builds(result, st.sampled_from(["t1", "t2"]), _TEXTS), max_size=3)
_ORIGINS = st.sampled_from([{}, {"model": "claude-opus-5"}])
_ASSISTANT = st.lists(
    st.builds(lambda value, origin: text(value, **origin), _TEXTS, _ORIGINS)
    | st.builds(lambda origin: thinking("Sig", **origin), _ORIGINS)
    | st.builds(lambda origin: call("t1", **origin), _ORIGINS),
    max_size=4,
)
_MESSAGES = st.builds(lambda blocks: asked(*blocks), _USER) | st.builds(lambda blocks: said(*blocks), _ASSISTANT)


@settings(max_examples=200, deadline=None)
@given(st.lists(_MESSAGES, min_size=1, max_size=7))
def test_whatever_the_history_the_shape_is_what_the_service_takes(conversation: list[Any]) -> None:
    messages = messages_of(tuple(conversation))
    roles = [message["role"] for message in messages]
    assert all(one != other for one, other in pairwise(roles))
    for message in messages:
        kinds = [block["type"] for block in message["content"]]
        assert kinds
        assert all(block["text"].strip() for block in message["content"] if block["type"] == "text")
        if message["role"] == "user":
            assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result")
        else:
            # Only a paused answer stands last, and it goes back as it came.
            assert kinds[-1] != "thinking" or message is messages[-1]
            assert not marks(message)
    assert len(marks(messages)) <= 2
    own = [
        raw(block)
        for message in conversation
        if isinstance(message, AssistantMessage)
        for block in message.blocks
        if block.raw is not None and block.raw.belongs_to(ENDPOINT.origin(PLAIN.model.id)) and block.kind == "thinking"
    ]
    assert [block for message in messages for block in message["content"] if block["type"] == "thinking"] == own
