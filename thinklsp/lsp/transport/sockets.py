"""The code shared by the TCP and WebSocket servers. It authenticates clients and serves many clients in one process.

Each client has its own server, engine and store, as if it ran in its own process. All clients share the state folder. A
session can be used by only one client at a time. The other clients get an error.
"""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import socket
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager, suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from thinklsp.core.server_context import NO_OBSERVER, LoginRejection, Observer
from thinklsp.jsonrpc import envelope, error_responses
from thinklsp.jsonrpc.framing import BadFrame
from thinklsp.jsonrpc.server_process import SHUTDOWN_SECONDS
from thinklsp.jsonrpc.writer import FLUSH_SECONDS, ClientDisconnected, MessageStream, OutgoingQueue, SocketWriter
from thinklsp.lsp.transport.connection import STOPPING, Connection
from thinklsp.settings.user_file import DEFAULT_MAX_CLIENTS

if TYPE_CHECKING:
    from thinklsp.identity.tokens import ClientAccess, TokenVerifier

_log = logging.getLogger(__name__)

_MAX_UNAUTHENTICATED = 64
_AUTHENTICATION_SECONDS = 10.0
_DRAIN_CHECK_SECONDS = 0.1


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
        self._served_connections: set[Connection] = set()
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
        if max(len(self._authenticated), len(self._served_connections)) >= self._max_clients:
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
        connection = Connection(writer, access=access, observer=self.observer)
        self._served_connections.add(connection)
        if self.is_draining:
            # The client was accepted just before.
            connection.drain()
        self.observer.count_clients(1)
        reading = asyncio.get_running_loop().create_task(_read_messages(connection, stream, first))
        try:
            await connection.wait_for_exit()
            reading.cancel()
            await connection.close()
        except Exception:  # noqa: BLE001 - no error may affect the other clients
            _log.exception("a connection did not end properly")
        finally:
            await writer.close()
            await stream.close(going_away=self.is_draining)
            self._served_connections.discard(connection)
            self.observer.count_clients(-1)
            if not self._served_connections:
                self._all_closed.set()

    async def drain(self, seconds: float) -> None:
        """Refuse new clients and new turns, and end each connection as soon as its turns have ended.

        After `seconds`, connections whose turns are still running are left to `close_all`.
        """
        self.is_draining = True
        for connection in self._served_connections:
            connection.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while self._served_connections:
                    for connection in self._served_connections:
                        if not connection.is_busy:
                            connection.request_exit(1)
                    await asyncio.sleep(_DRAIN_CHECK_SECONDS)

    async def close_all(self) -> None:
        """End all connections within a time limit."""
        self.is_draining = self.is_closing = True
        for connection in self._served_connections:
            connection.request_exit(1)
        try:
            async with asyncio.timeout(SHUTDOWN_SECONDS + FLUSH_SECONDS):
                while self._served_connections:
                    self._all_closed.clear()
                    await self._all_closed.wait()
        except TimeoutError:
            _log.warning("some work did not end in time and was abandoned")
        for client in (*self._unauthenticated, *self._authenticated):
            client.abort()


async def _read_messages(connection: Connection, stream: MessageStream, first: Sequence[bytes | BadFrame]) -> None:
    frames = first
    try:
        while True:
            for frame in frames:
                connection.receive(frame)
                # Yield to other clients, because this client may send messages without a pause.
                await asyncio.sleep(0)
            frames = await stream.read()
    except ClientDisconnected as gone:
        _log.info("a client disconnected: %s", gone)
    finally:
        connection.request_exit(1)


Listen = Callable[[ListenConfig, ConnectionRegistry], AbstractAsyncContextManager[None]]

_AUTHENTICATION_HELP = (
    'This server requires its token in the initializationOptions of initialize: {"thinklsp": {"token": "…"}}. '
    "The server printed the token when it started, unless a token file was given."
)


class AuthenticationError(Exception):
    """The error raised when a client is rejected. `reply` is the message to send to the client."""

    def __init__(
        self, request_id: envelope.RequestId | None, code: int, text: str, reason: LoginRejection = "token"
    ) -> None:
        super().__init__(text)
        self.reason = reason
        error = {"code": code, "message": text}
        self.reply = json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode()


def matches_token(candidates: Iterable[object], token: str) -> bool:
    """Return whether any candidate equals the token. The comparison takes constant time."""
    return any(
        isinstance(candidate, str) and secrets.compare_digest(_encode_token(candidate), _encode_token(token))
        for candidate in candidates
    )


def authenticate(first: bytes | BadFrame, token: str | None) -> bytes:
    """Return the first message without its token.

    Raise AuthenticationError if the token is wrong.
    """
    message = None if isinstance(first, BadFrame) else envelope.parse_message(first)
    if not isinstance(message, envelope.Request) or message.method != "initialize":
        request_id = message.id if isinstance(message, envelope.Request) else None
        raise AuthenticationError(
            request_id,
            error_responses.INVALID_REQUEST,
            "The first message to this server must be `initialize`.",
            "protocol",
        )
    params, candidates = _extract_token(message.message.get("params"))
    if token is not None and not matches_token(candidates, token):
        raise AuthenticationError(message.id, error_responses.REQUEST_FAILED, _AUTHENTICATION_HELP)
    return json.dumps({**message.message, "params": params}).encode()


def build_unready_error(admitted_request: bytes, problem: str | None) -> AuthenticationError:
    """Return the error for a client that is authenticated but not accepted."""
    request_id = json.loads(admitted_request)["id"]
    return AuthenticationError(request_id, error_responses.REQUEST_FAILED, problem or "Try again later.")


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
