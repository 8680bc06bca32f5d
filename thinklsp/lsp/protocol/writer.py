"""Whole frames to a client, in order. A client that does not read is first refused requests and then given up."""

from __future__ import annotations

import logging
import os
import select
import threading
from collections import OrderedDict
from collections.abc import Hashable
from typing import Protocol

PIECE = 64 * 1024
LAST_WORDS_SECONDS = 0.5
FULL_BYTES = 8 * 1024 * 1024
MAX_BYTES = 64 * 1024 * 1024
# What waiting frames take in memory beside their bytes, measured with frames of 100 bytes and of 3 kB.
_FRAME_OVERHEAD_BYTES = 256
_HEAP_OVERHEAD = 1 / 8

_log = logging.getLogger(__name__)


class Writer(Protocol):
    """How the dispatcher reaches the client. `write` never waits."""

    @property
    def is_full(self) -> bool:
        """Whether so much waits for the client that its new requests should be refused."""
        ...

    def write(self, body: bytes, *, replaces: Hashable = None) -> None:
        """A body with the same `replaces` that still waits is dropped: the new one says more."""
        ...


def header_of(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body)


class Outbox:
    """The frames that wait for one client, in order. Callers on several threads hold a lock of their own.

    Limits, in bytes of memory: with more than `full_bytes` waiting the outbox is full, with more than `max_bytes` the
    client is lost: all frames are dropped and no more are taken. A client that has gone is lost, too.
    """

    def __init__(self, full_bytes: int = FULL_BYTES, max_bytes: int = MAX_BYTES) -> None:
        self._full_bytes = full_bytes
        self._max_bytes = max_bytes
        self._frames: OrderedDict[Hashable, bytes] = OrderedDict()
        self._unsent_bytes = 0
        self._closed = False
        self.lost = False

    @property
    def ended(self) -> bool:
        """Nothing waits, and nothing will."""
        return not self._frames and (self._closed or self.lost)

    @property
    def idle(self) -> bool:
        """All that was taken in has been brought out, and more may come."""
        return not (self._unsent_bytes or self._closed or self.lost)

    @property
    def is_full(self) -> bool:
        return self._memory_bytes > self._full_bytes

    @property
    def _memory_bytes(self) -> float:
        """What waits takes in memory, with the rest of a frame that is being sent."""
        return self._unsent_bytes * (1 + _HEAP_OVERHEAD) + len(self._frames) * _FRAME_OVERHEAD_BYTES

    def put(self, frame: bytes, replaces: Hashable) -> None:
        if self._closed or self.lost:
            return
        key = object() if replaces is None else replaces
        self._unsent_bytes += len(frame) - len(self._frames.pop(key, b""))
        self._frames[key] = frame
        if self._memory_bytes > self._max_bytes:
            _log.warning("the client is given up: it leaves more than %d bytes unread", self._max_bytes)
            self.give_up()

    def take(self) -> bytes | None:
        """The oldest frame; None where none waits."""
        return self._frames.popitem(last=False)[1] if self._frames else None

    def went(self, size: int) -> None:
        """So much of a frame that was taken has been brought out."""
        self._unsent_bytes -= size

    def close(self) -> None:
        """What waits may still go."""
        self._closed = True

    def give_up(self) -> None:
        self.lost = True
        self._frames.clear()


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
            return self._outbox.lost

    @property
    def is_full(self) -> bool:
        with self._changed:
            return self._outbox.is_full

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
