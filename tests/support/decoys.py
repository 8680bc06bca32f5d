"""Listeners that must hear nothing, or only what they are meant to hear. Shares no code with the product."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from typing import Self


class Decoy:
    """Takes any connection and says nothing. `heard`: every byte that came, in the open where it came by `tls`."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.tls = tls
        self.heard = bytearray()
        self.connections = 0
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._connected, "127.0.0.1", 0, ssl=self.tls)
        self.port: int = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return f"{'https' if self.tls else 'http'}://127.0.0.1:{self.port}"

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            with suppress(ConnectionError, asyncio.CancelledError):
                await self.serve(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(65536):
            self.heard += chunk


class Proxy(Decoy):
    """Tunnels every CONNECT to one port of this machine, whatever the name; or refuses all with `status`. `heard`: what
    was said to itself."""

    def __init__(self, port: int, status: int = 200) -> None:
        super().__init__()
        self.to = port
        self.status = status

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.heard += await reader.readuntil(b"\r\n\r\n")
        end = b"" if self.status == 200 else b"content-length: 0\r\n"
        writer.write(b"HTTP/1.1 %d X\r\n%b\r\n" % (self.status, end))
        if self.status != 200:
            await writer.drain()
            return
        inner, outer = await asyncio.open_connection("127.0.0.1", self.to)
        await asyncio.gather(_pass(reader, outer), _pass(inner, writer))


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while chunk := await reader.read(65536):
        writer.write(chunk)
        await writer.drain()
    writer.close()
