"""The server on WebSocket, which also supports browser clients. Each JSON-RPC message is one text message.

A token in the opening HTTP request authenticates a client. A web page must also have an allowed origin. If
`[serve.oidc]` is configured, the token also identifies the user, and the connection is closed when the token expires.
A refused client gets an HTTP status and one sentence, which contains no part of the token.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
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

from thinklsp.core.errors import TokenRefused
from thinklsp.identity.tokens import PERIOD_SECONDS, ClientAccess, FailureLimit, TokenVerifier
from thinklsp.jsonrpc.framing import MAX_BODY_BYTES, BadFrame
from thinklsp.jsonrpc.writer import CHUNK_BYTES, FLUSH_SECONDS, ClientDisconnected
from thinklsp.lsp.transport.sockets import ConnectionRegistry, ListenConfig, matches_token

_log = logging.getLogger(__name__)

_BEARER_PROTOCOL = "thinklsp.bearer."
_OUTAGE_SECONDS = "30"
# The subprotocol that the server chooses. A browser offers it together with a subprotocol that contains the token.
PROTOCOL = Subprotocol("lsp")
_TOKEN_PROTOCOL = "token."  # noqa: S105 - a prefix, not a secret
_PING_SECONDS = 30.0
_PONG_SECONDS = 60.0
_RETRY_SECONDS = "10"
_NORMAL_CLOSURE, _GOING_AWAY, _TRY_AGAIN_LATER, _TOKEN_EXPIRED = 1000, 1001, 1013, 4401
_BEARER = (("WWW-Authenticate", "Bearer"),)
_SEVERAL = "The request contains several tokens. Send only one."
_IDENTIFICATION_HELP = (
    "This server requires a token of your identity provider: the header `Authorization: Bearer …`, or the "
    "subprotocol `thinklsp.bearer.…` beside `lsp`."
)
_TOO_MANY = "Too many tokens from this address were refused. Try again in a minute."
_AUTHENTICATION_HELP = (
    "This server requires its token: `Authorization: Bearer …`, `?token=…` or the subprotocol `token.…`."
)
_WRONG_ORIGIN = "Web pages from this origin may not connect. Start the server with `--allow-origin`."


@dataclass(frozen=True, slots=True)
class LoginRefusal:
    """The response to a refused client. `headers` are additional HTTP headers."""

    status: HTTPStatus
    sentence: str
    headers: tuple[tuple[str, str], ...] = ()


class TokenGate:
    """The check of all clients' tokens."""

    def __init__(self, verifier: TokenVerifier, limit: FailureLimit | None = None) -> None:
        self._verifier = verifier
        self._limit = limit or FailureLimit()

    async def check_headers(self, headers: Headers, address: str) -> ClientAccess | LoginRefusal:
        """Return the access of a client, or the response if the client is refused."""
        is_limited = self._limit.is_exceeded(address)
        try:
            return await self._verify(headers)
        except TokenRefused as error:
            if error.is_outage:
                return LoginRefusal(HTTPStatus.SERVICE_UNAVAILABLE, str(error), (("Retry-After", _OUTAGE_SECONDS),))
            self._limit.add(address)
            if is_limited:
                again = (("Retry-After", f"{PERIOD_SECONDS:.0f}"),)
                return LoginRefusal(HTTPStatus.TOO_MANY_REQUESTS, _TOO_MANY, again)
            # The sentence says why, without any part of the token.
            _log.info("refused a client at %s: %s", address, error)
            return LoginRefusal(HTTPStatus.UNAUTHORIZED, str(error), _BEARER)

    async def _verify(self, headers: Headers) -> ClientAccess:
        # A token in the query is ignored, because proxies log addresses.
        tokens = set(_find_tokens(headers, _BEARER_PROTOCOL))
        if len(tokens) != 1:
            raise TokenRefused(_SEVERAL if tokens else _IDENTIFICATION_HELP)
        return ClientAccess(self._verifier, await self._verifier.verify(tokens.pop()))


@asynccontextmanager
async def listen_ws(config: ListenConfig, registry: ConnectionRegistry) -> AsyncIterator[None]:
    """Accept clients until the context is exited. The registry then closes the remaining connections."""
    gate = None if config.verifier is None else TokenGate(config.verifier)
    server = await serve(
        partial(_serve_client, registry),
        sock=config.socket,
        process_request=partial(
            _check_request, config, config.origins | list_own_origins(config.socket), registry, gate
        ),
        select_subprotocol=lambda _, offered: PROTOCOL if PROTOCOL in offered else None,
        create_connection=partial(_TrackedServerConnection, registry),  # type: ignore[arg-type] # the library accepts any factory
        # Compression is off, because a compressed kilobyte could expand to a gigabyte.
        compression=None,
        max_size=MAX_BODY_BYTES,
        open_timeout=registry.authentication_seconds,
        ping_interval=_PING_SECONDS,
        ping_timeout=_PONG_SECONDS,
        close_timeout=FLUSH_SECONDS,
        server_header=None,
    )
    try:
        yield
    finally:
        server.close(close_connections=False)


def list_own_origins(listen_socket: socket) -> frozenset[str]:
    """Return the origins for the server's own address, or an empty set if it is not a loopback address."""
    host, port = listen_socket.getsockname()[:2]
    names = ("127.0.0.1", "localhost", "[::1]") if ip_address(host).is_loopback else ()
    return frozenset(f"http://{name}:{port}" for name in names)


