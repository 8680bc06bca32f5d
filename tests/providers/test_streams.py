"""Streams of all families: every recorded case, and rubbish that must become nothing but an error."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.providers.families import FAMILIES, find_message, list_cases, read_case
from tests.providers.rubbish import RUBBISH
from tests.support import anthropic_samples, chat_samples, openai_samples
from tests.support.openai_samples import as_events, run_whole
from tests.support.sizes import examples
from thinklsp.core import errors
from thinklsp.core.messages import TextBlock, ThinkingBlock
from thinklsp.core.stream_events import (
    BlockDelta,
    BlockStopped,
    MessageAccumulator,
    MessageFinished,
    MessageStarted,
    ThinkingDelta,
)
from thinklsp.http.sse import SseDecoder
from thinklsp.providers import failures
from thinklsp.providers.chat_adapter import OpenAiChatAdapter

READABLE = list_cases(failing=False)
# What the `.json` files say about the tests, and not about the answer.
ABOUT_TESTS = ("sdk_agrees", "sdk", "server", "think_tags")


@pytest.mark.parametrize(("family", "case"), READABLE)
def test_a_recorded_stream_becomes_its_message(family: str, case: str) -> None:
    samples, outcome = FAMILIES[family].samples, read_case(family, case)
    wanted = {key: value for key, value in samples.expected(case).items() if key not in ABOUT_TESTS}
    if isinstance(outcome, tuple):
        assert samples.neutral(*outcome) == {"inputs": [], **wanted}
        for block in outcome[0].blocks:
            if isinstance(block, TextBlock | ThinkingBlock):
                raw = samples.raw(block)
                assert block.text == raw.get("text", raw.get("thinking"))
    else:
        assert samples.neutral(outcome) == wanted


@pytest.mark.parametrize(("family", "case"), list_cases(failing=True))
def test_a_recorded_failure_raises_its_error(family: str, case: str) -> None:
    wanted = FAMILIES[family].samples.expected(case)
    with pytest.raises(errors.ProviderError) as caught:
        read_case(family, case)
    kind = getattr(errors, wanted["error"], None) or getattr(failures, wanted["error"])
    assert type(caught.value) is kind
    assert wanted["contains"] in str(caught.value)
    assert caught.value.retryable is wanted["retryable"]
    assert family != "google" or caught.value.retry_after == wanted.get("retry_after")


# Here the service took back what it had sent, nothing announced the thinking, or deltas fit no block.
CHANGED = (
    *(("anthropic", f"delta_of_{block}") for block in ("a_closed_block", "an_unknown_block")),
    *(("anthropic", case) for case in ("misfit_deltas", "words_in_the_opening")),
    ("openai", "done_replaces_the_pieces"),
    ("openai", "summary_before_the_thinking_itself"),
    ("chat", "think_tags_closed_but_never_opened"),
)


@pytest.mark.parametrize(("family", "case"), [row for row in READABLE if row not in CHANGED])
def test_what_is_shown_is_what_is_kept(family: str, case: str) -> None:
    samples, adapter = FAMILIES[family].samples, FAMILIES[family].adapter
    if family == "chat":
        adapter = OpenAiChatAdapter(samples.server_of(case))
    sse, decoder = SseDecoder(), adapter.create_decoder()
    sent = [*sse.feed(samples.stream(case)), *sse.finish()]
    events = [event for one in sent for event in decoder.feed(one.event, one.data)]
    events += decoder.finish()
    assert isinstance(events[0], MessageStarted)
    assert [event for event in events if isinstance(event, MessageFinished)] == [events[-1]]
    shown: dict[int, str] = {}
    for event in events:
        if isinstance(event, BlockDelta) and hasattr(event.delta, "text"):
            shown[event.index] = shown.get(event.index, "") + event.delta.text
    blocks = find_message(read_case(family, case)).blocks
    kept = [block.text for block in blocks if isinstance(block, TextBlock | ThinkingBlock) and block.text]
    assert [shown[index] for index in sorted(shown) if shown[index]] == kept


ORDERS: Mapping[str, tuple[str, int, list[str]]] = {
    "anthropic": ("thinking_then_tool", 1, ["type", "id", "name", "input", "caller"]),
    "openai": ("thinking_then_tool", 1, ["id", "type", "status", "call_id", "name", "arguments"]),
    "google": ("thinking_then_tool", 1, ["functionCall", "thoughtSignature"]),
    "chat": ("signed_calls", 0, ["id", "type", "function", "extra_content"]),
}


@pytest.mark.parametrize("family", ORDERS)
def test_keys_of_a_block_keep_their_order(family: str) -> None:
    case, index, keys = ORDERS[family]
    block = FAMILIES[family].samples.raw(find_message(read_case(family, case)).blocks[index])
    assert list(block) == keys
    assert family != "google" or list(block["functionCall"]) == ["id", "name", "args"]


LONG = "x" * 99_999
# What opens a call, and a piece of its arguments.
ENDLESS: Mapping[str, tuple[list[Any], Any]] = {
    "anthropic": (
        [
            {"type": "message_start", "message": {"model": "m"}},
            {"type": "content_block_start", "index": 0, "content_block": {"type": "tool_use", "id": "t", "name": "n"}},
        ],
        {"type": "content_block_delta", "index": 0, "delta": {"type": "input_json_delta", "partial_json": LONG}},
    ),
    "openai": ([], {"type": "response.function_call_arguments.delta", "output_index": 0, "delta": LONG}),
    "chat": (
        [],
        chat_samples.chunk({"tool_calls": [{"index": 0, "id": "t", "function": {"name": "f", "arguments": LONG}}]}),
    ),
}


@pytest.mark.parametrize("family", ENDLESS)
def test_arguments_without_end_are_given_up(family: str) -> None:
    decoder = FAMILIES[family].adapter.create_decoder()
    accumulator = MessageAccumulator(FAMILIES[family].samples.ORIGIN)

    def feed(*contents: Any) -> None:
        for content in contents:
            for event in decoder.feed("", json.dumps(content)):
                accumulator.apply(event)

    opening, piece = ENDLESS[family]
    feed(*opening, *[piece] * 10)
    with pytest.raises(errors.StreamProtocolError, match="million characters") as caught:
        feed(piece)
    assert not caught.value.retryable


def openai_call(arguments: str) -> dict[str, Any]:
    return {"type": "function_call", "call_id": "c", "name": "n", "arguments": arguments}


def anthropic_call(*parts: str) -> list[dict[str, Any]]:
    block = {"type": "tool_use", "id": "t", "name": "n", "input": {}}
    deltas = [{"type": "input_json_delta", "partial_json": part} for part in parts]
    return [
        {"type": "message_start", "message": {"model": "m"}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        *({"type": "content_block_delta", "index": 0, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use"}},
        {"type": "message_stop"},
    ]


def test_arguments_nested_beyond_sense_do_not_parse() -> None:
    """They could be read and yet never be written into the next request."""
    deep = '{"a":' + "[" * 90 + "]" * 90 + "}"
    message = find_message(anthropic_samples.run(as_events(*anthropic_call(deep[:50], deep[50:]))))
    assert message.tool_uses[0].input is None
    assert anthropic_samples.raw(message.blocks[0])["input"] == {}
    end = {"type": "response.completed", "response": {"output": [openai_call(deep)]}}
    assert openai_samples.run(as_events(end)).message.tool_uses[0].input is None


@pytest.mark.parametrize("pieces", [(), ("",), ("", "")], ids=len)
def test_a_call_without_arguments_has_an_empty_object(pieces: tuple[str, ...]) -> None:
    message = find_message(anthropic_samples.run(as_events(*anthropic_call(*pieces))))
    assert message.tool_uses[0].input == {}
    assert anthropic_samples.raw(message.blocks[0])["input"] == {}


def test_text_alone_is_kept_once() -> None:
    """And all else as it came: a field that nobody knows makes a text more than its text."""
    raw = anthropic_samples.raw
    cases = [case for family, case in READABLE if family == "anthropic"]
    blocks = [block for case in cases for block in find_message(read_case("anthropic", case)).blocks]
    assert {block.raw is None for block in blocks if set(raw(block)) == {"type", "text"}} == {True}
    others = [raw(block) for block in blocks if block.raw is not None]
    assert {wire["type"] for wire in others} > {"text", "thinking", "tool_use"}
    assert all(len(wire) > 2 for wire in others if wire["type"] == "text")


def test_thinking_in_thousands_of_parts_is_one_text() -> None:
    """A server counts every piece as a part of its own."""
    shown, ending = decode_parts_of_thinking()
    assert "".join(shown) == "x" * PARTS
    assert [event.text for event in ending if isinstance(event, BlockStopped)] == [None], "as it was shown"


@pytest.mark.timing
def test_thinking_in_thousands_of_parts_is_decoded_quickly() -> None:
    began = time.process_time()
    decode_parts_of_thinking()
    assert time.process_time() - began < 4


PARTS = 30_000


def decode_parts_of_thinking() -> tuple[list[str], Sequence[object]]:
    """Return the pieces of thinking that are shown, and the last events."""
    decoder = openai_samples.ADAPTER.create_decoder()
    shown = []
    for number in range(PARTS):
        piece = {"type": "response.reasoning_text.delta", "output_index": 0, "content_index": number, "delta": "x"}
        shown += [
            event.delta.text
            for event in decoder.feed("", json.dumps(piece))
            if isinstance(event, BlockDelta) and isinstance(event.delta, ThinkingDelta)
        ]
    return shown, decoder.feed("", '{"type": "response.completed", "response": {}}')


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
    assert [openai_samples.raw(block) for block in answer.message.blocks] == WHOLE["output"]
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


@pytest.mark.parametrize("family", RUBBISH)
@settings(max_examples=examples(200), deadline=None)
@given(st.data())
def test_rubbish_is_an_error_or_a_message_and_nothing_else(family: str, data: st.DataObject) -> None:
    rubbish, samples = RUBBISH[family], FAMILIES[family].samples
    more = {"kind": samples.server(think_tags=data.draw(st.booleans())), "fits": False} if family == "chat" else {}
    contents = data.draw(st.lists(rubbish.contents, max_size=6))
    for stream in (contents, [*rubbish.opening, *contents, *data.draw(rubbish.ending)]):
        try:
            message = find_message(samples.run(as_events(*stream), **more))
        except errors.ProviderError:
            continue
        assert all(samples.raw(block) for block in message.blocks)
        if family == "chat":
            assert all(call.name for call in message.tool_uses) or message.stop_reason in ("max_tokens", "refusal")
