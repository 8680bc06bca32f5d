"""The simulator's HTTP server on 127.0.0.1. It records requests and sends replies with the scripted pauses.

h11 implements HTTP/1.1, and `HttpConnection` transfers the bytes of one request at a time. The server itself responds
to requests under `/__simulator/`, which list and clear the journal.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Self, assert_never
from urllib.parse import urlsplit

import h11

from tests.stand_ins.anthropic.service import AnthropicDialect
from tests.stand_ins.chat.service import ChatDialect
from tests.stand_ins.dialect import (
    Dialect,
    EndStream,
    Pause,
    ReceivedRequest,
    SendBytes,
    SimulatedReply,
    StreamedReply,
    WholeReply,
)
from tests.stand_ins.google.service import GoogleDialect
from tests.stand_ins.journal import MAX_REQUESTS, Journal, RecordedRequest
from tests.stand_ins.openai.service import OpenAiDialect
from tests.stand_ins.rejections import RequestRejected
from thinklsp.core.errors import ThinkLspError
from thinklsp.offline.scenario import Scenario
from thinklsp.offline.script import Script

MAX_BODY_BYTES = 32 * 1024 * 1024
_MAX_HEAD_BYTES = 64 * 1024
_MAX_AHEAD_BYTES = 1024 * 1024
_HOST = "127.0.0.1"
_LOCAL_NAMES = frozenset({"127.0.0.1", "localhost"})


class HttpConnection:
    """An HTTP connection from a client.

    Call `receive` and then either `send_whole`, or `start`, `send_piece` and `finish`. Then call `receive` again.
    """

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD_BYTES)

    async def receive(self) -> ReceivedRequest | None:
        """Return the next complete request, or None if the client has closed the connection.

        Raises RequestRejected for a request that is too large or not valid HTTP.
        """
        try:
            return await self._receive()
        except h11.RemoteProtocolError as error:
            raise RequestRejected(error.error_status_hint, f"The request is not valid HTTP: {error}") from None

    async def wait_for_close(self) -> None:
        """Wait until the client closes the connection. Data for the next request is kept for `receive`."""
        ahead = 0
        while ahead < _MAX_AHEAD_BYTES:
            data = await self._reader.read(65536)
            if not data:
                return
            self._http.receive_data(data)
            ahead += len(data)
        await asyncio.Event().wait()

    async def send_whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        length = {"content-length": str(len(body))}
        await self._send_event(h11.Response(status_code=status, headers=list({**headers, **length}.items())))
        await self._send_event(h11.Data(data=body))
        await self.finish()

    async def start_stream(self, headers: Mapping[str, str]) -> None:
        """Start a response with status 200 and a body of unknown length."""
        await self._send_event(h11.Response(status_code=200, headers=list(headers.items())))

    async def send_piece(self, data: bytes) -> None:
        await self._send_event(h11.Data(data=data))

    async def finish(self) -> None:
        await self._send_event(h11.EndOfMessage())

    def abort(self) -> None:
        """Close the connection without completing the response, like a server that crashes."""
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            # The client has already closed the connection.
            return

    async def _receive(self) -> ReceivedRequest | None:
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        if self._http.our_state is not h11.IDLE:
            return None
        head = await self._read_event()
        if not isinstance(head, h11.Request):
            return None
        body = bytearray()
        while isinstance(event := await self._read_event(), h11.Data):
            body += event.data
            if len(body) > MAX_BODY_BYTES:
                raise RequestRejected(413, "Request exceeds the maximum size")
        path, _, query = head.target.decode("ascii").partition("?")
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in head.headers}
        return ReceivedRequest(head.method.decode("ascii"), path, query, headers, bytes(body))

    async def _read_event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self._send_event(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._reader.read(65536))
        return event

    async def _send_event(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()


class Simulator:
    """An async context manager that runs the simulator with a scenario. The server listens until the block ends.

    `base_url` is available inside the block. `on_finished` is called after each request, except requests to
    `/__simulator/`.
    """

    def __init__(
        self,
        scenario: Scenario,
        port: int = 0,
        *,
        on_finished: Callable[[RecordedRequest], None] | None = None,
        max_requests: int = MAX_REQUESTS,
    ) -> None:
        self._port = port
        self._script = Script(scenario)
        # The first dialect that accepts a request answers it. If no dialect accepts it, the last dialect answers.
        self._dialects: tuple[Dialect, ...] = (
            GoogleDialect(self._script),
            OpenAiDialect(self._script),
            ChatDialect(self._script),
            AnthropicDialect(self._script),
        )
        self._journal = Journal(max_requests)
        self._on_finished = on_finished
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        """The simulator's URL, which consists of the scheme, host and port."""
        return f"http://{_HOST}:{self._port}"

    @property
    def requests(self) -> list[RecordedRequest]:
        """The latest requests, oldest first, except requests to `/__simulator/`."""
        return self._journal.requests

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(self._serve_connection, _HOST, self._port)
        except OSError as error:
            raise ThinkLspError(
                f"The simulator cannot listen on {_HOST}:{self._port} ({error.strerror}). "
                "Choose another port, or 0 for any free port."
            ) from None
        self._port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._server is not None:
            self._server.close()
            for task in self._connections:
                task.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)
            await self._server.wait_closed()
            self._server = None

    async def wait_for_requests(
        self,
        count: int,
        timeout: float = 5.0,  # noqa: ASYNC109 - tests pass their own timeout
    ) -> list[RecordedRequest]:
        """Wait until the simulator has received `count` requests since the start or the last reset.

        Returns the latest requests. Raises TimeoutError after `timeout` seconds.
        """
        await self._journal.wait_until(lambda: self._journal.request_count >= count, timeout)
        return self.requests

    async def wait_until(
        self,
        predicate: Callable[[list[RecordedRequest]], bool],
        timeout: float = 5.0,  # noqa: ASYNC109 - tests pass their own timeout
    ) -> None:
        """Wait until `predicate(self.requests)` is true. Raises TimeoutError after `timeout` seconds."""
        await self._journal.wait_until(lambda: predicate(self.requests), timeout)

    def reset(self) -> None:
        """Forget requests, attempts, cached prefixes and conversations.

        Signatures from earlier answers stay valid.
        """
        self._journal.clear()
        self._script.reset()
        for dialect in self._dialects:
            dialect.reset()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        connection = HttpConnection(reader, writer)
        try:
            await self._serve_requests(connection)
        except (ConnectionError, asyncio.CancelledError):
            # Only `__aexit__` cancels this task, so the cancellation can be suppressed.
            connection.abort()
        finally:
            self._connections.discard(task)
            await connection.close()

    async def _serve_requests(self, connection: HttpConnection) -> None:
        try:
            while (received := await connection.receive()) is not None:
                if received.path.startswith("/__simulator/"):
                    status, value = self._answer_own_endpoint(received)
                    body = json.dumps(value).encode("ascii")
                    await connection.send_whole(status, {"content-type": "application/json"}, body)
                else:
                    await self._serve_request(connection, received)
        except RequestRejected as error:
            failure = self._dialects[-1].build_failure(error.status, str(error))
            headers = {**failure.headers, "connection": "close"}
            await connection.send_whole(failure.status, headers, failure.body)

    async def _serve_request(self, connection: HttpConnection, received: ReceivedRequest) -> None:
        """Reply to a request. Stop if the client closes the connection."""
        request = self._journal.add_request(received)
        dialect = next((dialect for dialect in self._dialects if dialect.can_answer(received)), self._dialects[-1])
        reply = dialect.build_reply(received)
        request.played = reply.step_label
        playing = asyncio.ensure_future(self._play_reply(connection, reply, request))
        watching = asyncio.ensure_future(connection.wait_for_close())
        try:
            await asyncio.wait({playing, watching}, return_when=asyncio.FIRST_COMPLETED)
            left = not playing.done() or isinstance(playing.exception(), ConnectionError)
        finally:
            playing.cancel()
            watching.cancel()
            await asyncio.gather(playing, watching, return_exceptions=True)
        if left:
            self._journal.update_request(request, closed_by_client=True, closed_at=time.monotonic())
        else:
            playing.result()
            self._journal.update_request(request, finished_at=time.monotonic())
        if self._on_finished is not None:
            self._on_finished(request)
        if left:
            raise ConnectionResetError("the client closed the connection")

    async def _play_reply(self, connection: HttpConnection, reply: SimulatedReply, request: RecordedRequest) -> None:
        await asyncio.sleep(reply.delay_ms / 1000)
        match reply:
            case WholeReply() if reply.disconnects:
                connection.abort()
            case WholeReply():
                self._journal.update_request(request, status=reply.status, answered_at=time.monotonic())
                await connection.send_whole(reply.status, reply.headers, reply.body)
            case StreamedReply():
                self._journal.update_request(request, status=200, answered_at=time.monotonic())
                await connection.start_stream(reply.headers)
                await _play_frames(connection, reply)
            case _:
                assert_never(reply)

    def _answer_own_endpoint(self, received: ReceivedRequest) -> tuple[int, object]:
        """Return the status and JSON body for a request to `/__simulator/requests` or `/__simulator/reset`.

        Only the host names 127.0.0.1 and localhost are accepted, so that web pages cannot read the journal by DNS
        rebinding.
        """
        host = urlsplit(f"//{received.headers.get('host', '')}").hostname
        if host not in _LOCAL_NAMES:
            return 403, {"error": "The journal is available only at 127.0.0.1 or localhost."}
        match received.method, received.path:
            case "GET", "/__simulator/requests":
                return 200, [request.build_json() for request in self.requests]
            case "POST", "/__simulator/reset":
                self.reset()
                return 200, {"reset": True}
            case _:
                supported = "GET /__simulator/requests and POST /__simulator/reset"
                return 404, {"error": f"Unknown path or method. The simulator supports {supported}."}


async def _play_frames(connection: HttpConnection, reply: StreamedReply) -> None:
    for frame in reply.frames:
        match frame:
            case SendBytes():
                await connection.send_piece(frame.data)
            case Pause():
                await _wait_with_pings(connection, frame.ms, reply)
            case EndStream() if frame.is_clean:
                break
            case EndStream():
                connection.abort()
                return
            case _:
                assert_never(frame)
    await connection.finish()


async def _wait_with_pings(connection: HttpConnection, ms: int, reply: StreamedReply) -> None:
    every = reply.ping_every_ms
    while every and ms > every:
        await asyncio.sleep(every / 1000)
        await connection.send_piece(reply.ping)
        ms -= every
    await asyncio.sleep(ms / 1000)
