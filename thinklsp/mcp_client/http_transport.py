"""The transport between the MCP SDK and a server at a URL, with limits on everything that the server sends.

The connection uses the user's proxy and certificates, as connections to providers do. The SDK sends nothing
to another origin. This module imports the SDK and its HTTP library, so only `connection` imports it, in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Any
from urllib.parse import urlsplit

import httpx2
from mcp.client.streamable_http import streamable_http_client

from thinklsp import __version__
from thinklsp.core.errors import McpFailed, SettingsError, TransportFailed
from thinklsp.http.routes import Route, build_trust, find_route, resolve_proxy
from thinklsp.http.transport import explain_cause
from thinklsp.mcp_client.message_limits import BadMessage, parse_message
from thinklsp.mcp_client.server_config import ServerConfig
from thinklsp.settings.access import run_secret_command
from thinklsp.settings.user_file import NetworkSection

MAX_BODY_BYTES = 4 * 1024 * 1024
MAX_EVENT_BYTES = 1024 * 1024
# A stream of events may stay open as long as the connection, so only its size is limited.
_MAX_STREAM_BYTES = 64 * 1024 * 1024
_MAX_REDIRECTS = 5
_CONNECT_SECONDS = 10.0
# A stream of events is quiet while no tool runs and no list changes.
_IDLE_SECONDS = 600.0
_LIMITS = httpx2.Limits(max_connections=8, max_keepalive_connections=2, keepalive_expiry=60.0)


async def read_token(config: ServerConfig, label: str, environment: Mapping[str, str]) -> str | None:
    """Run the configured command and return the token that it prints, or None without a command. Raises McpFailed."""
    if not config.token_command:
        return None
    name = f"{label[:1].lower()}{label[1:]}"
    try:
        token = await run_secret_command(f"The token command for {name}", config.token_command, environment)
    except SettingsError as error:
        raise McpFailed(str(error)) from None
    if not (token.isascii() and token.isprintable()):
        raise McpFailed(f"The token of {name} contains characters that are not allowed in an HTTP header.")
    return token


class HttpTransport(AbstractAsyncContextManager[Any]):
    """A transport in the sense of the SDK, with the same properties as the transport to a process.

    `ended` is set as soon as the server broke a rule, rejected the token or cannot be reached. `failure` is then the
    end of a sentence about the server. The URL of the configuration was checked when its entry was read.
    """

    stderr_tail = ""
    server_pid = None
    unreadable_lines = 0

    def __init__(
        self,
        config: ServerConfig,
        label: str,
        token: str | None,
        on_list_change: Callable[[], None],
        network: NetworkSection,
    ) -> None:
        """Prepare the connection, which blocks while certificates are read. Raises McpFailed for wrong settings."""
        self.ended = asyncio.Event()
        self.failure = ""
        self.on_list_change = on_list_change
        self._url = config.url or ""
        headers = {"user-agent": f"thinklsp/{__version__}", "accept-encoding": "identity", **config.headers}
        if token is not None:
            headers["authorization"] = f"Bearer {token}"
        route = find_route(urlsplit(self._url), network.proxy)
        try:
            inner = _open_transport(route, network.ca_bundle)
            transport = _BoundedTransport(inner, self._fail, uses_proxy=route.proxy is not None)
            self._client = httpx2.AsyncClient(
                transport=transport, headers=headers, trust_env=False, follow_redirects=False,
                # The SDK follows redirects within the origin itself, up to this number.
                max_redirects=_MAX_REDIRECTS,
                timeout=httpx2.Timeout(_CONNECT_SECONDS, read=_IDLE_SECONDS),
            )  # fmt: skip
        except TransportFailed as missing:
            raise McpFailed(f"{label} cannot be reached. {missing}") from None
        except (OSError, ValueError, httpx2.InvalidURL) as fault:
            raise McpFailed(
                f"{label} cannot be reached: your proxy, your certificate bundle or a header is invalid "
                f"({type(fault).__name__}). Check `proxy` and `ca_bundle` in your config.toml, and the server's "
                "`headers`."
            ) from None

    def _fail(self, reason: str) -> httpx2.TransportError:
        if not self.ended.is_set():
            self.failure = reason
            self.ended.set()
        return httpx2.TransportError(reason)

    async def __aenter__(self) -> Any:
        self._streams = streamable_http_client(self._url, http_client=self._client, max_sse_event_size=MAX_EVENT_BYTES)
        return await self._streams.__aenter__()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            return await self._streams.__aexit__(kind, error, trace)
        finally:
            await self._client.aclose()


def _open_transport(route: Route, ca_bundle: str | None) -> httpx2.AsyncHTTPTransport:
    proxy = None
    if route.proxy is not None:
        address, trust = resolve_proxy(route.proxy, ca_bundle)
        proxy = httpx2.Proxy(address, ssl_context=trust)
    verify = build_trust(route, ca_bundle) if route.uses_tls else True
    return httpx2.AsyncHTTPTransport(verify=verify, trust_env=False, limits=_LIMITS, proxy=proxy)


_Fail = Callable[[str], httpx2.TransportError]


class _BoundedTransport(httpx2.AsyncBaseTransport):
    """A transport that refuses compressed answers and answers above the limits."""

    def __init__(self, inner: httpx2.AsyncHTTPTransport, fail: _Fail, *, uses_proxy: bool) -> None:
        self._inner = inner
        self._uses_proxy = uses_proxy
        self._fail = fail

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            response = await self._inner.handle_async_request(request)
        except httpx2.TransportError as fault:
            if request.method == "GET":
                # The optional stream of notifications, which the SDK opens again or does without.
                raise
            host, is_connecting = request.url.netloc.decode(), isinstance(fault, httpx2.ConnectError)
            cause = explain_cause(fault, host, is_connecting=is_connecting, uses_proxy=self._uses_proxy)
            why = f" ({type(fault).__name__})" if cause is None else f". {cause}".removesuffix(".")
            raise self._fail(f"cannot be reached{why}") from None
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
        # The SDK parses an answer on the event loop, so its structure is checked first.
        counted = _CountedStream(stream, MAX_BODY_BYTES, self._fail)
        try:
            body = b"".join([chunk async for chunk in counted])
        finally:
            await counted.aclose()
        try:
            await asyncio.to_thread(parse_message, body)
        except BadMessage as problem:
            raise self._fail(str(problem)) from None
        return httpx2.ByteStream(body)


class _CountedStream(httpx2.AsyncByteStream):
    def __init__(self, stream: httpx2.AsyncByteStream, maximum: int, fail: _Fail) -> None:
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
