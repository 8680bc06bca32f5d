"""The one writer of a connection: whole frames, in order, on a descriptor that nobody else knows."""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Hashable
from time import monotonic

_PIECE = 64 * 1024
_MOST_WAITING = 8 * 1024 * 1024
_PATIENCE_SECONDS = 30.0
_LAST_WORDS_SECONDS = 0.5


class FrameWriter:
    """Owns a private duplicate of the client's pipe. `write` never waits; a thread brings the frames out.

    `lost` is true once the client is gone, or has read nothing for `patience` seconds while more than `most_waiting`
    bytes lay ready for it: nothing more is written then.
    """

    def __init__(
        self, descriptor: int, *, most_waiting: int = _MOST_WAITING, patience: float = _PATIENCE_SECONDS
    ) -> None:
        self._descriptor = descriptor
        self._most_waiting = most_waiting
        self._patience = patience
        self._frames: deque[tuple[Hashable, bytes]] = deque()
        self._waiting = 0
        self._moved = monotonic()
        self._changed = threading.Condition()
        self._closing = False
        self.lost = False
        self._thread = threading.Thread(target=self._bring_out, daemon=True, name="writer")
        self._thread.start()

    def write(self, body: bytes, *, replaces: Hashable = None) -> None:
        """Safe from any thread. A frame with the same `replaces` that still waits is dropped: the new one says more."""
        frame = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        with self._changed:
            if not self._waiting:
                self._moved = monotonic()
            elif self._waiting > self._most_waiting and monotonic() - self._moved > self._patience:
                self._give_up()
            if not self._closing and not self.lost:
                if replaces is not None:
                    self._drop(replaces)
                self._frames.append((replaces, frame))
                self._waiting += len(frame)
                self._changed.notify()

    def close(self) -> None:
        """What has been written is still brought out, for half a second at most."""
        with self._changed:
            self._closing = True
            self._changed.notify()
        self._thread.join(_LAST_WORDS_SECONDS)

    def _bring_out(self) -> None:
        # Blocking writes: the pipe may be shared, and then another end of it would turn non-blocking as well.
        try:
            while (frame := self._next()) is not None:
                for start in range(0, len(frame), _PIECE):
                    self._write_all(frame[start : start + _PIECE])
        except OSError:
            # The client has closed its end; the reader sees the end of input and ends the process.
            with self._changed:
                self._give_up()
        os.close(self._descriptor)

    def _next(self) -> bytes | None:
        with self._changed:
            while not self._frames:
                if self._closing or self.lost:
                    return None
                self._changed.wait()
            return self._frames.popleft()[1]

    def _write_all(self, piece: bytes) -> None:
        view = memoryview(piece)
        while view:
            written = os.write(self._descriptor, view)
            view = view[written:]
            with self._changed:
                self._waiting -= written
                self._moved = monotonic()

    def _drop(self, replaces: Hashable) -> None:
        for index, (key, frame) in enumerate(self._frames):
            if key == replaces:
                del self._frames[index]
                self._waiting -= len(frame)
                return

    def _give_up(self) -> None:
        self.lost = True
        self._frames.clear()
        self._changed.notify()
