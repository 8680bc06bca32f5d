"""Connections that gather what arrives: a fast stream wakes the program fifty times a second and not for every event.

Most of what a small event costs is the waking up. So once events follow each other closely, the next reading waits for
up to 20 ms, and takes all that has come by then. Nothing waits while events are rare, at the beginning of an answer,
where more lies ready than one reading takes, and after `hurry`. A cancel ends the waiting like any other. Readings of
many streams keep apart, by another 20 ms at most, so that what they bring is not handled in one go.

They stand on asyncio's own transports and wait for one thing at a time: each further layer would be woken, too.
"""

from __future__ import annotations

import asyncio
import math
import os
import re
import select
import ssl
from collections.abc import Iterable
from typing import Any

import anyio
import httpcore

from thinklsp.wire.urls import is_address

GATHERING = 0.02
# Between two of them, on whatever connections, so that an editor's request need not wait for all.
_APART = 0.002
# So many readings in a row that hardly had to wait are a fast stream; the first token comes before that.
_FAST = 4
# What one reading takes: all of it is handled before others on the event loop have their turn.
_PIECE = 16 * 1024
# Where one address of a host does not answer for so long, the next is tried beside it (RFC 8305).
_NEXT_ADDRESS = 0.25
_NUMBERS = re.compile(r"\[Errno (\d+)\]")


def load() -> None:
    """What the libraries would load with the first connection, while the event loop waits; for another thread."""
    anyio.run(anyio.sleep, 0)
    "localhost".encode("idna")


class _Pace:
    """When the readings of fast streams may take place: as they wish, but apart."""

    def __init__(self) -> None:
        self._last = 0.0

    def after(self, wished: float, now: float) -> float:
        """Times of the event loop's clock. With very many streams they fall together after all."""
        if wished <= now:
            return now
        when = min(max(wished, self._last + _APART), wished + GATHERING)
        self._last = max(self._last, when)
        return when


