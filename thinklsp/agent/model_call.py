"""One model call: encode, send, decode, try again where that is right. Ends with a whole message or an error.

It never runs a tool and never resumes an answer: what broke off is thrown away and asked for again. The connection is
closed before the message is handed out, and at once when the caller goes away.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Protocol

from thinklsp.agent.remedies import Remedies, effort_notice
from thinklsp.agent.thinking_losses import find_losses, find_losses_in_answer, missing_thinking
from thinklsp.core.accumulator import MessageAccumulator
from thinklsp.core.errors import AuthenticationFailed, ProviderError, StreamProtocolError
from thinklsp.core.events import Notice, RetryScheduled, TextStreamed, ThinkingStreamed, ThinkingTick
from thinklsp.core.messages import AssistantMessage
from thinklsp.core.stream import (
    BlockDelta,
    BlockStarted,
    MessageFinished,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
)
from thinklsp.core.usage import Usage, as_reported
from thinklsp.http.retry import CallHistory, GiveUp, RetryPolicy, after, decide
from thinklsp.http.sse import ServerSentEvent, SseDecoder
from thinklsp.http.transport import HttpResponse, Transport
from thinklsp.providers.base import Adapter, Endpoint, HttpRequest, ModelRequest, StreamDecoder
from thinklsp.providers.model_info import Price

_log = logging.getLogger(__name__)

_ERROR_BODY = 64 * 1024
_WHOLE_BODY = 16 * 1024 * 1024
_WITHOUT_OPAQUE_STATE = "Asking once more without the model's earlier thinking."


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The last event of a model call. `explanation`: the service's sentence about a refusal, if it gave one."""

    message: AssistantMessage
    usage: Usage
    explanation: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptUsage:
    """What the running attempt has used, as far as the service has reported it. A later report of the same attempt
    replaces it; `CallFinished` has the figures of the last attempt."""

    usage: Usage


Streamed = TextStreamed | ThinkingStreamed | ThinkingTick
CallEvent = Streamed | AttemptUsage | RetryScheduled | Notice | CallFinished


