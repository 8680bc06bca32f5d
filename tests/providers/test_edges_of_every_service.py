"""What networks, proxies and services do to streams, calls and ends, proven for every service."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.hosts import Step, answer
from tests.support.services import (
    CALLS,
    ODD,
    SIDES,
    A,
    Place,
    ask,
    call_model,
    events_of,
    join_answer,
    place,
    play,
    read,
    request_of,
    streamed,
)
from thinklsp.agent.model_call import AttemptUsage, CallEvent, CallFinished
from thinklsp.core.errors import (
    ProviderError,
    StreamProtocolError,
)
from thinklsp.core.events import RetryScheduled
from thinklsp.core.messages import (
    AssistantMessage,
    ThinkingBlock,
    ToolResultBlock,
    UserMessage,
    ensure_unique_call_ids,
)


@pytest.fixture(params=SIDES)
def where(request: pytest.FixtureRequest) -> Place:
    return place(*SIDES[request.param])


def text_of(message: AssistantMessage) -> list[Any]:
    return [message.thinking, message.text, [(call.name, call.input) for call in message.tool_uses]]


async def called(where: Place, *plays: Sequence[Step], tries: int = 1) -> list[CallEvent]:
    path = urlsplit(where.access.base_url).path
    events, _ = await call_model(where.adapter, where.endpoint, plays, request_of(where), path=path, tries=tries)
    # Which figures are told depends on what came together.
    return [event for event in events if not isinstance(event, AttemptUsage)]


def finished(events: list[CallEvent]) -> AssistantMessage:
    last = events[-1]
    assert isinstance(last, CallFinished)
    return last.message


def test_line_separators_of_unicode_stand_inside_json(where: Place) -> None:
    data = streamed(where, *CALLS)
    for character in "\u2028\u2029\u0085":
        # As services do that write UTF-8 where others escape.
        data = data.replace(f"\\u{ord(character):04x}".encode(), character.encode())
    assert "\u2028".encode() in data
    message = read(where, data).message
    assert (message.text, message.tool_uses[0].input) == (f"Text, {ODD}.", {"path": f"{ODD}.py"})


@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r"])
def test_any_cut_gives_the_same_message(where: Place, ends: bytes) -> None:
    data = streamed(where, *CALLS)
    whole = read(where, data)
    lines = data.replace(b"\r\n", b"\n").replace(b"\n", ends)
    for size in (1, 2, 3, 4096):
        pieces = [lines[at : at + size] for at in range(0, len(lines), size)]
        assert read(where, pieces) == whole


def test_a_clean_end_in_the_middle_is_never_an_answer(where: Place) -> None:
    data = streamed(where, *CALLS)
    events, whole = events_of(data), read(where, data).message
    taken = []
    for count in range(len(events)):
        part = b"".join(events[:count])
        if count < len(events) - 3:
            with pytest.raises(StreamProtocolError) as broken:
                read(where, part)
            assert broken.value.retryable
        else:
            with suppress(StreamProtocolError):
                taken.append(read(where, part).message)
    # What follows the end of the answer (usage, `[DONE]`, empty events) may be lost.
    assert all(text_of(message) == text_of(whole) for message in taken)


# Every shape of every service, since proxies speak for any of them; `error:` is a field name of older llama.cpp.
SHAPES = {
    "anthropic": b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Boom"}}\n\n',
    "flat": b'event: error\ndata: {"type":"error","code":"server_error","message":"Boom","param":null}\n\n',
    "nested": b'event: error\ndata: {"type":"error","error":{"code":"server_error","message":"Boom"}}\n\n',
    "failed": b'event: response.failed\ndata: {"type":"response.failed","response":{"status":"failed","error":'
    b'{"code":"server_error","message":"Boom"}}}\n\n',
    "object": b'data: {"error":{"message":"Boom","type":"server_error","code":500}}\n\n',
    "text": b'data: {"error":"Boom"}\n\n',
    "event": b'event: error\ndata: {"error":{"message":"Boom"}}\n\n',
    "router": b'data: {"error":{"code":502,"message":"Boom"},"choices":[{"index":0,"delta":{"content":""},'
    b'"finish_reason":"error"}]}\n\n',
    "line": b'error: {"code":500,"message":"Boom","type":"server_error"}\n\n',
    "named": b'data: {"error":{"code":503,"status":"UNAVAILABLE","message":"Boom"}}\n\n',
    "pretty": b'{\n  "error": {\n    "code": 503,\n    "message": "Boom",\n    "status": "UNAVAILABLE"\n  }\n}\n',
    "list": b'[{\n  "error": {\n    "code": 503,\n    "message": "Boom",\n    "status": "UNAVAILABLE"\n  }\n}]\n',
}
# Who speaks so. From anybody else it may also be no more than an answer that breaks off.
OWN = {
    "anthropic": ("anthropic", "text"),
    "openai": ("flat", "nested", "failed", "text"),
    "google": ("named", "pretty", "list", "text"),
    "openai-compatible": ("object", "text", "event", "router", "line"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_an_error_after_200_is_an_error_in_every_shape(where: Place, shape: str) -> None:
    events = events_of(streamed(where, *CALLS))
    for begun in (0, 1):
        with pytest.raises(ProviderError) as broken:
            read(where, b"".join(events[:begun]) + SHAPES[shape])
        assert broken.value.retryable
        if shape in OWN[where.provider]:
            assert "Boom" in str(broken.value)
            assert not isinstance(broken.value, StreamProtocolError)


async def test_json_or_a_page_instead_of_a_stream(where: Place) -> None:
    whole = json.dumps(join_answer(where.provider, streamed(where, *CALLS))).encode()
    assert text_of(finished(await called(where, answer(whole)))) == text_of(
        read(where, streamed(where, *CALLS)).message
    )
    for told in (answer(b'{"error":{"message":"Boom"}}'), answer(b"<html>", content_type="text/html"), answer(b"{}")):
        with pytest.raises(ProviderError):
            await called(where, told)
    seen = await called(where, answer(b'{"error":{"code":503,"message":"Boom"}}', 503), answer(whole), tries=2)
    assert [event.restart for event in seen if isinstance(event, RetryScheduled)] == [False]


@pytest.mark.parametrize("cut", ['{"path": "a", "old_te', '{"path": "x.py', "{"])
def test_a_call_that_was_cut_is_no_call(where: Place, cut: str) -> None:
    answer_of = read(where, streamed(where, {"tool": "edit_file", "input_json": cut}, stop_reason="max_tokens"))
    assert answer_of.message.stop_reason == "max_tokens"
    # One service gives arguments whole, so that it gives none of a call that was cut.
    assert [call.input for call in answer_of.message.tool_uses] == ([] if where.provider == "google" else [None])


def results_of(message: AssistantMessage, count: int) -> UserMessage | None:
    results = tuple(ToolResultBlock(call.id, "was stopped", is_error=True) for call in message.tool_uses[:count])
    return UserMessage(results) if results else None


NEWS = (
    b'event: brand_new\ndata: {"type":"brand_new","deep":{"a":[null,1.5]}}\n\n',
    b'data: {"brandNew":{"x":1}}\n\n',
    b'data: {"object":"brand.new","choices":[],"candidates":[]}\n\n',
    b"retry: 10\nid: 7\n\n",
)


def test_new_events_and_new_keys_change_nothing(where: Place) -> None:
    data = streamed(where, *CALLS)
    whole, events = read(where, data), events_of(data)
    told = b"".join(event + b"".join(NEWS) for event in events[:-1]) + events[-1]
    assert read(where, told).message == whole.message
    keyed = data.replace(b"data: {", b'data: {"brand_new":{"a":[1,null]},')
    assert read(where, keyed).message == whole.message


def test_an_empty_answer_after_results_is_an_answer(where: Place) -> None:
    """What the agent then does stands in `tests/engine/slow/test_scenarios_everywhere`."""
    for blocks in ([], [{"thinking": "Hm."}]):
        dialect = where.dialect({"step": [{"block": CALLS}, {"block": blocks}]})
        _, empty = play(where, dialect, replace(request_of(where), conversation=()), ["a"])
        assert (empty.message.text, empty.message.tool_uses, empty.message.stop_reason) == ("", (), "end_turn")


def test_thinking_goes_back_only_where_it_came_from(where: Place) -> None:
    """Signed or not; what the model said and called stays."""
    for issuer, side in SIDES.items():
        of = place(*side)
        host = f"https://{re.sub('[^a-z]', '-', issuer)}.example"
        of = replace(of, access=replace(of.access, base_url=host + urlsplit(of.access.base_url).path))
        data = streamed(of, {"thinking": "SECRET"}, {"text": "Said."}, {"tool": "list_files"})
        message = ensure_unique_call_ids(read(of, data).message, ())
        assert [block.text for block in message.blocks if isinstance(block, ThinkingBlock)] == ["SECRET"]
        request = request_of(where, (A, message, results_of(message, 1) or A))
        body = where.encode(request).body.decode()
        assert ("Said." in body, "SECRET" in body) == (True, False)
        step = {"block": [{"text": "Fine."}]}
        assert ask(where, where.dialect({"step": [step, step]}), request).message.text == "Fine."
