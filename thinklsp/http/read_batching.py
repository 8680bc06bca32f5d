"""Connections that batch reads. A fast stream wakes the event loop at most fifty times per second, not once per event.

httpx has no option for batching, but httpcore, its underlying library, supports custom connections. After several
consecutive reads with little waiting, the next read starts up to 20 ms later and returns all data that has arrived.
Data is read only on request, so a slow consumer slows down the sender. Cancelling a read loses no data.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Iterable
from typing import Any

import anyio
import httpcore

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
