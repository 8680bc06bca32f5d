"""Streams of the Responses API: every recorded case, cut anywhere, and rubbish that must never become an answer."""

from __future__ import annotations

import json
import time
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.openai_cases import as_events, cases, expected, neutral, raw, run, run_whole, stream
from tests.support.sizes import examples
from thinklsp.core import errors
from thinklsp.core.messages import TextBlock, ThinkingBlock
from thinklsp.core.stream import BlockDelta, BlockStopped, ThinkingDelta
from thinklsp.providers import service_errors
from thinklsp.providers.openai_responses.adapter import OpenAiResponsesAdapter

READABLE = cases(failing=False)


def check_adapter(case: str) -> None:
    wanted = expected(case)
    wanted.pop("sdk_agrees")
    assert neutral(run(stream(case))) == wanted


@pytest.mark.parametrize("case", READABLE)
def test_recorded_stream(case: str) -> None:
    check_adapter(case)


@pytest.mark.parametrize("case", cases(failing=True))
def test_recorded_failure(case: str) -> None:
    wanted = expected(case)
    with pytest.raises(errors.ProviderError) as caught:
        run(stream(case))
    kind = getattr(errors, wanted["error"], None) or getattr(service_errors, wanted["error"])
    assert type(caught.value) is kind
    assert wanted["contains"] in str(caught.value)
    assert caught.value.retryable is wanted["retryable"]


@pytest.mark.parametrize("case", READABLE)
def test_what_is_shown_meanwhile_is_what_is_kept(case: str) -> None:
    """Word by word, except where the service itself took back what it had sent."""
    answer = run(stream(case))
    kept = {
        index: block.text
        for index, block in enumerate(answer.message.blocks)
        if isinstance(block, TextBlock | ThinkingBlock) and block.text
    }
    if case not in ("done_replaces_the_pieces", "summary_before_the_thinking_itself"):
        assert [answer.shown[index] for index in sorted(answer.shown)] == [kept[index] for index in sorted(kept)]


def test_thinking_in_thousands_of_parts_is_one_text_and_costs_no_more() -> None:
    """A server counts every piece as a part of its own."""
    count = 30_000
    decoder = OpenAiResponsesAdapter().decoder()
    began = time.process_time()
    shown = []
    for number in range(count):
        piece = {"type": "response.reasoning_text.delta", "output_index": 0, "content_index": number, "delta": "x"}
        shown += [
            event.delta.text
            for event in decoder.feed("", json.dumps(piece))
            if isinstance(event, BlockDelta) and isinstance(event.delta, ThinkingDelta)
        ]
    assert "".join(shown) == "x" * count
    ending = decoder.feed("", '{"type": "response.completed", "response": {}}')
    assert [event.text for event in ending if isinstance(event, BlockStopped)] == [None], "as it was shown"
    assert time.process_time() - began < 4


def test_messages_by_the_thousand_cost_no_more() -> None:
    decoder = OpenAiResponsesAdapter().decoder()
    began = time.process_time()
    for number in range(20_000):
        piece = {"type": "response.output_text.delta", "output_index": number, "content_index": 0, "delta": "x"}
        decoder.feed("", json.dumps(piece))
    assert time.process_time() - began < 3


def test_a_stream_cut_at_any_byte_is_a_break_or_the_whole_answer() -> None:
    whole = stream("text")
    message = run(whole).message
    end_of_data = len(whole.rstrip(b"\n"))
    for place in range(len(whole)):
        if place < end_of_data:
            with pytest.raises(errors.StreamProtocolError):
                run(whole[:place])
        else:
            assert run(whole[:place]).message == message


@settings(max_examples=examples(80), deadline=None)
@given(st.sampled_from(READABLE), st.data())
def test_pieces_of_any_size_give_the_same_message(case: str, data: st.DataObject) -> None:
    whole = stream(case)
    cuts = sorted({0, len(whole), *data.draw(st.lists(st.integers(0, len(whole)), max_size=12))})
    chunks = [whole[start:end] for start, end in pairwise(cuts)]
    wanted = expected(case)
    wanted.pop("sdk_agrees")
    assert neutral(run(chunks)) == wanted


@pytest.mark.parametrize("case", READABLE)
def test_every_prefix_of_a_stream_is_a_break_and_never_an_answer(case: str) -> None:
    """Cut after any event: no message without the terminal event."""
    parts = stream(case).replace(b"\r\n", b"\n").split(b"\n\n")
    end = next(i for i, part in enumerate(parts) if b"response.completed" in part or b"response.incomplete" in part)
    for count in range(end):
        with pytest.raises(errors.StreamProtocolError):
            run(b"\n\n".join(parts[:count]) + b"\n\n")


def test_keys_of_an_item_keep_their_order() -> None:
    block = run(stream("thinking_then_tool")).message.blocks[1]
    assert list(raw(block)) == ["id", "type", "status", "call_id", "name", "arguments"]


WHOLE: dict[str, Any] = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "error": None,
    "incomplete_details": None,
    "model": "gpt-6-sol",
    "output": [
        {"id": "rs_1", "type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}], "content": []},
        {"id": "fc_1", "type": "function_call", "call_id": "call_1", "name": "list_files", "arguments": "{}"},
    ],
    "usage": {"input_tokens": 5, "output_tokens": 6},
}


