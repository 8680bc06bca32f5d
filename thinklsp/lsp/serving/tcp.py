"""The server on TCP: the messages of stdio, with their headers. A client is admitted by its first one."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from thinklsp.lsp.protocol.admission import Refused, admitted, full
from thinklsp.lsp.protocol.frames import BadFrame, FrameDecoder, FramingError
from thinklsp.lsp.protocol.socket_writer import Gone
from thinklsp.lsp.protocol.writer import LAST_WORDS_SECONDS, PIECE, header_of
from thinklsp.lsp.serving.sockets import Connections, Entrance

_CHUNK = 256 * 1024
# Clients announce much in `initialize`, but not that much.
_MOST_OF_A_STRANGER = 1024 * 1024
# How a greeting of TLS begins: it may hold no line end, and then the decoder would wait for one.
_TLS = b"\x16\x03"
# A peer that vanished without a word is noticed after two minutes.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 3}


@asynccontextmanager
async def listening(entrance: Entrance, connections: Connections) -> AsyncIterator[None]:
    """Clients are served until this ends; those who have come by then are left to `connections`."""
    server = await asyncio.start_server(partial(_client, entrance, connections), sock=entrance.socket)
    try:
        yield
    finally:
        server.close()


async def _client(
    entrance: Entrance, connections: Connections, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    wire = TcpWire(reader, writer)
    connections.enter(wire)
    try:
        if first := await _admitted(wire, entrance, connections):
            await connections.serve(wire, first)
    finally:
        await wire.close()
        connections.leave(wire)


async def _admitted(wire: TcpWire, entrance: Entrance, connections: Connections) -> list[bytes | BadFrame]:
    """The first messages of a client that may come in; none of one that may not, which has been told."""
    try:
        async with asyncio.timeout(connections.patience):
            first, *others = await wire.read(_MOST_OF_A_STRANGER)
            try:
                request = admitted(first, entrance.token)
                if connections.admit(wire):
                    return [request, *others]
                raise full(request)
            except Refused as refused:
                await wire.send(refused.answer)
    except (Gone, TimeoutError):
        pass
    return []


class TcpWire:
    """See Wire."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameDecoder()
        writer.transport.set_write_buffer_limits(high=PIECE)
        _keep_alive(writer.get_extra_info("socket"))

    async def read(self, most: int | None = None) -> list[bytes | BadFrame]:
        """`most`: how many bytes may come before the first message is whole."""
        taken = 0
        while True:
            try:
                chunk = await self._reader.read(_CHUNK)
                found = self._frames.feed(chunk)
            except OSError:
                raise Gone("the connection was reset") from None
            except FramingError as error:
                raise Gone(str(error)) from None
            if not chunk:
                raise Gone("the client has closed its end")
            if found:
                return found
            taken += len(chunk)
            if most is not None and (taken > most or chunk.startswith(_TLS)):
                raise Gone("this is no language client")

    async def send(self, body: bytes, went: Callable[[int], None] = lambda _: None) -> None:
        try:
            for start in range(0, len(body), PIECE):
                piece = body[start : start + PIECE]
                self._writer.write(piece if start else header_of(body) + piece)
                await self._writer.drain()
                went(len(piece))
        except OSError:
            raise Gone("the connection was reset") from None

    def abort(self) -> None:
        self._writer.transport.abort()

    async def close(self, *, going_away: bool = False) -> None:
        del going_away
        if self._writer.is_closing():
            return
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(LAST_WORDS_SECONDS):
                self._writer.write_eof()
                # Whatever is left unread would make the system take our last words back.
                while await self._reader.read(_CHUNK):
                    pass
        self.abort()


def _keep_alive(connected: socket.socket) -> None:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        # Not every system has all of them.
        if (option := getattr(socket, name, None)) is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
