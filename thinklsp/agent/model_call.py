"""Model calls, which send a request, decode the answer, and retry after temporary errors. They do not run tools.

Each call ends with a complete message or an error. An interrupted answer is discarded, and the request is sent again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Iterator
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain, groupby
from typing import Protocol

from thinklsp.agent.request_fallbacks import (
    BUDGET_OMITTED_NOTICE,
    UNSIGNED_NOTICE,
    RequestFallbacks,
    ThinkingLoss,
    explain_rejection,
    find_losses,
    format_effort_notice,
)
from thinklsp.core.errors import AuthenticationFailed, ProviderError, StreamProtocolError
from thinklsp.core.events import DataReceived, Notice, RetryScheduled, TextStreamed, ThinkingStreamed, ThinkingTick
from thinklsp.core.images import replace_images
from thinklsp.core.messages import AssistantMessage
from thinklsp.core.stream_events import (
    BlockDelta,
    BlockStarted,
    MessageAccumulator,
    MessageFinished,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
)
from thinklsp.core.usage import Usage, discard_implausible
from thinklsp.http.retry import CallHistory, RetryPolicy, plan_retry
from thinklsp.http.sse import ServerSentEvent, SseDecoder
from thinklsp.http.transport import HttpResponse, Transport
from thinklsp.providers.base import Adapter, Endpoint, ModelRequest, StreamDecoder
from thinklsp.providers.catalogue import Price, add_cost
from thinklsp.providers.failures import OutputRejected, name_address


def replace_unreadable_images(request: ModelRequest) -> tuple[ModelRequest, tuple[Notice, ...]]:
    """Replace the images that the model cannot read with descriptions. Return the request, and a notice if any was.

    Only a session that began with another model has such images, because a prompt with them is refused.
    """
    readable = replace_images(request.conversation, request.model.accepted_images)
    if readable is request.conversation:
        return request, ()
    text = f"{request.model.id} cannot read the images in this session, so it gets their names and sizes instead."
    return replace(request, conversation=readable), (Notice("info", text),)


_log = logging.getLogger(__name__)
_MAX_ERROR_BYTES = 64 * 1024
_MAX_MESSAGE_BYTES = 16 * 1024 * 1024
_STRIPPED_RETRY_NOTE = "Retrying once without the model's earlier thinking."


@dataclass(frozen=True, slots=True)
class CallFinished:
    """The last event of a model call. `explanation` is the provider's explanation if it declined to answer."""

    message: AssistantMessage
    usage: Usage
    explanation: str | None = None


@dataclass(frozen=True, slots=True)
class AttemptUsage:
    """The usage of the running attempt so far. Each report replaces the last one. `CallFinished` has the final one."""

    usage: Usage


StreamedPiece = TextStreamed | ThinkingStreamed | ThinkingTick | DataReceived
CallEvent = StreamedPiece | AttemptUsage | RetryScheduled | Notice | CallFinished


