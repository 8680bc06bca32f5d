"""The one writer of a connection: whole frames, in order, on a descriptor that nobody else knows."""

from __future__ import annotations

import os
import threading


class FrameWriter:
    """Writes to a private duplicate of the client's pipe. Safe from any thread; silent once the client is gone."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self._closed = False

    def write(self, body: bytes) -> None:
        frame = b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
        with self._lock:
            if not self._closed:
                self._write_all(frame)

    def close(self) -> None:
        with self._lock:
            if not self._closed:
                self._closed = True
                os.close(self._descriptor)

    def _write_all(self, frame: bytes) -> None:
        view = memoryview(frame)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError:
            # The client has closed its end; the reader sees the end of input and ends the process.
            self._closed = True
            os.close(self._descriptor)
