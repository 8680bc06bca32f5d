"""A small HTTP server for probes and metrics, in a thread of its own.

It answers even if the event loop of the clients does not run. Each request has five seconds in all, so that slow
clients cannot keep others out. The server reads no body, keeps no connection open, and logs nothing, because probes
arrive every few seconds.
"""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

_REQUEST_SECONDS = 5.0
_MAX_HEAD_BYTES = 16 * 1024
_MAX_CONNECTIONS = 64


@dataclass(frozen=True, slots=True)
class Response:
    """A response without its fixed headers."""

    status: HTTPStatus
    content_type: str
    body: bytes


Respond = Callable[[str], Response]
_NOT_ALLOWED = Response(HTTPStatus.METHOD_NOT_ALLOWED, "text/plain; charset=utf-8", b"Use GET or HEAD.\n")


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
