"""The only door to HTTP: one request at a time out, the answer back as bytes. It never retries and knows no provider.

No redirect is followed, since headers with keys would travel to the new host. Certificates are always verified.
Proxies come from the user's option or the environment and are never used for loopback. Deadlines are put around
single awaits, never around a `yield`, so that they can only strike in here.
"""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import cache, partial
from typing import Any
from urllib.request import getproxies, proxy_bypass

import httpx

from thinklsp import __version__
from thinklsp.core.errors import TransportFailed
from thinklsp.wire.faults import explain_cause, explain_full, spoken_host
from thinklsp.wire.inflate import Inflater
from thinklsp.wire.urls import check_url, is_loopback

_SEND_PIECE = 64 * 1024
_CODINGS = ("", "identity", "gzip", "deflate")


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds. `first_byte_here` is for servers on this machine, which may first load a model and read the whole prompt
    without a word. Any byte restarts `idle`; `write` is for each piece of 64 KiB; `settle` is how long the end of a
    finished answer is awaited so that its connection can be used again."""

    connect: float = 10.0
    write: float = 30.0
    pool: float = 10.0
    first_byte: float = 120.0
    first_byte_here: float = 600.0
    idle: float = 300.0
    total: float = 30 * 60.0
    settle: float = 0.2


class HttpResponse:
    """An answer whose head has come. Header names are lower case; a repeated header is joined with commas.

    Valid inside `Transport.post` and `get` only. `chunks` and `read` consume the body once, between them.
    """

    def __init__(self, response: httpx.Response, host: str, limits: _Limits) -> None:
        self.status = response.status_code
        self.headers: Mapping[str, str] = {name.lower(): value for name, value in response.headers.items()}
        self.content_type = self.headers.get("content-type", "").partition(";")[0].strip().lower()
        self._host = host
        self._limits = limits
        self._received = 0
        self._inflater = Inflater(_coding(response))
        self._pieces: Iterator[bytes] = iter(())
        self._body = response.aiter_raw()

    async def chunks(self) -> AsyncGenerator[bytes, None]:
        """The body as it arrives. Raises TransportFailed at a timeout, a break or the size limit."""
        while (chunk := await self._next()) is not None:
            yield chunk

    async def read(self, limit: int) -> bytes:
        """The first `limit` bytes of the body; what lies behind them is left."""
        body = bytearray()
        while len(body) < limit and (chunk := await self._next()) is not None:
            body += chunk
        return bytes(body[:limit])

    async def settle(self) -> None:
        """Waits a moment for the end of the body. What comes is dropped, and so is any failure."""
        try:
            async with asyncio.timeout(self._limits.timeouts.settle):
                while await self._next() is not None:
                    pass
        except (TimeoutError, TransportFailed):
            return

    async def _next(self) -> bytes | None:
        """May be empty: more has come, but does not mean anything yet."""
        try:
            piece = next(self._pieces, None)
            if piece is None:
                chunk = await self._arrived()
                if chunk is None:
                    return None
                self._pieces = self._inflater.feed(chunk)
                piece = next(self._pieces, b"")
            else:
                # Much can come of one chunk; others want to be served meanwhile.
                await asyncio.sleep(0)
        except zlib.error:
            raise TransportFailed(f"The answer of {self._host} is damaged: it could not be decompressed.") from None
        self._received += len(piece)
        if self._received > self._limits.size:
            raise TransportFailed(
                f"The answer of {self._host} is larger than {self._limits.size // (1024 * 1024)} MiB and was given up.",
                retryable=False,
            )
        return piece

    async def _arrived(self) -> bytes | None:
        loop = asyncio.get_running_loop()
        idle = self._limits.timeouts.idle
        try:
            async with asyncio.timeout_at(min(loop.time() + idle, self._limits.deadline)) as watch:
                return await anext(self._body, None)
        except TimeoutError:
            if not watch.expired():
                raise
            if loop.time() >= self._limits.deadline:
                raise self._limits.too_long(self._host) from None
            raise TransportFailed(
                f"{self._host} fell silent: nothing came for {idle:g} seconds in the middle of the answer."
            ) from None
        except (httpx.HTTPError, httpx.StreamError, OSError) as fault:
            raise _explain(fault, self._host) from None


@dataclass(frozen=True, slots=True)
class _Limits:
    """Of one request. `deadline` is a time of the event loop's clock. `proxied`: another program connects for us."""

    timeouts: Timeouts
    size: int
    deadline: float
    proxied: bool

    def too_long(self, host: str) -> TransportFailed:
        total = self.timeouts.total
        return TransportFailed(f"The answer of {host} took longer than {total:g} seconds.", retryable=False)


