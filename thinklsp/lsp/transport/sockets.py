"""The servers for many clients in one process: their registry, their authentication, TCP, and the process's lifetime.

Each client has its own server, engine and store, as if it ran in its own process. All clients share the state folder. A
session can be used by only one client at a time. The other clients get an error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import signal
import socket
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn, Protocol

from thinklsp.core.server_context import NO_OBSERVER, Observer
from thinklsp.jsonrpc import rpc_messages as rpc
from thinklsp.jsonrpc.framing import BadFrame, FrameDecoder, FramingError, build_header
from thinklsp.jsonrpc.stdio import SHUTDOWN_SECONDS, install_signal_handlers, run_and_exit
from thinklsp.jsonrpc.writer import (
    CHUNK_BYTES,
    FLUSH_SECONDS,
    ClientDisconnected,
    MessageStream,
    OutgoingQueue,
    SocketWriter,
)
from thinklsp.lsp.server import STOPPING, ThinkLspServer
from thinklsp.lsp.transport.connection import create_server
from thinklsp.settings.user_file import DEFAULT_MAX_CLIENTS, ServeSection

if TYPE_CHECKING:
    from thinklsp.identity.tokens import ClientAccess, TokenVerifier


_log = logging.getLogger(__name__)

_MAX_UNAUTHENTICATED = 64
_AUTHENTICATION_SECONDS = 10.0
_DRAIN_CHECK_SECONDS = 0.1
_AUTHENTICATION_HELP = (
    'This server requires its token in the initializationOptions of initialize: {"thinklsp": {"token": "…"}}. '
    "The server printed the token when it started, unless a token file was given."
)
_CHUNK_BYTES = 256 * 1024
# The limit is far above the usual size of the `initialize` params.
_MAX_UNAUTHENTICATED_BYTES = 1024 * 1024
# The beginning of a TLS handshake. Without this check, the decoder might wait indefinitely for a line ending.
_TLS_HANDSHAKE = b"\x16\x03"
# The keep-alive settings, which detect within two minutes a peer that vanished without closing the connection.
_KEEP_ALIVE = {"TCP_KEEPIDLE": 60, "TCP_KEEPINTVL": 20, "TCP_KEEPCNT": 3}


@dataclass(frozen=True, slots=True)
class ListenConfig:
    """The listening socket, the token that clients must send, and the origins from which web pages may connect.

    If the token is None, clients need no token. The server's own address is always an allowed origin. If `verifier` is
    set, it identifies the user of each client instead.
    """

    socket: socket.socket
    token: str | None
    origins: frozenset[str] = frozenset()
    verifier: TokenVerifier | None = None


class TrackedConnection(Protocol):
    """An accepted socket that the registry can close."""

    def abort(self) -> None: ...


class ConnectionRegistry:
    """All clients of the process. At most `max_clients` are authenticated, and at most `max_unauthenticated` are not.

    A client must authenticate within `authentication_seconds`. If there are too many unauthenticated clients, the
    oldest one is disconnected. Clients that never authenticate therefore cannot block the server.
    """

    def __init__(
        self,
        max_clients: int = DEFAULT_MAX_CLIENTS,
        max_unauthenticated: int = _MAX_UNAUTHENTICATED,
        authentication_seconds: float = _AUTHENTICATION_SECONDS,
        create_queue: Callable[[], OutgoingQueue] = OutgoingQueue,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        self._max_clients = max_clients
        self._max_unauthenticated = max_unauthenticated
        self.authentication_seconds = authentication_seconds
        self._create_queue = create_queue
        self.observer = observer
        # The unauthenticated connections, oldest first.
        self._unauthenticated: dict[TrackedConnection, None] = {}
        self._authenticated: set[TrackedConnection] = set()
        self._servers: set[ThinkLspServer] = set()
        self._all_closed = asyncio.Event()
        self.is_draining = self.is_closing = False

    def add(self, connection: TrackedConnection) -> None:
        """Register an accepted socket."""
        if len(self._unauthenticated) >= self._max_unauthenticated:
            oldest = next(iter(self._unauthenticated))
            del self._unauthenticated[oldest]
            oldest.abort()
        self._unauthenticated[connection] = None

    def accept(self, client: TrackedConnection) -> bool:
        """Register a client as authenticated. Return False if the server is full or shutting down."""
        self._unauthenticated.pop(client, None)
        # Also count connections that are still being served, because a disconnected client's tasks may still be
        # running.
        if (problem := self.explain_unready()) is not None:
            _log.info("rejected a client: %s", problem)
            self.count_refused()
            return False
        self._authenticated.add(client)
        return True

    def explain_unready(self) -> str | None:
        """Return a sentence if the server accepts no further client. Any thread may call this method."""
        if self.is_draining:
            return STOPPING
        if max(len(self._authenticated), len(self._servers)) >= self._max_clients:
            return "This server has reached its client limit. Try again later."
        return None

    def count_refused(self) -> None:
        """Count a client that is authenticated but not accepted."""
        self.observer.count_rejected_login("stopping" if self.is_draining else "limit")

    def remove(self, client: TrackedConnection) -> None:
        self._unauthenticated.pop(client, None)
        self._authenticated.discard(client)

    async def serve(
        self, stream: MessageStream, first: Sequence[bytes | BadFrame] = (), access: ClientAccess | None = None
    ) -> None:
        """Serve an authenticated client until it disconnects and all its tasks have finished.

        `first` contains the messages that were read during authentication. `access` is the access of a client that is
        identified by a token. Errors are logged and do not affect other clients.
        """
        if self.is_closing:
            return
        writer = SocketWriter(stream, self._create_queue())
        server = create_server(access=access)
        server.state.observer = self.observer
        server.protocol.connect(writer)
        self._servers.add(server)
        if self.is_draining:
            # The client was accepted just before.
            server.drain()
        self.observer.count_clients(1)
        reading = asyncio.get_running_loop().create_task(_read_messages(server, stream, first))
        try:
            await server.exit_code.wait()
            reading.cancel()
            await server.close()
        except Exception:  # noqa: BLE001 - no error may affect the other clients
            _log.exception("a connection did not end properly")
        finally:
            await writer.close()
            await stream.close(going_away=self.is_draining)
            self._servers.discard(server)
            self.observer.count_clients(-1)
            if not self._servers:
                self._all_closed.set()

    async def drain(self, seconds: float) -> None:
        """Refuse new clients and new turns, and end each connection as soon as its turns have ended.

        After `seconds`, connections whose turns are still running are left to `close_all`.
        """
        self.is_draining = True
        for server in self._servers:
            server.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._servers:
                    for server in self._servers:
                        if not server.is_busy:
                            server.exit_code.set(1)
                    await asyncio.sleep(_DRAIN_CHECK_SECONDS)

    async def close_all(self) -> None:
        """End all connections within a time limit."""
        self.is_draining = self.is_closing = True
        for server in self._servers:
            server.exit_code.set(1)
        try:
            async with asyncio.timeout(SHUTDOWN_SECONDS + FLUSH_SECONDS):
                while self._servers:
                    self._all_closed.clear()
                    await self._all_closed.wait()
        except TimeoutError:
            _log.warning("some work did not end in time and was abandoned")
        for client in (*self._unauthenticated, *self._authenticated):
            client.abort()


async def _read_messages(server: ThinkLspServer, stream: MessageStream, first: Sequence[bytes | BadFrame]) -> None:
    frames = first
    try:
        while True:
            for frame in frames:
                server.receive(frame)
                # Yield to other clients, because this client may send messages without a pause.
                await asyncio.sleep(0)
            frames = await stream.read()
    except ClientDisconnected as gone:
        _log.info("a client disconnected: %s", gone)
    finally:
        server.exit_code.set(1)


Listen = Callable[[ListenConfig, ConnectionRegistry], AbstractAsyncContextManager[None]]


def matches_token(candidates: Iterable[object], token: str) -> bool:
    """Return whether any candidate equals the token. The comparison takes constant time."""
    return any(
        isinstance(candidate, str) and secrets.compare_digest(_encode_token(candidate), _encode_token(token))
        for candidate in candidates
    )


def _extract_token(params: Any) -> tuple[Any, list[object]]:
    """Return the params without the token, and all tokens found.

    The token may be inside or outside the `thinklsp` key.
    """
    options = params.get("initializationOptions") if isinstance(params, dict) else None
    if not isinstance(options, dict):
        return params, []
    candidates: list[object] = []
    inner = options.get("thinklsp")
    if isinstance(inner, dict) and "token" in inner:
        candidates.append(inner["token"])
        options = {**options, "thinklsp": {name: value for name, value in inner.items() if name != "token"}}
    if "token" in options:
        candidates.append(options["token"])
        options = {name: value for name, value in options.items() if name != "token"}
    return {**params, "initializationOptions": options}, candidates


def _encode_token(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


@asynccontextmanager
async def listen_tcp(config: ListenConfig, registry: ConnectionRegistry) -> AsyncIterator[None]:
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
    with suppress(ClientDisconnected, TimeoutError):
        async with asyncio.timeout(registry.authentication_seconds):
            first, *rest = await stream.read(_MAX_UNAUTHENTICATED_BYTES)
            message = rpc.parse_message(first)
            request = message if isinstance(message, rpc.Request) else None
            code = rpc.REQUEST_FAILED
            if request is None or request.method != "initialize":
                registry.observer.count_rejected_login("protocol")
                code, text = rpc.INVALID_REQUEST, "The first message to this server must be `initialize`."
            elif not (admitted := _check_token(request, config.token)):
                registry.observer.count_rejected_login("token")
                text = _AUTHENTICATION_HELP
            elif registry.accept(stream):
                return [admitted, *rest]
            else:
                text = registry.explain_unready() or "Try again later."
            error = {"code": code, "message": text}
            request_id = None if request is None else request.id
            await stream.send(json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode())
    return []


def _check_token(request: rpc.Request, token: str | None) -> bytes | None:
    """Return the request without its token, or None if the token is wrong."""
    params, candidates = _extract_token(request.message.get("params"))
    if token is not None and not matches_token(candidates, token):
        return None
    return json.dumps({**request.message, "params": params}).encode()


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


OpenMonitor = Callable[[ConnectionRegistry], AbstractAsyncContextManager[None]]


def serve_sockets(
    listen: Listen,
    config: ListenConfig,
    section: ServeSection,
    ready: Callable[[], None],
    *,
    observer: Observer,
    open_monitor: OpenMonitor,
) -> NoReturn:
    """Serve clients until a signal arrives, then exit the process with 128 plus the signal number.

    After SIGTERM, running turns have `drain_seconds` to finish. A second signal ends this time.

    `ready` is called when clients can connect. `open_monitor` serves health and metrics, also while the server drains.
    """
    connections = ConnectionRegistry(section.max_clients, observer=observer)
    run_and_exit(_serve(listen, config, section.drain_seconds, ready, open_monitor(connections), connections))


async def _serve(
    listen: Listen,
    config: ListenConfig,
    drain_seconds: float,
    ready: Callable[[], None],
    monitor: AbstractAsyncContextManager[None],
    connections: ConnectionRegistry,
) -> int:
    codes: asyncio.Queue[int] = asyncio.Queue()
    install_signal_handlers(codes.put_nowait)
    async with monitor:
        async with listen(config, connections):
            ready()
            code = await codes.get()
            # Ctrl-C means now. Service managers send SIGTERM and wait.
            if code == 128 + signal.SIGTERM:
                await _drain(connections, drain_seconds, codes)
        await connections.close_all()
    return code


async def _drain(connections: ConnectionRegistry, seconds: float, codes: asyncio.Queue[int]) -> None:
    """Wait until the running turns have ended, the time is over, or a second signal has arrived."""
    draining = asyncio.create_task(connections.drain(seconds))
    second_signal = asyncio.create_task(codes.get())
    await asyncio.wait([draining, second_signal], return_when=asyncio.FIRST_COMPLETED)
    for task in (draining, second_signal):
        task.cancel()
