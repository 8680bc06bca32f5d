"""Writers that send complete frames to a client, in order.

If a client stops reading, the server first rejects its new requests and then drops the connection.
"""

from __future__ import annotations

import asyncio
import logging
import os
import select
import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Protocol

from thinklsp.jsonrpc.framing import BadFrame

CHUNK_BYTES = 64 * 1024
FLUSH_SECONDS = 0.5
FULL_BYTES = 8 * 1024 * 1024
MAX_BYTES = 64 * 1024 * 1024
# The memory that a queued frame needs in addition to its bytes, measured with frames of 100 bytes and 3 kB.
_FRAME_OVERHEAD_BYTES = 256
_HEAP_OVERHEAD_RATIO = 1 / 8

_log = logging.getLogger(__name__)


class MessageWriter(Protocol):
    """The interface that the protocol uses to send messages. `write` never blocks."""

    @property
    def is_full(self) -> bool:
        """True if the queue is so long that the server should reject new requests from this client."""
        ...

    def write(self, body: bytes, *, coalesce_key: Hashable = None) -> None:
        """Queue a body, replacing a queued body with the same `coalesce_key` if there is one."""
        ...


class OutgoingQueue:
    """A queue of frames for a client. The queue is not thread-safe, so callers on several threads must hold a lock.

    The limits are in bytes of memory. Above `full_bytes`, the queue is considered full. Above `max_bytes`, the client
    is considered gone: the queue drops all frames and accepts no more.
    """

    def __init__(self, full_bytes: int = FULL_BYTES, max_bytes: int = MAX_BYTES) -> None:
        self._full_bytes = full_bytes
        self._max_bytes = max_bytes
        self._frames: OrderedDict[Hashable, bytes] = OrderedDict()
        self._unsent_bytes = 0
        self._is_closed = False
        self.is_client_gone = False

    @property
    def is_finished(self) -> bool:
        """True if the queue is empty and closed."""
        return not self._frames and (self._is_closed or self.is_client_gone)

    @property
    def is_idle(self) -> bool:
        """True if all frames have been sent and the queue still accepts frames."""
        return not (self._unsent_bytes or self._is_closed or self.is_client_gone)

    @property
    def is_full(self) -> bool:
        return self._memory_bytes > self._full_bytes

    @property
    def _memory_bytes(self) -> float:
        """The memory used by waiting frames, including the unsent rest of the current frame."""
        return self._unsent_bytes * (1 + _HEAP_OVERHEAD_RATIO) + len(self._frames) * _FRAME_OVERHEAD_BYTES

    def put(self, frame: bytes, coalesce_key: Hashable) -> None:
        if self._is_closed or self.is_client_gone:
            return
        key = object() if coalesce_key is None else coalesce_key
        self._unsent_bytes += len(frame) - len(self._frames.pop(key, b""))
        self._frames[key] = frame
        if self._memory_bytes > self._max_bytes:
            _log.warning("dropping the client: more than %d bytes are waiting to be read", self._max_bytes)
            self.discard()

    def take(self) -> bytes | None:
        """Remove and return the oldest frame, or return None if the queue is empty."""
        return self._frames.popitem(last=False)[1] if self._frames else None

    def mark_sent(self, size: int) -> None:
        """Record that `size` bytes of a removed frame have been sent."""
        self._unsent_bytes -= size

    def close(self) -> None:
        """Stop accepting frames. Queued frames may still be sent."""
        self._is_closed = True

    def discard(self) -> None:
        self.is_client_gone = True
        self._frames.clear()


