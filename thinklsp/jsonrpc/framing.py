"""The two framings of messages: headers with a length, as in LSP, and one line for each message.

After an invalid header, the decoder searches for the next valid header. The client gets an error response and can
continue without restarting the server.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

MAX_LINE_BYTES = 8 * 1024 * 1024
MAX_HEADER_LINE_BYTES = 4 * 1024
MAX_HEADER_LINES = 16
MAX_BODY_BYTES = 64 * 1024 * 1024
MAX_SKIPPED_BYTES = 1024 * 1024
# Matches a header line. A line with `Content-Length` in the middle does not match, because it begins with the end of
# the previous body.
_HEADER = re.compile(rb"(?!.+content-length)[!#$%&'*+.^_`|~0-9A-Za-z-]+[ \t]*:", re.IGNORECASE)
_LENGTH = re.compile(rb"content-length[ \t]*:[ \t]*([0-9]{1,12})[ \t]*", re.IGNORECASE)
_TYPE = re.compile(rb"content-type[ \t]*:", re.IGNORECASE)
_CHARSET = re.compile(rb"charset[ \t]*=[ \t]*\"?([^\s;\"]+)", re.IGNORECASE)
# Matches a header. A JSON string cannot match, because it contains no line ending.
_NEXT_HEADER = re.compile(rb"content-length[ \t]*:[ \t]*[0-9]{1,12}[ \t]*\r?\n", re.IGNORECASE)
_MAX_NEXT_HEADER_BYTES = 64


class FramingError(Exception):
    """The error raised when the start of the next message cannot be found. The stream is then unusable."""


@dataclass(frozen=True, slots=True)
class BadFrame:
    """An unreadable message. The client gets `reason` as an error message, and later messages are still read."""

    reason: str


class Decoder(Protocol):
    """The decoder for a connection."""

    def feed(self, data: bytes, /) -> list[bytes | BadFrame]:
        """Add `data` to the input and return all message bodies that are complete.

        Raise FramingError if the start of the next message cannot be found.
        """
        ...


def build_line(body: bytes) -> bytes:
    """Return the frame for a body without line endings, such as the result of `encode_json`."""
    return body + b"\n"


class LineReader:
    """The decoder for a connection. It ignores empty lines. Lines end with LF or CRLF.

    A line that is longer than `max_bytes` is one unreadable message. The decoder skips the line without storing it.
    """

    def __init__(self, max_bytes: int = MAX_LINE_BYTES) -> None:
        self._max_bytes = max_bytes
        self._line = bytearray()
        self._is_skipping = False

    def feed(self, chunk: bytes) -> list[bytes | BadFrame]:
        """Add `chunk` to the input and return all message bodies that are complete.

        Only the new bytes are searched for a line ending, so many small chunks cost no more than a large one.
        """
        *ends, rest = chunk.split(b"\n")
        frames: list[bytes | BadFrame] = []
        for end in ends:
            frames += self._extend_line(end)
            frames += self._end_line()
        return frames + self._extend_line(rest)

    def _extend_line(self, part: bytes) -> list[bytes | BadFrame]:
        if self._is_skipping:
            return []
        if len(self._line) + len(part) <= self._max_bytes:
            self._line += part
            return []
        self._line.clear()
        self._is_skipping = True
        return [BadFrame(f"The message is longer than {self._max_bytes:,} bytes.")]

    def _end_line(self) -> list[bytes | BadFrame]:
        body = bytes(self._line).rstrip(b"\r")
        self._line.clear()
        self._is_skipping = False
        return [body] if body else []


def build_header(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body)


def build_frame(body: bytes) -> bytes:
    return build_header(body) + body


class FrameDecoder:
    """The decoder for a connection.

    Header names are case-insensitive, spaces are optional, and lines end with CRLF or LF.
    """

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._length: int | None = None
        self._header_lines = 0
        self._in_body = False
        self._has_foreign_charset = False
        self._skipped_bytes: int | None = None

    def feed(self, data: bytes) -> list[bytes | BadFrame]:
        """Add `data` to the input and return all message bodies that are complete.

        Raise FramingError if the start of the next message cannot be found.
        """
        self._buffer += data
        frames: list[bytes | BadFrame] = []
        while True:
            if self._skipped_bytes is not None:
                if not self._find_next():
                    return frames
            elif self._in_body:
                if (body := self._take_body()) is None:
                    return frames
                frames.append(body)
            elif (line := self._take_line()) is None:
                return frames
            elif (reason := self._read_line(line)) is not None:
                frames.append(BadFrame(reason))
                self._reset()
                self._skipped_bytes = 0

    def _take_body(self) -> bytes | BadFrame | None:
        length = self._length or 0
        if len(self._buffer) < length:
            return None
        body = bytes(memoryview(self._buffer)[:length])
        del self._buffer[:length]
        is_foreign = self._has_foreign_charset
        self._reset()
        return BadFrame("Messages must be encoded as UTF-8.") if is_foreign else body

    def _reset(self) -> None:
        self._length, self._header_lines = None, 0
        self._in_body = self._has_foreign_charset = False

    def _take_line(self) -> bytes | None:
        end = self._buffer.find(b"\n", 0, MAX_HEADER_LINE_BYTES + 1)
        if end < 0:
            if len(self._buffer) > MAX_HEADER_LINE_BYTES:
                raise FramingError("a header line is too long")
            return None
        line = bytes(self._buffer[:end]).rstrip(b"\r")
        del self._buffer[: end + 1]
        return line

    def _read_line(self, line: bytes) -> str | None:
        """Read a header line, or the empty line that ends the header.

        Return an error message if the line is invalid.
        """
        if not line:
            if self._length is None and self._header_lines:
                return "The message header has no `Content-Length`."
            self._in_body = self._length is not None
            return None
        self._header_lines += 1
        if self._header_lines > MAX_HEADER_LINES:
            return "The message has too many header lines."
        if not _HEADER.match(line):
            # The header of the next message may follow on the same line.
            self._buffer[:0] = line + b"\n"
            return "The message does not begin right after the previous one."
        if line.lower().startswith(b"content-length"):
            match = _LENGTH.fullmatch(line)
            length = int(match[1]) if match else 0
            if not 0 < length <= MAX_BODY_BYTES or self._length not in (None, length):
                return "The message's `Content-Length` is invalid or too large."
            self._length = length
        elif _TYPE.match(line) and (charset := _CHARSET.search(line)):
            self._has_foreign_charset = charset[1].lower() not in (b"utf-8", b"utf8")
        return None

    def _find_next(self) -> bool:
        """Skip unreadable bytes up to the next valid header."""
        match = _NEXT_HEADER.search(self._buffer)
        skipped = match.start() if match else max(0, len(self._buffer) - _MAX_NEXT_HEADER_BYTES)
        del self._buffer[:skipped]
        self._skipped_bytes = (self._skipped_bytes or 0) + skipped
        if self._skipped_bytes > MAX_SKIPPED_BYTES:
            raise FramingError("the input contains no further message")
        if match:
            self._skipped_bytes = None
        return match is not None
