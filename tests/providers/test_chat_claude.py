"""Claude behind OpenRouter and LiteLLM: signed thinking that goes back, and marks for the prompt cache."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.chat_samples import ENDPOINT, MODEL, PLAIN, as_events, body_of, call, chunk, model, run, server
from tests.support.samples import result, said
from thinklsp.core.messages import AssistantMessage, ThinkingBlock, UserMessage

CLAUDE = "claude-opus-5-5"


def streamed(*deltas: dict[str, Any], model_id: str = MODEL) -> AssistantMessage:
    data = as_events(*map(chunk, deltas), chunk(reason="stop"))
    return run(data, origin=ENDPOINT.build_origin(model_id), fits=False).message


def piece(text: str, signature: str = "", **other: Any) -> dict[str, Any]:
    signed = {"signature": signature} if signature else {}
    return {"reasoning_content": text, "thinking_blocks": [{"type": "thinking", "thinking": text, **signed}], **other}


def sent_back(answer: AssistantMessage, rule: str = "auto", model_id: str = MODEL) -> object:
    conversation = (UserMessage.from_text("A"), answer, UserMessage.from_text("B"))
    request = replace(PLAIN, model=model(model_id), conversation=conversation)
    return body_of(request, server(echo=rule))["messages"][2].get("thinking_blocks")


SIGNED = {"type": "thinking", "thinking": "Hm, well", "signature": "Sig1"}
REDACTED = {"type": "redacted_thinking", "data": "Enc1"}


def test_signed_thinking_of_a_gateway_goes_back_as_it_came() -> None:
    """Claude behind LiteLLM refused the second step of every tool loop."""
    closing = {"reasoning_content": "", "thinking_blocks": [{"type": "thinking", "thinking": "", "signature": "Sig1"}]}
    answer = streamed(
        piece("Hm, "), piece("well"), closing, {"thinking_blocks": [REDACTED]}, piece("Unsigned"), {"content": "Yes"}
    )
    block = answer.blocks[0]
    assert isinstance(block, ThinkingBlock)
    assert block.text == "Hm, wellUnsigned"
    assert sent_back(answer) == [SIGNED, REDACTED]
    assert sent_back(answer, "reasoning_details") == [SIGNED, REDACTED]
    assert sent_back(answer, "none") is None
    assert sent_back(answer, model_id="other") is None


@pytest.mark.parametrize("entries", ["Hm", [None, 1, {}], [{"type": "thinking", "thinking": 1, "signature": 2}], None])
def test_blocks_that_cannot_be_read_are_left_out(entries: object) -> None:
    answer = streamed({"thinking_blocks": entries, "content": "Yes"})
    assert [type(block).__name__ for block in answer.blocks] == ["TextBlock"]


_TEXTS = st.lists(st.text(min_size=1, max_size=4), min_size=1, max_size=3)


@given(st.lists(_TEXTS | st.none(), min_size=1, max_size=4))
def test_any_course_of_blocks_comes_back_in_order(course: list[list[str] | None]) -> None:
    """None stands for a redacted block."""
    deltas: list[dict[str, Any]] = []
    wanted: list[dict[str, Any]] = []
    for number, texts in enumerate(course):
        if texts is None:
            wanted.append({"type": "redacted_thinking", "data": f"E{number}"})
            deltas.append({"thinking_blocks": wanted[-1:]})
        else:
            wanted.append({"type": "thinking", "thinking": "".join(texts), "signature": f"S{number}"})
            deltas += [piece(text) for text in texts[:-1]] + [piece(texts[-1], f"S{number}")]
    assert sent_back(streamed(*deltas, {"content": "Yes"})) == wanted


def marked(messages: list[dict[str, Any]]) -> list[int]:
    return [
        index
        for index, message in enumerate(messages)
        if isinstance(message["content"], list) and message["content"][-1].get("cache_control") == {"type": "ephemeral"}
    ]


@pytest.mark.parametrize("kind", ["generic", "openrouter", "vllm"])
@pytest.mark.parametrize("name", [CLAUDE, "anthropic/claude-opus-5.5", "Claude-smart"])
def test_prompts_of_claude_are_marked_for_the_cache(kind: str, name: str) -> None:
    """Claude's prompts were paid for in full at every step."""
    conversation = (
        *(UserMessage.from_text("A"), said(call("t")), UserMessage((result("t"),))),
        *(said(call("u"), call("v")), UserMessage((result("u"), result("v", " ")))),
    )
    request = replace(PLAIN, model=model(name), conversation=conversation)
    body = body_of(request, server(kind))
    assert marked(body["messages"]) == [0, 3, 5]
    assert body["messages"][0]["content"][0]["text"] == "You are careful."
    without = body_of(replace(request, cache_hints=False), server(kind))["messages"]
    assert marked(without) == []
    assert marked(body_of(replace(request, system=""), server(kind))["messages"]) == [2, 4]


def test_a_question_stays_the_same_when_its_mark_moves_on() -> None:
    """Signed thinking is bound to what precedes it, and a text is not the same as a list with it."""
    opening = (UserMessage.from_text("A"), said(call("t"), call("u")), UserMessage((result("t"), result("u"))))
    longer = (*opening, said(call("v")), UserMessage((result("v"),)), said(call("w")), UserMessage((result("w"),)))
    bodies = [
        body_of(replace(PLAIN, model=model(CLAUDE), conversation=conversation))["messages"]
        for conversation in (opening, longer)
    ]
    for messages in bodies:
        for message in messages:
            for part in message["content"] if isinstance(message["content"], list) else ():
                part.pop("cache_control", None)
    before, after = bodies
    assert after[: len(before)] == before


def test_other_models_are_sent_no_marks() -> None:
    assert "cache_control" not in json.dumps(body_of(PLAIN, server("openrouter")))
