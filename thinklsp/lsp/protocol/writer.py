"""What goes out to a client: whole frames, in order, and never more of them waiting than the client deserves."""

from __future__ import annotations

import os
import select
import threading
from collections import deque
from collections.abc import Hashable
from time import monotonic
from typing import Protocol

PIECE = 64 * 1024
LAST_WORDS_SECONDS = 0.5
_MOST_WAITING = 8 * 1024 * 1024
_PATIENCE_SECONDS = 30.0


class Writer(Protocol):
    """How the dispatcher reaches the client. `write` never waits."""

    def write(self, body: bytes, *, replaces: Hashable = None) -> None:
        """A body with the same `replaces` that still waits is dropped: the new one says more."""
        ...


def header_of(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body)


class Outbox:
    """The frames that wait to be brought out. Whoever shares it between threads guards it.

    `lost` is true once the client is gone, or has read nothing for `patience` seconds while more than `most_waiting`
    bytes lay ready for it: nothing more is taken in then.
    """

    def __init__(self, most_waiting: int = _MOST_WAITING, patience: float = _PATIENCE_SECONDS) -> None:
        self._most_waiting = most_waiting
        self._patience = patience
        self._frames: deque[tuple[Hashable, bytes]] = deque()
        self._waiting = 0
        self._moved = monotonic()
        self._closed = False
        self.lost = False

    @property
    def ended(self) -> bool:
        """Nothing waits, and nothing will."""
        return not self._frames and (self._closed or self.lost)

    @property
    def idle(self) -> bool:
        """All that was taken in has been brought out, and more may come."""
        return not (self._waiting or self._closed or self.lost)

    def put(self, frame: bytes, replaces: Hashable) -> None:
        if not self._waiting:
            self._moved = monotonic()
        if self._closed or self.is_lost():
            return
        if replaces is not None:
            self._drop(replaces)
        self._frames.append((replaces, frame))
        self._waiting += len(frame)

    def take(self) -> bytes | None:
        """The oldest frame; None where none waits."""
        return self._frames.popleft()[1] if self._frames else None

    def went(self, size: int) -> None:
        """So much of a frame that was taken has been brought out."""
        self._waiting -= size
        self._moved = monotonic()

    def is_lost(self) -> bool:
        """Looks at the clock too: a client may have stopped to read when nothing more was to be said."""
        if self._waiting > self._most_waiting and monotonic() - self._moved > self._patience:
            self.give_up()
        return self.lost

    def close(self) -> None:
        """What waits may still go."""
        self._closed = True

    def give_up(self) -> None:
        self.lost = True
        self._frames.clear()

    def _drop(self, replaces: Hashable) -> None:
        for index, (key, frame) in enumerate(self._frames):
            if key == replaces:
                del self._frames[index]
                self._waiting -= len(frame)
                return


class FrameWriter:
    """Owns a private duplicate of the client's pipe; safe from any thread.

    A small frame that finds the pipe free goes out at once, as most do. All else is brought out by a thread, which may
    wait for the client.
    """

    def __init__(self, descriptor: int, outbox: Outbox | None = None) -> None:
        self._descriptor = descriptor
        self._outbox = outbox or Outbox()
        self._free = select.poll()
        self._free.register(descriptor, select.POLLOUT)
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._bring_out, daemon=True, name="writer")
        self._thread.start()

    @property
    def lost(self) -> bool:
        with self._changed:
            return self._outbox.is_lost()

    def write(self, body: bytes, *, replaces: Hashable = None) -> None:
        frame = header_of(body) + body
        with self._changed:
            left = self._write_at_once(frame) if self._outbox.idle else frame
            if left:
                # Of a frame that has begun, no part may be replaced.
                self._outbox.put(left, replaces if left is frame else None)
                self._changed.notify()

    def close(self) -> None:
        """What has been written is still brought out, for half a second at most."""
        with self._changed:
            self._outbox.close()
            self._changed.notify()
        self._thread.join(LAST_WORDS_SECONDS)

    def _write_at_once(self, frame: bytes) -> bytes:
        """What is left of it. So little never waits where the pipe says that it has room (POSIX, `select`)."""
        if len(frame) > select.PIPE_BUF or self._free.poll(0) != [(self._descriptor, select.POLLOUT)]:
            return frame
        try:
            return frame[os.write(self._descriptor, frame) :]
        except OSError:
            # The thread comes upon the same and says so.
            return frame

    def _bring_out(self) -> None:
        # Blocking writes: the pipe may be shared, and then another end of it would turn non-blocking as well.
        try:
            while (frame := self._next()) is not None:
                for start in range(0, len(frame), PIECE):
                    self._write_all(frame[start : start + PIECE])
        except OSError:
            # The client has closed its end; the reader sees the end of input and ends the process.
            with self._changed:
                self._outbox.give_up()
        os.close(self._descriptor)

    def _next(self) -> bytes | None:
        with self._changed:
            while (frame := self._outbox.take()) is None and not self._outbox.ended:
                self._changed.wait()
            return frame

    def _write_all(self, piece: bytes) -> None:
        view = memoryview(piece)
        while view:
            written = os.write(self._descriptor, view)
            view = view[written:]
            with self._changed:
                self._outbox.went(written)
