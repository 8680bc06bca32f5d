"""One client: a server of its own, from the first message until what it began has ended; and the end of the process."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
from collections.abc import Callable, Coroutine
from typing import Any, NoReturn

from thinklsp.lsp.protocol.errors import NO_THREAD, is_no_thread
from thinklsp.lsp.protocol.frames import BadFrame
from thinklsp.lsp.protocol.writer import Writer
from thinklsp.lsp.server import Server
from thinklsp.settings.early import EarlyReading

_log = logging.getLogger(__name__)

# What the work of a connection may take to end when the process does.
GOODBYE_SECONDS = 1.0


class Connection:
    """Whoever notices that it ends calls `leave`: the client's `exit`, the end of its input, a signal."""

    def __init__(self, writer: Writer, early: EarlyReading | None = None) -> None:
        self.server = Server(early)
        self._left: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.server.protocol.connect(writer)
        self.server.protocol.on_exit = self.leave

    def receive(self, frame: bytes | BadFrame) -> None:
        """One message. Never raises; what comes after the end is passed over."""
        if not self._left.done():
            self.server.protocol.receive(frame)

    def leave(self, code: int) -> None:
        """Only the first one counts."""
        if not self._left.done():
            self._left.set_result(code)

    async def left(self) -> int:
        """Waits for the end. The exit code: 0 after `shutdown` and `exit`."""
        return await asyncio.shield(self._left)

    async def close(self) -> None:
        """Ends its turns and lets go of connections and files."""
        await self.server.close()


def on_signals(leave: Callable[[int], None]) -> None:
    """`leave` is told 128 and the number. A hang-up that whoever started us has switched off stays so."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, leave, 128 + number)


def run_to_its_end(serving: Coroutine[Any, Any, int]) -> NoReturn:
    """Ends the process with the code that comes of it.

    Nothing else is waited for: neither tasks that do not end nor threads that hang on a disk, a lock or a keyring.
    Python would wait for each of them, for ever.
    """
    code = 1
    try:
        code = asyncio.Runner().run(serving)
    except Exception as error:  # noqa: BLE001 - whatever it was, the process ends
        if is_no_thread(error):
            _log.error("the server cannot run: %s", NO_THREAD)
        else:
            _log.exception("the server has failed")
    finally:
        os._exit(code)
