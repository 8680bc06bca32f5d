"""Sharp edges 1 to 10, which every dialect has, by number: what networks, proxies and services do to a stream."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from itertools import product
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.support.dialects import Place, place, read
from tests.support.simulated_streams import CALLS, ODD, SIDES, events_of, request_of, streamed
from tests.support.sse_server import SseServer, Step, answer, head
from thinklsp.agent.model_call import AttemptUsage, CallEvent, CallFinished, HttpModelCaller
from thinklsp.core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    ProviderError,
    StreamProtocolError,
)
from thinklsp.core.events import RetryScheduled, TextStreamed
from thinklsp.core.messages import AssistantMessage
from thinklsp.http.retry import RetryPolicy
from thinklsp.http.transport import Transport
from thinklsp.simulator.dialect import Received
from thinklsp.simulator.frames import Whole


@pytest.fixture(params=SIDES)
def where(request: pytest.FixtureRequest) -> Place:
    return place(*SIDES[request.param])


def text_of(message: AssistantMessage) -> list[Any]:
    return [message.thinking, message.text, [(call.name, call.input) for call in message.tool_uses]]


async def called(where: Place, *plays: Sequence[Step], tries: int = 1) -> list[CallEvent]:
    async def at_once(_seconds: float) -> None:
        """Waiting is not what is tested."""

    async with SseServer(plays) as server:
        transport = Transport()
        endpoint = replace(where.endpoint, base_url=server.url + urlsplit(where.access.base_url).path)
        policy = RetryPolicy(tries=tries)
        caller = HttpModelCaller(where.adapter, endpoint, transport, policy=policy, rng=lambda: 0.0, sleep=at_once)
        try:
            async with aclosing(caller.stream(request_of(where))) as events:
                # Which figures are told depends on what came together.
                return [event async for event in events if not isinstance(event, AttemptUsage)]
        finally:
            await transport.aclose()


def finished(events: list[CallEvent]) -> AssistantMessage:
    last = events[-1]
    assert isinstance(last, CallFinished)
    return last.message


def test_row_1_line_separators_of_unicode_stand_inside_json(where: Place) -> None:
    data = streamed(where, *CALLS)
    for character in "\u2028\u2029\u0085":
        # As services do that write UTF-8 where others escape.
        data = data.replace(f"\\u{ord(character):04x}".encode(), character.encode())
    assert "\u2028".encode() in data
    message = read(where, data).message
    assert (message.text, message.tool_uses[0].input) == (f"Text, {ODD}.", {"path": f"{ODD}.py"})


@pytest.mark.parametrize("ends", [b"\n", b"\r\n", b"\r"])
def test_row_2_any_cut_gives_the_same_message(where: Place, ends: bytes) -> None:
    data = streamed(where, *CALLS)
    whole = read(where, data)
    lines = data.replace(b"\r\n", b"\n").replace(b"\n", ends)
    for size in (1, 2, 3, 4096):
        pieces = [lines[at : at + size] for at in range(0, len(lines), size)]
        assert read(where, pieces) == whole


def test_row_3_a_clean_end_in_the_middle_is_never_an_answer(where: Place) -> None:
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


async def test_row_4_lines_may_be_of_any_length(where: Place) -> None:
    long = "Lorem 🙂 " * 30_000
    turn = {"text": long}
    data = streamed(where, {"thinking": long}, turn, pacing={"chunk_chars": 1_000_000})
    assert max(map(len, data.split(b"\n"))) > 64 * 1024
    assert finished(await called(where, [head(), data])).text == long


async def test_row_5_comments_for_minutes_show_nothing_and_harm_nothing(where: Place) -> None:
    data = streamed(where, *CALLS)
    noise = b": keep-alive\n\n:\n\n" * 50
    noisy = noise + b"".join(event + noise for event in events_of(data))
    plain, other = [await called(where, [head(), one]) for one in (data, noisy)]
    assert [type(event) for event in plain[:-1]] == [type(event) for event in other[:-1]]
    assert any(isinstance(event, TextStreamed) for event in plain)
    assert text_of(finished(plain)) == text_of(finished(other))


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
    "openai": ("flat", "nested", "failed"),
    "google": ("named", "pretty", "list"),
    "openai-compatible": ("object", "text", "event", "router", "line"),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_row_6_an_error_after_200_is_an_error_in_every_shape(where: Place, shape: str) -> None:
    events = events_of(streamed(where, *CALLS))
    for begun in (0, 1):
        with pytest.raises(ProviderError) as broken:
            read(where, b"".join(events[:begun]) + SHAPES[shape])
        assert broken.value.retryable
        if shape in OWN[where.provider]:
            assert "Boom" in str(broken.value)
            assert not isinstance(broken.value, StreamProtocolError)


BODIES = (b"<html><h1>Bad gateway</h1></html>", b"", b"\xff\xfe{", b"[]", b"upstream says no")
STATUSES: dict[int, type[ProviderError]] = {
    502: Overloaded,
    413: ContextWindowExceeded,
    403: AuthenticationFailed,
    400: BadRequest,
}


def test_row_7_an_error_that_is_no_json_is_told_by_its_status(where: Place) -> None:
    for (status, kind), body in product(STATUSES.items(), BODIES):
        error = where.adapter.failure(status, {"content-type": "text/html"}, body)
        assert isinstance(error, kind)
        assert error.retryable is (status == 502)
        assert str(status) in str(error)
        assert "<" not in str(error)
        assert status == 413 or ("upstream says no" in str(error)) is body.startswith(b"up")


async def test_row_8_json_or_a_page_instead_of_a_stream(where: Place) -> None:
    whole = without_a_stream(where)
    assert text_of(finished(await called(where, answer(whole)))) == text_of(
        read(where, streamed(where, *CALLS)).message
    )
    for told in (answer(b'{"error":{"message":"Boom"}}'), answer(b"<html>", content_type="text/html"), answer(b"{}")):
        with pytest.raises(ProviderError):
            await called(where, told)
    seen = await called(where, answer(b'{"error":{"code":503,"message":"Boom"}}', 503), answer(whole), tries=2)
    assert [event.restart for event in seen if isinstance(event, RetryScheduled)] == [False]


def without_a_stream(where: Place) -> bytes:
    wire = where.encode(request_of(where))
    body = {
        key: value for key, value in json.loads(bytes(wire.body)).items() if key not in ("stream", "stream_options")
    }
    path = urlsplit(wire.url).path.replace(":streamGenerateContent", ":generateContent")
    asked = Received("POST", path, "", wire.headers, json.dumps(body).encode())
    reply = where.dialect({"step": [{"block": CALLS}]}).reply(asked)
    assert isinstance(reply, Whole)
    assert reply.status == 200
    return reply.body


def test_row_9_an_error_may_be_a_bare_string(where: Place) -> None:
    error = where.adapter.failure(400, {}, b'{"error":"Boom"}')
    assert "Boom" in str(error)
    assert not error.retryable
    with pytest.raises(ProviderError, match="Boom"):
        read(where, events_of(streamed(where, *CALLS))[0] + SHAPES["text"])


def test_row_10_a_flat_error_ends_a_responses_stream() -> None:
    where = place(*SIDES["openai"])
    events = events_of(streamed(where, *CALLS))
    for begun in range(len(events) - 1):
        with pytest.raises(ProviderError, match="Boom") as broken:
            read(where, b"".join(events[:begun]) + SHAPES["flat"] + b"".join(events[begun:]))
        assert broken.value.retryable
