"""Server-sent events out of bytes, however they are cut. Pure: no I/O, no clock, no knowledge of what events mean.

Lines end at LF, CR or CRLF and nowhere else. Text splitters also cut at U+2028, U+0085 and friends, which may
stand raw inside a JSON string; therefore bytes are split first and decoded line by line.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple, NoReturn

from thinklsp.core.errors import StreamProtocolError

_LINE_END = re.compile(rb"\r\n|\r|\n")
_BOM = b"\xef\xbb\xbf"
_STRAY = 64 * 1024
# Bytes of a line of data that are not data: many empty ones are no small event either.
_NAME = 6
# From here on a copy costs more than a view: the last event of some services is the whole answer once more.
_LONG = 4096


class ServerSentEvent(NamedTuple):
    """`event` is empty where the stream names none; several data lines are joined with LF."""

    event: str
    data: str


@dataclass(frozen=True, slots=True)
class SseLimits:
    """Bounds that no honest stream comes near; bytes for line, event and all of it. Many servers send an event for each
    token, and the longest answers have more than a hundred thousand of those. `lines`: also those that mean nothing."""

    line: int = 8 * 1024 * 1024
    event: int = 16 * 1024 * 1024
    events: int = 1_000_000
    lines: int = 5_000_000
    total: int = 256 * 1024 * 1024


class SseDecoder:
    """Lives with one response. Cost is linear in the bytes fed, whatever the size of the pieces.

    Raises StreamProtocolError, not worth a retry, when the stream exceeds a limit.
    """

    def __init__(self, limits: SseLimits | None = None) -> None:
        self._limits = limits or SseLimits()
        self._line = bytearray()
        self._after_cr = False
        self._first_line = True
        self._event = ""
        self._data: list[str] = []
        self._data_bytes = 0
        self._count = 0
        self._lines = 0
        self._bytes = 0
        self._stray: list[str] = []
        self._stray_bytes = 0

    def feed(self, chunk: bytes) -> list[ServerSentEvent]:
        """The events that this piece completed."""
        if not chunk:
            return []
        self._bytes += len(chunk)
        if self._bytes > self._limits.total:
            _refuse(f"it is larger than {self._limits.total} bytes")
        # A CR in last place has ended its line already; a LF at the head of the next piece belongs to it.
        if self._after_cr and chunk.startswith(b"\n"):
            chunk = chunk[1:]
        self._after_cr = chunk.endswith(b"\r")
        pieces: list[bytes | bytearray] = [*(_LINE_END.split(chunk) if b"\r" in chunk else chunk.split(b"\n"))]
        *ended, rest = pieces
        self._lines += len(ended)
        if self._lines > self._limits.lines:
            _refuse(f"it has more than {self._limits.lines} lines")
        if len(self._line) + len(chunk) > self._limits.line:
            self._bound(pieces)
        if self._line:
            self._line += ended[0] if ended else rest
            if not ended:
                return []
            ended[0], self._line = self._line, bytearray()
        events: list[ServerSentEvent] = []
        for line in ended:
            self._take(line, events)
        self._line += rest
        return events

    def finish(self) -> list[ServerSentEvent]:
        """The stream has ended: the last event, even where the blank line after it is missing.

        Lines of JSON that stood bare among the events come last, as one event without a name: some services break off
        with an error body that is no event.
        """
        events: list[ServerSentEvent] = []
        if self._line:
            line, self._line = self._line, bytearray()
            self._take(line, events)
        self._dispatch(events)
        if self._stray and self._stray[0].lstrip()[:1] in ("{", "["):
            events.append(ServerSentEvent("", "\n".join(self._stray)))
        return events

    def _bound(self, pieces: Sequence[bytes | bytearray]) -> None:
        if max(len(self._line) + len(pieces[0]), *map(len, pieces)) > self._limits.line:
            _refuse(f"one line of it is longer than {self._limits.line} bytes")

    def _take(self, line: bytes | bytearray, events: list[ServerSentEvent]) -> None:
        if self._first_line:
            self._first_line = False
            line = line.removeprefix(_BOM)
        if line[:6] == b"data: ":
            self._add(line[6:] if len(line) < _LONG else memoryview(line)[6:])
        elif line[:7] == b"event: ":
            self._event = line[7:].decode("utf-8", "replace")
        elif line:
            self._take_other(line)
        elif self._data:
            self._dispatch(events)
        else:
            # A stream can hold millions of these.
            self._event = ""

    def _take_other(self, line: bytes | bytearray) -> None:
        text = line.decode("utf-8", "replace")
        name, _, value = text.partition(":")
        value = value.removeprefix(" ")
        match name:
            case "data":
                self._add(value.encode())
            case "event":
                self._event = value
            case "error":
                # No field of the standard; some servers write their errors so.
                self._event = "error"
                self._add(value.encode())
            case "" | "id" | "retry":
                pass  # Comments keep the connection alive; the others are for reconnecting, which we never do.
            case _ if self._stray_bytes < _STRAY:
                self._stray_bytes += len(line)
                self._stray.append(text)
            case _:
                pass

    def _add(self, value: bytes | bytearray | memoryview) -> None:
        self._data_bytes += len(value) + _NAME
        if self._data_bytes > self._limits.event:
            _refuse(f"one event of it is larger than {self._limits.event} bytes")
        self._data.append(str(value, "utf-8", "replace"))

    def _dispatch(self, events: list[ServerSentEvent]) -> None:
        if self._data:
            self._count += 1
            if self._count > self._limits.events:
                _refuse(f"it has more than {self._limits.events} events")
            events.append(ServerSentEvent(self._event, "\n".join(self._data)))
            self._data.clear()
            self._data_bytes = 0
        self._event = ""


def _refuse(reason: str) -> NoReturn:
    error = StreamProtocolError(f"The service's stream was given up: {reason}.")
    error.retryable = False
    raise error
