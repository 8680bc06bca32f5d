"""Health, readiness and metrics over HTTP, on a port and in a thread of their own.

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
import logging
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from http import HTTPStatus
from typing import Literal, Protocol

from thinklsp.core.errors import SessionError
from thinklsp.telemetry.metrics import CONTENT_TYPE, MetricsObserver

_log = logging.getLogger(__name__)

StoreState = Literal["unknown", "ok", "degraded", "unreachable"]

_PROBE_SECONDS = 5.0
_MAX_ANSWER_SECONDS = 4.0
_MAX_FAILURES = 2
_REQUEST_SECONDS = 5.0
_MAX_HEAD_BYTES = 16 * 1024
_MAX_CONNECTIONS = 64
_BEAT_SECONDS = 1.0
_MAX_SILENCE_SECONDS = 10.0
_CLOSE_SECONDS = 1.0
_PLAIN = "text/plain; charset=utf-8"


class ProbedStore(Protocol):
    """A session store that answers a cheap query."""

    @property
    def problems(self) -> tuple[str, ...]: ...

    async def read_data_version(self) -> object: ...

    async def aclose(self) -> None: ...


class StoreProbe:
    """The state of the session store, which the probe asks every five seconds.

    `unreachable` means that the store has not answered twice in a row. `degraded` means that the store reports a
    problem, for example that it keeps sessions in memory only.
    """

    def __init__(self, store: ProbedStore, max_answer_seconds: float = _MAX_ANSWER_SECONDS) -> None:
        self._store = store
        self._max_answer_seconds = max_answer_seconds
        self._failures = 0
        self._question: asyncio.Task[object] | None = None
        self.state: StoreState = "unknown"

    async def run(self) -> None:
        """Ask the store until the task is cancelled."""
        while True:
            await self.ask()
            await asyncio.sleep(_PROBE_SECONDS)

    async def ask(self) -> None:
        """Ask the store once and update the state. A question without an answer is not asked again."""
        if self._question is None:
            self._question = asyncio.create_task(self._store.read_data_version())
        await asyncio.wait([self._question], timeout=self._max_answer_seconds)
        if not self._question.done():
            self._count_failure("it is silent")
            return
        error, self._question = self._question.exception(), None
        if error is None:
            self._failures = 0
            self.state = "degraded" if self._store.problems else "ok"
        else:
            self._count_failure(str(error) if isinstance(error, SessionError) else type(error).__name__)

    def _count_failure(self, reason: str) -> None:
        self._failures += 1
        if self.state != "unreachable" and (self._failures >= _MAX_FAILURES or self.state == "unknown"):
            self.state = "unreachable"
            _log.warning("the session store does not answer: %s", reason)

    def explain_unready(self) -> str | None:
        """Return a sentence if the store is not known to answer. Any thread may call this method."""
        match self.state:
            case "unknown":
                return "The session store has not answered yet."
            case "unreachable":
                return "The session store does not answer."
            case "ok" | "degraded":
                return None


@dataclass(frozen=True, slots=True)
class Response:
    """A response without its fixed headers."""

    status: HTTPStatus
    content_type: str
    body: bytes


Respond = Callable[[str], Response]
ExplainUnready = Callable[[], str | None]
_NOT_ALLOWED = Response(HTTPStatus.METHOD_NOT_ALLOWED, _PLAIN, b"Use GET or HEAD.\n")


class HttpEndpoint:
    """The HTTP server. `respond` returns the response for a path. It is called in the server's thread."""

    def __init__(self, listening: socket.socket, respond: Respond) -> None:
        self._listening = listening
        self._respond = respond
        self._loop = asyncio.new_event_loop()
        self._stopping = asyncio.Event()
        # The open connections, oldest first.
        self._connections: dict[asyncio.StreamWriter, None] = {}
        self._thread = threading.Thread(target=self._run, daemon=True, name="thinklsp-metrics")

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stop the server. Open connections are dropped."""
        with suppress(RuntimeError):  # The loop has already ended.
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(_REQUEST_SECONDS)

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = await asyncio.start_server(self._serve_connection, sock=self._listening, limit=_MAX_HEAD_BYTES)
        await self._stopping.wait()
        server.close()
        for writer in [*self._connections]:
            writer.transport.abort()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._connections) >= _MAX_CONNECTIONS:
            next(iter(self._connections)).transport.abort()
        self._connections[writer] = None
        try:
            async with asyncio.timeout(_REQUEST_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(self._build_answer(head))
                await writer.drain()
                writer.close()
                await writer.wait_closed()
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            self._connections.pop(writer, None)
            writer.transport.abort()

    def _build_answer(self, head: bytes) -> bytes:
        method, path = parse_request_line(head)
        response = self._respond(path) if method in ("GET", "HEAD") else _NOT_ALLOWED
        lines = (
            f"HTTP/1.1 {response.status.value} {response.status.phrase}",
            f"Content-Type: {response.content_type}",
            f"Content-Length: {len(response.body)}",
            "Cache-Control: no-store",
            "X-Content-Type-Options: nosniff",
            "Connection: close",
            *(("Allow: GET, HEAD",) if response is _NOT_ALLOWED else ()),
        )
        body = b"" if method == "HEAD" else response.body
        return "".join(f"{line}\r\n" for line in lines).encode() + b"\r\n" + body


def parse_request_line(head: bytes) -> tuple[str, str]:
    """Return the method and the path of a request without its query, or two empty strings."""
    words = head.partition(b"\r\n")[0].decode("latin-1").split(" ")
    return (words[0], words[1].partition("?")[0]) if len(words) == 3 and words[2].startswith("HTTP/1.") else ("", "")


@asynccontextmanager
async def serve_health(
    listening: socket.socket, metrics: MetricsObserver, explain_unready: ExplainUnready, store: ProbedStore
) -> AsyncIterator[None]:
    """Answer HTTP requests on a listening socket until the context is exited.

    Another thread calls `explain_unready`, which returns a sentence if the server accepts no further client.
    """
    probe = StoreProbe(store)
    pages = HealthPages(metrics, explain_unready, probe)
    tasks = [asyncio.create_task(pages.beat()), asyncio.create_task(probe.run())]
    endpoint = HttpEndpoint(listening, pages.respond)
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


class HealthPages:
    """The responses by path, and the pulse of the event loop, which another thread can feel."""

    def __init__(self, metrics: MetricsObserver, explain_unready: ExplainUnready, probe: StoreProbe) -> None:
        self._metrics, self._explain_unready, self._probe = metrics, explain_unready, probe
        self._last_beat = time.monotonic()

    async def beat(self) -> None:
        """Measure once a second how late the event loop runs a timer."""
        while True:
            due = time.monotonic() + _BEAT_SECONDS
            await asyncio.sleep(_BEAT_SECONDS)
            self._last_beat = time.monotonic()
            self._metrics.loop_lag.observe(max(0.0, self._last_beat - due))

    def respond(self, path: str) -> Response:
        match path:
            case "/health" | "/healthz":
                is_alive = time.monotonic() - self._last_beat < _MAX_SILENCE_SECONDS
                return _build_state(None if is_alive else "The event loop does not run.")
            case "/ready" | "/readyz":
                problem = self._explain_unready() or self._probe.explain_unready()
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
