"""The server on WebSocket, for clients in browsers too: one message of JSON-RPC is one text message.

A client is admitted by the request that opens the connection, before anything of LSP is read: by its token, and by the
web page that it comes from, if it comes from one.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from functools import partial
from http import HTTPStatus
from ipaddress import ip_address
from socket import socket
from typing import Any
from urllib.parse import parse_qs, urlsplit

from websockets.asyncio.server import ServerConnection, serve
from websockets.datastructures import Headers
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from thinklsp.lsp.protocol.admission import is_token
from thinklsp.lsp.protocol.frames import MAX_BODY, BadFrame
from thinklsp.lsp.protocol.socket_writer import Gone
from thinklsp.lsp.protocol.writer import LAST_WORDS_SECONDS, PIECE
from thinklsp.lsp.serving.sockets import Connections, Entrance

# What browsers offer beside the token, because one of the offered protocols must be chosen, and never that one.
PROTOCOL = Subprotocol("lsp")
_TOKEN_PROTOCOL = "token."  # noqa: S105 - what stands before one
_PING_SECONDS = 30.0
_PONG_SECONDS = 60.0
_GOOD_BYE, _GOING_AWAY, _TRY_AGAIN_LATER = 1000, 1001, 1013


@asynccontextmanager
async def listening(entrance: Entrance, connections: Connections) -> AsyncIterator[None]:
    """Clients are served until this ends; those who have come by then are left to `connections`."""
    server = await serve(
        partial(_client, connections),
        sock=entrance.socket,
        process_request=partial(_checked, entrance, entrance.origins | own_origins(entrance.socket)),
        select_subprotocol=_chosen,
        create_connection=partial(_Visitor, connections),  # type: ignore[arg-type] # any factory will do
        # What is compressed could be a gigabyte in a kilobyte.
        compression=None,
        max_size=MAX_BODY,
        open_timeout=connections.patience,
        ping_interval=_PING_SECONDS,
        ping_timeout=_PONG_SECONDS,
        close_timeout=LAST_WORDS_SECONDS,
        server_header=None,
    )
    try:
        yield
    finally:
        server.close(close_connections=False)


def own_origins(listening: socket) -> frozenset[str]:
    """The pages of our own address: none unless it is one of this machine alone."""
    host, port = listening.getsockname()[:2]
    names = ("127.0.0.1", "localhost", "[::1]") if ip_address(host).is_loopback else ()
    return frozenset(f"http://{name}:{port}" for name in names)


def _checked(
    entrance: Entrance, origins: frozenset[str], connection: ServerConnection, request: Request
) -> Response | None:
    """The refusal, if it is one. What does not ask for a WebSocket at all is refused by the library."""
    headers = request.headers
    if headers.get_all("Origin") and not origins.issuperset(headers.get_all("Origin")):
        return connection.respond(
            HTTPStatus.FORBIDDEN, "Pages of this origin may not connect. Start the server with --allow-origin.\n"
        )
    if not headers.get_all("Upgrade") or entrance.token is None:
        return None
    if is_token(_given(request.path, headers), entrance.token):
        return None
    refusal = connection.respond(
        HTTPStatus.UNAUTHORIZED,
        "This server wants its token: as Authorization: Bearer …, as ?token=… or as the subprotocol token.…\n",
    )
    refusal.headers["WWW-Authenticate"] = "Bearer"
    return refusal


def _given(path: str, headers: Headers) -> Iterator[str]:
    """Whatever may be the token."""
    for value in headers.get_all("Authorization"):
        scheme, _, credentials = value.partition(" ")
        if scheme.lower() == "bearer":
            yield credentials.strip()
    yield from parse_qs(urlsplit(path).query).get("token", ())
    for value in headers.get_all("Sec-WebSocket-Protocol"):
        for name in value.split(","):
            if name.strip().startswith(_TOKEN_PROTOCOL):
                yield name.strip().removeprefix(_TOKEN_PROTOCOL)


def _chosen(_: ServerConnection, offered: Sequence[Subprotocol]) -> Subprotocol | None:
    return PROTOCOL if PROTOCOL in offered else None


async def _client(connections: Connections, connection: ServerConnection) -> None:
    if connections.admit(connection.transport):
        await connections.serve(WebSocketWire(connection))
    else:
        await connection.close(_TRY_AGAIN_LATER, "This server has as many clients as it can serve.")


class _Visitor(ServerConnection):
    """Counted from the moment its socket was accepted."""

    def __init__(self, connections: Connections, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._connections = connections

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._connections.enter(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._connections.leave(self.transport)
        super().connection_lost(error)


class WebSocketWire:
    """See Wire."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection

    async def read(self) -> list[bytes | BadFrame]:
        try:
            message = await self._connection.recv()
        except ConnectionClosed:
            raise Gone("the connection was closed") from None
        if isinstance(message, str):
            return [message.encode()]
        return [BadFrame("Messages must be sent as text.")]

    async def send(self, body: bytes, went: Callable[[int], None]) -> None:
        try:
            # What is long goes in fragments, so that it can be seen whether the client reads.
            await self._connection.send(body if len(body) <= PIECE else _pieces(body, went), text=True)
        except ConnectionClosed:
            raise Gone("the connection was closed") from None
        if len(body) <= PIECE:
            went(len(body))

    async def close(self, *, going_away: bool) -> None:
        await self._connection.close(_GOING_AWAY if going_away else _GOOD_BYE)

    def abort(self) -> None:
        self._connection.transport.abort()


def _pieces(body: bytes, went: Callable[[int], None]) -> Iterator[bytes]:
    """The next one is asked for when the one before has been taken."""
    for start in range(0, len(body), PIECE):
        piece = body[start : start + PIECE]
        yield piece
        went(len(piece))
