"""Streams of the Messages API: every recorded case, and rubbish that must never become anything but an error."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.anthropic_cases import ORIGIN, cases, expected, neutral, raw, run, stream
from tests.support.sizes import examples
from thinklsp.core import errors
from thinklsp.core.messages import TextBlock, ThinkingBlock
from thinklsp.providers.anthropic.adapter import AnthropicAdapter


def check_adapter(case: str) -> None:
    wanted = {"inputs": [], **expected(case)}
    wanted.pop("sdk_agrees")
    message, usage, explanation = run(stream(case))
    assert neutral(message, usage, explanation) == wanted
    for block in message.blocks:
        if isinstance(block, TextBlock):
            assert block.text == raw(block)["text"]
        if isinstance(block, ThinkingBlock):
            assert block.text == raw(block)["thinking"]


@pytest.mark.parametrize("case", cases(failing=False))
def test_recorded_stream(case: str) -> None:
    check_adapter(case)


@pytest.mark.parametrize("case", cases(failing=True))
def test_recorded_failure(case: str) -> None:
    wanted = expected(case)
    with pytest.raises(errors.ProviderError) as caught:
        run(stream(case))
    assert type(caught.value) is getattr(errors, wanted["error"])
    assert wanted["contains"] in str(caught.value)
    assert caught.value.retryable is wanted["retryable"]


def test_text_alone_is_kept_once() -> None:
    """And all else as it came: a field that nobody knows makes a text more than its text."""
    kept = [(raw(block), block.raw) for case in cases(failing=False) for block in run(stream(case))[0].blocks]
    assert {state is None for wire, state in kept if set(wire) == {"type", "text"}} == {True}
    others = [wire for wire, state in kept if state is not None]
    assert {wire["type"] for wire in others} > {"text", "thinking", "tool_use"}
    assert all(len(wire) > 2 for wire in others if wire["type"] == "text")


def test_keys_of_a_block_keep_their_order() -> None:
    message, _, _ = run(stream("thinking_then_tool"))
    assert list(raw(message.blocks[1])) == ["type", "id", "name", "input", "caller"]


@pytest.mark.parametrize("case", [case for case in cases(failing=False) if expected(case)["usage"]["input_tokens"]])
def test_every_prefix_of_a_stream_is_a_break_and_never_an_answer(case: str) -> None:
    """Cut after any event: no message without the terminal event."""
    whole = stream(case)
    end = whole.index(b"message_stop")
    places = [i + 2 for i in range(len(whole)) if whole[i : i + 2] == b"\n\n" and i < end]
    for place in places:
        with pytest.raises(errors.StreamProtocolError):
            run(whole[:place])


def as_events(*contents: Any) -> bytes:
    return "".join(f"data: {json.dumps(content)}\n\n" for content in contents).encode()


def test_arguments_without_end_are_given_up() -> None:
    decoder = AnthropicAdapter().decoder()
    piece = json.dumps(
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": "x" * 99_999}}
    )
    for _ in range(10):
        assert decoder.feed("", piece)
    with pytest.raises(errors.StreamProtocolError, match="million characters") as caught:
        decoder.feed("", piece)
    assert not caught.value.retryable


def test_arguments_nested_beyond_sense_do_not_parse() -> None:
    """They could be read and yet never be written into the next request."""
    deep = '{"a":' + "[" * 90 + "]" * 90 + "}"
    call = {"type": "tool_use", "id": "t", "name": "n", "input": {}}
    data = as_events(
        {"type": "message_start", "message": {"model": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": call},
        *[
            {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": part}}
            for part in (deep[:50], deep[50:])
        ],
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    )
    message, _, _ = run(data)
    assert message.tool_uses[0].input is None
    assert raw(message.blocks[0])["input"] == {}


_SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False)
_KEYS = st.sampled_from(
    ["type", "index", "delta", "content_block", "message", "usage", "error", "text", "thinking", "content", "input"]
)
_EVENT_TYPES = ["message_start", "content_block_start", "content_block_delta", "content_block_stop", "message_delta"]
_OTHER_TYPES = ["message_stop", "message", "error", "text", "thinking", "tool_use", "text_delta", "citations_delta"]
_TYPES = st.sampled_from([*_EVENT_TYPES, *_OTHER_TYPES])
_JSON = st.recursive(
    _SCALARS | _TYPES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=15,
)
_EVENTS = st.builds(lambda kind, rest: {**rest, "type": kind}, _TYPES, st.dictionaries(_KEYS, _JSON, max_size=5))


@settings(max_examples=examples(120), deadline=None)
@given(st.lists(_EVENTS | _JSON, max_size=6))
def test_rubbish_is_an_error_or_a_message_and_nothing_else(contents: list[Any]) -> None:
    opening = {"type": "message_start", "message": {"model": "m"}}
    for data in (as_events(*contents), as_events(opening, *contents)):
        try:
            message, _, _ = run(data, ORIGIN)
        except errors.ProviderError:
            continue
        assert all(raw(block) for block in message.blocks)
