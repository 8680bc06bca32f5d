"""The observation of turns: the engine reports turns, model calls and tool calls to the observer of the process."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from types import TracebackType
from typing import Self

from thinklsp.agent.model_call import AttemptUsage, CallEvent, CallFinished, ModelCaller
from thinklsp.core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    ProviderError,
    RateLimited,
    StreamProtocolError,
    TransportFailed,
)
from thinklsp.core.events import RetryScheduled, ToolFinished, ToolStarted, TurnEvent, TurnFinished
from thinklsp.core.server_context import (
    OTHER,
    CallOutcome,
    ModelLabels,
    Observer,
    ToolObserver,
    TurnLabels,
    TurnObserver,
)
from thinklsp.core.usage import Usage
from thinklsp.engine.turn_setup import ShowEvent
from thinklsp.providers.base import ModelRequest
from thinklsp.providers.model_info import ModelInfo
from thinklsp.tools.registry import READ_SKILL, TOOLS

_OUTCOMES: Mapping[type[ProviderError], CallOutcome] = {
    AuthenticationFailed: "authentication",
    BadRequest: "bad_request",
    ContextWindowExceeded: "context_window",
    RateLimited: "rate_limited",
    Overloaded: "overloaded",
    TransportFailed: "transport",
    StreamProtocolError: "protocol",
}
_BUILT_IN_TOOLS = frozenset(tool.name for tool in (*TOOLS, READ_SKILL))
_MCP_PREFIX = "mcp__"


class ObservedTurn:
    """The observation of a turn, from entering the context to its exit. `usage` is the turn's usage at its end."""

    def __init__(self, observer: Observer, labels: TurnLabels) -> None:
        self._observer = observer
        self._labels = labels
        self._turn = TurnObserver()
        self._finished: TurnFinished | None = None
        self._usage = Usage()
        self._tools: dict[str, ToolObserver] = {}

    def __enter__(self) -> Self:
        self._turn = self._observer.begin_turn(self._labels)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for tool in self._tools.values():
            tool.end("cancelled")
        if self._finished is not None and error is None:
            self._turn.end(self._finished.stop_reason, self._usage)
        else:
            self._turn.end("error" if isinstance(error, Exception) else "cancelled", self._usage)

    def observe_events(self, show: ShowEvent) -> ShowEvent:
        """Return a function that reports an event before `show` receives it."""

        def report_and_show(event: TurnEvent) -> None:
            self._observe_event(event)
            show(event)

        return report_and_show

    def _observe_event(self, event: TurnEvent) -> None:
        if isinstance(event, ToolStarted):
            self._tools[event.call_id] = self._turn.begin_tool(label_tool(event.name))
        elif isinstance(event, ToolFinished):
            # The call of an unknown tool ends without a start.
            tool = self._tools.pop(event.call_id, None) or self._turn.begin_tool(label_tool(event.name))
            tool.end("error" if event.is_error else "ok")
        elif isinstance(event, TurnFinished):
            self._finished = event

    def observe_calls(self, caller: ModelCaller) -> ModelCaller:
        """Return a caller that reports its calls."""
        return _ObservedCaller(caller, self)

    async def stream_call(self, caller: ModelCaller, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        """Yield the events of a model call and report its retries and its end."""
        call = self._turn.begin_call(label_model(request.model))
        usage, attempt, outcome, stop_reason = Usage(), Usage(), _CANCELLED, None
        try:
            async with aclosing(caller.stream(request)) as events:
                async for event in events:
                    if isinstance(event, AttemptUsage | CallFinished):
                        attempt = event.usage
                    if isinstance(event, RetryScheduled):
                        usage, attempt = usage + attempt, Usage()
                        call.count_retry()
                    elif isinstance(event, CallFinished):
                        outcome, stop_reason = "ok", event.message.stop_reason
                    yield event
        except ProviderError as error:
            outcome = label_error(error)
            raise
        finally:
            self._usage += usage + attempt
            call.end(outcome, usage + attempt, stop_reason)


_CANCELLED: CallOutcome = "cancelled"


class _ObservedCaller:
    """A model caller that reports its calls to the observation of its turn."""

    def __init__(self, caller: ModelCaller, turn: ObservedTurn) -> None:
        self._caller = caller
        self._turn = turn

    def stream(self, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        return self._turn.stream_call(self._caller, request)


def label_model(model: ModelInfo) -> ModelLabels:
    """Return the labels of a model. Models that are not listed have one label, because users can invent names."""
    return ModelLabels(model.provider, model.id if model.known else OTHER)


def label_tool(name: str) -> str:
    """Return the label of a tool. The tools of MCP servers are one label."""
    if name in _BUILT_IN_TOOLS:
        return name
    return "mcp" if name.startswith(_MCP_PREFIX) else OTHER


def label_error(error: ProviderError) -> CallOutcome:
    """Return the outcome of a model call that failed."""
    return next((outcome for kind, outcome in _OUTCOMES.items() if isinstance(error, kind)), "error")
