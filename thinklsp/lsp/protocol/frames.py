"""Bytes to message bodies. Pure: feed it what was read, in any pieces."""

from __future__ import annotations

import re

MAX_HEADER_LINE = 4 * 1024
MAX_HEADER_LINES = 16
MAX_BODY = 64 * 1024 * 1024

_LENGTH = re.compile(rb"content-length[ \t]*:[ \t]*([0-9]{1,12})[ \t]*", re.IGNORECASE)


class FramingError(Exception):
    """The stream cannot be followed any further: nobody knows where the next message begins."""


class FrameDecoder:
    """Header names in any case, optional spaces, CRLF or LF. One decoder per connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._length: int | None = None
        self._header_lines = 0
        self._in_body = False

    def feed(self, data: bytes) -> list[bytes]:
        """The bodies that are complete now. Raises FramingError on a header that breaks the limits."""
        self._buffer += data
        bodies: list[bytes] = []
        while True:
            if self._in_body:
                if (body := self._take_body()) is None:
                    return bodies
                bodies.append(body)
            elif not self._take_header_line():
                return bodies

    def _take_body(self) -> bytes | None:
        length = self._length or 0
        if len(self._buffer) < length:
            return None
        body = bytes(memoryview(self._buffer)[:length])
        del self._buffer[:length]
        self._length, self._header_lines, self._in_body = None, 0, False
        return body

    def _take_header_line(self) -> bool:
        end = self._buffer.find(b"\n", 0, MAX_HEADER_LINE + 1)
        if end < 0:
            if len(self._buffer) > MAX_HEADER_LINE:
                raise FramingError("a header line is too long")
            return False
        line = bytes(self._buffer[:end]).rstrip(b"\r")
        del self._buffer[: end + 1]
        if line:
            self._read_header(line)
        else:
            # An empty line before any length belongs to nothing and is passed over.
            self._in_body = self._length is not None
            self._header_lines = 0
        return True

    def _read_header(self, line: bytes) -> None:
        self._header_lines += 1
        if self._header_lines > MAX_HEADER_LINES:
            raise FramingError("there are too many header lines")
        if not line.lower().startswith(b"content-length"):
            return
        match = _LENGTH.fullmatch(line)
        length = int(match[1]) if match else 0
        if not 0 < length <= MAX_BODY or self._length not in (None, length):
            raise FramingError("the length of a message is not acceptable")
        self._length = length
