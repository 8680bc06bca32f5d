"""Model calls over real HTTP: pieces, tries, restarts, cancellation, and never an answer without its end."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import pytest

from tests.support.anthropic_samples import ENDPOINT, PLAIN, cases, expected, raw, run, stream
from tests.support.hosts import SseServer, Step, answer, chunk, head
from thinklsp.agent.budget import BudgetLimits, ContextMeter, MeteredCaller, UsageLedger
from thinklsp.agent.model_call import AttemptUsage, CallEvent, CallFinished, HttpModelCaller, ModelCaller
from thinklsp.core import errors
from thinklsp.core.events import DataReceived, RetryScheduled, TextStreamed, ThinkingStreamed, ThinkingTick, TurnEvent
from thinklsp.http.retry import RetryPolicy
from thinklsp.http.transport import Transport
from thinklsp.providers.anthropic import AnthropicAdapter
from thinklsp.providers.base import Adapter, Endpoint, ModelRequest

GOOD: list[Step] = [head(), stream("text")]
BUSY: list[Step] = answer(b'{"error":{"type":"overloaded_error","message":"Overloaded"}}', 529)
BROKEN: list[Step] = [head(), stream("truncated")]


@pytest.fixture(autouse=True)
def no_attempt_writes_the_key_to_the_log(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """The log masks only keys of the environment, and a key may come from a keyring or a command."""
    caplog.set_level(logging.DEBUG)
    caplog.set_level(logging.DEBUG, "thinklsp")
    yield
    assert ENDPOINT.api_key not in caplog.text


@dataclass
class Call:
    """One model call and what came of it."""

    endpoint: Endpoint = ENDPOINT
    adapter: Adapter = field(default_factory=AnthropicAdapter)
    policy: RetryPolicy = field(default_factory=RetryPolicy)
    data_sign_seconds: float = 1.0
    waited: list[float] = field(default_factory=list)
    events: list[CallEvent] = field(default_factory=list)
    error: errors.ProviderError | None = None

    def caller(self, server: SseServer, transport: Transport) -> HttpModelCaller:
        endpoint = replace(self.endpoint, base_url=server.url)
        return HttpModelCaller(
            self.adapter,
            endpoint,
            transport,
            policy=self.policy,
            rng=lambda: 0.5,
            sleep=self._sleep,
            data_sign_seconds=self.data_sign_seconds,
        )

    async def _sleep(self, seconds: float) -> None:
        self.waited.append(seconds)

    async def refuse(self, said: str) -> Literal["stop"]:
        raise AssertionError(said)

    async def run(self, caller: ModelCaller, request: ModelRequest = PLAIN) -> None:
        self.events.clear()
        try:
            async with aclosing(caller.stream(request)) as events:
                async for event in events:
                    if not isinstance(event, AttemptUsage):
                        self.events.append(event)
        except errors.ProviderError as error:
            self.error = error

    async def take(self, event: TurnEvent) -> None:
        """Nobody looks at the pieces."""

    @property
    def finished(self) -> CallFinished:
        last = self.events[-1]
        assert isinstance(last, CallFinished)
        assert not any(isinstance(event, CallFinished) for event in self.events[:-1])
        return last

    @property
    def retries(self) -> list[RetryScheduled]:
        return [event for event in self.events if isinstance(event, RetryScheduled)]


async def play(transport: Transport, *plays: Sequence[Step], **options: Any) -> tuple[Call, SseServer]:
    one = Call(**options)
    async with SseServer(plays) as server:
        await one.run(one.caller(server, transport))
    return one, server


@pytest.mark.parametrize("case", cases(failing=False))
async def test_recorded_answers_arrive_whole(transport: Transport, case: str) -> None:
    one, server = await play(transport, [head(), stream(case)])
    origin = replace(ENDPOINT, base_url=server.url).build_origin(PLAIN.model.id)
    message, usage, explanation = run(stream(case), origin)
    assert one.finished == CallFinished(message, replace(usage, cost_usd=one.finished.usage.cost_usd), explanation)
    shown = "".join(event.delta for event in one.events if isinstance(event, TextStreamed))
    assert shown == message.text
    thought = "".join(event.delta for event in one.events if isinstance(event, ThinkingStreamed))
    assert thought == message.thinking
    assert not one.retries


async def test_thinking_ticks_without_text_and_counts_where_told(transport: Transport) -> None:
    one, _ = await play(transport, [head(), stream("estimated_tokens")])
    ticks = [event for event in one.events if isinstance(event, ThinkingTick)]
    assert ticks == [ThinkingTick(None), ThinkingTick(40), ThinkingTick(65)]


async def test_pieces_come_while_the_answer_is_being_written(transport: Transport) -> None:
    gate = asyncio.Event()
    start, _, rest = stream("text").partition(b"w\xc3\xb6rld")
    one = Call()
    async with (
        SseServer([[head(transfer_encoding="chunked"), chunk(start), gate, chunk(b"w\xc3\xb6rld" + rest)]]) as server,
        aclosing(one.caller(server, transport).stream(PLAIN)) as events,
    ):
        assert isinstance(await anext(events), AttemptUsage)
        assert await anext(events) == TextStreamed("Hello ")
        gate.set()
        assert isinstance(await anext(events), AttemptUsage)
        assert await anext(events) == TextStreamed("wörld \U0001f30d\u2028 \x85 next")


async def test_unseen_data_is_reported_once_in_a_while(transport: Transport) -> None:
    """A keep-alive and a part of a tool call show that the service still works."""
    gates = [asyncio.Event() for _ in range(3)]
    start, end, rest = stream("text").partition(b"\n\n")
    ping = chunk(b": ping\n\n")
    steps = [head(transfer_encoding="chunked"), chunk(start + end), *(step for gate in gates for step in (gate, ping))]
    steps.append(chunk(rest))
    kinds, waiting = [], iter(gates)
    async with (
        SseServer([steps]) as server,
        aclosing(Call(data_sign_seconds=0.05).caller(server, transport).stream(PLAIN)) as events,
    ):
        async for event in events:
            kinds.append(type(event))
            if isinstance(event, AttemptUsage | DataReceived) and (gate := next(waiting, None)) is not None:
                asyncio.get_running_loop().call_later(0.06, gate.set)
    assert kinds[:3] == [AttemptUsage, DataReceived, DataReceived]
    assert kinds.count(DataReceived) == 2


async def test_connection_is_closed_before_message_is_returned(transport: Transport) -> None:
    """The service keeps the line open after the end; the message comes nevertheless, and the line is cut first."""
    one = Call()
    async with SseServer([[*GOOD, "hold"]]) as server, aclosing(one.caller(server, transport).stream(PLAIN)) as events:
        async for event in events:
            if isinstance(event, CallFinished):
                await asyncio.wait_for(server.gone.wait(), 60)
                break
        else:
            pytest.fail("no message came")


WHOLE = {
    "type": "message",
    "model": "m",
    "content": [
        {"type": "thinking", "thinking": "hm", "signature": "S"},
        {"type": "text", "text": "Hello"},
        {"type": "tool_use", "id": "t", "name": "read_file", "input": {"path": "a"}},
    ],
    "stop_reason": "tool_use",
    "usage": {"input_tokens": 3, "output_tokens": 4},
}


async def test_a_whole_message_instead_of_a_stream(transport: Transport) -> None:
    play_it = answer(json.dumps(WHOLE).encode(), content_type="application/json; charset=utf-8")
    one, _ = await play(transport, play_it)
    message = one.finished.message
    [call] = message.tool_uses
    assert call.raw is not None
    assert [raw(block, call.raw.origin) for block in message.blocks] == WHOLE["content"]
    assert message.stop_reason == "tool_use"
    assert message.tool_uses[0].input == {"path": "a"}
    assert one.events[:-1] == [ThinkingTick(), ThinkingStreamed("hm"), TextStreamed("Hello")]
    assert (one.finished.usage.input_tokens, one.finished.usage.output_tokens) == (3, 4)


def _break_before(place: bytes) -> list[Step]:
    """An answer of thinking and a tool call that breaks off there."""
    return [head(), stream("thinking_then_tool").partition(place)[0]]


RETRIES: dict[str, tuple[list[list[Step]], list[tuple[float, bool]]]] = {
    "busy once": ([BUSY, GOOD], [(0.5, False)]),
    "busy three times": ([BUSY, BUSY, BUSY, GOOD], [(0.5, False), (1.0, False), (2.0, False)]),
    "told to wait": ([answer(b"{}", 429, retry_after="17"), GOOD], [(17.0, False)]),
    "told to wait in milliseconds": ([answer(b"{}", 503, retry_after_ms="250"), GOOD], [(0.25, False)]),
    "closed without an answer": ([[], GOOD], [(0.5, False)]),
    "stream without any content": ([[head(), stream("nothing_but_pings")], GOOD], [(0.5, False)]),
    "error event before any content": ([[head(), stream("error_api")], GOOD], [(0.5, False)]),
    "error as JSON under 200": (
        [answer(b'{"type":"error","error":{"type":"overloaded_error"}}'), GOOD],
        [(0.5, False)],
    ),
    "break in mid-answer": ([BROKEN, GOOD], [(0.5, True)]),
    "two breaks": ([BROKEN, [head(), stream("error_overloaded")], GOOD], [(0.5, True), (1.0, True)]),
    "reset in mid-answer": ([[head(content_length="9999"), stream("truncated"), "reset"], GOOD], [(0.5, True)]),
    "end missing": ([[head(), stream("truncated_before_stop")], GOOD], [(0.5, True)]),
    "break while thinking": ([_break_before(b"signature_delta"), GOOD], [(0.5, True)]),
    "break in a tool call": ([_break_before(b'in.go"'), GOOD], [(0.5, True)]),
    "break, then busy": ([BROKEN, BUSY, GOOD], [(0.5, True), (1.0, False)]),
}


# The numbers of the attempts, as a progress line counts them.
NUMBERS = {
    "busy three times": [(2, 4), (3, 4), (4, 4)],
    "two breaks": [(2, 3), (3, 3)],
    "break, then busy": [(2, 3), (2, 4)],
}


@pytest.mark.parametrize("name", RETRIES)
async def test_tries_and_restarts(transport: Transport, name: str) -> None:
    plays, schedule = RETRIES[name]
    one, server = await play(transport, *plays)
    assert [(retry.delay, retry.restart) for retry in one.retries] == schedule
    assert one.waited == [delay for delay, _ in schedule]
    if name in NUMBERS:
        assert [(retry.attempt, retry.max_attempts) for retry in one.retries] == NUMBERS[name]
    assert one.finished.message.text == "Hello wörld \U0001f30d\u2028 \u0085 next"
    assert all(retry.reason.endswith(".") or "says:" in retry.reason for retry in one.retries)
    assert len(server.received) == len(plays)
    assert len({request.body for request in server.received}) == 1


START = stream("truncated").partition(b"\n\n")[0] + b"\n\n"
SO_FAR = b'event: message_delta\ndata: {"type":"message_delta","delta":{},"usage":{"output_tokens":%d}}\n\n'
ERROR = b'event: error\ndata: {"type":"error","error":{"type":"overloaded_error","message":"Busy"}}\n\n'
IN_PIECES: list[Step] = [head(transfer_encoding="chunked"), chunk(START), chunk(SO_FAR % 7), chunk(SO_FAR % 9)]
# Attempts, and the input and output that they have reported together. `GOOD` reports 10 and 20.
ATTEMPTS: dict[str, tuple[list[list[Step]], tuple[int, int]]] = {
    "whole at once": ([GOOD], (10, 20)),
    "a break behind the first figures": ([[head(), START], GOOD], (20, 21)),
    "a break behind the last figures": ([IN_PIECES, GOOD], (20, 29)),
    "an error event behind figures": ([[head(), START + SO_FAR % 7 + ERROR], GOOD], (20, 27)),
    "two breaks and an error status": ([[head(), START], BUSY, [head(), START], GOOD], (30, 22)),
    "a break without figures": ([[head(), stream("nothing_but_pings")], GOOD], (10, 20)),
    "no answer at all": ([BROKEN], (30, 3)),
}


@pytest.mark.parametrize("name", ATTEMPTS)
async def test_each_attempt_is_counted_once(transport: Transport, name: str) -> None:
    plays, (asked, answered) = ATTEMPTS[name]
    one, usage = Call(), UsageLedger()
    async with SseServer(plays) as server:
        source = one.caller(server, transport)
        caller = MeteredCaller(source, BudgetLimits(1), usage=usage, meter=ContextMeter(), ask=one.refuse)
        with suppress(errors.ProviderError):
            await caller.call(PLAIN, one.take)
    assert (usage.total.input_tokens, usage.total.output_tokens) == (asked, answered)
    assert usage.total.cost_usd == usage.spending.usd == pytest.approx((asked * 4 + answered * 20) / 1_000_000)


SPEND = answer(b'{"error":{"message":"m","details":{"error_code":"enforced_spend_limit_reached"}}}', 429)
REFUSED: list[Step] = [head(), stream("truncated"), stream("error_invalid_request").partition(b"\n\n")[2]]
GIVEN_UP: dict[str, tuple[list[list[Step]], type[errors.ProviderError], str, int]] = {
    "busy for good": ([BUSY], errors.Overloaded, "All 4 attempts failed", 4),
    "third break": ([BROKEN], errors.StreamProtocolError, "interrupted 3 times", 3),
    "wrong key": ([answer(b"{}", 401)], errors.AuthenticationFailed, "API key", 1),
    "bad request": ([answer(b"{}", 400)], errors.BadRequest, "(400)", 1),
    "asked to wait too long": ([answer(b"{}", 429, retry_after="3600")], errors.RateLimited, "delay of 60 minutes", 1),
    "spend limit": ([SPEND], errors.RateLimited, "spend limit", 1),
    "told not to try again": ([answer(b"{}", 529, x_should_retry="false")], errors.Overloaded, "(529)", 1),
    "redirect": ([answer(b"", 308, location="https://elsewhere.example")], errors.TransportFailed, "elsewhere", 1),
    "web page": ([answer(b"<html>", content_type="text/html")], errors.StreamProtocolError, "web page", 1),
    "another success": ([answer(b"", 204)], errors.BadRequest, "base URL", 1),
    "refused in mid-answer": ([REFUSED], errors.BadRequest, "messages: bad", 1),
}


@pytest.mark.parametrize("name", GIVEN_UP)
async def test_failures_that_stay(transport: Transport, name: str) -> None:
    plays, kind, fragment, requests = GIVEN_UP[name]
    one, server = await play(transport, *plays)
    assert type(one.error) is kind
    assert fragment in str(one.error)
    assert len(server.received) == requests
    assert not any(isinstance(event, CallFinished) for event in one.events)


@pytest.mark.parametrize("case", [case for case in cases(failing=False) if expected(case)["blocks"]])
async def test_a_stream_cut_before_its_end_is_never_an_answer(transport: Transport, case: str) -> None:
    whole = stream(case)
    end = whole.rindex(b"message_stop")
    cuts = {end, whole.index(b"message_delta") if b"message_delta" in whole else end, end // 2}
    for cut in cuts:
        one, _ = await play(transport, [head(), whole[:cut]], policy=RetryPolicy(max_tries=1, max_restarts=0))
        assert isinstance(one.error, errors.StreamProtocolError)
        assert not any(isinstance(event, CallFinished) for event in one.events)


@pytest.mark.parametrize("leave", ["cancel", "aclose"])
async def test_going_away_closes_the_connection(transport: Transport, leave: str) -> None:
    one = Call()
    async with SseServer([[head(), stream("truncated"), "hold"]]) as server:
        events = one.caller(server, transport).stream(PLAIN)
        assert isinstance(await anext(events), AttemptUsage)
        assert await anext(events) == TextStreamed("ha")
        if leave == "cancel":
            waiting = asyncio.ensure_future(anext(events))
            await asyncio.sleep(0)
            waiting.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiting
        else:
            await events.aclose()
        await asyncio.wait_for(server.gone.wait(), 60)
        assert len(server.received) == 1


async def test_a_key_that_comes_back_in_an_error_is_hidden(transport: Transport) -> None:
    endpoint = replace(ENDPOINT, api_key="hunter22")
    one, _ = await play(transport, answer(b'{"error":{"message":"no such key: hunter22!"}}', 401), endpoint=endpoint)
    assert "hunter22" not in str(one.error)
    assert "no such key: [hidden]!" in str(one.error)
    retried, _ = await play(transport, answer(b'{"error":"hunter22"}', 500), GOOD, endpoint=endpoint)
    assert "hunter22" not in retried.retries[0].reason


# a key, and what a service says with it: masks of other rules and the cut leave only a part of it to be found
REPEATED = [
    ("0123456789abcdef0123456789abcdef.QxZy12AbCdEf34Gh", "Incorrect API key: {}."),
    ("sk-ant-CANARY/abc+def=ghijklmnopqrstuvwxyz0123456789", "Incorrect API key: {}."),
    ("correct-horse-battery-staple-lower", "x" * 258 + " {} is no key"),
    ("correct-horse-battery-staple-lower", "correct-hors...aple-lower is no key, {} neither"),
    ("a key/with+signs=and more", "GET /?key=a%20key%2Fwith%2Bsigns%3Dand%20more"),
]


@pytest.mark.parametrize(("key", "said"), REPEATED)
@pytest.mark.parametrize("by", ["key", "header"])
@pytest.mark.parametrize("late", [False, True], ids=["answer", "stream"])
async def test_no_piece_of_a_secret_comes_back(transport: Transport, key: str, said: str, by: str, late: bool) -> None:
    secret = {"api_key": key} if by == "key" else {"headers": {"x-gateway-token": key, "x-project": "no key"}}
    endpoint = replace(ENDPOINT, **secret)
    error = {"error": {"type": "authentication_error", "message": said.format(key)}}
    failing = [head(), f"event: error\ndata: {json.dumps({'type': 'error'} | error)}\n\n".encode()]
    one, _ = await play(transport, failing if late else answer(json.dumps(error).encode(), 401), endpoint=endpoint)
    assert "[hidden]" in str(one.error)
    assert not any(key[at : at + 8] in str(one.error) for at in range(len(key) - 7))


@pytest.mark.parametrize(
    ("key", "source", "said"),
    [
        ("k", "the environment variable K", "The key comes from the environment variable K."),
        ("", "none needed", "No API key"),
    ],
)
async def test_which_key_was_refused_is_said(transport: Transport, key: str, source: str, said: str) -> None:
    endpoint = replace(ENDPOINT, api_key=key, key_source=source)
    one, _ = await play(transport, answer(b'{"error":{"message":"No."}}', 401), endpoint=endpoint)
    assert said in str(one.error)
    assert "none needed" not in str(one.error)


def _anthropic_delta(index: int, kind: str, name: str, value: str) -> str:
    return json.dumps({"type": "content_block_delta", "index": index, "delta": {"type": kind, name: value}})


SECRET = "the content of the answer"
_ANTHROPIC = [
    '{"type":"message_start","message":{"model":"m"}}',
    _anthropic_delta(3, "text_delta", "text", SECRET),
    _anthropic_delta(4, "input_json_delta", "partial_json", SECRET),
    '{"type":"content_block_stop","index":4}',
    '{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}',
    _anthropic_delta(0, "signature_delta", "signature", SECRET),
    _anthropic_delta(0, "brand_new_delta", "text", SECRET),
    _anthropic_delta(0, SECRET, "text", SECRET),
    _anthropic_delta(0, "text_delta", "text", "Fine."),
    '{"type":"content_block_stop","index":0}',
    '{"type":"message_delta","delta":{"stop_reason":"end_turn"}}',
    '{"type":"message_stop"}',
]
UNMATCHED = [
    "text for a block that is not open (1x)",
    "arguments for a block that is not open (1x)",
    "the end of a block that was never opened (1x)",
    "a signature for a block of kind text (1x)",
]
UNKNOWN = ["a delta of type brand_new_delta (1x)", "a delta of type unknown (1x)"]


async def test_what_fits_no_block_is_logged_and_not_bought_again(
    transport: Transport, caplog: pytest.LogCaptureFixture
) -> None:
    data = "".join(f"data: {event}\n\n" for event in _ANTHROPIC).encode()
    one, service = await play(transport, [head(), data])
    assert one.finished.message.text == "Fine."
    assert one.finished.message.tool_uses == ()
    assert (one.retries, len(service.received)) == ([], 1)
    said = f"anthropic, model {PLAIN.model.id}: ignored in the answer: "
    records = [(record.levelname, record.getMessage()) for record in caplog.records if "ignored in" in record.msg]
    assert records == [("WARNING", said + ", ".join(UNMATCHED)), ("DEBUG", said + ", ".join(UNKNOWN))]
    assert SECRET not in caplog.text
