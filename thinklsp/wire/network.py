"""Connections that gather what arrives: a fast stream wakes the program fifty times a second and not for every event.

Most of what a small event costs is the waking up. So once events follow each other closely, the next reading waits for
up to 20 ms, and takes all that has come by then. Nothing waits while events are rare, at the beginning of an answer,
where more lies ready than one reading takes, and after `hurry`. A cancel ends the waiting like any other. Readings of
many streams keep apart, by another 20 ms at most, so that what they bring is not handled in one go.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any

import anyio
import httpcore

GATHERING = 0.02
# Between two of them, on whatever connections, so that an editor's request need not wait for all.
_APART = 0.002
# So many readings in a row that hardly had to wait are a fast stream; the first token comes before that.
_FAST = 4
# What one reading takes: all of it is handled before others on the event loop have their turn.
_PIECE = 16 * 1024


def load() -> None:
    """What the libraries would load with the first connection, while the event loop waits; for another thread."""
    anyio.run(anyio.sleep, 0)
    "localhost".encode("idna")


class _Pace:
    """When the readings of fast streams may take place: as they wish, but apart."""

    def __init__(self) -> None:
        self._last = 0.0

    async def until(self, wished: float) -> None:
        """`wished` is a time of the event loop's clock. With very many streams they fall together after all."""
        now = asyncio.get_running_loop().time()
        if wished > now:
            when = min(max(wished, self._last + _APART), wished + GATHERING)
            self._last = max(self._last, when)
            await asyncio.sleep(when - now)


class Connection(httpcore.AsyncNetworkStream):
    """One connection of the pool. Reading raises ReadTimeout where nothing comes for `silence` seconds, and from
    `deadline` on, a time of the event loop's clock; both are forgotten with the next request."""

    def __init__(self, stream: httpcore.AsyncNetworkStream, pace: _Pace) -> None:
        self._stream = stream
        self._pace = pace
        self._quick = 0
        self._read_at = 0.0
        self.silence: float | None = None
        self.deadline: float | None = None

    def hurry(self) -> None:
        """What comes next is waited for by somebody."""
        self._quick = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the library asks so
        loop = asyncio.get_running_loop()
        if self._quick >= _FAST:
            await self._pace.until(self._read_at + GATHERING)
        begun = loop.time()
        ends = [when for when in (self.silence and begun + self.silence, self.deadline) if when is not None]
        try:
            async with asyncio.timeout_at(min(ends, default=None)):
                data = await self._stream.read(min(max_bytes, _PIECE), timeout)
        except TimeoutError:
            raise httpcore.ReadTimeout from None
        self._read_at = loop.time()
        is_quick = self._read_at - begun < GATHERING and len(data) < _PIECE
        self._quick = self._quick + 1 if is_quick else 0
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        self.silence = self.deadline = None
        self.hurry()
        await self._stream.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._stream.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> Connection:
        return Connection(await self._stream.start_tls(ssl_context, server_hostname, timeout), self._pace)

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class Network(httpcore.AsyncNetworkBackend):
    """Opens such connections."""

    def __init__(self) -> None:
        self._backend = httpcore.AnyIOBackend()
        self._pace = _Pace()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> Connection:
        stream = await self._backend.connect_tcp(host, port, timeout, local_address, socket_options)
        return Connection(stream, self._pace)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
