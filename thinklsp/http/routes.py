"""Routes to providers, and the connections of a route.

A route consists of the direct connection or the proxy, and the trusted certificates. The proxy comes from the user's
configuration or the environment, and is never used for connections to this machine.

Connections batch reads: a fast stream wakes the event loop at most fifty times per second, not once per event. httpx
has no option for batching, but httpcore, its underlying library, supports custom connections. After several consecutive
reads with little waiting, the next read starts up to 20 ms later and returns all data that has arrived. Data is read
only on request, so a slow consumer slows down the sender. Cancelling a read loses no data.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from ipaddress import ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit
from urllib.request import getproxies, proxy_bypass

import anyio
import certifi
import httpcore
import httpx

from thinklsp.core.errors import TransportFailed, format_install_command

_POOL_LIMITS = httpx.Limits(max_connections=64, max_keepalive_connections=8, keepalive_expiry=60.0)


@dataclass(frozen=True, slots=True)
class Route:
    """The route to a host.

    `is_local` is true if the host is this machine, in which case `SSL_CERT_DIR` is ignored. `proxy` is the proxy's URL.
    `uses_tls` is true if the URL's scheme is `https`, so that certificates must be loaded.
    """

    is_local: bool
    proxy: str | None
    uses_tls: bool


def check_url(url: str) -> SplitResult:
    """Parse a URL and check that it is allowed.

    HTTPS is allowed for any host, and HTTP only for this machine. User names are not allowed.

    Raises TransportFailed with a message that contains the URL's host but no other part of the URL. The error is not
    retryable.
    """
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - reading the property raises ValueError if the port is invalid
    except ValueError:
        raise _build_error("The provider's base URL is invalid; it should look like https://host.") from None
    host = parts.hostname or ""
    if not host or parts.scheme not in ("https", "http"):
        raise _build_error(
            "The provider's base URL must start with https://, or http:// for this machine, and contain a host name."
        )
    if "@" in parts.netloc:
        raise _build_error(
            f"The base URL for {host} contains a user name or password; set the API key separately instead."
        )
    if parts.scheme == "http" and not is_loopback(host):
        raise _build_error(
            f"Refusing plain HTTP to {host}, because anyone on the network could read the traffic. Use https://, or a "
            "tunnel that ends on this machine (ssh -L)."
        )
    return parts


def is_loopback(host: str) -> bool:
    """Return whether the host is `localhost` or a loopback address."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _build_error(message: str) -> TransportFailed:
    return TransportFailed(message, retryable=False)


def find_route(target: SplitResult, proxy: str | None) -> Route:
    """Return the route to a URL. `proxy` comes from the user's configuration and overrides the environment.

    The environment is read with `urllib`, because httpx does not recognize all loopback addresses and ignores the
    operating system's proxy exceptions.
    """
    host, tls = target.hostname or "", target.scheme == "https"
    if is_loopback(host):
        return Route(is_local=True, proxy=None, uses_tls=tls)
    if proxy is None and not proxy_bypass(host):
        proxies = getproxies()
        proxy = proxies.get(target.scheme) or proxies.get("all")
    return Route(is_local=False, proxy=proxy, uses_tls=tls)


def open_connections(route: Route, ca_bundle: str | None) -> httpx.AsyncHTTPTransport:
    """Return the connections of a route.

    Raises OSError, ValueError or httpx.InvalidURL if the proxy or the certificates are invalid.
    """
    url, trust = (None, None) if route.proxy is None else resolve_proxy(route.proxy, ca_bundle)
    return _BatchingTransport(
        verify=build_trust(route, ca_bundle) if route.uses_tls else False,
        trust_env=False,
        limits=_POOL_LIMITS,
        proxy=None if url is None else httpx.Proxy(url, ssl_context=trust),
    )


class _BatchingTransport(httpx.AsyncHTTPTransport):
    """A transport that batches reads.

    httpx has no public option for a network backend. A test checks that the private attribute still exists.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._pool._network_backend = BatchingNetwork()  # noqa: SLF001 - see the class docstring


def build_trust(route: Route, ca_bundle: str | None) -> ssl.SSLContext:
    """Return the TLS context for a route. Raises OSError or ValueError if the user's certificates are invalid."""
    file, folder = _find_user_certificates(ca_bundle)
    folder = None if route.is_local else folder
    return ssl.create_default_context(cafile=file, capath=folder) if file or folder else load_default_trust()


def _find_user_certificates(ca_bundle: str | None) -> tuple[str | None, str | None]:
    """Return the user's certificate file, or the user's certificate folder if no file is configured."""
    file = ca_bundle or os.environ.get("SSL_CERT_FILE")
    return file, None if file else os.environ.get("SSL_CERT_DIR")


@cache
def load_default_trust() -> ssl.SSLContext:
    """Return a TLS context that trusts the well-known certificate authorities.

    The context is cached, because loading the certificates takes longer than a request.
    """
    return ssl.create_default_context(cafile=certifi.where())


