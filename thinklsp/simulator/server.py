"""The simulator as a server on 127.0.0.1: accepts, records, plays replies on the clock, notices who hangs up.

h11 knows the rules of HTTP/1.1; `Connection` moves the bytes, one exchange at a time. What an answer says is decided in
the dialects; the record is served beside them under `/__simulator/`.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Self, assert_never
from urllib.parse import urlsplit

import h11

from thinklsp.core.errors import ThinkLspError
from thinklsp.simulator.anthropic.service import AnthropicDialect
from thinklsp.simulator.chat.service import ChatDialect
from thinklsp.simulator.dialect import Cut, Dialect, Received, Reply, Send, Streamed, Wait, Whole
from thinklsp.simulator.google.service import GoogleDialect
from thinklsp.simulator.journal import Journal, RecordedRequest
from thinklsp.simulator.openai.service import OpenAiDialect
from thinklsp.simulator.scenario import Scenario
from thinklsp.simulator.script import Script

MAX_BODY = 32 * 1024 * 1024
_MAX_HEAD = 64 * 1024
_MAX_AHEAD = 1024 * 1024
_HOST = "127.0.0.1"
_LOCAL_NAMES = frozenset({"127.0.0.1", "localhost"})


class UnreadableRequest(Exception):
    """What came is no request that can be answered in full; `status` is what to say before closing."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Connection:
    """Owns the stream pair. `receive`, answer (`send_whole`, or `start`, `piece`…, `finish`), `receive` again."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=_MAX_HEAD)

    async def receive(self) -> Received | None:
        """The next complete request, or None when the client is done. Raises UnreadableRequest."""
        try:
            return await self._receive()
        except h11.RemoteProtocolError as error:
            raise UnreadableRequest(error.error_status_hint, f"The request is not valid HTTP: {error}") from None

    async def watch(self) -> None:
        """Returns when the client has closed its side. Bytes of a next request are kept for `receive`."""
        ahead = 0
        while ahead < _MAX_AHEAD:
            data = await self._reader.read(65536)
            if not data:
                return
            self._http.receive_data(data)
            ahead += len(data)
        await asyncio.Event().wait()

    async def send_whole(self, status: int, headers: Mapping[str, str], body: bytes) -> None:
        length = {"content-length": str(len(body))}
        await self._send(h11.Response(status_code=status, headers=list({**headers, **length}.items())))
        await self._send(h11.Data(data=body))
        await self.finish()

    async def start(self, headers: Mapping[str, str]) -> None:
        """Status 200 and a body of unknown length."""
        await self._send(h11.Response(status_code=200, headers=list(headers.items())))

    async def piece(self, data: bytes) -> None:
        await self._send(h11.Data(data=data))

    async def finish(self) -> None:
        await self._send(h11.EndOfMessage())

    def tear_down(self) -> None:
        """Drop the connection as a crashed server would: no last chunk, no goodbye."""
        self._writer.transport.abort()

    async def close(self) -> None:
        self._writer.close()
        try:
            await self._writer.wait_closed()
        except ConnectionError:
            # The client was faster; there is nobody left to close for.
            return

    async def _receive(self) -> Received | None:
        if self._http.our_state is h11.DONE and self._http.their_state is h11.DONE:
            self._http.start_next_cycle()
        if self._http.our_state is not h11.IDLE:
            return None
        head = await self._event()
        if not isinstance(head, h11.Request):
            return None
        body = bytearray()
        while isinstance(event := await self._event(), h11.Data):
            body += event.data
            if len(body) > MAX_BODY:
                raise UnreadableRequest(413, "Request exceeds the maximum size")
        path, _, query = head.target.decode("ascii").partition("?")
        headers = {name.decode("ascii"): value.decode("latin-1") for name, value in head.headers}
        return Received(head.method.decode("ascii"), path, query, headers, bytes(body))

    async def _event(self) -> object:
        while (event := self._http.next_event()) is h11.NEED_DATA:
            if self._http.they_are_waiting_for_100_continue:
                await self._send(h11.InformationalResponse(status_code=100, headers=[]))
            self._http.receive_data(await self._reader.read(65536))
        return event

    async def _send(self, event: h11.Event) -> None:
        data = self._http.send(event)
        if data:
            self._writer.write(data)
            await self._writer.drain()


class Simulator:
    """Plays one scenario. Used as an async context manager; `base_url` is known once it is entered."""

    def __init__(
        self,
        scenario: Scenario,
        port: int = 0,
        *,
        on_finished: Callable[[RecordedRequest], None] | None = None,
    ) -> None:
        self._port = port
        self._script = Script(scenario)
        # The first that says that a request is its own answers it; what nobody claims goes to the last.
        self._dialects: tuple[Dialect, ...] = (
            GoogleDialect(self._script),
            OpenAiDialect(self._script),
            ChatDialect(self._script),
            AnthropicDialect(self._script),
        )
        self._journal = Journal()
        self._on_finished = on_finished
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()

    @property
    def base_url(self) -> str:
        """Scheme, host and port, without a path."""
        return f"http://{_HOST}:{self._port}"

    @property
    def requests(self) -> list[RecordedRequest]:
        """The latest requests, oldest first; requests to `/__simulator/` are not among them."""
        return self._journal.requests

    async def __aenter__(self) -> Self:
        try:
            self._server = await asyncio.start_server(self._accepted, _HOST, self._port)
        except OSError as error:
            raise ThinkLspError(
                f"The simulator cannot listen on {_HOST}:{self._port} ({error.strerror}). "
                "Choose another port, or 0 for any free one."
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
        timeout: float = 5.0,  # noqa: ASYNC109 - callers in tests say how long they wait
    ) -> list[RecordedRequest]:
        """Waits until `count` requests have come since the start or the last reset. Raises TimeoutError."""
        await self._journal.wait_until(lambda: self._journal.seen >= count, timeout)
        return self.requests

    async def wait_until(
        self,
        holds: Callable[[list[RecordedRequest]], bool],
        timeout: float = 5.0,  # noqa: ASYNC109 - callers in tests say how long they wait
    ) -> None:
        """Waits until `holds(self.requests)`. Raises TimeoutError."""
        await self._journal.wait_until(lambda: holds(self.requests), timeout)

    def reset(self) -> None:
        """Forget requests, tries, cached prefixes and conversations; signed blocks stay valid."""
        self._journal.clear()
        self._script.reset()
        for dialect in self._dialects:
            dialect.reset()

    async def _accepted(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None  # noqa: S101 - asyncio runs connection callbacks in tasks; this tells mypy
        self._connections.add(task)
        connection = Connection(reader, writer)
        try:
            await self._converse(connection)
        except (ConnectionError, asyncio.CancelledError):
            # Cancelled only by __aexit__, which waits for this task; a gone client needs no answer.
            connection.tear_down()
        finally:
            self._connections.discard(task)
            await connection.close()

    async def _converse(self, connection: Connection) -> None:
        try:
            while (received := await connection.receive()) is not None:
                if received.path.startswith("/__simulator/"):
                    reply = self._about_itself(received)
                    await connection.send_whole(reply.status, reply.headers, reply.body)
                else:
                    await self._exchange(connection, received)
        except UnreadableRequest as error:
            failure = self._dialects[-1].failure(error.status, str(error))
            headers = {**failure.headers, "connection": "close"}
            await connection.send_whole(failure.status, headers, failure.body)

    async def _exchange(self, connection: Connection, received: Received) -> None:
        """Answer one request while listening for the client to leave; its leaving ends the answer."""
        request = self._journal.open(received)
        reply = self._dialect_for(received).reply(received)
        request.played = reply.played
        playing = asyncio.ensure_future(self._play(connection, reply, request))
        watching = asyncio.ensure_future(connection.watch())
        try:
            await asyncio.wait({playing, watching}, return_when=asyncio.FIRST_COMPLETED)
            left = not playing.done() or isinstance(playing.exception(), ConnectionError)
        finally:
            playing.cancel()
            watching.cancel()
            await asyncio.gather(playing, watching, return_exceptions=True)
        if left:
            self._journal.left(request)
        else:
            playing.result()
            self._journal.finished(request)
        if self._on_finished is not None:
            self._on_finished(request)
        if left:
            raise ConnectionResetError("the client has left")

    async def _play(self, connection: Connection, reply: Reply, request: RecordedRequest) -> None:
        await asyncio.sleep(reply.delay_ms / 1000)
        match reply:
            case Whole(cut=True):
                connection.tear_down()
            case Whole():
                self._journal.answered(request, reply.status)
                await connection.send_whole(reply.status, reply.headers, reply.body)
            case Streamed():
                self._journal.answered(request, 200)
                await connection.start(reply.headers)
                await _play_frames(connection, reply)
            case _:
                assert_never(reply)

    def _dialect_for(self, request: Received) -> Dialect:
        return next((dialect for dialect in self._dialects if dialect.serves(request)), self._dialects[-1])

    def _about_itself(self, received: Received) -> Whole:
        """`/__simulator/requests` and `/__simulator/reset`. Web pages that reached us by a foreign name get nothing."""
        host = urlsplit(f"//{received.headers.get('host', '')}").hostname
        if host not in _LOCAL_NAMES:
            return _json_reply(403, {"error": "The record is only for requests to 127.0.0.1 or localhost."})
        match received.method, received.path:
            case "GET", "/__simulator/requests":
                return _json_reply(200, [request.as_json() for request in self.requests])
            case "POST", "/__simulator/reset":
                self.reset()
                return _json_reply(200, {"reset": True})
            case _:
                known = "GET /__simulator/requests and POST /__simulator/reset"
                return _json_reply(404, {"error": f"The simulator itself answers {known}."})


async def _play_frames(connection: Connection, reply: Streamed) -> None:
    for frame in reply.frames:
        match frame:
            case Send():
                await connection.piece(frame.data)
            case Wait():
                await _silence(connection, frame.ms, reply)
            case Cut(cleanly=True):
                break
            case Cut():
                connection.tear_down()
                return
            case _:
                assert_never(frame)
    await connection.finish()


async def _silence(connection: Connection, ms: int, reply: Streamed) -> None:
    every = reply.ping_every_ms
    while every and ms > every:
        await asyncio.sleep(every / 1000)
        await connection.piece(reply.ping)
        ms -= every
    await asyncio.sleep(ms / 1000)


def _json_reply(status: int, value: object) -> Whole:
    body = json.dumps(value).encode("ascii")
    return Whole(status, {"content-type": "application/json"}, body)