class Transport:
    """Owns the HTTP clients of one event loop. Idle connections are kept between requests, eight at most per way out.

    `proxy` and `ca_bundle` (a file) come from the user's own configuration, never from an editor. `response_limit`
    is in bytes after decoding.
    """

    def __init__(
        self,
        *,
        timeouts: Timeouts | None = None,
        proxy: str | None = None,
        ca_bundle: str | None = None,
        response_limit: int = 64 * 1024 * 1024,
    ) -> None:
        self._timeouts = timeouts or Timeouts()
        self._proxy = proxy
        self._ca_bundle = ca_bundle
        self._response_limit = response_limit
        self._clients: dict[bool, httpx.AsyncClient] = {}

    async def aclose(self) -> None:
        """Closes every connection, those in use included. The transport may be used again afterwards."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    def post(self, url: str, headers: Mapping[str, str], body: bytes) -> AbstractAsyncContextManager[HttpResponse]:
        """Sends `body` and yields the answer once its head is there, whatever its status (redirects excepted).

        Leaving the block closes the connection at once, unless the body has been read to its end. Raises
        TransportFailed with a sentence that names the host, never path, query or header.
        """
        return self._exchange("POST", url, headers, body)

    def get(self, url: str, headers: Mapping[str, str]) -> AbstractAsyncContextManager[HttpResponse]:
        """As `post`, with nothing to send."""
        return self._exchange("GET", url, headers, None)

    @asynccontextmanager
    async def _exchange(
        self, method: str, url: str, headers: Mapping[str, str], body: bytes | None
    ) -> AsyncIterator[HttpResponse]:
        target = check_url(url)
        host = spoken_host(target)
        loop = asyncio.get_running_loop()
        here = is_loopback(target.hostname or "")
        timeouts = replace(self._timeouts, first_byte=self._timeouts.first_byte_here) if here else self._timeouts
        proxied = not here and self._is_proxied(target.hostname or "")
        limits = _Limits(timeouts, self._response_limit, loop.time() + timeouts.total, proxied)
        client = self._client(loopback=here)
        sized = headers if body is None else {**headers, "content-length": str(len(body))}
        # Built inside `_send`, which explains what cannot be built.
        build = partial(
            client.build_request, method, url, headers=sized, content=None if body is None else _pieces(body)
        )
        response = await self._send(client, build, host, limits)
        try:
            _refuse_redirect(response, host)
            _refuse_coding(response, host)
            answer = HttpResponse(response, host, limits)
            yield answer
            await answer.settle()
        finally:
            await response.aclose()

    async def _send(
        self,
        client: httpx.AsyncClient,
        build: Callable[..., httpx.Request],
        host: str,
        limits: _Limits,
    ) -> httpx.Response:
        loop = asyncio.get_running_loop()
        first_byte = limits.timeouts.first_byte
        try:
            async with asyncio.timeout_at(limits.deadline) as watch:

                async def trace(event: str, _details: Mapping[str, Any]) -> None:
                    if event.endswith("receive_response_headers.started"):
                        watch.reschedule(min(loop.time() + first_byte, limits.deadline))

                return await client.send(build(extensions={"trace": trace}), stream=True)
        except TimeoutError:
            if not watch.expired():
                raise
            if loop.time() >= limits.deadline:
                raise limits.too_long(host) from None
            raise TransportFailed(f"{host} did not begin to answer within {first_byte:g} seconds.") from None
        except UnicodeEncodeError:
            raise _bad_header() from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as fault:
            raise _explain(fault, host, proxied=limits.proxied) from None

    def _is_proxied(self, host: str) -> bool:
        return self._proxy is not None or (bool({"https", "all"} & getproxies().keys()) and not proxy_bypass(host))

    def _client(self, *, loopback: bool) -> httpx.AsyncClient:
        client = self._clients.get(loopback)
        if client is None or client.is_closed:
            client = self._clients[loopback] = self._new_client(loopback)
        return client

    def _new_client(self, loopback: bool) -> httpx.AsyncClient:
        # Both loggers tell URLs, and at the lowest level headers with keys.
        for name in ("httpx", "httpcore"):
            logging.getLogger(name).setLevel(logging.WARNING)
        timeouts = self._timeouts
        # Without `trust_env` httpx does not look at the variable.
        bundle = self._ca_bundle or (os.environ.get("SSL_CERT_FILE") if loopback else None)
        try:
            return httpx.AsyncClient(
                verify=ssl.create_default_context(cafile=bundle) if bundle else (not loopback or _well_known()),
                proxy=None if loopback else self._proxy,
                trust_env=not loopback,
                follow_redirects=False,
                headers={"user-agent": f"thinklsp/{__version__}", "accept-encoding": "identity"},
                limits=httpx.Limits(max_connections=64, max_keepalive_connections=8, keepalive_expiry=60.0),
                timeout=httpx.Timeout(connect=timeouts.connect, write=timeouts.write, pool=timeouts.pool, read=None),
            )
        except (OSError, ValueError, httpx.InvalidURL) as fault:
            raise explain_full(fault) or TransportFailed(
                "The proxy or the certificate bundle of the user's configuration or environment cannot be used "
                f"({type(fault).__name__}); check `proxy`, `ca_bundle`, HTTPS_PROXY and SSL_CERT_FILE.",
                retryable=False,
            ) from None


@cache
def _well_known() -> ssl.SSLContext:
    """Trust in the well-known authorities, whatever the environment says. Reading them takes longer than a request."""
    return httpx.create_ssl_context(trust_env=False)


async def _pieces(body: bytes) -> AsyncIterator[bytes]:
    for start in range(0, len(body), _SEND_PIECE):
        yield body[start : start + _SEND_PIECE]


def _refuse_redirect(response: httpx.Response, host: str) -> None:
    if not 300 <= response.status_code < 400:
        return
    try:
        target = response.url.join(response.headers.get("location", "")).host
    except (httpx.InvalidURL, ValueError):
        target = ""
    raise TransportFailed(
        f"{host} redirects to {target or 'another address'}. Redirects are not followed, because the key would go "
        "with them; set the base URL to the right host.",
        retryable=False,
    )


def _coding(response: httpx.Response) -> str:
    return str(response.headers.get("content-encoding", "")).strip().lower()


def _refuse_coding(response: httpx.Response, host: str) -> None:
    if _coding(response) not in _CODINGS:
        raise TransportFailed(
            f"{host} sent its answer in a compression that was not asked for; a proxy may be in the way.",
            retryable=False,
        )


def _explain(fault: Exception, host: str, *, proxied: bool = False) -> TransportFailed:
    known = explain_cause(fault, host, connecting=isinstance(fault, httpx.ConnectError), proxied=proxied)
    if known is not None:
        return known
    match fault:
        case httpx.ConnectTimeout():
            return TransportFailed(f"No connection to {host} came about in time: check the network.")
        case httpx.WriteTimeout():
            return TransportFailed(f"{host} took in the request too slowly: sending it timed out.")
        case httpx.PoolTimeout():
            return TransportFailed(f"All connections to {host} are in use by other turns.")
        case httpx.ReadTimeout():
            return TransportFailed(f"{host} did not answer in time.")
        case httpx.ProxyError():
            return TransportFailed(f"The proxy would not connect to {host}; check the proxy settings.")
        case httpx.ConnectError():
            return TransportFailed(f"No connection to {host}: check the network.")
        case httpx.LocalProtocolError():
            return _bad_header()
        case httpx.UnsupportedProtocol() | httpx.InvalidURL():
            return TransportFailed(f"The address of {host} cannot be used; check the base URL.", retryable=False)
        case _:
            return TransportFailed(f"The connection to {host} broke off.")


def _bad_header() -> TransportFailed:
    return TransportFailed(
        "The request could not be put together: the key or a header of the user's configuration holds a character "
        "that HTTP does not allow.",
        retryable=False,
    )
