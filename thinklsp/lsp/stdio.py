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

from thinklsp.lsp.connection import GOODBYE_SECONDS, Connection, on_signals, run_to_its_end
from thinklsp.lsp.greeting import Greeting
from thinklsp.lsp.protocol.frames import FrameDecoder, FramingError
from thinklsp.lsp.protocol.writer import FrameWriter

_log = logging.getLogger(__name__)

_CHUNK = 256 * 1024
_CLIENT_CHECK_SECONDS = 3.0


def serve_stdio(greeting: Greeting) -> NoReturn:
    """Serves one client until it leaves, and ends the process: 0 after `shutdown` and `exit`, 1 without, 128 and the
    number after a signal."""
    # The protocol gets a descriptor of its own; whatever prints to standard output goes to the log instead.
    sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)
    run_to_its_end(_serve(out, greeting))


async def _serve(out: int, greeting: Greeting) -> int:
    writer = FrameWriter(out)
    connection = Connection(writer)
    connection.server.protocol.is_greeted = greeting.answered
    on_signals(connection.leave)
    loop = asyncio.get_running_loop()
    threading.Thread(target=_read, args=(loop, connection, greeting.read), daemon=True, name="reader").start()
    watch = loop.create_task(_watch_client(connection, writer))
    code = await connection.left()
    watch.cancel()
    try:
        async with asyncio.timeout(GOODBYE_SECONDS):
            await connection.close()
    except TimeoutError:
        _log.warning("some work did not end in time and was left behind")
    writer.close()
    return code


def _read(loop: asyncio.AbstractEventLoop, connection: Connection, chunk: bytes) -> None:
    """Runs in a thread of its own, so that nothing else can keep the input waiting. `chunk` has been read already."""
    frames = FrameDecoder()

    def tell(handler: Callable[..., None], *words: object) -> None:
        # What comes after the client's `exit` may find that the loop has ended.
        with suppress(RuntimeError):
            loop.call_soon_threadsafe(handler, *words)

    try:
        while chunk := chunk or os.read(0, _CHUNK):
            for frame in frames.feed(chunk):
                tell(connection.receive, frame)
            chunk = b""
    except FramingError as error:
        _log.error("the input cannot be followed any further: %s", error)
    except OSError:
        _log.warning("the input was closed")
    tell(connection.leave, 1)


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
