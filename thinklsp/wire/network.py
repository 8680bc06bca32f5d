"""Connections that gather what arrives: a fast stream wakes the program fifty times a second and not for every event.

Most of what a small event costs is the waking up. So once events follow each other closely, the next reading waits for
up to 20 ms, and takes all that has come by then. Nothing waits while events are rare, at the beginning of an answer,
where more lies ready than one reading takes, and after `hurry`. A cancel ends the waiting like any other.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any

import httpcore

GATHERING = 0.02
# So many readings in a row that hardly had to wait are a fast stream; the first token comes before that.
_FAST = 4
# What one reading takes: all of it is handled before others on the event loop have their turn.
_PIECE = 16 * 1024


class Connection(httpcore.AsyncNetworkStream):
    """One connection of the pool. Reading raises ReadTimeout where nothing comes for `silence` seconds, and from
    `deadline` on, a time of the event loop's clock; both are forgotten with the next request."""

    def __init__(self, stream: httpcore.AsyncNetworkStream) -> None:
        self._stream = stream
        self._quick = 0
        self._read_at = 0.0
        self.silence: float | None = None
        self.deadline: float | None = None

    def hurry(self) -> None:
        """What comes next is waited for by somebody."""
        self._quick = 0

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the library asks so
        loop = asyncio.get_running_loop()
        if self._quick >= _FAST and (early := self._read_at + GATHERING - loop.time()) > 0:
            await asyncio.sleep(early)
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
        return Connection(await self._stream.start_tls(ssl_context, server_hostname, timeout))

    def get_extra_info(self, info: str) -> Any:
        return self._stream.get_extra_info(info)


class Network(httpcore.AsyncNetworkBackend):
    """Opens such connections."""

    def __init__(self) -> None:
        self._backend = httpcore.AnyIOBackend()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> Connection:
        return Connection(await self._backend.connect_tcp(host, port, timeout, local_address, socket_options))

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)