def test_a_whole_response_takes_the_same_road() -> None:
    answer = run_whole(WHOLE)
    assert [raw(block) for block in answer.message.blocks] == WHOLE["output"]
    assert (answer.message.thinking, answer.message.tool_uses[0].input) == ("Hm.", {})
    assert answer.message.stop_reason == "tool_use"
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (5, 6)
    cut = run_whole(WHOLE | {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}})
    assert (cut.message.stop_reason, cut.message.tool_uses[0].input) == ("max_tokens", None)


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        (WHOLE | {"status": "failed", "error": {"code": "server_error", "message": "x"}}, errors.Overloaded),
        (WHOLE | {"status": "in_progress"}, errors.StreamProtocolError),
        ({"error": {"message": "x", "type": "invalid_request_error", "code": None}}, errors.BadRequest),
        ({"something": "else"}, errors.StreamProtocolError),
    ],
)
def test_a_whole_body_that_is_no_answer(body: Any, kind: type[errors.ProviderError]) -> None:
    with pytest.raises(kind) as caught:
        run_whole(body)
    assert type(caught.value) is kind


def test_a_wait_that_is_told_in_mid_stream_is_kept() -> None:
    with pytest.raises(errors.RateLimited) as caught:
        run(stream("error_flat_rate_limit"))
    assert caught.value.retry_after == 1.5


def piece(text: str) -> str:
    return json.dumps({"type": "response.function_call_arguments.delta", "output_index": 0, "delta": text})


def test_arguments_without_end_are_given_up() -> None:
    decoder = OpenAiResponsesAdapter().decoder()
    for _ in range(10):
        decoder.feed("", piece("x" * 99_999))
    with pytest.raises(errors.StreamProtocolError, match="million characters") as caught:
        decoder.feed("", piece("x" * 99_999))
    assert not caught.value.retryable
    item = {"type": "function_call", "call_id": "c", "name": "n", "arguments": "x" * 1_100_000}
    with pytest.raises(errors.StreamProtocolError, match="million characters"):
        run(as_events({"type": "response.output_item.done", "output_index": 0, "item": item}))


def test_arguments_of_an_honest_size_are_not_counted_twice() -> None:
    arguments = json.dumps({"content": "x" * 900_000})
    item = {"type": "function_call", "call_id": "c", "name": "n", "arguments": arguments}
    contents = [
        json.loads(piece(arguments)),
        {"type": "response.function_call_arguments.done", "output_index": 0, "arguments": arguments},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"output": [item]}},
    ]
    assert run(as_events(*contents)).message.tool_uses[0].input == {"content": "x" * 900_000}


def test_arguments_nested_beyond_sense_do_not_parse() -> None:
    """They could be read and yet never be written into the next request."""
    deep = '{"a":' + "[" * 90 + "]" * 90 + "}"
    item = {"type": "function_call", "call_id": "c", "name": "n", "arguments": deep}
    message = run(as_events({"type": "response.completed", "response": {"output": [item]}})).message
    assert message.tool_uses[0].input is None


_SCALARS = st.none() | st.booleans() | st.integers() | st.text(max_size=5) | st.floats(allow_nan=False)
_KEYS = st.sampled_from(
    [
        *("type", "output_index", "item", "delta", "part", "response", "output", "usage", "error", "text", "object"),
        *("content", "summary", "id", "call_id", "name", "status", "content_index", "summary_index", "arguments"),
    ]
)
_TYPES = st.sampled_from(
    [
        *(f"response.output_item.{end}" for end in ("added", "done")),
        *(
            f"response.{kind}.{end}"
            for kind in ("output_text", "refusal", "reasoning_text")
            for end in ("delta", "done")
        ),
        *(f"response.function_call_arguments.{end}" for end in ("delta", "done")),
        *("response.reasoning_summary_text.delta", "response.reasoning_summary_part.done"),
        *("response.content_part.done", "response.completed", "response.incomplete", "response.created"),
        *("message", "reasoning", "function_call", "output_text", "summary_text", "web_search_call", "error"),
    ]
)
_JSON = st.recursive(
    _SCALARS | _TYPES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(_KEYS, inner, max_size=5),
    max_leaves=15,
)
_ITEMS = st.builds(
    lambda kind, rest: {**rest, "type": kind},
    st.sampled_from(["message", "reasoning", "function_call", "odd"]),
    st.dictionaries(_KEYS, _JSON, max_size=4),
)
_EVENTS = st.builds(
    lambda kind, rest, index, item: {"output_index": index, "item": item, **rest, "type": kind},
    _TYPES,
    st.dictionaries(_KEYS, _JSON, max_size=3),
    st.integers(0, 3),
    _ITEMS,
)


@settings(max_examples=examples(200), deadline=None)
@given(st.lists(_EVENTS | _JSON, max_size=6), st.lists(_ITEMS, max_size=3))
def test_rubbish_is_an_error_or_a_message_and_nothing_else(contents: list[Any], output: list[Any]) -> None:
    end = {"type": "response.completed", "response": {"id": "r", "output": output}}
    for data in (as_events(*contents), as_events(*contents, end)):
        try:
            answer = run(data)
        except errors.ProviderError:
            continue
        assert all(block.raw is not None for block in answer.message.blocks)
