"""The server on standard input and output: reading, signals, the parent's death, and the way out."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Callable

from thinklsp.lsp.protocol.frames import FrameDecoder, FramingError
from thinklsp.lsp.protocol.writer import FrameWriter
from thinklsp.lsp.server import Server

_log = logging.getLogger(__name__)

_CHUNK = 256 * 1024
_CLIENT_CHECK_SECONDS = 3.0
_GOODBYE_SECONDS = 1.0


def serve_stdio() -> int:
    """Serves one client until it leaves. Returns the exit code: 0 after `shutdown` and `exit`, 1 without, 128 and the
    number after a signal."""
    # The protocol gets a descriptor of its own; whatever prints to standard output goes to the log instead.
    sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)
    writer = FrameWriter(out)
    try:
        return asyncio.run(_serve(writer))
    finally:
        writer.close()


async def _serve(writer: FrameWriter) -> int:
    loop = asyncio.get_running_loop()
    server = Server()
    leaving: asyncio.Future[int] = loop.create_future()

    def leave(code: int) -> None:
        if not leaving.done():
            leaving.set_result(code)

    server.protocol.connect(writer)
    server.protocol.on_exit = leave
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        loop.add_signal_handler(number, leave, 128 + number)
    threading.Thread(target=_read, args=(loop, server, leave), daemon=True, name="reader").start()
    watch = loop.create_task(_watch_client(server, writer, leave))
    code = await leaving
    watch.cancel()
    try:
        async with asyncio.timeout(_GOODBYE_SECONDS):
            await server.close()
    except TimeoutError:
        _log.warning("some work did not end in time and was left behind")
    return code


def _read(loop: asyncio.AbstractEventLoop, server: Server, leave: Callable[[int], None]) -> None:
    """Runs in a thread of its own, so that nothing else can keep the input waiting."""
    frames = FrameDecoder()
    try:
        while chunk := os.read(0, _CHUNK):
            for frame in frames.feed(chunk):
                loop.call_soon_threadsafe(server.protocol.receive, frame)
    except FramingError as error:
        _log.error("the input cannot be followed any further: %s", error)
    except OSError:
        _log.warning("the input was closed")
    loop.call_soon_threadsafe(leave, 1)


async def _watch_client(server: Server, writer: FrameWriter, leave: Callable[[int], None]) -> None:
    """A client that died without closing the pipe, because another process holds it, is noticed here; so is one that
    does not read what is written to it."""
    while True:
        await asyncio.sleep(_CLIENT_CHECK_SECONDS)
        parent = server.process_id
        if writer.lost or (parent is not None and not _is_alive(parent)):
            leave(1)


def _is_alive(process_id: int) -> bool:
    try:
        os.kill(process_id, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
