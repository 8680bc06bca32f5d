"""The HTTP transport for all requests. It sends a request and returns the response as bytes, without retrying.

Redirects are not followed, so that API keys are never sent to another host. Certificates are always verified. Timeouts
never cover a `yield`, so they cannot cancel the caller's code.

Error messages name the cause and the host, and suggest a solution if possible. They never include the text of an
exception, because it may contain a URL. Only the exception's type and the types of its causes are used.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from errno import EMFILE, ENFILE
from functools import partial
from urllib.parse import SplitResult, urljoin, urlsplit

import httpx

from thinklsp import __version__
from thinklsp.core.errors import HeaderRefused, TransportFailed
from thinklsp.core.text_safety import format_size
from thinklsp.http.routes import Route, check_url, find_route, open_connections

# The maximum number of bytes to buffer while the caller does not read.
_MAX_BUFFERED_BYTES = 128 * 1024
_SEND_CHUNK_BYTES = 64 * 1024
_HEADERS = {"accept": "*/*", "accept-encoding": "identity", "user-agent": f"thinklsp/{__version__}"}


@dataclass(frozen=True, slots=True)
class Timeouts:
    """The timeouts for a request, in seconds.

    `first_byte_local` applies to servers on this machine, which may load a model and process the entire prompt before
    they send the first byte. `idle` restarts with each byte received. `write` applies to each chunk of 64 KiB. `drain`
    limits the wait for the end of the body after a complete answer, so that the connection can be reused.
    """

    connect: float = 10.0
    write: float = 30.0
    pool: float = 10.0
    first_byte: float = 120.0
    first_byte_local: float = 600.0
    idle: float = 300.0
    total: float = 30 * 60.0
    drain: float = 0.2


class HttpResponse:
    """A response whose headers have arrived. Header names are lowercase, and repeated headers are joined with commas.

    A response can be used only inside the context of `Transport.post` or `Transport.get`. The body can be read only
    once.
    """

    def __init__(self, response: httpx.Response, host: str, limits: _RequestLimits) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self.content_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        self._host = host
        self._limits = limits
        # A response from this process has no connection.
        self._connection = response.extensions.get("network_stream")
        self._received_bytes = 0
        # A separate task reads the body, so that several pieces that arrive together are handled together.
        self._chunks: list[bytes] = []
        self._buffered_bytes = 0
        self._data_event, self._space_event = asyncio.Event(), asyncio.Event()
        self._read_task = asyncio.create_task(self._read_body(response))
        self._read_task.add_done_callback(lambda _: self._data_event.set())

    async def iterate_chunks(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives.

        Raise TransportFailed on a timeout, a lost connection or an exceeded size limit.
        """
        while (chunk := await self._take_chunk()) is not None:
            yield chunk

    async def read(self, limit: int) -> bytes:
        """Return the first `limit` bytes of the body and discard the rest of the body."""
        body = bytearray()
        while len(body) < limit and (chunk := await self._take_chunk()) is not None:
            body += chunk
        return bytes(body[:limit])

    def stop_batching(self) -> None:
        """Return the next data without waiting for more, because the answer is almost complete."""
        if self._connection is not None:
            self._connection.stop_batching()

    async def drain(self) -> None:
        """Read to the end of the body for a short time. Data and errors are ignored."""
        self.stop_batching()
        try:
            async with asyncio.timeout(self._limits.timeouts.drain):
                while await self._take_chunk() is not None:
                    pass
        except (TimeoutError, TransportFailed):
            return

    async def aclose(self) -> None:
        self._read_task.cancel()
        await asyncio.gather(self._read_task, return_exceptions=True)

    async def _take_chunk(self) -> bytes | None:
        while not self._chunks and not self._read_task.done():
            self._data_event.clear()
            await self._data_event.wait()
        pieces, self._chunks, self._buffered_bytes = self._chunks, [], 0
        self._space_event.set()
        if not pieces:
            self._read_task.result()
        return b"".join(pieces) if pieces else None

    async def _read_body(self, response: httpx.Response) -> None:
        try:
            async with asyncio.timeout_at(self._limits.deadline) as watch:
                async for chunk in response.stream:  # type: ignore[union-attr] # an asynchronous client has this stream
                    self._count_bytes(len(chunk))
                    self._chunks.append(chunk)
                    self._buffered_bytes += len(chunk)
                    self._data_event.set()
                    if self._buffered_bytes >= _MAX_BUFFERED_BYTES:
                        self._space_event.clear()
                        await self._space_event.wait()
        except TimeoutError:
            if not watch.expired():
                raise
            raise self._limits.build_timeout_error(self._host) from None
        except httpx.ReadTimeout:
            raise TransportFailed(
                f"{self._host} stopped responding: no data for {self._limits.timeouts.idle:g} seconds."
            ) from None
        except NETWORK_ERRORS as fault:
            raise to_transport_error(fault, self._host) from None

    def _count_bytes(self, size: int) -> None:
        self._received_bytes += size
        if self._received_bytes > self._limits.max_bytes:
            raise TransportFailed(
                f"The answer from {self._host} was discarded: it exceeds {format_size(self._limits.max_bytes)}.",
                retryable=False,
            )


