"""One accepted connection as HTTP/1.1 on asyncio streams; h11 knows the rules, this module moves the bytes.

It knows neither scenarios nor dialects. One exchange at a time, keep-alive between them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

import h11

from thinklsp.simulator.dialect import Received

MAX_BODY = 32 * 1024 * 1024
_MAX_HEAD = 64 * 1024
_MAX_AHEAD = 1024 * 1024


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
