"""The server on standard input and output: reading, the parent's death, and the way out."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

from thinklsp.lsp.protocol.frames import FrameDecoder, FramingError
from thinklsp.lsp.protocol.greeting import Greeting
from thinklsp.lsp.protocol.writer import FrameWriter
from thinklsp.lsp.serving.connection import GOODBYE_SECONDS, Connection, on_signals, run_to_its_end
from thinklsp.settings.early import EarlyReading

_log = logging.getLogger(__name__)

_CHUNK = 64 * 1024
_CLIENT_CHECK_SECONDS = 3.0


def serve_stdio(greeting: Greeting, early: EarlyReading) -> NoReturn:
    """Serves one client until it leaves, and ends the process: 0 after `shutdown` and `exit`, 1 without, 128 and the
    number after a signal."""
    # The protocol gets a descriptor of its own; whatever prints to standard output goes to the log instead.
    sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)
    # What the client has sent with its first message is answered with the user's settings.
    early.wait()
    run_to_its_end(_serve(out, greeting, early))


async def _serve(out: int, greeting: Greeting, early: EarlyReading) -> int:
    writer = FrameWriter(out)
    connection = Connection(writer, early)
    connection.server.protocol.is_greeted = greeting.answered
    on_signals(connection.leave)
    _Input(connection).follow(greeting.read)
    watch = asyncio.create_task(_watch_client(connection, writer))
    code = await connection.left()
    watch.cancel()
    try:
        async with asyncio.timeout(GOODBYE_SECONDS):
            await connection.close()
    except TimeoutError:
        _log.warning("some work did not end in time and was left behind")
    writer.close()
    return code


class _Input:
    """What comes in: each frame is told to the connection by itself, and so is the end."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._loop = asyncio.get_running_loop()
        self._frames = FrameDecoder()

    def follow(self, read: bytes) -> None:
        """`read` has been taken from it already.

        The loop itself reads a pipe, a socket or a terminal: a thread would have to wait, message by message, until the
        loop lets it run. Files are nothing that a loop can watch.
        """
        if read and not self._take(read, self._loop.call_soon):
            return
        try:
            self._loop.add_reader(0, self._ready)
        except (OSError, NotImplementedError):
            threading.Thread(target=self._read_all, daemon=True, name="reader").start()

    def _ready(self) -> None:
        if not self._read(self._loop.call_soon):
            self._loop.remove_reader(0)

    def _read_all(self) -> None:
        # What comes after the client's `exit` may find that the loop has ended.
        with suppress(RuntimeError):
            while self._read(self._loop.call_soon_threadsafe):
                pass

    def _read(self, tell: Callable[..., object]) -> bool:
        """Whether there is more."""
        return self._take(what_is_there(0), tell)

    def _take(self, chunk: bytes | None, tell: Callable[..., object]) -> bool:
        try:
            for frame in self._frames.feed(chunk or b""):
                tell(self._connection.receive, frame)
        except FramingError as error:
            _log.error("the input cannot be followed any further: %s", error)
            chunk = b""
        if chunk == b"":
            tell(self._connection.leave, 1)
        return chunk != b""


def what_is_there(descriptor: int) -> bytes | None:
    """Empty at the end. None where there was something to read, and somebody else who holds the same pipe took it."""
    try:
        return os.read(descriptor, _CHUNK)
    except BlockingIOError:
        return None
    except OSError:
        _log.warning("the input was closed")
        return b""


async def _watch_client(connection: Connection, writer: FrameWriter) -> None:
    """A client that died without closing the pipe, because another process holds it, is noticed here; so is one that
    does not read what is written to it."""
    gone = False
    while not gone:
        await asyncio.sleep(_CLIENT_CHECK_SECONDS)
        gone = writer.lost or not _is_alive(connection.server.process_id)
    connection.leave(1)


def _is_alive(process_id: int | None) -> bool:
    """A client that does not say which process it is lives."""
    if process_id is None:
        return True
    try:
        # A dead process that nobody has asked after, as in containers without an init, can still be sent signals.
        descriptor = os.pidfd_open(process_id)
    except (ProcessLookupError, OverflowError):
        return False
    except (OSError, AttributeError):
        return _takes_signals(process_id)
    try:
        ended = select.poll()
        ended.register(descriptor, select.POLLIN)
        return not ended.poll(0)
    finally:
        os.close(descriptor)


def _takes_signals(process_id: int) -> bool:
    try:
        # Another user's process lives, too.
        with suppress(PermissionError):
            os.kill(process_id, 0)
    except (ProcessLookupError, OverflowError):
        return False
    return True