class FrameWriter:
    """A thread-safe writer that owns a duplicate of the client's pipe.

    Small frames are written immediately if the pipe has room. A separate thread writes all other frames, because
    writing them may block. `build_frame` returns a body with its framing.
    """

    def __init__(
        self, descriptor: int, build_frame: Callable[[bytes], bytes], queue: OutgoingQueue | None = None
    ) -> None:
        self._descriptor = descriptor
        self._build_frame = build_frame
        self._queue = queue or OutgoingQueue()
        self._poller = select.poll()
        self._poller.register(descriptor, select.POLLOUT)
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._send_queued, daemon=True, name="writer")
        self._thread.start()

    @property
    def is_client_gone(self) -> bool:
        with self._changed:
            return self._queue.is_client_gone

    @property
    def is_full(self) -> bool:
        with self._changed:
            return self._queue.is_full

    def write(self, body: bytes, *, coalesce_key: Hashable = None) -> None:
        frame = self._build_frame(body)
        with self._changed:
            rest = self._write_at_once(frame) if self._queue.is_idle else frame
            if rest:
                # A partly written frame must not be replaced.
                self._queue.put(rest, coalesce_key if rest is frame else None)
                self._changed.notify()

    def close(self) -> None:
        """Send the queued frames, then stop. Wait at most `FLUSH_SECONDS`."""
        with self._changed:
            self._queue.close()
            self._changed.notify()
        self._thread.join(FLUSH_SECONDS)

    def _write_at_once(self, frame: bytes) -> bytes:
        """Write a small frame if the pipe has room, and return the part that was not written.

        POSIX guarantees that writing at most PIPE_BUF bytes does not block once `poll` reports the pipe as writable.
        """
        if len(frame) > select.PIPE_BUF or self._poller.poll(0) != [(self._descriptor, select.POLLOUT)]:
            return frame
        try:
            return frame[os.write(self._descriptor, frame) :]
        except OSError:
            # Ignore the error, because the writer thread gets the same error and handles it.
            return frame

    def _send_queued(self) -> None:
        # Use blocking writes, because non-blocking mode also affects other processes that share the pipe.
        try:
            while (frame := self._wait_for_frame()) is not None:
                for start in range(0, len(frame), CHUNK_BYTES):
                    self._write_all(frame[start : start + CHUNK_BYTES])
        except OSError:
            # The client has closed the pipe. The reader then detects the end of the input and stops the process.
            with self._changed:
                self._queue.discard()
        os.close(self._descriptor)

    def _wait_for_frame(self) -> bytes | None:
        with self._changed:
            while (frame := self._queue.take()) is None and not self._queue.is_finished:
                self._changed.wait()
            return frame

    def _write_all(self, piece: bytes) -> None:
        view = memoryview(piece)
        while view:
            count = os.write(self._descriptor, view)
            view = view[count:]
            with self._changed:
                self._queue.mark_sent(count)


class ClientDisconnected(Exception):
    """The error raised when the client has disconnected or its input can no longer be decoded."""


class MessageStream(Protocol):
    """The message stream of a client's socket."""

    async def read(self) -> list[bytes | BadFrame]:
        """Return the next messages, at least one. Raise ClientDisconnected at the end of the input."""
        ...

    async def send(self, body: bytes, on_sent: Callable[[int], None]) -> None:
        """Send a message and wait until the client accepts it. Raise ClientDisconnected if the client is gone.

        `on_sent` is called after each chunk with the number of bytes sent.
        """
        ...

    async def close(self, *, going_away: bool) -> None:
        """Close the connection properly, within a time limit.

        `going_away` is True if the server itself shuts down.
        """
        ...

    def abort(self) -> None:
        """Close the connection immediately. Pending calls of `read` and `send` then fail."""
        ...


class SocketWriter:
    """A writer for sockets, used only on the event loop. It closes the socket if the client stops reading."""

    def __init__(self, stream: MessageStream, queue: OutgoingQueue | None = None) -> None:
        self._stream = stream
        self._queue = queue or OutgoingQueue()
        self._changed = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._send_queued())

    @property
    def is_full(self) -> bool:
        return self._queue.is_full

    def write(self, body: bytes, *, coalesce_key: Hashable = None) -> None:
        self._queue.put(body, coalesce_key)
        self._changed.set()
        if self._queue.is_client_gone:
            self._stream.abort()

    async def close(self) -> None:
        """Send the queued frames, then stop. Wait at most `FLUSH_SECONDS`."""
        self._queue.close()
        self._changed.set()
        await asyncio.wait([self._task], timeout=FLUSH_SECONDS)
        if not self._task.done():
            self._stream.abort()
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _send_queued(self) -> None:
        try:
            while not self._queue.is_finished:
                if (body := self._queue.take()) is None:
                    self._changed.clear()
                    await self._changed.wait()
                else:
                    await self._stream.send(body, self._queue.mark_sent)
        except ClientDisconnected:
            pass
        finally:
            self._queue.discard()
