"""The framing in which each message is one line of JSON."""

from __future__ import annotations

from thinklsp.jsonrpc.framing import BadFrame

MAX_LINE_BYTES = 8 * 1024 * 1024


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
