"""The HTTP client that the MCP SDK uses for a server at a URL.

The connection uses the proxy and the certificates of the user, as connections to providers do. Requests go only to the
server's own origin, and responses are limited. This module imports the SDK's HTTP library, so only `sdk` imports it, in
a thread.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any
from urllib.parse import SplitResult, urlsplit

import httpx2
from mcp.client.streamable_http import streamable_http_client

from thinklsp import __version__
from thinklsp.core.errors import McpFailed, SettingsError
from thinklsp.http.routes import Route, build_trust, find_route, is_loopback, resolve_proxy
from thinklsp.mcp_client.message_check import BadMessage, parse_message
from thinklsp.mcp_client.server_config import ServerConfig
from thinklsp.mcp_client.tool_pages import ToolPages
from thinklsp.settings.access import run_secret_command

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_EVENT_BYTES = 1024 * 1024
# A stream of events may stay open as long as the connection, so only its size is limited.
_MAX_STREAM_BYTES = 64 * 1024 * 1024
_CONNECT_SECONDS = 10.0
# A stream of events is quiet while no tool runs and no list changes.
_IDLE_SECONDS = 600.0
_LIMITS = httpx2.Limits(max_connections=8, max_keepalive_connections=2, keepalive_expiry=60.0)
_MAX_REDIRECTS = 5


def check_url(label: str, url: str) -> SplitResult:
    """Parse a server's URL. HTTPS is allowed for any host, and HTTP only for this machine. Raises McpFailed."""
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - reading the property raises ValueError if the port is invalid
    except ValueError:
        raise McpFailed(
            f"The URL of {lower_first_letter(label)} is invalid; it should look like https://host/mcp."
        ) from None
    host = parts.hostname or ""
    if not host or parts.scheme not in ("https", "http"):
        raise McpFailed(
            f"The URL of {lower_first_letter(label)} must start with https://, or http:// for this machine."
        )
    if "@" in parts.netloc:
        raise McpFailed(
            f"The URL of {lower_first_letter(label)} contains a user name or password; set `token_command` instead."
        )
    if parts.scheme == "http" and not is_loopback(host):
        raise McpFailed(
            f"Refusing plain HTTP to {host} for {lower_first_letter(label)}, because anyone on the network could read "
            "the traffic. Use https://, or a tunnel that ends on this machine (ssh -L)."
        )
    return parts


def lower_first_letter(label: str) -> str:
    """Return the name of a server for the middle of a sentence."""
    return label[:1].lower() + label[1:]


async def read_token(config: ServerConfig, label: str, environment: Mapping[str, str]) -> str | None:
    """Run the configured command and return the token that it prints, or None without a command. Raises McpFailed."""
    if not config.token_command:
        return None
    try:
        token = await run_secret_command(
            f"The token command of {lower_first_letter(label)}", config.token_command, environment
        )
    except SettingsError as error:
        raise McpFailed(str(error)) from None
    if not (token.isascii() and token.isprintable()):
        raise McpFailed(
            f"The token of {lower_first_letter(label)} contains characters that are not allowed in an HTTP header."
        )
    return token


class McpHttpClient:
    """The HTTP connections to one server. Call `aclose` at the end.

    `on_failure` receives the end of a sentence about the server if the server breaks a rule or rejects the token.
    """

    def __init__(
        self, config: ServerConfig, label: str, token: str | None, *,
        proxy: str | None, ca_bundle: str | None, on_failure: Callable[[str], None],
    ) -> None:  # fmt: skip
        target = check_url(label, config.url or "")
        self._url = config.url or ""
        headers = {"user-agent": f"thinklsp/{__version__}", "accept-encoding": "identity", **config.headers}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        route = find_route(target, proxy)
        try:
            transport = _BoundedTransport(_open_transport(route, ca_bundle), httpx2.URL(self._url), on_failure)
            self._client = httpx2.AsyncClient(
                transport=transport, headers=headers, trust_env=False, follow_redirects=False,
                max_redirects=_MAX_REDIRECTS,
                timeout=httpx2.Timeout(_CONNECT_SECONDS, read=_IDLE_SECONDS),
            )  # fmt: skip
        except (OSError, ValueError, httpx2.InvalidURL) as fault:
            raise McpFailed(
                f"{label} cannot be reached: your proxy, your certificate bundle or a header is invalid "
                f"({type(fault).__name__}). Check `proxy` and `ca_bundle` in your config.toml, and the server's "
                "`headers`."
            ) from None

    def open_streams(self) -> AbstractAsyncContextManager[Any]:
        """Return the SDK's transport over these connections."""
        return streamable_http_client(self._url, http_client=self._client, max_sse_event_size=MAX_EVENT_BYTES)

    async def aclose(self) -> None:
        await self._client.aclose()


