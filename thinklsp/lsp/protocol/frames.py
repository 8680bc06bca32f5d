"""Bytes to message bodies. Pure: feed it what was read, in any pieces.

After a header that makes no sense the stream is searched for the next one, because a client that is answered can go
on, while one whose server has left must start anew.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

MAX_HEADER_LINE = 4 * 1024
MAX_HEADER_LINES = 16
MAX_BODY = 64 * 1024 * 1024
MAX_SKIPPED = 1024 * 1024

# A header line; one with the length in its middle follows a body that was longer than announced.
_HEADER = re.compile(rb"(?!.+content-length)[!#$%&'*+.^_`|~0-9A-Za-z-]+[ \t]*:", re.IGNORECASE)
_LENGTH = re.compile(rb"content-length[ \t]*:[ \t]*([0-9]{1,12})[ \t]*", re.IGNORECASE)
_TYPE = re.compile(rb"content-type[ \t]*:", re.IGNORECASE)
_CHARSET = re.compile(rb"charset[ \t]*=[ \t]*\"?([^\s;\"]+)", re.IGNORECASE)
# Line ends inside JSON texts are escaped, so a length at the end of a line stands in a header.
_NEXT = re.compile(rb"content-length[ \t]*:[ \t]*[0-9]{1,12}[ \t]*\r?\n", re.IGNORECASE)
_LONGEST_NEXT = 64


class FramingError(Exception):
    """The stream cannot be followed any further: nobody knows where the next message begins."""


@dataclass(frozen=True, slots=True)
class BadFrame:
    """A message that could not be read; the ones after it can. `reason` is a sentence."""

    reason: str


class FrameDecoder:
    """Header names in any case, optional spaces, CRLF or LF. One decoder per connection."""

    def __init__(self) -> None:
        self._buffer = bytearray()
        self._length: int | None = None
        self._header_lines = 0
        self._in_body = False
        self._foreign_charset = False
        self._skipped: int | None = None

    def feed(self, data: bytes) -> list[bytes | BadFrame]:
        """The bodies that are complete now. Raises FramingError where the next message cannot be found."""
        self._buffer += data
        found: list[bytes | BadFrame] = []
        while True:
            if self._skipped is not None:
                if not self._find_next():
                    return found
            elif self._in_body:
                if (body := self._take_body()) is None:
                    return found
                found.append(body)
            elif (line := self._take_line()) is None:
                return found
            elif (reason := self._read_line(line)) is not None:
                found.append(BadFrame(reason))
                self._begin_anew()
                self._skipped = 0

    def _take_body(self) -> bytes | BadFrame | None:
        length = self._length or 0
        if len(self._buffer) < length:
            return None
        body = bytes(memoryview(self._buffer)[:length])
        del self._buffer[:length]
        foreign = self._foreign_charset
        self._begin_anew()
        return BadFrame("Messages must be encoded as UTF-8.") if foreign else body

    def _begin_anew(self) -> None:
        self._length, self._header_lines = None, 0
        self._in_body = self._foreign_charset = False

    def _take_line(self) -> bytes | None:
        end = self._buffer.find(b"\n", 0, MAX_HEADER_LINE + 1)
        if end < 0:
            if len(self._buffer) > MAX_HEADER_LINE:
                raise FramingError("a header line is too long")
            return None
        line = bytes(self._buffer[:end]).rstrip(b"\r")
        del self._buffer[: end + 1]
        return line

    def _read_line(self, line: bytes) -> str | None:
        """Takes a header line, or the empty one that ends the header. Returns what is wrong with it."""
        if not line:
            if self._length is None and self._header_lines:
                return "The header of the message names no length."
            self._in_body = self._length is not None
            return None
        self._header_lines += 1
        if self._header_lines > MAX_HEADER_LINES:
            return "The message has too many header lines."
        if not _HEADER.match(line):
            # The header of the next message may follow on the same line.
            self._buffer[:0] = line + b"\n"
            return "A message does not begin where the one before it ended."
        if line.lower().startswith(b"content-length"):
            match = _LENGTH.fullmatch(line)
            length = int(match[1]) if match else 0
            if not 0 < length <= MAX_BODY or self._length not in (None, length):
                return "The length of the message is not acceptable."
            self._length = length
        elif _TYPE.match(line) and (charset := _CHARSET.search(line)):
            self._foreign_charset = charset[1].lower() not in (b"utf-8", b"utf8")
        return None

    def _find_next(self) -> bool:
        """Passes over what cannot be read, to the next header that can."""
        match = _NEXT.search(self._buffer)
        gone = match.start() if match else max(0, len(self._buffer) - _LONGEST_NEXT)
        del self._buffer[:gone]
        self._skipped = (self._skipped or 0) + gone
        if self._skipped > MAX_SKIPPED:
            raise FramingError("no further message was found in the input")
        if match:
            self._skipped = None
        return match is not None
