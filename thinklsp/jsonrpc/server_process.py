"""The process of a server on standard input and output: its descriptors, its signals, its exit and its client."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import sys
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NoReturn

from thinklsp.jsonrpc.error_responses import THREAD_LIMIT_MESSAGE, is_thread_limit_error
from thinklsp.jsonrpc.writer import FrameWriter

assert sys.platform != "win32"  # noqa: S101 - mypy then skips the rest, because Windows has neither SIGHUP nor `poll`

_log = logging.getLogger(__name__)

# The time that a connection's tasks have to finish when the process exits.
SHUTDOWN_SECONDS = 1.0
_CLIENT_CHECK_SECONDS = 3.0


def take_standard_output() -> int:
    """Move the protocol to its own descriptor and return it.

    Text that is printed to standard output later goes to the log instead.
    """
    sys.stdout.flush()
    out = os.dup(1)
    os.dup2(2, 1)
    return out


def install_signal_handlers(on_exit: Callable[[int], None]) -> None:
    """Call `on_exit` with 128 plus the signal number. Signals that the parent process ignores stay ignored."""
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            loop.add_signal_handler(number, on_exit, 128 + number)


def run_and_exit(server: Coroutine[Any, Any, int]) -> NoReturn:
    """Run the server and exit the process with the returned code.

    The process does not wait for other tasks, or for threads that are stuck in a disk, lock or keyring operation. A
    normal Python exit waits for these threads indefinitely.
    """
    code = 1
    try:
        code = asyncio.Runner().run(server)
    except Exception as error:  # noqa: BLE001 - the process exits after any error
        if is_thread_limit_error(error):
            _log.error("the server cannot run: %s", THREAD_LIMIT_MESSAGE)
        else:
            _log.exception("the server has failed")
    finally:
        os._exit(code)


async def wait_until_client_is_gone(writer: FrameWriter, get_process_id: Callable[[], int | None]) -> None:
    """Wait until the client's process has died or the client has stopped reading.

    If another process holds the pipe open, a client's death does not end the input. `get_process_id` returns None as
    long as the client's process id is not known.
    """
    is_gone = False
    while not is_gone:
        await asyncio.sleep(_CLIENT_CHECK_SECONDS)
        is_gone = writer.is_client_gone or not _is_alive(get_process_id())


def _is_alive(process_id: int | None) -> bool:
    """Return whether the client's process is alive. Without a known process id, return True."""
    if process_id is None:
        return True
    try:
        # In containers without an init process, signals can still be sent to a dead process.
        descriptor = os.pidfd_open(process_id)
    except (ProcessLookupError, OverflowError):
        return False
    except (OSError, AttributeError):
        return _can_signal(process_id)
    try:
        poller = select.poll()
        poller.register(descriptor, select.POLLIN)
        return not poller.poll(0)
    finally:
        os.close(descriptor)


def _can_signal(process_id: int) -> bool:
    try:
        # The process exists but belongs to another user.
        with suppress(PermissionError):
            os.kill(process_id, 0)
    except (ProcessLookupError, OverflowError):
        return False
    return True
