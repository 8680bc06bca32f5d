"""The server on TCP. It uses the same framing as stdio. A client authenticates with its first message."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from thinklsp.jsonrpc.framing import BadFrame, FramingError
from thinklsp.jsonrpc.writer import CHUNK_BYTES, FLUSH_SECONDS, ClientDisconnected
from thinklsp.lsp.protocol.frames import FrameDecoder, build_header
from thinklsp.lsp.transport.sockets import (
    AuthenticationError,
    ConnectionRegistry,
    ListenConfig,
    authenticate,
    build_unready_error,
)

_CHUNK_BYTES = 256 * 1024
# The limit is far above the usual size of the `initialize` params.
_MAX_UNAUTHENTICATED_BYTES = 1024 * 1024
# The beginning of a TLS handshake. Without this check, the decoder might wait indefinitely for a line ending.
_TLS_HANDSHAKE = b"\x16\x03"
# The keep-alive settings, which detect within two minutes a peer that vanished without closing the connection.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 3}


@asynccontextmanager
async def listen(config: ListenConfig, registry: ConnectionRegistry) -> AsyncIterator[None]:
    """Accept clients until the context is exited. The registry then closes the remaining connections."""
    server = await asyncio.start_server(partial(_serve_client, config, registry), sock=config.socket)
    try:
        yield
    finally:
        server.close()


async def _serve_client(
    config: ListenConfig, registry: ConnectionRegistry, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
) -> None:
    wire = TcpStream(reader, writer)
    registry.add(wire)
    try:
        if first := await _authenticate_client(wire, config, registry):
            await registry.serve(wire, first)
    finally:
        await wire.close()
        registry.remove(wire)


async def _authenticate_client(
    stream: TcpStream, config: ListenConfig, registry: ConnectionRegistry
) -> list[bytes | BadFrame]:
    """Return an authenticated client's first messages, or an empty list if the client was rejected."""
    try:
        async with asyncio.timeout(registry.authentication_seconds):
            first, *rest = await stream.read(_MAX_UNAUTHENTICATED_BYTES)
            try:
                request = _check_login(first, config, registry)
                if registry.accept(stream):
                    return [request, *rest]
                raise build_unready_error(request, registry.explain_unready())
            except AuthenticationError as refused:
                await stream.send(refused.reply)
    except (ClientDisconnected, TimeoutError):
        pass
    return []


def _check_login(first: bytes | BadFrame, config: ListenConfig, registry: ConnectionRegistry) -> bytes:
    try:
        return authenticate(first, config.token)
    except AuthenticationError as refused:
        registry.observer.count_rejected_login(refused.reason)
        raise


class TcpStream:
    """A MessageStream on a TCP socket."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._frames = FrameDecoder()
        writer.transport.set_write_buffer_limits(high=CHUNK_BYTES)
        _enable_keep_alive(writer.get_extra_info("socket"))

    async def read(self, max_bytes: int | None = None) -> list[bytes | BadFrame]:
        """Return the next messages. `max_bytes` limits the number of bytes before the first complete message."""
        received = 0
        while True:
            try:
                chunk = await self._reader.read(_CHUNK_BYTES)
                frames = self._frames.feed(chunk)
            except OSError:
                raise ClientDisconnected("the connection was reset") from None
            except FramingError as error:
                raise ClientDisconnected(str(error)) from None
            if not chunk:
                raise ClientDisconnected("the client closed the connection")
            if frames:
                return frames
            received += len(chunk)
            if max_bytes is not None and (received > max_bytes or chunk.startswith(_TLS_HANDSHAKE)):
                raise ClientDisconnected("the peer does not speak LSP")

    async def send(self, body: bytes, on_sent: Callable[[int], None] = lambda _: None) -> None:
        try:
            for start in range(0, len(body), CHUNK_BYTES):
                piece = body[start : start + CHUNK_BYTES]
                self._writer.write(piece if start else build_header(body) + piece)
                await self._writer.drain()
                on_sent(len(piece))
        except OSError:
            raise ClientDisconnected("the connection was reset") from None

    def abort(self) -> None:
        self._writer.transport.abort()

    async def close(self, *, going_away: bool = False) -> None:
        del going_away
        if self._writer.is_closing():
            return
        with suppress(OSError, TimeoutError):
            async with asyncio.timeout(FLUSH_SECONDS):
                self._writer.write_eof()
                # Read the remaining input. Otherwise, the system resets the connection and discards the last messages.
                while await self._reader.read(_CHUNK_BYTES):
                    pass
        self.abort()


def _enable_keep_alive(connected: socket.socket) -> None:
    connected.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in _KEEP_ALIVE.items():
        # Not every operating system supports every option.
        if (option := getattr(socket, name, None)) is not None:
            connected.setsockopt(socket.IPPROTO_TCP, option, value)
