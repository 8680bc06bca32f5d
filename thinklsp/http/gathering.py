"""Connections that read less often: a fast stream wakes the server fifty times a second and not for every event.

httpx gives a program no say in how connections read, but the library below it does. Once a few readings in a row have
hardly had to wait, the next one begins up to 20 ms later and takes all that has arrived by then. Nothing is taken from
the network before somebody asks for it, so a slow reader slows down the sender, and a cancelled reading loses nothing.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any

import anyio
import httpcore

GATHERING_SECONDS = 0.02
# So many quick readings in a row are a fast stream; the first token arrives before that.
_QUICK_READINGS = 4
# One reading is handled before anything else on the event loop has its turn.
_MAX_READING_BYTES = 16 * 1024
# Readings of all streams keep this distance, so that a request of the editor need not wait for several of them.
_DISTANCE_SECONDS = 0.002


def load() -> None:
    """Import what the libraries import with the first connection. For a thread: the event loop would wait for it."""
    anyio.run(anyio.sleep, 0)
    "localhost".encode("idna")


class _Pace:
    """Keep the readings of all fast streams apart from each other."""

    def __init__(self) -> None:
        self._last = 0.0

    def delay(self, wanted: float, now: float) -> float:
        """Return the time for a reading that is wanted at `wanted`, in seconds of the event loop's clock.

        With very many streams readings coincide after all: none is put off by more than 20 ms.
        """
        if wanted <= now:
            return now
        time = min(max(wanted, self._last + _DISTANCE_SECONDS), wanted + GATHERING_SECONDS)
        self._last = max(self._last, time)
        return time


class GatheringStream(httpcore.AsyncNetworkStream):
    """A connection of the library that reads as above, unless it is TLS within TLS, as through a proxy by TLS.

    Such a one cannot reach the records that have arrived beside the first: pauses would only make it late.
    """

    def __init__(self, inner: httpcore.AsyncNetworkStream, pace: _Pace, *, gathers: bool = True) -> None:
        self._inner = inner
        self._pace = pace
        self._tls: ssl.SSLObject | None = inner.get_extra_info("ssl_object")
        self._gathers = gathers
        self._has_ended = False
        self._quick_readings = 0
        self._last_reading = 0.0
        self._hurried = asyncio.Event()

    def hurry(self) -> None:
        """Read at once what comes next, because somebody waits for it."""
        self._quick_readings = 0
        self._hurried.set()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - as the library does
        loop = asyncio.get_running_loop()
        begin = loop.time()
        if self._gathers and self._quick_readings >= _QUICK_READINGS:
            await self._wait_until(self._pace.delay(self._last_reading + GATHERING_SECONDS, begin))
            begin = loop.time()
        data = await self._inner.read(min(max_bytes, _MAX_READING_BYTES), timeout)
        if data and self._tls is not None:
            data += self._read_records(self._tls, min(max_bytes, _MAX_READING_BYTES) - len(data))
        self._last_reading = loop.time()
        is_quick = self._last_reading - begin < GATHERING_SECONDS and len(data) < _MAX_READING_BYTES
        self._quick_readings = self._quick_readings + 1 if is_quick else 0
        return data

    def _read_records(self, tls: ssl.SSLObject, max_bytes: int) -> bytes:
        """Return the records that have arrived beside the first: a reading of TLS gives one, which is one event."""
        records: list[bytes] = []
        while max_bytes > 0 and not self._has_ended:
            try:
                record = tls.read(max_bytes)
            except ssl.SSLError:
                # Nothing more for now, or a fault, which the next reading meets again.
                break
            records.append(record)
            max_bytes -= len(record)
            self._has_ended = not record
        return b"".join(records)

    async def _wait_until(self, time: float) -> None:
        loop = asyncio.get_running_loop()
        if time <= loop.time():
            return
        self._hurried.clear()
        timer = loop.call_at(time, self._hurried.set)
        try:
            await self._hurried.wait()
        finally:
            timer.cancel()

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as the library does
        self._quick_readings = 0
        await self._inner.write(buffer, timeout)

    async def aclose(self) -> None:
        await self._inner.aclose()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as the library does
    ) -> GatheringStream:
        secured = await self._inner.start_tls(ssl_context, server_hostname, timeout)
        return GatheringStream(secured, self._pace, gathers=self._tls is None)

    def get_extra_info(self, info: str) -> Any:
        # An idle connection is asked before it is used again. The end may have been read with the last record.
        return (info == "is_readable" and self._has_ended) or self._inner.get_extra_info(info)


class GatheringNetwork(httpcore.AsyncNetworkBackend):
    """Open connections of the library by TCP, and make them gather."""

    def __init__(self) -> None:
        self._inner = httpcore.AnyIOBackend()
        self._pace = _Pace()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - as the library does
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> GatheringStream:
        inner = await self._inner.connect_tcp(host, port, timeout, local_address, socket_options)
        return GatheringStream(inner, self._pace)

    async def sleep(self, seconds: float) -> None:
        await self._inner.sleep(seconds)