def resolve_proxy(address: str, ca_bundle: str | None) -> tuple[str, ssl.SSLContext | None]:
    """Return the URL of a proxy and the TLS context for the connection to the proxy, if the connection uses TLS.

    Raises OSError or ValueError if the proxy or the certificates are invalid, and TransportFailed without a package.
    """
    try:
        url = httpx.URL(address if "://" in address else f"http://{address}")
    except httpx.InvalidURL:
        raise ValueError("the proxy address is invalid") from None
    if url.scheme.startswith("socks5") and find_spec("socksio") is None:
        command = format_install_command("socksio>=1,<2")
        raise TransportFailed(f"A SOCKS proxy needs one more package. Run {command}.", retryable=False)
    if not url.host:
        raise ValueError("the proxy address has no host")
    if url.scheme != "https":
        return str(url), None
    # A proxy's certificate may come from a well-known authority or from the user's own authority, so trust both.
    trust = ssl.create_default_context(cafile=certifi.where())
    file, folder = _find_user_certificates(ca_bundle)
    if file or folder:
        trust.load_verify_locations(file, folder)
    return str(url), trust


BATCH_SECONDS = 0.02
# The number of consecutive quick reads after which reads are batched. The first tokens of an answer are not delayed.
_MIN_QUICK_READS = 4
# The event loop cannot do anything else while it handles a read's data, so reads must be small.
_MAX_READ_BYTES = 16 * 1024
# The minimum interval between reads from different streams. The event loop can handle other tasks in this interval.
_MIN_DISTANCE_SECONDS = 0.002


def load_libraries() -> None:
    """Import the modules that httpx and its dependencies import only for the first connection.

    The imports block, so call this function in a thread.
    """
    anyio.run(anyio.sleep, 0)
    "localhost".encode("idna")


class _ReadScheduler:
    """A scheduler that spaces out the reads of all fast streams."""

    def __init__(self) -> None:
        self._last_start = 0.0

    def schedule_read(self, requested: float, now: float) -> float:
        """Return the time at which to start a read that is due at `requested`. Times are on the event loop's clock.

        A read is delayed by at most 20 ms, so reads may coincide if there are many streams.
        """
        if requested <= now:
            return now
        time = min(max(requested, self._last_start + _MIN_DISTANCE_SECONDS), requested + BATCH_SECONDS)
        self._last_start = max(self._last_start, time)
        return time


class BatchingStream(httpcore.AsyncNetworkStream):
    """A connection that batches reads.

    A TLS connection inside another TLS connection, as with HTTPS proxies, is not batched. Only its next record can be
    read, so batching only delays the data.
    """

    def __init__(
        self, inner: httpcore.AsyncNetworkStream, scheduler: _ReadScheduler, *, can_batch: bool = True
    ) -> None:
        self._inner = inner
        self._scheduler = scheduler
        self._tls: ssl.SSLObject | None = inner.get_extra_info("ssl_object")
        self._can_batch = can_batch
        self._has_ended = False
        self._quick_reads = 0
        self._last_read_at = 0.0
        self._wake_up = asyncio.Event()

    def stop_batching(self) -> None:
        """Start the next read without waiting for more data."""
        self._quick_reads = 0
        self._wake_up.set()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - httpcore's signature
        loop = asyncio.get_running_loop()
        begin = loop.time()
        if self._can_batch and self._quick_reads >= _MIN_QUICK_READS:
            await self._wait_until(self._scheduler.schedule_read(self._last_read_at + BATCH_SECONDS, begin))
            begin = loop.time()
        data = await self._inner.read(min(max_bytes, _MAX_READ_BYTES), timeout)
        if data and self._tls is not None:
            data += self._read_records(self._tls, min(max_bytes, _MAX_READ_BYTES) - len(data))
        self._last_read_at = loop.time()
        is_quick = self._last_read_at - begin < BATCH_SECONDS and len(data) < _MAX_READ_BYTES
        self._quick_reads = self._quick_reads + 1 if is_quick else 0
        return data

    def _read_records(self, tls: ssl.SSLObject, max_bytes: int) -> bytes:
        """Return all TLS records that have already arrived. The connection itself returns only one record per read."""
        records: list[bytes] = []
        while max_bytes > 0 and not self._has_ended:
            try:
                record = tls.read(max_bytes)
            except ssl.SSLError:
                # Stop if there are no more records. If an error occurred, the next read raises the error again.
                break
            records.append(record)
            max_bytes -= len(record)
            self._has_ended = not record
        return b"".join(records)

    async def _wait_until(self, time: float) -> None:
        loop = asyncio.get_running_loop()
        if time <= loop.time():
            return
        self._wake_up.clear()
        timer = loop.call_at(time, self._wake_up.set)
        try:
            await self._wake_up.wait()
        finally:
            timer.cancel()

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - httpcore's signature
        self._quick_reads = 0
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
    ) -> BatchingStream:
        secured = await self._inner.start_tls(ssl_context, server_hostname, timeout)
        return BatchingStream(secured, self._scheduler, can_batch=self._tls is None)

    def get_extra_info(self, info: str) -> Any:
        # httpcore does not reuse a readable connection, so a connection that has ended is reported as readable.
        return (info == "is_readable" and self._has_ended) or self._inner.get_extra_info(info)


class BatchingNetwork(httpcore.AsyncNetworkBackend):
    """An httpcore backend whose TCP connections batch reads."""

    def __init__(self) -> None:
        self._inner = httpcore.AnyIOBackend()
        self._scheduler = _ReadScheduler()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - httpcore's signature
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> BatchingStream:
        inner = await self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        return BatchingStream(inner, self._scheduler)

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)
