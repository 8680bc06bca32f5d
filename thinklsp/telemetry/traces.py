"""Traces of turns, in the words of OpenTelemetry's conventions for generative AI.

A trace has a span for a turn, and below it a span for each model call, tool call and store call. A span contains names
of models and tools, random ids, token counts and durations. It contains no prompt, no answer, no path, no argument of a
tool and no key.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping

from opentelemetry import context, trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.util.types import AttributeValue

from thinklsp import __version__
from thinklsp.core.server_context import (
    CallObserver,
    CallOutcome,
    ModelLabels,
    Observer,
    StoreOutcome,
    ToolObserver,
    ToolOutcome,
    TurnLabels,
    TurnObserver,
)
from thinklsp.core.usage import Usage

_FLUSH_SECONDS = 3.0
_PROVIDER_NAMES = {"google": "gcp.gemini"}
_FAILED_TURNS = ("error", "context_window")


class TraceObserver(Observer):
    """The observer that records spans."""

    def __init__(self, provider: TracerProvider) -> None:
        self._provider = provider
        self._tracer = provider.get_tracer("thinklsp", __version__)

    def begin_turn(self, turn: TurnLabels) -> TurnObserver:
        return _Turn(self._tracer, turn)

    def report_store_call(self, operation: str, seconds: float, outcome: StoreOutcome) -> None:
        """Record the span of a store call that has ended. Calls outside turns have no span."""
        if not trace.get_current_span().get_span_context().is_valid:
            return
        ended = time.time_ns()
        span = self._tracer.start_span(
            f"session_store {operation}",
            kind=SpanKind.CLIENT,
            attributes={"db.operation.name": operation},
            start_time=ended - int(seconds * 1e9),
        )
        _end(span, None if outcome == "ok" else outcome, is_error=outcome == "failed", end_time=ended)

    async def flush(self) -> None:
        """Send the spans that are still waiting, within a time limit."""
        await asyncio.to_thread(self._provider.force_flush, int(_FLUSH_SECONDS * 1000))


def create_observer(environment: Mapping[str, str]) -> TraceObserver:
    """Return an observer that sends its spans over OTLP/HTTP, as the OTEL_… variables configure it."""
    attributes: dict[str, AttributeValue] = {"service.version": __version__}
    resource = environment.get("OTEL_RESOURCE_ATTRIBUTES", "")
    if not environment.get("OTEL_SERVICE_NAME") and "service.name=" not in resource:
        attributes["service.name"] = "thinklsp"
    provider = TracerProvider(resource=Resource.create(attributes), shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    return TraceObserver(provider)


class _Turn(TurnObserver):
    """The span of a turn. It is the current span of its task, so that the spans of store calls are below it."""

    def __init__(self, tracer: Tracer, turn: TurnLabels) -> None:
        self._tracer = tracer
        self._span = tracer.start_span(
            "invoke_agent thinklsp",
            # A turn begins its own trace.
            context=context.Context(),
            attributes={
                "gen_ai.operation.name": "invoke_agent",
                "gen_ai.agent.name": "thinklsp",
                "gen_ai.conversation.id": turn.session_id,
                "thinklsp.turn.id": turn.turn_id,
                "thinklsp.turn.kind": turn.kind,
            },
        )
        self._context = trace.set_span_in_context(self._span)
        self._token = context.attach(self._context)

    def begin_call(self, model: ModelLabels) -> CallObserver:
        attributes = {
            "gen_ai.operation.name": "chat",
            "gen_ai.provider.name": _PROVIDER_NAMES.get(model.provider, model.provider),
            "gen_ai.request.model": model.model,
        }
        return _Call(self._begin_span(f"chat {model.model}", SpanKind.CLIENT, attributes))

    def begin_tool(self, tool: str) -> ToolObserver:
        attributes = {"gen_ai.operation.name": "execute_tool", "gen_ai.tool.name": tool}
        return _Tool(self._begin_span(f"execute_tool {tool}", SpanKind.INTERNAL, attributes))

    def end(self, outcome: str, usage: Usage) -> None:
        context.detach(self._token)
        self._span.set_attribute("thinklsp.turn.outcome", outcome)
        _set_usage(self._span, usage)
        is_error = outcome in _FAILED_TURNS
        _end(self._span, outcome if is_error else None, is_error=is_error)

    def _begin_span(self, name: str, kind: SpanKind, attributes: Mapping[str, AttributeValue]) -> Span:
        return self._tracer.start_span(name, context=self._context, kind=kind, attributes=attributes)


class _Call(CallObserver):
    def __init__(self, span: Span) -> None:
        self._span = span
        self._retries = 0

    def count_retry(self) -> None:
        self._retries += 1
        self._span.add_event("retry")

    def end(self, outcome: CallOutcome, usage: Usage, stop_reason: str | None) -> None:
        _set_usage(self._span, usage)
        if self._retries:
            self._span.set_attribute("thinklsp.retries", self._retries)
        if stop_reason is not None:
            self._span.set_attribute("gen_ai.response.finish_reasons", [stop_reason])
        _end(self._span, None if outcome == "ok" else outcome, is_error=outcome not in ("ok", "cancelled"))


class _Tool(ToolObserver):
    def __init__(self, span: Span) -> None:
        self._span = span

    def end(self, outcome: ToolOutcome) -> None:
        _end(self._span, None if outcome == "ok" else outcome, is_error=outcome == "error")


def _set_usage(span: Span, usage: Usage) -> None:
    counts = {
        "gen_ai.usage.input_tokens": usage.input_tokens,
        "gen_ai.usage.output_tokens": usage.output_tokens,
        "gen_ai.usage.cache_read.input_tokens": usage.cache_read_tokens,
        "gen_ai.usage.cache_creation.input_tokens": usage.cache_write_tokens,
    }
    span.set_attributes({name: count for name, count in counts.items() if count is not None})


def _end(span: Span, problem: str | None, *, is_error: bool, end_time: int | None = None) -> None:
    if problem is not None:
        span.set_attribute("error.type", problem)
    if is_error:
        span.set_status(Status(StatusCode.ERROR))
    span.end(end_time)
