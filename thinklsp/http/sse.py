"""A decoder for server-sent events that accepts bytes in chunks of any size. It performs no I/O and uses no clock.

Lines end only at LF, CR or CRLF. `str.splitlines` also splits at characters such as U+2028 and U+0085, which JSON
strings may contain unescaped. Bytes are therefore split into lines before they are decoded.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from thinklsp.core.errors import StreamProtocolError

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"
_MAX_STRAY_BYTES = 64 * 1024
# The number of bytes added to the length of each data line, so that empty lines also count toward an event's size.
_LINE_OVERHEAD_BYTES = 6
# The length from which a view of a line is cheaper than a copy. Some providers repeat the entire answer in the last
# event.
_MIN_VIEW_BYTES = 4096


class ServerSentEvent(NamedTuple):
    """A server-sent event.

    `event` is the event's name, or an empty string if the event has no name. Multiple data lines are joined with LF.
    """

    event: str
    data: str


@dataclass(frozen=True, slots=True)
class SseLimits:
    """The limits of a stream, which are far larger than any real answer. The transport limits the whole stream.

    Many servers send one event per token, and the longest answers have more than 100,000 tokens. `line_bytes` also
    limits lines that are ignored.
    """

    line_bytes: int = 8 * 1024 * 1024
    event_bytes: int = 16 * 1024 * 1024
    events: int = 1_000_000
    lines: int = 5_000_000


_LIMITS = SseLimits()


class SseDecoder:
    """A decoder for the server-sent events in a response. Decoding takes linear time, regardless of the chunk size.

    Raises StreamProtocolError if the stream exceeds a limit. The error is not retryable.
    """

    def __init__(self, limits: SseLimits = _LIMITS) -> None:
        self._limits = limits
        self._line = bytearray()
        self._after_cr = False
        self._is_first_line = True
        self._event = ""
        self._data: list[str] = []
        self._data_bytes = 0
        self._count = 0
        self._lines = 0
        self._stray: list[str] = []
        self._stray_bytes = 0

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """Decode a chunk and return the events that are now complete."""
        if not chunk:
            return []
        # A line end may be split between two chunks. Skip an LF after a CR that has already ended the line.
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        pieces: list[bytes | bytearray] = [*(_LINE_END.split(chunk) if b"\r" in chunk else chunk.split(b"\n"))]
        *complete, rest = pieces
        self._lines += len(complete)
        if self._lines > self._limits.lines:
            _reject(f"the stream has more than {self._limits.lines:,} lines")
        if len(self._line) + len(chunk) > self._limits.line_bytes:
            self._check_line_limit(pieces)
        if self._line:
            self._line += complete[0] if complete else rest
            if not complete:
                return []
            complete[0], self._line = self._line, bytearray()
        events: list[ServerSentEvent] = []
        for line in complete:
            self._parse_line(line, events)
        self._line += rest
        return events

    def finish(self) -> list[ServerSentEvent]:
        """Return the remaining events at the end of the stream, even if the final blank line is missing.

        JSON lines outside of events become a final event without a name, because some providers interrupt a stream with
        a plain JSON error.
        """
        events: list[ServerSentEvent] = []
        if self._line:
            line, self._line = self._line, bytearray()
            self._parse_line(line, events)
        self._dispatch(events)
        if self._stray and self._stray[0].lstrip()[:1] in ("{", "["):
            events.append(ServerSentEvent("", "\n".join(self._stray)))
        return events

    def _check_line_limit(self, pieces: Sequence[bytes | bytearray]) -> None:
        if max(len(self._line) + len(pieces[0]), *map(len, pieces)) > self._limits.line_bytes:
            _reject(f"a line is longer than {self._limits.line_bytes:,} bytes")

    def _parse_line(self, line: bytes | bytearray, events: list[ServerSentEvent]) -> None:
        if self._is_first_line:
            self._is_first_line = False
            line = line.removeprefix(_BOM)
        if line[:6] == b"data: ":
            self._add_data(line[6:] if len(line) < _MIN_VIEW_BYTES else memoryview(line)[6:])
        elif line[:7] == b"event: ":
            self._event = line[7:].decode("utf-8", "replace")
        elif line:
            self._parse_other_line(line)
        elif self._data:
            self._dispatch(events)
        else:
            # Blank lines are handled without further parsing, because a stream can contain millions of them.
            self._event = ""

    def _parse_other_line(self, line: bytes | bytearray) -> None:
        text = line.decode("utf-8", "replace")
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._add_data(value.encode())
            case "event":
                self._event = value
            case "error":
                # The field `error` is not standard, but some servers use it for errors.
                self._event = "error"
                self._add_data(value.encode())
            case "" | "id" | "retry":
                pass  # Ignore comments and the fields for reconnecting, because streams are never resumed.
            case _ if self._stray_bytes < _MAX_STRAY_BYTES:
                self._stray_bytes += len(line)
                self._stray.append(text)
            case _:
                pass

    def _add_data(self, value: bytes | bytearray | memoryview) -> None:
        self._data_bytes += len(value) + _LINE_OVERHEAD_BYTES
        if self._data_bytes > self._limits.event_bytes:
            _reject(f"an event is larger than {self._limits.event_bytes:,} bytes")
        self._data.append(str(value, "utf-8", "replace"))

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        if self._data:
            self._count += 1
            if self._count > self._limits.events:
                _reject(f"the stream has more than {self._limits.events:,} events")
            events.append(ServerSentEvent(self._event, "\n".join(self._data)))
            self._data.clear()
            self._data_bytes = 0
        self._event = ""


def _reject(reason: str) -> NoReturn:
    raise StreamProtocolError(f"The provider's answer was discarded: {reason}.", retryable=False)