class Connection(httpcore.AsyncNetworkStream, asyncio.BufferedProtocol):
    """One connection of the pool. Reading raises ReadTimeout where nothing comes for `silence` seconds, and from
    `deadline` on, a time of the event loop's clock; both are forgotten with the next request.

    Nothing is taken from the network before it is asked for. One reads and one writes at a time.
    """

    _raw: asyncio.Transport
    _transport: asyncio.Transport

    def __init__(self, pace: _Pace) -> None:
        self.silence: float | None = None
        self.deadline: float | None = None
        self._loop = asyncio.get_running_loop()
        self._pace = pace
        self._quick = 0
        self._read_at = 0.0
        self._room = memoryview(bytearray(_PIECE))
        self._arrived = b""
        self._ended = False
        self._lost: Exception | None = None
        self._reader: asyncio.Future[None] | None = None
        self._gathering: asyncio.TimerHandle | None = None
        self._until = 0.0
        self._watch: asyncio.TimerHandle | None = None
        self._written = asyncio.Event()
        self._written.set()

    def hurry(self) -> None:
        """What comes next is waited for by somebody."""
        self._quick = 0
        if self._gathering is not None:
            self._resume()

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109 - the library asks so
        now = self._loop.time()
        begun = now if self._quick < _FAST else self._pace.after(self._read_at + GATHERING, now)
        if not (self._arrived or self._ended):
            await self._wait(begun, now, timeout)
        if not self._arrived and self._lost is not None:
            raise httpcore.ReadError from self._lost
        data, self._arrived = self._arrived[:max_bytes], self._arrived[max_bytes:]
        self._read_at = self._loop.time()
        is_quick = self._read_at - begun < GATHERING and len(data) < _PIECE
        self._quick = self._quick + 1 if is_quick else 0
        return data

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109 - as above
        self.silence = self.deadline = None
        self.hurry()
        if not self._transport.is_closing():
            self._transport.write(buffer)
        if not self._written.is_set():
            try:
                async with asyncio.timeout(timeout):
                    await self._written.wait()
            except TimeoutError:
                raise httpcore.WriteTimeout from None
        if self._transport.is_closing():
            raise httpcore.WriteError from self._lost

    async def aclose(self) -> None:
        # Whoever still reads is told so.
        self._lost = self._lost or ConnectionAbortedError()
        self._transport.abort()

    async def start_tls(
        self,
        ssl_context: ssl.SSLContext,
        server_hostname: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109 - as above
    ) -> Connection:
        if self._arrived:
            # It would be taken for a part of what is secured.
            raise httpcore.ConnectError
        # Under a connection that is secured already, too.
        self._raw.resume_reading()
        try:
            async with asyncio.timeout(timeout):
                secured = await self._loop.start_tls(
                    self._transport, self, ssl_context, server_hostname=server_hostname
                )
        except TimeoutError:
            raise httpcore.ConnectTimeout from None
        except OSError as error:
            raise httpcore.ConnectError from error
        if secured is None:
            raise httpcore.ConnectError from self._lost
        # With a limit of none it would wait for ever: it waits as soon as there is not less than the limit.
        self._use(secured, 1)
        return self

    def get_extra_info(self, info: str) -> Any:
        if info == "is_readable":
            return self._transport.is_closing() or _is_readable(self._raw.get_extra_info("socket").fileno())
        return self._transport.get_extra_info(info)

    async def _wait(self, begun: float, now: float, timeout: float | None) -> None:  # noqa: ASYNC109 - as above
        """Until something has arrived or nothing will. Nothing is read before `begun`."""
        waiting = self._reader = self._loop.create_future()
        if begun > now:
            self._gathering = self._loop.call_at(begun, self._resume)
        else:
            self._resume()
        silence = min((some for some in (self.silence, timeout) if some is not None), default=None)
        ends = [some for some in (silence and begun + silence, self.deadline) if some is not None]
        # Without an end the timer of an earlier reading may still be there: it is not about this one.
        self._watch_until(min(ends, default=math.inf))
        try:
            await waiting
        finally:
            self._reader = None
            if self._gathering is not None:
                self._gathering.cancel()
                self._gathering = None

    def _watch_until(self, end: float) -> None:
        """One timer for all readings: there are very many, and hardly one of them takes too long."""
        self._until = end
        if self._watch is not None and self._watch.when() > end:
            self._watch.cancel()
            self._watch = None
        if self._watch is None and end < math.inf:
            self._watch = self._loop.call_at(end, self._look)

    def _look(self) -> None:
        self._watch = None
        if self._reader is None or self._reader.done():
            return
        if self._loop.time() < self._until:
            self._watch_until(self._until)
        else:
            self._reader.set_exception(httpcore.ReadTimeout())

    def _use(self, transport: asyncio.Transport, limit: int) -> None:
        self._transport = transport
        transport.set_write_buffer_limits(limit)
        self._pause()

    # What is secured must stop at both ends: else the inner one goes on to read for the outer.

    def _pause(self) -> None:
        self._raw.pause_reading()
        if self._transport is not self._raw:
            self._transport.pause_reading()

    def _resume(self) -> None:
        if self._gathering is not None:
            self._gathering.cancel()
            self._gathering = None
        self._raw.resume_reading()
        if self._transport is not self._raw:
            self._transport.resume_reading()

    def _wake(self) -> None:
        if self._reader is not None and not self._reader.done():
            self._reader.set_result(None)

    # What asyncio tells.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - a stream's, as it was asked for
        self._raw = transport
        self._use(transport, 0)

    def get_buffer(self, sizehint: int) -> memoryview:  # noqa: ARG002 - asyncio's name
        return self._room

    def buffer_updated(self, nbytes: int) -> None:
        self._arrived += bytes(self._room[:nbytes])
        self._pause()
        self._wake()

    def eof_received(self) -> None:
        self._ended = True
        self._wake()

    def connection_lost(self, exc: Exception | None) -> None:
        self._ended, self._lost = True, self._lost or exc
        self._written.set()
        if self._watch is not None:
            self._watch.cancel()
        self._wake()

    def pause_writing(self) -> None:
        self._written.clear()

    def resume_writing(self) -> None:
        self._written.set()


class Network(httpcore.AsyncNetworkBackend):
    """Opens such connections."""

    def __init__(self) -> None:
        self._pace = _Pace()

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109 - the library asks so
        local_address: str | None = None,
        socket_options: Iterable[Any] | None = None,
    ) -> Connection:
        local = None if local_address is None else (local_address, 0)
        try:
            async with asyncio.timeout(timeout):
                transport, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self._pace),
                    host,
                    port,
                    local_addr=local,
                    # Where there is but one there is no race, in which asyncio can lose a socket to a cancel.
                    happy_eyeballs_delay=None if is_address(host) else _NEXT_ADDRESS,
                )
        except TimeoutError:
            raise httpcore.ConnectTimeout from None
        except OSError as error:
            raise connect_error(error) from None
        for option in socket_options or ():
            transport.get_extra_info("socket").setsockopt(*option)
        return connection

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)


def connect_error(error: OSError) -> httpcore.ConnectError:
    """Where several addresses were tried, asyncio tells in its text alone what went wrong with each."""
    numbers = {int(number) for number in _NUMBERS.findall(str(error))} if error.errno is None else ()
    told = httpcore.ConnectError()
    told.__cause__ = ExceptionGroup("", [error, *(OSError(number, os.strerror(number)) for number in sorted(numbers))])
    return told


def _is_readable(descriptor: int) -> bool:
    """Data, an end, or no connection any more: an idle one has nothing to say."""
    if descriptor < 0:
        return True
    poll = select.poll()
    poll.register(descriptor, select.POLLIN)
    return bool(poll.poll(0))