def _open_transport(route: Route, ca_bundle: str | None) -> httpx2.AsyncHTTPTransport:
    proxy = None
    if route.proxy is not None:
        address, trust = resolve_proxy(route.proxy, ca_bundle)
        proxy = httpx2.Proxy(address, ssl_context=trust)
    if not route.uses_tls:
        return httpx2.AsyncHTTPTransport(trust_env=False, limits=_LIMITS, proxy=proxy)
    return httpx2.AsyncHTTPTransport(verify=build_trust(route, ca_bundle), trust_env=False, limits=_LIMITS, proxy=proxy)


class _BoundedTransport(httpx2.AsyncBaseTransport):
    """A transport that refuses other origins, compressed answers and answers above the limits."""

    def __init__(self, inner: httpx2.AsyncHTTPTransport, url: httpx2.URL, on_failure: Callable[[str], None]) -> None:
        self._inner = inner
        self._origin = _find_origin(url)
        self._on_failure = on_failure
        self._pages = ToolPages()

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        if _find_origin(request.url) != self._origin:
            raise self._fail(f"redirects to {request.url.host}, and thinklsp sends nothing to another origin")
        if b'"tools/list"' in (body := await request.aread()):
            page = self._pages.answer(json.loads(body))
            if page is not None:
                return httpx2.Response(200, headers={"content-type": "application/json"}, content=json.dumps(page))
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as fault:
            if request.method == "GET":
                # The optional stream of notifications, which the SDK opens again or does without.
                raise
            raise self._fail(f"cannot be reached ({type(fault).__name__})") from None
        try:
            response.stream = await self._limit(response)
        except httpx2.TransportError:
            await response.aclose()
            raise
        return response

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def _limit(self, response: httpx2.Response) -> httpx2.AsyncByteStream:
        if response.headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
            raise self._fail("sent a compressed answer, which thinklsp did not request")
        if response.status_code == 401:
            raise self._fail("rejected the token (HTTP 401)")
        stream = response.stream
        if not isinstance(stream, httpx2.AsyncByteStream):
            raise self._fail("sent an answer that cannot be read")
        if response.headers.get("content-type", "").lower().startswith("text/event-stream"):
            return _CountedStream(stream, _MAX_STREAM_BYTES, self._fail)
        # The SDK parses an answer on the event loop, so its structure is checked before. A list of tools in a stream of
        # events is limited only by MAX_EVENT_BYTES, so it can keep the event loop for 0.1 s.
        counted = _CountedStream(stream, MAX_BODY_BYTES, self._fail)
        try:
            body = b"".join([chunk async for chunk in counted])
        finally:
            await counted.aclose()
        try:
            body = await asyncio.to_thread(self._check_body, body)
        except BadMessage as problem:
            raise self._fail(str(problem)) from None
        return httpx2.ByteStream(body)

    def _check_body(self, body: bytes) -> bytes:
        """Return the answer for the SDK, with only the first page of a long list of tools. Raises BadMessage."""
        message = parse_message(body)
        if message is None:
            return body
        shortened = self._pages.shorten(message)
        return body if shortened is message else json.dumps(shortened).encode()

    def _fail(self, reason: str) -> httpx2.TransportError:
        self._on_failure(reason)
        return httpx2.TransportError(reason)


class _CountedStream(httpx2.AsyncByteStream):
    def __init__(
        self, stream: httpx2.AsyncByteStream, maximum: int, fail: Callable[[str], httpx2.TransportError]
    ) -> None:
        self._stream = stream
        self._maximum = maximum
        self._fail = fail

    async def __aiter__(self) -> AsyncIterator[bytes]:
        size = 0
        async for chunk in self._stream:
            size += len(chunk)
            if size > self._maximum:
                raise self._fail(f"sent an answer longer than {self._maximum // 1024**2} MiB")
            yield chunk

    async def aclose(self) -> None:
        await self._stream.aclose()


def _find_origin(url: httpx2.URL) -> tuple[str, str, int | None]:
    return url.scheme, url.host, url.port
