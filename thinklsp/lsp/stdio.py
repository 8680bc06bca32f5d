"""The server on standard input and output: reading, the parent's death, and the way out."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable
from contextlib import suppress

from thinklsp.lsp.connection import GOODBYE_SECONDS, Connection, on_signals
from thinklsp.lsp.greeting import Greeting
from thinklsp.lsp.protocol.frames import FrameDecoder, FramingError
from thinklsp.lsp.protocol.writer import FrameWriter

_log = logging.getLogger(__name__)

_CHUNK = 256 * 1024
_CLIENT_CHECK_SECONDS = 3.0


def serve_stdio(greeting: Greeting) -> int:
    """Serves one client until it leaves. Returns the exit code: 0 after `shutdown` and `exit`, 1 without, 128 and the
    number after a signal."""
    # The protocol gets a descriptor of its own; whatever prints to standard output goes to the log instead.
    sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)
    writer = FrameWriter(out)
    try:
        return asyncio.run(_serve(writer, greeting))
    finally:
        writer.close()


async def _serve(writer: FrameWriter, greeting: Greeting) -> int:
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
        # Another user's process lives, too.
        with suppress(PermissionError):
            os.kill(process_id, 0)
    except (ProcessLookupError, OverflowError):
        return False
    return True
