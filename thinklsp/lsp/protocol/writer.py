"""The one writer of a connection: whole frames, in order, on a descriptor that nobody else knows."""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import deque

_log = logging.getLogger(__name__)

_MOST_WAITING = 8 * 1024 * 1024
_PATIENCE_SECONDS = 30.0
_LAST_WORDS_SECONDS = 0.5


class FrameWriter:
    """Owns a private duplicate of the client's pipe. `write` never waits; a thread brings the frames out.

    A client that is gone is no error: its reader sees the end of input. One that has not read for `patience` seconds
    while more than `most_waiting` bytes lie ready for it is given up: `lost` is set, and nothing more is written.
    """

    def __init__(
        self, descriptor: int, *, most_waiting: int = _MOST_WAITING, patience: float = _PATIENCE_SECONDS
    ) -> None:
        self._descriptor = descriptor
        self._most_waiting = most_waiting
        self._patience = patience
        self._frames: deque[bytes] = deque()
        self._waiting = 0
        self._changed = threading.Condition()
        self._closing = False
        self.lost = threading.Event()
        os.set_blocking(descriptor, False)
        self._thread = threading.Thread(target=self._bring_out, daemon=True, name="writer")
        self._thread.start()

    def write(self, body: bytes) -> None:
        """Safe from any thread."""
        frame = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        with self._changed:
            if not self._closing and not self.lost.is_set():
                self._frames.append(frame)
                self._waiting += len(frame)
                self._changed.notify()

    def close(self) -> None:
        """What has been written is still brought out, for half a second at most."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(_LAST_WORDS_SECONDS)

    def _bring_out(self) -> None:
        try:
            while (frame := self._next()) is not None:
                self._write_all(frame)
        except OSError:
            _log.info("the client has closed its end of the output")
        finally:
            self.lost.set()
            os.close(self._descriptor)

    def _next(self) -> bytes | None:
        with self._changed:
            while not self._frames:
                if self._closing:
                    return None
                self._changed.wait()
            return self._frames.popleft()

    def _write_all(self, frame: bytes) -> None:
        view = memoryview(frame)
        ready = select.poll()
        ready.register(self._descriptor, select.POLLOUT)
        while view:
            while not ready.poll(self._patience * 1000):
                if self._waiting > self._most_waiting:
                    raise BrokenPipeError
            try:
                written = os.write(self._descriptor, view)
            except BlockingIOError:
                continue
            view = view[written:]
            with self._changed:
                self._waiting -= written
