"""The telemetry of `--tcp` and `--ws`: metrics with `--metrics`, and traces if the environment names a receiver.

Neither `prometheus_client` nor `opentelemetry` is imported unless it is needed.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from thinklsp.core.errors import ThinkLspError, format_install_command
from thinklsp.core.observer import NO_OBSERVER, Observer
from thinklsp.engine.session_stores import open_session_store
from thinklsp.lsp.transport.sockets import ConnectionRegistry
from thinklsp.telemetry import combine_observers

if TYPE_CHECKING:
    from thinklsp.telemetry.health import ProbedStore
    from thinklsp.telemetry.metrics import MetricsObserver
    from thinklsp.telemetry.traces import TraceObserver

_METRICS_REQUIREMENT = "prometheus-client>=0.21,<1"
_TRACES_REQUIREMENTS = ("opentelemetry-sdk>=1.30,<2", "opentelemetry-exporter-otlp-proto-http>=1.30,<2")
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
_PROTOCOLS = ("OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "OTEL_EXPORTER_OTLP_PROTOCOL")
_PROTOCOL = "http/protobuf"


class TelemetryError(ThinkLspError):
    """An error for telemetry that is asked for but not possible."""


class Telemetry:
    """The observer of a server, and the monitor that serves its metrics and ends its traces."""

    def __init__(
        self,
        listening: socket.socket | None,
        metrics: MetricsObserver | None,
        traces: TraceObserver | None,
        store: ProbedStore,
    ) -> None:
        self._listening, self._metrics, self._traces = listening, metrics, traces
        self._store = store
        observers = [observer for observer in (metrics, traces) if observer is not None]
        self.observer: Observer = (
            combine_observers(observers) if len(observers) > 1 else next(iter(observers), NO_OBSERVER)
        )

    @asynccontextmanager
    async def open_monitor(self, registry: ConnectionRegistry) -> AsyncIterator[None]:
        """Serve health and metrics until the context is exited. Then send the remaining spans."""
        async with AsyncExitStack() as stack:
            if self._traces is not None:
                stack.push_async_callback(self._traces.flush)
            if self._listening is not None and self._metrics is not None:
                from thinklsp.telemetry.health import serve_health  # noqa: PLC0415 - only with metrics

                await stack.enter_async_context(serve_health(self._listening, self._metrics, registry, self._store))
                _announce(self._listening)
            yield


def create_telemetry(listening: socket.socket | None, environment: Mapping[str, str]) -> Telemetry:
    """Return the telemetry of the process. `listening` is the socket for metrics.

    Raises TelemetryError or SettingsError.
    """
    metrics = None if listening is None else _create_metrics()
    traces = _create_traces(environment) if has_trace_receiver(environment) else None
    # The probe has a store of its own, as each client has.
    return Telemetry(listening, metrics, traces, open_session_store(environment))


def has_trace_receiver(environment: Mapping[str, str]) -> bool:
    """Return whether the environment variables of OpenTelemetry name a receiver of traces."""
    if environment.get("OTEL_SDK_DISABLED", "").strip().lower() == "true":
        return False
    exporters = [name.strip() for name in environment.get("OTEL_TRACES_EXPORTER", "otlp").split(",")]
    return "otlp" in exporters and any(environment.get(name, "").strip() for name in _ENDPOINTS)


def _create_metrics() -> MetricsObserver:
    try:
        from thinklsp.telemetry.metrics import MetricsObserver  # noqa: PLC0415 - only with metrics
    except ImportError:
        command = format_install_command(_METRICS_REQUIREMENT)
        raise TelemetryError(f"--metrics needs one more package. Run {command}.") from None
    return MetricsObserver()


def _create_traces(environment: Mapping[str, str]) -> TraceObserver | None:
    """Return the observer, or None after a warning. The variables may be meant for another program."""
    protocol = next((environment[name].strip() for name in _PROTOCOLS if environment.get(name)), _PROTOCOL)
    if protocol != _PROTOCOL:
        _print(f"no traces are sent, because thinklsp cannot use {protocol!r}. Set {_PROTOCOLS[1]}={_PROTOCOL}.")
        return None
    try:
        from thinklsp.telemetry.traces import create_observer  # noqa: PLC0415 - only with traces
    except ImportError:
        _print(f"no traces are sent. To send them, run {format_install_command(*_TRACES_REQUIREMENTS)}.")
        return None
    return create_observer(environment)


def _announce(listening: socket.socket) -> None:
    host, port = listening.getsockname()[:2]
    shown_host = f"[{host}]" if ":" in host else host
    _print(f"metrics on http://{shown_host}:{port}/metrics")


def _print(sentence: str) -> None:
    sys.stderr.write(f"thinklsp: {sentence}\n")
    sys.stderr.flush()
