"""The only door to HTTP: one request at a time out, the answer back as bytes. It never retries and knows no provider.

No redirect is followed, since headers with keys would travel to the new host. Certificates are always verified.
Deadlines are put around single awaits, never around a `yield`, so that they can only strike in here.
"""

from __future__ import annotations

import asyncio
import logging
import zlib
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx

from thinklsp.core.body import Body
from thinklsp.core.errors import TransportFailed
from thinklsp.http.faults import FAULTS, bad_address, bad_header, explain, explain_full, spoken_host
from thinklsp.http.inflate import Inflater
from thinklsp.http.routes import Route, find_route, open_client
from thinklsp.http.urls import check_url

# Bytes that may wait for whoever handles them: what was packed can be very many.
_MOST_READY = 128 * 1024
_SEND_PIECE = 64 * 1024
_PACKED = ("gzip", "deflate")
_CODINGS = ("", "identity", *_PACKED)


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
        self._connection = response.extensions["network_stream"]
        self._received = 0
        # A task of its own reads, so that all that one reading of the network brings is handled at once.
        self._ready: list[bytes] = []
        self._waiting = 0
        self._more, self._room = asyncio.Event(), asyncio.Event()
        self._reading = asyncio.create_task(self._read(response))
        self._reading.add_done_callback(lambda _: self._more.set())

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
        self._connection.hurry()
        try:
            async with asyncio.timeout(self._limits.timeouts.settle):
                while await self._next() is not None:
                    pass
        except (TimeoutError, TransportFailed):
            return

    async def aclose(self) -> None:
        self._reading.cancel()
        await asyncio.gather(self._reading, return_exceptions=True)

    async def _next(self) -> bytes | None:
        while not self._ready and not self._reading.done():
            self._more.clear()
            await self._more.wait()
        pieces, self._ready, self._waiting = self._ready, [], 0
        self._room.set()
        if not pieces:
            self._reading.result()
        return b"".join(pieces) if pieces else None

    async def _read(self, response: httpx.Response) -> None:
        coding = _coding(response)
        inflater = Inflater(coding) if coding in _PACKED else None
        try:
            async with asyncio.timeout_at(self._limits.deadline) as watch:
                async for chunk in response.stream:  # type: ignore[union-attr] # it is asynchronous, as its client
                    for piece in (chunk,) if inflater is None else inflater.feed(chunk):
                        self._count(len(piece))
                        self._ready.append(piece)
                        self._waiting += len(piece)
                        self._more.set()
                        if self._waiting >= _MOST_READY:
                            self._room.clear()
                            await self._room.wait()
        except zlib.error:
            raise TransportFailed(f"The answer of {self._host} is damaged: it could not be decompressed.") from None
        except TimeoutError:
            if not watch.expired():
                raise
            raise self._limits.too_long(self._host) from None
        except httpx.ReadTimeout:
            raise TransportFailed(
                f"{self._host} fell silent: nothing came for {self._limits.timeouts.idle:g} seconds in the middle of "
                "the answer."
            ) from None
        except FAULTS as fault:
            raise explain(fault, self._host) from None

    def _count(self, size: int) -> None:
        self._received += size
        if self._received > self._limits.size:
            raise TransportFailed(
                f"The answer of {self._host} is larger than {self._limits.size // (1024 * 1024)} MiB and was given up.",
                retryable=False,
            )


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
    """Owns the connections of one event loop. Idle connections are kept between requests, eight at most per route.

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
        wait = self._timeouts
        # `read` counts from the head on: until then another limit holds.
        self._waits = {"connect": wait.connect, "write": wait.write, "pool": wait.pool, "read": None}
        self._clients: dict[Route, httpx.AsyncClient] = {}

    async def aclose(self) -> None:
        """Closes every connection, those in use included. The transport may be used again afterwards."""
        clients, self._clients = self._clients, {}
        for client in clients.values():
            await client.aclose()

    def post(self, url: str, headers: Mapping[str, str], body: Body) -> AbstractAsyncContextManager[HttpResponse]:
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
        self, method: str, url: str, headers: Mapping[str, str], body: Body | None
    ) -> AsyncIterator[HttpResponse]:
        target = check_url(url)
        host = spoken_host(target)
        loop = asyncio.get_running_loop()
        route = find_route(target, self._proxy)
        _check_name(target.hostname or "", host)
        first_byte = self._timeouts.first_byte_here if route.here else self._timeouts.first_byte
        timeouts = replace(self._timeouts, first_byte=first_byte)
        limits = _Limits(timeouts, self._response_limit, loop.time() + timeouts.total, route.proxy is not None)
        sized = headers if body is None else {**headers, "content-length": str(len(body))}
        client = self._client(route)
        # Built inside `_send`, which explains what cannot be built.
        content = None if body is None else _pieces(body)
        build = partial(client.build_request, method, url, headers=sized, content=content)
        response = await self._send(client, build, host, limits)
        try:
            _refuse_redirect(response, url, host)
            _refuse_coding(response, host)
            answer = HttpResponse(response, host, limits)
            try:
                yield answer
                await answer.settle()
            finally:
                await answer.aclose()
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
        first_byte, waits = limits.timeouts.first_byte, dict(self._waits)
        try:
            async with asyncio.timeout_at(limits.deadline) as watch:

                async def trace(event: str, _details: Mapping[str, Any]) -> None:
                    if event.endswith("receive_response_headers.started"):
                        watch.reschedule(min(loop.time() + first_byte, limits.deadline))

                response = await client.send(build(extensions={"trace": trace, "timeout": waits}), stream=True)
                # Any byte restarts it.
                waits["read"] = limits.timeouts.idle
                return response
        except TimeoutError:
            if not watch.expired():
                raise
            if loop.time() >= limits.deadline:
                raise limits.too_long(host) from None
            raise TransportFailed(f"{host} did not begin to answer within {first_byte:g} seconds.") from None
        except UnicodeError:
            raise bad_header() from None
        except FAULTS as fault:
            raise explain(fault, host, proxied=limits.proxied) from None

    def _client(self, route: Route) -> httpx.AsyncClient:
        if route not in self._clients:
            # They log URLs, and at the lowest level headers with keys.
            for name in ("httpx", "httpcore"):
                logging.getLogger(name).setLevel(logging.WARNING)
            try:
                self._clients[route] = open_client(route, self._ca_bundle)
            except (OSError, ValueError, httpx.InvalidURL) as fault:
                raise explain_full(fault) or TransportFailed(
                    "The proxy or the certificate bundle of the user's configuration or environment cannot be used "
                    f"({type(fault).__name__}); check `proxy`, `ca_bundle`, HTTPS_PROXY and SSL_CERT_FILE.",
                    retryable=False,
                ) from None
        return self._clients[route]


def _check_name(name: str, host: str) -> None:
    try:
        name.encode("idna")
    except UnicodeError:
        raise bad_address(host) from None


async def _pieces(body: Body) -> AsyncIterator[bytes]:
    for part in body.parts(_SEND_PIECE):
        yield part


def _refuse_redirect(response: httpx.Response, url: str, host: str) -> None:
    if not 300 <= response.status_code < 400:
        return
    try:
        target = urlsplit(urljoin(url, response.headers.get("location", ""))).hostname
    except ValueError:
        target = None
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