@dataclass(frozen=True, slots=True)
class _RequestLimits:
    """The limits for a request. `deadline` is a time on the event loop's clock."""

    timeouts: Timeouts
    max_bytes: int
    deadline: float
    uses_proxy: bool

    def build_timeout_error(self, host: str) -> TransportFailed:
        total = self.timeouts.total
        return TransportFailed(f"The answer from {host} took longer than {total:g} seconds.", retryable=False)


class Transport:
    """The HTTP connections of an event loop. At most eight idle connections per route stay open between requests.

    `proxy` and `ca_bundle` come from the user's own configuration, never from an editor. `ca_bundle` is the path of a
    certificate file. If `handler` is set, it answers all requests, and the transport opens no connections.
    """

    def __init__(
        self,
        *,
        timeouts: Timeouts | None = None,
        proxy: str | None = None,
        ca_bundle: str | None = None,
        max_response_bytes: int = 64 * 1024 * 1024,
        handler: RequestHandler | None = None,
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._proxy = proxy
        self._ca_bundle = ca_bundle
        self._max_response_bytes = max_response_bytes
        self._handler = handler
        # A client of httpx would only add what is not wanted here: cookies, redirects and settings of the environment.
        self._connections: dict[Route, httpx.AsyncBaseTransport] = {}

    async def aclose(self) -> None:
        """Close all connections, including connections in use. The transport can be used again afterwards."""
        routes, self._connections = self._connections, {}
        for connections in routes.values():
            await connections.aclose()

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AbstractAsyncContextManager[HttpResponse]:
        """Send a POST request and yield the response as soon as its headers have arrived.

        Any status except a redirect is accepted. If the body was not read completely, the connection is closed when the
        context ends. Raises TransportFailed with a message that contains the host, but no path, query or headers.
        """
        return self._exchange("POST", url, headers, body)

    def get(self, url: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[HttpResponse]:
        """Send a GET request. The response and errors are the same as for `post`."""
        return self._exchange("GET", url, headers, None)

    @asynccontextmanager
    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncIterator[HttpResponse]:
        target = check_url(url)
        host = format_host(target)
        loop = asyncio.get_running_loop()
        route = find_route(target, self._proxy)
        _check_host_name(target.hostname or "", host)
        first_byte = self._timeouts.first_byte_local if route.is_local else self._timeouts.first_byte
        timeouts = replace(self._timeouts, first_byte=first_byte)
        limits = _RequestLimits(
            timeouts, self._max_response_bytes, loop.time() + timeouts.total, route.proxy is not None
        )
        connections = self._ensure_connections(route)
        # Build the request inside `_send`, which handles errors caused by an invalid URL or header.
        build = partial(_build_request, method, url, headers, body)
        response = await self._send(connections, build, host, limits)
        try:
            _reject_redirect(response, url, host)
            _reject_compression(response, host)
            answer = HttpResponse(response, host, limits)
            try:
                yield answer
                await answer.drain()
            finally:
                await answer.aclose()
        finally:
            await response.aclose()

    async def _send(
        self,
        connections: httpx.AsyncBaseTransport,
        build: Callable[[Mapping[str, float]], httpx.Request],
        host: str,
        limits: _RequestLimits,
    ) -> httpx.Response:
        wait, first_byte = limits.timeouts, limits.timeouts.first_byte
        # The connection takes the timeout for reading once for the headers and once for the body.
        waits = {"connect": wait.connect, "write": wait.write, "pool": wait.pool, "read": first_byte}
        try:
            async with asyncio.timeout_at(limits.deadline) as watch:
                response = await connections.handle_async_request(build(waits))
                waits["read"] = wait.idle
                return response
        except TimeoutError:
            if not watch.expired():
                raise
            raise limits.build_timeout_error(host) from None
        except httpx.ReadTimeout:
            raise TransportFailed(f"{host} sent no answer within {first_byte:g} seconds.") from None
        except UnicodeError:
            raise build_header_error() from None
        except NETWORK_ERRORS as fault:
            raise to_transport_error(fault, host, uses_proxy=limits.uses_proxy) from None

    def _ensure_connections(self, route: Route) -> httpx.AsyncBaseTransport:
        if route not in self._connections and self._handler is not None:
            self._connections[route] = _InProcessTransport(self._handler)
        if route not in self._connections:
            # httpx and httpcore log URLs and headers that contain keys, so only their warnings are logged.
            for name in ("httpx", "httpcore"):
                logging.getLogger(name).setLevel(logging.WARNING)
            try:
                self._connections[route] = open_connections(route, self._ca_bundle)
            except (OSError, ValueError, httpx.InvalidURL) as fault:
                raise explain_file_limit(fault) or TransportFailed(
                    f"Your proxy or certificate bundle is invalid ({type(fault).__name__}). Check `proxy` and "
                    "`ca_bundle` in your config.toml, and `HTTPS_PROXY` and `SSL_CERT_FILE`.",
                    retryable=False,
                ) from None
        return self._connections[route]


def _check_host_name(name: str, host: str) -> None:
    try:
        name.encode("idna")
    except UnicodeError:
        raise build_address_error(host) from None


def _build_request(
    method: str, url: str, headers: Mapping[str, str], body: bytes | None, waits: Mapping[str, float]
) -> httpx.Request:
    merged = httpx.Headers(_HEADERS)
    merged.update(headers)
    if body is not None:
        merged["content-length"] = str(len(body))
    content = None if body is None else _split_body(body)
    return httpx.Request(method, url, headers=merged, content=content, extensions={"timeout": waits})


async def _split_body(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), _SEND_CHUNK_BYTES):
        yield body[start : start + _SEND_CHUNK_BYTES]


def _reject_redirect(response: httpx.Response, url: str, host: str) -> None:
    if not 300 <= response.status_code < 400:
        return
    try:
        target = urlsplit(urljoin(url, response.headers.get("location", ""))).hostname
    except ValueError:
        target = None
    raise TransportFailed(
        f"{host} redirects to {target or 'another address'}, and thinklsp does not follow redirects, because the API "
        "key would be sent there. Set the base URL to the correct host.",
        retryable=False,
    )


def _reject_compression(response: httpx.Response, host: str) -> None:
    """Reject a compressed response, because a few compressed bytes can expand to any size."""
    if response.headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
        raise TransportFailed(
            f"{host} sent a compressed answer, which thinklsp did not request. A proxy may have changed the request.",
            retryable=False,
        )


# Receives the method, the path, the headers and the body. Returns the status, the headers and the body.
RequestHandler = Callable[
    [str, str, Mapping[str, str], bytes], Awaitable[tuple[int, Mapping[str, str], AsyncIterator[bytes]]]
]


class _InProcessTransport(httpx.AsyncBaseTransport):
    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        status, headers, body = await self._handler(
            request.method, request.url.path, request.headers, await request.aread()
        )
        return httpx.Response(status, headers=dict(headers), stream=_BodyStream(body))


class _BodyStream(httpx.AsyncByteStream):
    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._body:
                yield chunk
        except ConnectionError as error:
            raise httpx.ReadError(str(error)) from None


NETWORK_ERRORS = (httpx.HTTPError, httpx.StreamError, httpx.InvalidURL, OSError)


def format_host(parts: SplitResult) -> str:
    """Format the host and the port, if any, for error messages."""
    host = parts.hostname or "the provider"
    return f"{host}:{parts.port}" if parts.port else host


def to_transport_error(error: Exception, host: str, *, uses_proxy: bool = False) -> TransportFailed:
    """Convert one of `NETWORK_ERRORS` to a TransportFailed error with a message for the user."""
    cause = explain_cause(error, host, is_connecting=isinstance(error, httpx.ConnectError), uses_proxy=uses_proxy)
    if cause is not None:
        return cause
    match error:
        case httpx.ConnectTimeout():
            return TransportFailed(f"Connecting to {host} timed out; check your network.")
        case httpx.WriteTimeout():
            return TransportFailed(f"Sending the request to {host} timed out.")
        case httpx.PoolTimeout():
            return TransportFailed(f"Other turns are using all connections to {host}; try again later.")
        case httpx.ReadTimeout():
            return TransportFailed(f"{host} did not answer in time.")
        case httpx.ProxyError():
            return _build_proxy_error(str(error)[:3], host)
        case httpx.ConnectError():
            return TransportFailed(f"Cannot connect to {host}; check your network.")
        case httpx.LocalProtocolError():
            return build_header_error()
        case httpx.UnsupportedProtocol() | httpx.InvalidURL():
            return build_address_error(host)
        case _:
            return TransportFailed(f"The connection to {host} was lost.")


def build_header_error() -> HeaderRefused:
    return HeaderRefused(
        "The request could not be created: your API key or a configured header contains a character that HTTP does not "
        "allow.",
        retryable=False,
    )


def build_address_error(host: str) -> TransportFailed:
    return TransportFailed(f"The address of {host} is invalid; check the base URL.", retryable=False)


def explain_cause(
    error: Exception, host: str, *, is_connecting: bool, uses_proxy: bool = False
) -> TransportFailed | None:
    """Return an error if an operating system or TLS error caused the failure, or None otherwise.

    `uses_proxy` is true if the connection goes to a proxy instead of the host itself.
    """
    if (full := explain_file_limit(error)) is not None:
        return full
    causes = list(_iterate_causes(error))
    if any(isinstance(cause, ssl.SSLCertVerificationError) for cause in causes):
        owner = f"{host}, or for the proxy in front of it," if uses_proxy else host
        return TransportFailed(
            f"The certificate for {owner} could not be verified. For a self-signed or company certificate, set "
            "`SSL_CERT_FILE`, or `ca_bundle` under [network] in your config.toml, to the file with the "
            "certificates to trust.",
            retryable=False,
        )
    if is_connecting and any(_is_tls_rejection(cause) for cause in causes):
        return TransportFailed(f"Cannot open a secure connection to {host}: the TLS handshake failed.", retryable=False)
    if uses_proxy and any(isinstance(cause, socket.gaierror | ConnectionRefusedError) for cause in causes):
        return TransportFailed(
            f"The proxy for {host} is unreachable. Check that it is running, and check `HTTPS_PROXY` or `proxy` under "
            "[network] in your config.toml."
        )
    if any(isinstance(cause, socket.gaierror) for cause in causes):
        return TransportFailed(f"The host name {host} could not be resolved; check the network and the URL.")
    if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
        return TransportFailed(
            f"{host} refused the connection. Check that the server is running, that no firewall blocks it, and that "
            "the URL is correct."
        )
    return None


def _build_proxy_error(status: str, host: str) -> TransportFailed:
    """Return the error for a proxy failure.

    `status` is the HTTP status that the proxy returned, as text.
    """
    proxy = f"The proxy for {host}"
    if status == "407":
        return TransportFailed(
            f"{proxy} requires a user name and password, or rejected the given credentials. Put them in the proxy's "
            "address, as in http://name:password@proxy:port, in `HTTPS_PROXY` or `proxy` under [network] in your "
            "config.toml.",
            retryable=False,
        )
    status_note = f" (status {status})" if status.isdigit() else ""
    return TransportFailed(
        f"{proxy} refused to connect{status_note}. Check that it allows this host, and check `HTTPS_PROXY` or `proxy` "
        "under [network] in your config.toml.",
        retryable=not status.startswith("4"),
    )


def explain_file_limit(error: Exception) -> TransportFailed | None:
    """Return an error if too many files are open in the process or on the machine, or None otherwise."""
    if any(isinstance(cause, OSError) and cause.errno in (EMFILE, ENFILE) for cause in _iterate_causes(error)):
        return TransportFailed("Too many files and connections are open; wait until other turns have ended.")
    return None


def _is_tls_rejection(cause: BaseException) -> bool:
    """Return whether the server rejected the TLS handshake. A timeout or a lost connection is not a rejection."""
    transient = (ssl.SSLWantReadError, ssl.SSLWantWriteError, ssl.SSLEOFError, ssl.SSLZeroReturnError)
    return isinstance(cause, ssl.SSLError) and not isinstance(cause, transient)


def _iterate_causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error and all of its causes."""
    pending: list[BaseException] = [error]
    visited: set[int] = set()
    while pending:
        cause = pending.pop()
        if id(cause) in visited:
            continue
        visited.add(id(cause))
        yield cause
        pending += [link for link in (cause.__cause__, cause.__context__) if link is not None]
        if isinstance(cause, BaseExceptionGroup):
            pending += cause.exceptions
