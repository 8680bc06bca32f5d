"""The reader of a client's messages on standard input."""

from __future__ import annotations

import asyncio
import logging
import os
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress

from thinklsp.jsonrpc.framing import BadFrame, Decoder, FramingError

_log = logging.getLogger(__name__)

_CHUNK_BYTES = 64 * 1024
# The time after which other work gets a turn between two messages of a client that floods.
_TURN_SECONDS = 0.05


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
        """Handle `data`, which has already been read, then start reading.

        The event loop itself reads pipes, sockets and terminals, because a separate thread is slower. A thread reads
        regular files, which an event loop cannot watch.
        """
        if data and not self._decode(data, self._loop.call_soon):
            return
        try:
            self._loop.add_reader(0, self._on_readable)
        except (OSError, NotImplementedError):
            threading.Thread(target=self._read_all, daemon=True, name="reader").start()

    def _on_readable(self) -> None:
        if not self._read(self._loop.call_soon):
            self._loop.remove_reader(0)

    def _read_all(self) -> None:
        # Ignore input that arrives after the loop is closed, such as input after the client's `exit` notification.
        with suppress(RuntimeError):
            while self._read(self._loop.call_soon_threadsafe):
                pass

    def _read(self, schedule: Callable[..., object]) -> bool:
        """Read and handle available input. Return False at the end of the input."""
        return self._decode(read_available(0), schedule)

    def _decode(self, chunk: bytes | None, schedule: Callable[..., object]) -> bool:
        frames: list[bytes | BadFrame | None] = []
        try:
            frames += self._decoder.feed(chunk or b"")
        except FramingError as error:
            _log.error("the input can no longer be decoded: %s", error)
            chunk = b""
        if chunk == b"":
            frames.append(None)
        if frames:
            schedule(self._add_frames, frames)
        return chunk != b""

    def _add_frames(self, frames: list[bytes | BadFrame | None]) -> None:
        """Add frames to the waiting ones, and handle them unless earlier ones are still waiting. None is the end."""
        is_idle = not self._frames
        self._frames += frames
        if is_idle:
            self._receive_waiting()

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