async def _check_request(
    config: ListenConfig,
    origins: frozenset[str],
    registry: ConnectionRegistry,
    gate: TokenGate | None,
    connection: _TrackedServerConnection,
    request: Request,
) -> Response | None:
    """Return an error response for a rejected request. The library itself rejects non-WebSocket requests."""
    headers = request.headers
    refusal = None
    if headers.get_all("Origin") and not origins.issuperset(headers.get_all("Origin")):
        registry.observer.count_rejected_login("origin")
        refusal = LoginRefusal(HTTPStatus.FORBIDDEN, _WRONG_ORIGIN)
    elif headers.get_all("Upgrade"):
        refusal = await _check_token(config, gate, connection, request)
        if refusal is not None:
            registry.observer.count_rejected_login("token")
        elif (problem := registry.explain_unready()) is not None:
            # Only authenticated clients learn this.
            registry.count_refused()
            refusal = LoginRefusal(HTTPStatus.SERVICE_UNAVAILABLE, problem, (("Retry-After", _RETRY_SECONDS),))
    if refusal is None:
        return None
    response = connection.respond(refusal.status, f"{refusal.sentence}\n")
    response.headers.update(refusal.headers)
    return response


async def _check_token(
    config: ListenConfig, gate: TokenGate | None, connection: _TrackedServerConnection, request: Request
) -> LoginRefusal | None:
    """Return the response for a client with a wrong token, or None. Set the access of an identified client."""
    if gate is not None:
        address = connection.remote_address
        admitted = await gate.check_headers(request.headers, str(address[0]) if address else "")
        if isinstance(admitted, LoginRefusal):
            return admitted
        connection.access = admitted
        return None
    in_query = parse_qs(urlsplit(request.path).query).get("token", ())
    candidates = [*_find_tokens(request.headers, _TOKEN_PROTOCOL), *in_query]
    if config.token is None or matches_token(candidates, config.token):
        return None
    return LoginRefusal(HTTPStatus.UNAUTHORIZED, _AUTHENTICATION_HELP, _BEARER)


def _find_tokens(headers: Headers, protocol: str) -> Iterator[str]:
    """Yield every value that could be the token, from the `Authorization` header or a subprotocol with this prefix."""
    for value in headers.get_all("Authorization"):
        scheme, _, credentials = value.partition(" ")
        if scheme.lower() == "bearer":
            yield credentials.strip()
    for value in headers.get_all("Sec-WebSocket-Protocol"):
        for name in value.split(","):
            if name.strip().startswith(protocol):
                yield name.strip().removeprefix(protocol)


async def _serve_client(registry: ConnectionRegistry, connection: _TrackedServerConnection) -> None:
    if not registry.accept(connection.transport):
        await connection.close(_TRY_AGAIN_LATER, registry.explain_unready() or "Try again later.")
        return
    stream, access = WebSocketStream(connection), connection.access
    if access is None:
        await registry.serve(stream)
        return
    ending = asyncio.create_task(stream.end_with(access))
    try:
        await registry.serve(stream, access=access)
    finally:
        ending.cancel()


class _TrackedServerConnection(ServerConnection):
    """A connection that is registered as soon as its socket is accepted.

    `access` is set if the client is identified by a token.
    """

    def __init__(self, registry: ConnectionRegistry, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._registry = registry
        self.access: ClientAccess | None = None

    def connection_made(self, transport: Any) -> None:
        super().connection_made(transport)
        self._registry.add(transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._registry.remove(self.transport)
        super().connection_lost(error)


class WebSocketStream:
    """A MessageStream on a WebSocket connection."""

    def __init__(self, connection: ServerConnection) -> None:
        self._connection = connection
        self._is_expired = False

    async def read(self) -> list[bytes | BadFrame]:
        try:
            message = await self._connection.recv()
        except ConnectionClosed:
            raise ClientDisconnected("the connection was closed") from None
        if self._is_expired:
            raise ClientDisconnected("the token has expired")
        if isinstance(message, str):
            return [message.encode()]
        return [BadFrame("Messages must be sent as text.")]

    async def send(self, body: bytes, on_sent: Callable[[int], None]) -> None:
        try:
            # Send long messages in fragments, so that the server notices if the client stops reading.
            await self._connection.send(body if len(body) <= CHUNK_BYTES else _iterate_chunks(body, on_sent), text=True)
        except ConnectionClosed:
            raise ClientDisconnected("the connection was closed") from None
        if len(body) <= CHUNK_BYTES:
            on_sent(len(body))

    async def end_with(self, access: ClientAccess) -> None:
        """Close the connection when the client's token expires. Messages that still arrive are not handled."""
        await access.wait_for_end()
        self._is_expired = True
        await self._connection.close(_TOKEN_EXPIRED, "The token has expired.")

    async def close(self, *, going_away: bool) -> None:
        await self._connection.close(_GOING_AWAY if going_away else _NORMAL_CLOSURE)

    def abort(self) -> None:
        self._connection.transport.abort()


def _iterate_chunks(body: bytes, on_sent: Callable[[int], None]) -> Iterator[bytes]:
    """Yield a body in chunks. The `websockets` library requests each chunk after it has sent the previous chunk."""
    for start in range(0, len(body), CHUNK_BYTES):
        piece = body[start : start + CHUNK_BYTES]
        yield piece
        on_sent(len(piece))
