"""A server process on standard input and output: its reader, its descriptors, its signals and its exit."""

from __future__ import annotations

import asyncio
import logging
import os
import select
import signal
import sys
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, NoReturn, Protocol

from thinklsp.jsonrpc.framing import BadFrame, Decoder, FramingError
from thinklsp.jsonrpc.rpc_messages import THREAD_LIMIT_MESSAGE, is_thread_limit_error
from thinklsp.jsonrpc.writer import FrameWriter

_log = logging.getLogger(__name__)

_CHUNK_BYTES = 64 * 1024
# The time after which other work gets a turn between two messages of a client that floods.
_TURN_SECONDS = 0.05
# The time that a connection's tasks have to finish when the process exits.
SHUTDOWN_SECONDS = 1.0
_CLIENT_CHECK_SECONDS = 3.0


class InputReader:
    """The standard input reader. It calls `receive` with each frame, and `on_end` at the end of the input.

    Both are called on the event loop that is running when the reader is created.
    """

    def __init__(
        self, decoder: Decoder, receive: Callable[[bytes | BadFrame], None], on_end: Callable[[], None]
    ) -> None:
        self._decoder = decoder
        self._receive = receive
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._frames: deque[bytes | BadFrame | None] = deque()

    def start(self, data: bytes = b"") -> None:
        """Handle `data`, which has already been read, then start reading."""
        self._loop.call_soon(self._start, data)

    def _start(self, data: bytes) -> None:
        if data and not self._decode(data):
            return
        try:
            self._loop.add_reader(0, self._on_readable)
        except (OSError, NotImplementedError):
            # An event loop cannot watch a regular file, but reading one does not block.
            self._loop.call_soon(self._read_file)

    def _on_readable(self) -> None:
        if not self._decode(read_available(0)):
            self._loop.remove_reader(0)

    def _read_file(self) -> None:
        if self._decode(read_available(0)):
            self._loop.call_soon(self._read_file)

    def _decode(self, chunk: bytes | None) -> bool:
        """Handle the frames in a chunk of the input. Return False at the end of the input."""
        frames: list[bytes | BadFrame | None] = []
        try:
            frames += self._decoder.feed(chunk or b"")
        except FramingError as error:
            _log.error("the input can no longer be decoded: %s", error)
            chunk = b""
        if chunk == b"":
            frames.append(None)  # None is the end.
        is_idle = not self._frames
        self._frames += frames
        if is_idle:
            self._receive_waiting()
        return chunk != b""

    def _receive_waiting(self) -> None:
        end = self._loop.time() + _TURN_SECONDS
        while self._frames:
            frame = self._frames[0]
            if frame is None:
                self._on_end()
            else:
                self._receive(frame)
            self._frames.popleft()
            if self._frames and self._loop.time() > end:
                self._loop.call_soon(self._receive_waiting)
                return


def read_available(descriptor: int) -> bytes | None:
    """Return available input, or empty bytes at the end of the input.

    Return None if no input is available, because another process has read the same pipe.
    """
    try:
        return os.read(descriptor, _CHUNK_BYTES)
    except BlockingIOError:
        return None
    except OSError:
        _log.warning("the input was closed")
        return b""


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


class ExitCode:
    """The exit code of a connection. Only the first code counts."""

    def __init__(self) -> None:
        self.value: int | None = None
        self._is_set = asyncio.Event()

    def set(self, code: int) -> None:
        if self.value is None:
            self.value = code
            self._is_set.set()

    async def wait(self) -> int:
        await self._is_set.wait()
        return self.value or 0


class ClientServer(Protocol):
    """The server of a client. `process_id` is the id of the client's process, or None as long as it is not known."""

    exit_code: ExitCode
    process_id: int | None

    def receive(self, frame: bytes | BadFrame, /) -> None:
        """Handle a message. This method never raises."""
        ...

    async def close(self) -> None:
        """End the client's requests, and close connections and files."""
        ...


async def serve_client(
    server: ClientServer, writer: FrameWriter, decoder: Decoder, data: bytes, *, code_at_end: int
) -> int:
    """Serve the client on standard input and output until it disconnects or the server exits. Return the exit code.

    `data` has already been read. `code_at_end` is the exit code if the client closes its end.
    """
    exit_code = server.exit_code
    install_signal_handlers(exit_code.set)
    InputReader(decoder, server.receive, lambda: exit_code.set(code_at_end)).start(data)
    watch = asyncio.create_task(_wait_until_client_is_gone(server, writer))
    watch.add_done_callback(lambda _: exit_code.set(1))
    code = await exit_code.wait()
    watch.cancel()
    try:
        async with asyncio.timeout(SHUTDOWN_SECONDS):
            await server.close()
    except TimeoutError:
        _log.warning("some work did not end in time and was abandoned")
    writer.close()
    return code


async def _wait_until_client_is_gone(server: ClientServer, writer: FrameWriter) -> None:
    """Wait until the client's process has died or the client has stopped reading.

    If another process holds the pipe open, a client's death does not end the input.
    """
    is_gone = False
    while not is_gone:
        await asyncio.sleep(_CLIENT_CHECK_SECONDS)
        is_gone = writer.is_client_gone or not _is_alive(server.process_id)


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
