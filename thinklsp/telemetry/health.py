"""Health, readiness and metrics over HTTP, on a port of their own.

| path | answer |
|---|---|
| `/health`, `/healthz` | 200 if the event loop has run a timer in the last ten seconds, else 503 |
| `/ready`, `/readyz` | 200 if the server accepts a further client and the session store answers, else 503 |
| `/metrics` | the metrics |

If the store does not answer, every process of a team is unready at once: load balancers send new clients to none of
them, and connected clients stay. The store has no effect on `/health`, because a restart does not bring the database
back.
"""

from __future__ import annotations

import asyncio
import json
import socket
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from http import HTTPStatus
from typing import Protocol

from thinklsp.telemetry.http_endpoint import HttpEndpoint, Response
from thinklsp.telemetry.metrics import CONTENT_TYPE, MetricsObserver
from thinklsp.telemetry.store_probe import ProbedStore, StoreProbe

_BEAT_SECONDS = 1.0
_MAX_SILENCE_SECONDS = 10.0
_CLOSE_SECONDS = 1.0
_PLAIN = "text/plain; charset=utf-8"


class Readiness(Protocol):
    """A server that can say whether it accepts clients."""

    def explain_unready(self) -> str | None:
        """Return a sentence if the server accepts no further client. Any thread may call this method."""
        ...


@asynccontextmanager
async def serve_health(
    listening: socket.socket, metrics: MetricsObserver, server: Readiness, store: ProbedStore
) -> AsyncIterator[None]:
    """Answer HTTP requests on a listening socket until the context is exited."""
    pulse, probe = Pulse(metrics), StoreProbe(store)
    tasks = [asyncio.create_task(pulse.beat()), asyncio.create_task(probe.run())]
    endpoint = HttpEndpoint(listening, HealthPages(metrics, server, pulse, probe).respond)
    endpoint.start()
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.to_thread(endpoint.stop)
        with suppress(TimeoutError):
            async with asyncio.timeout(_CLOSE_SECONDS):
                await store.aclose()


class Pulse:
    """The pulse of the event loop, which another thread can feel."""

    def __init__(self, metrics: MetricsObserver) -> None:
        self._metrics = metrics
        self._last = time.monotonic()

    @property
    def is_alive(self) -> bool:
        return time.monotonic() - self._last < _MAX_SILENCE_SECONDS

    async def beat(self) -> None:
        """Measure once a second how late the event loop runs a timer."""
        while True:
            due = time.monotonic() + _BEAT_SECONDS
            await asyncio.sleep(_BEAT_SECONDS)
            self._last = time.monotonic()
            self._metrics.loop_lag.observe(max(0.0, self._last - due))


class HealthPages:
    """The responses by path."""

    def __init__(self, metrics: MetricsObserver, server: Readiness, pulse: Pulse, probe: StoreProbe) -> None:
        self._metrics, self._server = metrics, server
        self._pulse, self._probe = pulse, probe

    def respond(self, path: str) -> Response:
        match path:
            case "/health" | "/healthz":
                return _build_state(None if self._pulse.is_alive else "The event loop does not run.")
            case "/ready" | "/readyz":
                problem = self._server.explain_unready() or self._probe.explain_unready()
                return _build_state(problem, store=self._probe.state)
            case "/metrics":
                return Response(HTTPStatus.OK, CONTENT_TYPE, self._metrics.format_text())
            case _:
                body = b"This server has /health, /ready and /metrics.\n"
                return Response(HTTPStatus.NOT_FOUND, _PLAIN, body)


def _build_state(problem: str | None, **more: str) -> Response:
    status = HTTPStatus.OK if problem is None else HTTPStatus.SERVICE_UNAVAILABLE
    state = {"ok": problem is None, **({} if problem is None else {"problem": problem}), **more}
    return Response(status, "application/json", json.dumps(state).encode() + b"\n")