class ModelCaller(Protocol):
    def stream(self, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        """Yield the parts of the answer as they arrive, followed by one CallFinished event.

        Raises ProviderError if the call fails. A RetryScheduled event with `restart` invalidates the parts before it.
        Close the generator with `aclosing`.
        """
        ...


@dataclass(slots=True)
class _Attempt:
    """The state of an attempt to call the model."""

    accumulator: MessageAccumulator
    usage: Usage = field(default_factory=Usage)
    has_content: bool = False
    thinking_tokens: int | None = None
    explanation: str | None = None
    notices: tuple[str, ...] = ()
    is_thinking_unsigned: bool = False
    without_budget: bool = False

    def report_usage(self, usage: Usage, price: Price | None) -> Iterator[AttemptUsage]:
        """Yield the usage figures if they have changed. Output tokens that are not reported yet count as 0."""
        current = discard_implausible(usage)
        if current.input_tokens is not None and current.output_tokens is None:
            current = replace(current, output_tokens=0)
        if current != self.usage:
            self.usage = current
            yield AttemptUsage(add_cost(current, price))

    def apply_events(self, events: Iterable[StreamEvent]) -> list[StreamedPiece]:
        """Apply stream events until the message ends, and return the pieces of text to display."""
        pieces: list[StreamedPiece] = []
        for event in events:
            if not self.accumulator.apply(event):
                continue
            match event:
                case BlockDelta(delta=TextDelta(text)):
                    if text:
                        pieces.append(TextStreamed(text))
                case BlockDelta(delta=ThinkingDelta(text, tokens)):
                    if text:
                        pieces.append(ThinkingStreamed(text))
                    if tokens is not None:
                        pieces.append(self._count_thinking_tokens(tokens))
                case BlockStarted():
                    self.has_content = True
                    pieces += self._read_initial_text(event)
                case MessageFinished():
                    self.explanation, self.notices = event.explanation, event.notices
                    self.is_thinking_unsigned = event.is_thinking_unsigned
                    break
                case _:
                    pass
        return pieces

    def _read_initial_text(self, event: BlockStarted) -> list[StreamedPiece]:
        """Return the text at the start of a block, because some servers send text in the start event."""
        text = event.raw.get(event.kind)
        if event.kind == "text":
            return [TextStreamed(text)] if isinstance(text, str) and text else []
        if event.kind not in ("thinking", "redacted_thinking"):
            return []
        tick = ThinkingTick(self.thinking_tokens)
        return [tick, ThinkingStreamed(text)] if isinstance(text, str) and text else [tick]

    def _count_thinking_tokens(self, tokens: int) -> ThinkingTick:
        self.thinking_tokens = (self.thinking_tokens or 0) + tokens
        return ThinkingTick(self.thinking_tokens)


class HttpModelCaller:
    """The model caller for one provider endpoint. Several turns can use it at the same time.

    `rng` returns jitter in [0, 1). `sleep` waits between attempts. After `data_sign_seconds` of data without text, an
    event shows that the provider is still active.
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
        fallbacks: RequestFallbacks | None = None,
        data_sign_seconds: float = 1.0,
    ) -> None:
        self._adapter = adapter
        self._endpoint = endpoint
        self._encode = partial(adapter.encode, endpoint=endpoint)
        self._transport = transport
        self._policy = policy
        self._rng = rng
        self._sleep = sleep
        self._data_sign_seconds = data_sign_seconds
        self._fallbacks = RequestFallbacks() if fallbacks is None else fallbacks

    async def stream(self, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        history = CallHistory()
        request, notices = replace_unreadable_images(request)
        full_request, request = request, self._fallbacks.adjust_request(request)
        refused: ProviderError | None = None  # The error that led to a retry without opaque state.
        for notice in (*notices, *self._report_adjustments(full_request, request)):
            yield notice
        while True:
            attempt = _Attempt(MessageAccumulator(self._endpoint.build_origin(request.model.id)))
            try:
                async with aclosing(self._run_attempt(request, attempt)) as pieces:
                    async for piece in pieces:
                        yield piece
                usage = add_cost(attempt.accumulator.usage, request.model.price)
                finished = CallFinished(attempt.accumulator.build_message(), usage, attempt.explanation)
            except ProviderError as error:
                error.args = (self._endpoint.hide_secrets(str(error)),)
                self._add_key_source(error)
                fallback = None if refused is not None else self._fallbacks.find_fallback(error, full_request, request)
                if fallback is not None:
                    request, notice = fallback
                    yield notice
                    retry = RetryScheduled(0.0, notice.text, attempt.has_content)
                elif refused is None and (stripped := self._fallbacks.strip_thinking(error, request, self._encode)):
                    refused, request = error, stripped
                    retry = RetryScheduled(0.0, f"{error} {_STRIPPED_RETRY_NOTE}", attempt.has_content)
                else:
                    retry, history = self._plan_retry(error, attempt, history, refused)
                    if isinstance(error, OutputRejected):
                        request = explain_rejection(request, error)
            else:
                if refused is not None:
                    yield self._fallbacks.confirm_stripped(full_request)
                for notice in self._report_answer(request, attempt):
                    yield notice
                yield finished
                return
            yield retry
            await self._sleep(retry.delay)

    def _report_adjustments(self, full_request: ModelRequest, request: ModelRequest) -> Iterator[Notice]:
        """Yield notices about the parts of `full_request` that are missing from `request`."""
        if request.thinking.effort != full_request.thinking.effort:
            yield Notice("warning", format_effort_notice(request, full_request.thinking.effort))
        losses = find_losses(full_request.conversation, request, self._endpoint.build_origin(request.model.id))
        yield from self._fallbacks.report_losses(losses, request.model.id)

    def _report_answer(self, request: ModelRequest, attempt: _Attempt) -> Iterator[Notice]:
        """Yield notices about problems in a complete answer."""
        if attempt.is_thinking_unsigned:
            # The start of the conversation identifies the session, so the user sees the notice once per session.
            loss = ThinkingLoss("unsealed", UNSIGNED_NOTICE, request.conversation[:1])
            yield from self._fallbacks.report_losses([loss], request.model.id)
        omitted = (BUDGET_OMITTED_NOTICE,) if attempt.without_budget else ()
        yield from (Notice("warning", text) for text in (*attempt.notices, *omitted))

    def _plan_retry(
        self, error: ProviderError, attempt: _Attempt, history: CallHistory, first_error: ProviderError | None
    ) -> tuple[RetryScheduled, CallHistory]:
        """Plan the next retry, and return it with the updated call history.

        If no retry can help, raises `first_error` if it is set, or `error` otherwise.
        """
        plan = plan_retry(self._policy, error, history=history, has_content=attempt.has_content, jitter=self._rng())
        if not isinstance(plan, str):
            return plan
        if first_error is not None:
            raise first_error
        if plan:
            error.args = (f"{error} {plan}",)
        raise error

    async def _run_attempt(
        self, request: ModelRequest, attempt: _Attempt
    ) -> AsyncGenerator[StreamedPiece | AttemptUsage, None]:
        wire = self._encode(request)
        attempt.without_budget = wire.budget_omitted
        decoder, price = self._adapter.create_decoder(), request.model.price
        loop = asyncio.get_running_loop()
        heard_at = loop.time()
        try:
            async with self._transport.post(wire.url, wire.headers, wire.body) as response:
                if response.status != 200:
                    body = await response.read(_MAX_ERROR_BYTES)
                    error = self._adapter.parse_failure(response.status, response.headers, body, request.model.id)
                    raise name_address(error, response.status, wire.url, request.model.id)
                async with aclosing(_receive_batches(response)) as batches:
                    async for batch in batches:
                        events, failure = _decode(decoder, batch)
                        pieces = attempt.apply_events(events)
                        if pieces or loop.time() - heard_at >= self._data_sign_seconds:
                            heard_at, pieces = loop.time(), pieces or [DataReceived()]
                        for piece in chain(attempt.report_usage(decoder.usage, price), _join_pieces(pieces)):
                            yield piece
                        if attempt.accumulator.is_finished:
                            break
                        if failure is not None:
                            raise failure
                        if attempt.accumulator.is_between_blocks:
                            response.stop_batching()
        except ProviderError:
            # Report the usage that the provider sent before the error.
            for report in attempt.report_usage(decoder.usage, price):
                yield report
            raise
        finally:
            self._log_unmatched(request, attempt)

    def _log_unmatched(self, request: ModelRequest, attempt: _Attempt) -> None:
        """Log how many stream events of each kind were ignored, once per answer."""
        for is_new, level in ((False, logging.WARNING), (True, logging.DEBUG)):
            counts = attempt.accumulator.unmatched.items()
            ignored = [f"{piece.description} ({count}x)" for piece, count in counts if piece.is_unknown_kind is is_new]
            if ignored:
                provider, model = self._endpoint.provider, request.model.id
                _log.log(level, "%s, model %s: ignored in the answer: %s", provider, model, ", ".join(ignored))

    def _add_key_source(self, error: ProviderError) -> None:
        """Add the source of the API key to the message of an authentication error."""
        if not isinstance(error, AuthenticationFailed) or not self._endpoint.key_source:
            return
        if self._endpoint.api_key:
            error.args = (f"{error} The key comes from {self._endpoint.key_source}.",)
        else:
            error.args = (f"{error} No API key is set for this provider; `thinklsp doctor` shows how to set one.",)


async def _receive_batches(response: HttpResponse) -> AsyncGenerator[list[ServerSentEvent] | None, None]:
    """Yield the events of a streamed or JSON answer in batches, followed by None."""
    if response.content_type == "application/json":
        body = await response.read(_MAX_MESSAGE_BYTES + 1)
        if len(body) > _MAX_MESSAGE_BYTES:
            raise StreamProtocolError(
                "The provider's answer was discarded: it is a single message larger than 16 MiB.", retryable=False
            )
        yield [ServerSentEvent("", body.decode("utf-8", "replace"))]
    elif response.content_type == "text/html":
        raise StreamProtocolError(
            "The provider's address returned a web page instead of an answer. Check the base URL, and whether a proxy "
            "or network login page intercepts the request.",
            retryable=False,
        )
    else:
        sse = SseDecoder()
        async with aclosing(response.iterate_chunks()) as chunks:
            async for chunk in chunks:
                yield sse.feed(chunk)
        yield sse.finish()
    yield None


def _decode(
    decoder: StreamDecoder, batch: list[ServerSentEvent] | None
) -> tuple[list[StreamEvent], ProviderError | None]:
    """Decode a batch, and return the events before the first error together with the error.

    If `batch` is None, the stream has ended.
    """
    events: list[StreamEvent] = []
    try:
        if batch is None:
            events += decoder.finish()
        for sent in batch or ():
            events += decoder.feed(sent.event, sent.data)
    except ProviderError as failure:
        return events, failure
    return events, None


def _join_pieces(pieces: list[StreamedPiece]) -> Iterator[StreamedPiece]:
    """Merge consecutive pieces of the same kind."""
    for _, group in groupby(pieces, type):
        first, *others = group
        if isinstance(first, ThinkingTick | DataReceived):
            yield from (first, *others)
        else:
            deltas = (piece.delta for piece in others if not isinstance(piece, ThinkingTick | DataReceived))
            yield replace(first, delta=first.delta + "".join(deltas))
