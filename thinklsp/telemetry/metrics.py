"""The metrics of a process, in the text format of Prometheus.

Every label has few values: names of providers, of listed models, of built-in tools and of store operations, and fixed
words. No label holds a text of a user, a path, a key or the name of an MCP tool.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from thinklsp.core.server_context import (
    CallObserver,
    CallOutcome,
    LoginRejection,
    ModelLabels,
    Observer,
    StoreOutcome,
    ToolObserver,
    ToolOutcome,
    TurnLabels,
    TurnObserver,
)
from thinklsp.core.usage import Usage

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_CALL_BUCKETS = (0.1, 0.5, 1, 2, 5, 10, 20, 30, 60, 120, 300, 600)
_TURN_BUCKETS = (1, 5, 10, 30, 60, 120, 300, 600, 1800, 3600)
_LAG_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 5)
_STORE_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class MetricsObserver(Observer):
    """The observer that counts. Each object has a registry of its own."""

    def __init__(self) -> None:
        # The time at which a series began is a series of its own, for which Prometheus has no use.
        disable_created_metrics()  # type: ignore[no-untyped-call] # the library leaves it untyped
        registry = self._registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def count(name: str, text: str, labels: Sequence[str] = ()) -> Counter:
            return Counter(f"thinklsp_{name}", text, labels, registry=registry)

        def measure(name: str, text: str, labels: Sequence[str], buckets: Sequence[float]) -> Histogram:
            return Histogram(f"thinklsp_{name}_seconds", text, labels, buckets=buckets, registry=registry)

        model = ["provider", "model"]
        self._clients = Gauge("thinklsp_clients", "Connected clients.", registry=registry)
        self._rejected = count("rejected_logins", "Clients that could not connect.", ["reason"])
        self.turns_running = Gauge("thinklsp_turns_running", "Running turns.", registry=registry)
        self.turns = count("turns", "Turns that have ended.", ["kind", "outcome"])
        self.turn_seconds = measure("turn_duration", "Duration of turns.", ["kind"], _TURN_BUCKETS)
        self.calls = count("model_calls", "Model calls that have ended.", [*model, "outcome"])
        call_text = "Duration of model calls, with their retries."
        self.call_seconds = measure("model_call_duration", call_text, model, _CALL_BUCKETS)
        self.retries = count("model_retries", "Attempts that were repeated.", model)
        self.tokens = count("model_tokens", "Tokens of model calls.", [*model, "kind"])
        self.tool_calls = count("tool_calls", "Tool calls.", ["tool", "outcome"])
        self.tool_seconds = measure("tool_call_duration", "Duration of tool calls.", ["tool"], _CALL_BUCKETS)
        self.loop_lag = measure("event_loop_lag", "How late the event loop ran a timer.", [], _LAG_BUCKETS)
        store_text = "Duration of calls of the session store."
        self._store_seconds = measure("store_call_duration", store_text, ["operation"], _STORE_BUCKETS)
        self._store_calls = count("store_calls", "Calls of the session store.", ["operation", "outcome"])

    def format_text(self) -> bytes:
        """Return all metrics as text. Any thread may call this method."""
        return generate_latest(self._registry)

    def count_clients(self, change: int) -> None:
        self._clients.inc(change)

    def count_rejected_login(self, reason: LoginRejection) -> None:
        self._rejected.labels(reason).inc()

    def begin_turn(self, turn: TurnLabels) -> TurnObserver:
        return _Turn(self, turn)

    def report_store_call(self, operation: str, seconds: float, outcome: StoreOutcome) -> None:
        self._store_seconds.labels(operation).observe(seconds)
        self._store_calls.labels(operation, outcome).inc()


class _Turn(TurnObserver):
    def __init__(self, metrics: MetricsObserver, turn: TurnLabels) -> None:
        self._metrics, self._kind, self._began = metrics, turn.kind, time.monotonic()
        metrics.turns_running.inc()

    def begin_call(self, model: ModelLabels) -> CallObserver:
        return _Call(self._metrics, model)

    def begin_tool(self, tool: str) -> ToolObserver:
        return _Tool(self._metrics, tool)

    def end(self, outcome: str, usage: Usage) -> None:  # noqa: ARG002 - the calls have counted the tokens
        self._metrics.turns_running.dec()
        self._metrics.turns.labels(self._kind, outcome).inc()
        self._metrics.turn_seconds.labels(self._kind).observe(time.monotonic() - self._began)


class _Call(CallObserver):
    def __init__(self, metrics: MetricsObserver, model: ModelLabels) -> None:
        self._metrics, self._began = metrics, time.monotonic()
        self._labels = (model.provider, model.model)

    def count_retry(self) -> None:
        self._metrics.retries.labels(*self._labels).inc()

    def end(self, outcome: CallOutcome, usage: Usage, stop_reason: str | None) -> None:  # noqa: ARG002 - too fine
        self._metrics.calls.labels(*self._labels, outcome).inc()
        self._metrics.call_seconds.labels(*self._labels).observe(time.monotonic() - self._began)
        for kind, count in _list_tokens(usage):
            self._metrics.tokens.labels(*self._labels, kind).inc(count)


class _Tool(ToolObserver):
    def __init__(self, metrics: MetricsObserver, tool: str) -> None:
        self._metrics, self._tool, self._began = metrics, tool, time.monotonic()

    def end(self, outcome: ToolOutcome) -> None:
        self._metrics.tool_calls.labels(self._tool, outcome).inc()
        self._metrics.tool_seconds.labels(self._tool).observe(time.monotonic() - self._began)


def _list_tokens(usage: Usage) -> Iterator[tuple[str, int]]:
    """Yield the token counts that the provider reported. `input` includes both cache counts, `output` thinking."""
    for kind in ("input", "output", "thinking", "cache_read", "cache_write"):
        if count := getattr(usage, f"{kind}_tokens"):
            yield kind, count