class ModelCaller(Protocol):
    def stream(self, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        """Pieces as they come, then exactly one CallFinished, or a ProviderError. After a RetryScheduled with
        `restart`, the pieces so far belong to an answer that is no more. Close it with `aclosing`."""
        ...


@dataclass(slots=True)
class _Attempt:
    """One request on its way. Owned by `HttpModelCaller.stream`."""

    accumulator: MessageAccumulator
    usage: Usage = field(default_factory=Usage)
    had_content: bool = False
    thinking_tokens: int | None = None
    explanation: str | None = None
    notices: tuple[str, ...] = ()
    unsealed: bool = False
    without_budget: bool = False

    def reports(self, usage: Usage, price: Price | None) -> Iterator[AttemptUsage]:
        """Yield the figures of the service if they are new. An output that is not counted yet costs nothing yet."""
        known = as_reported(usage)
        if known.input_tokens is not None and known.output_tokens is None:
            known = replace(known, output_tokens=0)
        if known != self.usage:
            self.usage = known
            yield AttemptUsage(_priced(known, price))

    def take(self, events: Iterable[StreamEvent]) -> list[Streamed]:
        """Applies the events up to the end of the message and tells what of them can be shown."""
        shown: list[Streamed] = []
        for event in events:
            if not self.accumulator.apply(event):
                continue
            match event:
                case BlockDelta(delta=TextDelta(text)):
                    if text:
                        shown.append(TextStreamed(text))
                case BlockDelta(delta=ThinkingDelta(text, tokens)):
                    if text:
                        shown.append(ThinkingStreamed(text))
                    if tokens is not None:
                        shown.append(self._tick(tokens))
                case BlockStarted():
                    self.had_content = True
                    shown += self._opened(event)
                case MessageFinished():
                    self.explanation, self.notices = event.explanation, event.notices
                    self.unsealed = event.unsealed
                    break
                case _:
                    pass
        return shown

    def _opened(self, event: BlockStarted) -> list[Streamed]:
        """Some servers put the first words, or all of them, into the opening of the block."""
        text = event.raw.get(event.kind)
        if event.kind == "text":
            return [TextStreamed(text)] if isinstance(text, str) and text else []
        if event.kind not in ("thinking", "redacted_thinking"):
            return []
        tick = ThinkingTick(self.thinking_tokens)
        return [tick, ThinkingStreamed(text)] if isinstance(text, str) and text else [tick]

    def _tick(self, tokens: int) -> ThinkingTick:
        self.thinking_tokens = (self.thinking_tokens or 0) + tokens
        return ThinkingTick(self.thinking_tokens)


class HttpModelCaller:
    """Satisfies `ModelCaller` for one endpoint. May serve many turns, also side by side.

    `rng` gives jitter in [0, 1); `sleep` waits between tries.
    """

    def __init__(
        self,
        adapter: Adapter,
        endpoint: Endpoint,
        transport: Transport,
        *,
        policy: RetryPolicy,
        rng: Callable[[], float],
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
        remedies: Remedies | None = None,
    ) -> None:
        self._adapter = adapter
        self._endpoint = endpoint
        self._transport = transport
        self._policy = policy
        self._rng = rng
        self._sleep = sleep
        self._remedies = Remedies() if remedies is None else remedies

    async def stream(self, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        history = CallHistory()
        whole, request = request, self._remedies.applied(request)
        # The first refusal, while one attempt runs without the opaque state that may be its cause.
        refused: ProviderError | None = None
        if request.thinking.effort != whole.thinking.effort:
            yield Notice("warning", effort_notice(request, whole.thinking.effort))
        losses = find_losses(whole.conversation, request, self._endpoint.origin(request.model.id))
        for loss in self._remedies.untold(losses, request.model.id):
            yield loss
        while True:
            attempt = _Attempt(MessageAccumulator(self._endpoint.origin(request.model.id)))
            try:
                async with aclosing(self._attempt(request, attempt)) as pieces:
                    async for piece in pieces:
                        yield piece
                finished = self._finished(request, attempt)
            except ProviderError as error:
                error.args = (self._endpoint.without_secrets(str(error)),)
                self._name_source(error)
                remedy = None if refused is not None else self._remedies.after(error, whole, request)
                if remedy is not None:
                    request, notice = remedy
                    yield notice
                    retry = RetryScheduled(0.0, notice.text, attempt.had_content)
                elif refused is None and (bare := self._remedies.without_opaque_state(error, request)) is not None:
                    refused, request = error, bare
                    retry = RetryScheduled(0.0, f"{error} {_WITHOUT_OPAQUE_STATE}", attempt.had_content)
                else:
                    retry, history = self._next_try(error, attempt, history, refused)
            else:
                if refused is not None:
                    yield self._remedies.confirm(whole)
                losses = find_losses_in_answer(request, finished.message, unsealed=attempt.unsealed)
                for loss in self._remedies.untold(losses, request.model.id):
                    yield loss
                missing = missing_thinking(
                    request, finished.message, finished.usage, without_budget=attempt.without_budget
                )
                for said in (*attempt.notices, *missing):
                    yield Notice("warning", said)
                yield finished
                return
            yield retry
            await self._sleep(retry.delay)

    def _next_try(
        self, error: ProviderError, attempt: _Attempt, history: CallHistory, refused: ProviderError | None
    ) -> tuple[RetryScheduled, CallHistory]:
        """Return what to announce and to remember. Raises `refused`, else the error, if no further try makes sense."""
        verdict = decide(self._policy, error, history=history, had_content=attempt.had_content, roll=self._rng())
        if isinstance(verdict, GiveUp):
            if refused is not None:
                raise refused
            if verdict.addition:
                error.args = (f"{error} {verdict.addition}",)
            raise error
        return RetryScheduled(verdict.delay, str(error), verdict.restart), after(history, verdict)

    async def _attempt(self, request: ModelRequest, attempt: _Attempt) -> AsyncGenerator[Streamed | AttemptUsage, None]:
        wire: HttpRequest = self._adapter.encode(request, self._endpoint)
        attempt.without_budget = wire.without_budget
        decoder = self._adapter.decoder()
        try:
            async with aclosing(self._received(wire, decoder, request, attempt)) as pieces:
                async for piece in pieces:
                    yield piece
        finally:
            self._log_unmatched(request, attempt)

    async def _received(
        self, wire: HttpRequest, decoder: StreamDecoder, request: ModelRequest, attempt: _Attempt
    ) -> AsyncGenerator[Streamed | AttemptUsage, None]:
        async with self._transport.post(wire.url, wire.headers, wire.body) as response:
            if response.status != 200:
                body = await response.read(_ERROR_BODY)
                raise self._adapter.failure(response.status, response.headers, body, request.model.id)
            try:
                async with aclosing(_decoded(response, decoder)) as batches:
                    async for events in batches:
                        for report in attempt.reports(decoder.usage, request.model.price):
                            yield report
                        for piece in _joined(attempt.take(events)):
                            yield piece
                        if attempt.accumulator.finished:
                            break
            except ProviderError:
                # The event that fails may bring the figures.
                for report in attempt.reports(decoder.usage, request.model.price):
                    yield report
                raise

    def _finished(self, request: ModelRequest, attempt: _Attempt) -> CallFinished:
        usage = _priced(attempt.accumulator.usage, request.model.price)
        return CallFinished(attempt.accumulator.message(), usage, attempt.explanation)

    def _log_unmatched(self, request: ModelRequest, attempt: _Attempt) -> None:
        """Log once how many pieces of which kind were left out of the answer."""
        for is_new, level in ((False, logging.WARNING), (True, logging.DEBUG)):
            counts = attempt.accumulator.unmatched.items()
            told = [f"{piece.what} ({count}x)" for piece, count in counts if piece.is_new is is_new]
            if told:
                provider, model = self._endpoint.provider, request.model.id
                _log.log(level, "%s, model %s: left out of the answer: %s", provider, model, ", ".join(told))

    def _name_source(self, error: ProviderError) -> None:
        """Whoever has a key refused first wants to know which one was used."""
        if not isinstance(error, AuthenticationFailed) or not self._endpoint.key_source:
            return
        if self._endpoint.api_key:
            error.args = (f"{error} The key comes from {self._endpoint.key_source}.",)
        else:
            error.args = (f"{error} It was sent no key, since none is set for it: `thinklsp doctor` says where.",)


def _priced(usage: Usage, price: Price | None) -> Usage:
    """Return the usage with its cost. What the service itself says that it cost beats any table."""
    if price is None or usage.cost_usd is not None:
        return usage
    return replace(usage, cost_usd=price.cost(usage))


async def _decoded(response: HttpResponse, decoder: StreamDecoder) -> AsyncGenerator[list[StreamEvent], None]:
    """The answer's events, as many at once as came at once, be it a stream or one whole message. Raises where it ends
    too early."""
    if response.content_type == "application/json":
        body = await response.read(_WHOLE_BODY + 1)
        if len(body) > _WHOLE_BODY:
            raise _hopeless("The service answered with more than 16 MiB in one piece, and was given up.")
        yield decoder.feed("", body.decode("utf-8", "replace"))
    elif response.content_type == "text/html":
        raise _hopeless(
            "The address answered with a web page, not with a message: check the base URL, and whether a proxy or a "
            "login page of the network stands in the way."
        )
    else:
        async with aclosing(_streamed(response.chunks(), decoder)) as batches:
            async for events in batches:
                yield events
    yield decoder.finish()


async def _streamed(
    chunks: AsyncGenerator[bytes, None], decoder: StreamDecoder
) -> AsyncGenerator[list[StreamEvent], None]:
    sse = SseDecoder()
    async with aclosing(chunks):
        async for chunk in chunks:
            for events in _events(decoder, sse.feed(chunk)):
                yield events
    for events in _events(decoder, sse.finish()):
        yield events


def _events(decoder: StreamDecoder, stream: Iterable[ServerSentEvent]) -> Iterator[list[StreamEvent]]:
    """In one batch. What came before an error counts: the batch comes first."""
    events: list[StreamEvent] = []
    try:
        for sent in stream:
            events += decoder.feed(sent.event, sent.data)
    except ProviderError:
        yield events
        raise
    yield events


def _joined(shown: list[Streamed]) -> Iterator[Streamed]:
    """Neighbouring pieces of one text as one."""
    for _, group in groupby(shown, type):
        first, *others = group
        if isinstance(first, ThinkingTick):
            yield from (first, *others)
        else:
            yield replace(
                first, delta=first.delta + "".join(p.delta for p in others if not isinstance(p, ThinkingTick))
            )


def _hopeless(sentence: str) -> StreamProtocolError:
    error = StreamProtocolError(sentence)
    error.retryable = False
    return error
