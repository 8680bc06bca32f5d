"""The open documents of one connection: kept as lists of lines, read by everybody else as immutable snapshots."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import count

from thinklsp.core.freed_memory import return_freed_memory
from thinklsp.core.problems import Problem
from thinklsp.lsp.documents.spans import trimmed
from thinklsp.lsp.protocol.convert import Encoding, column_of, split_keeping_ends, units
from thinklsp.lsp.protocol.forms import Change, Changed, Opened, Position, Range

_log = logging.getLogger(__name__)

_REMEMBERED_CHANGES = 500
_LARGE = 1_000_000
_MOMENT = 1.0
_LAST_COLUMN = 2**31 - 1
_QUIET = 0.25
_LONGEST_PAUSE = 2.0

Point = tuple[int, int]
"""Line and character as the client counts them."""


@dataclass(frozen=True, slots=True)
class _Change:
    """One change of a document, in the client's units: what stood from `start` to `end` lies between the new points.

    The starts differ only where a `\\r` in front has become one line end with a `\\n` behind the change.
    """

    version: int
    start: Point
    end: Point
    new_start: Point
    new_end: Point


@dataclass(frozen=True, slots=True)
class Seen:
    """A problem as it stands in `version` of its document, in the client's units. `told`: the version for which the
    editor has told it. `text`: the line on which it begins."""

    problem: Problem
    start: Point
    end: Point
    version: int
    told: int
    text: str


class Document:
    """Live text of one open document. `desynced`: the client's versions or ranges made no sense; no edits for it
    until it is sent whole again. `changed_at`: monotonic seconds of the last change. `used`: the greater, the later the
    user was there. `seen`: problems that the editor has told of. `follower` is told of each change as offsets in code
    points: what stood from the first to the second is replaced by so many characters."""

    def __init__(self, item: Opened, encoding: Encoding) -> None:
        self.uri = item.uri
        self.language_id = item.language_id
        self.version = item.version
        self.desynced = False
        self.changed_at = -math.inf
        self.used = 0
        self.seen: tuple[Seen, ...] = ()
        self.follower: Callable[[int, int, int], None] | None = None
        self.encoding: Encoding = encoding
        self._text: str | None = item.text
        self._changes: deque[_Change] = deque(maxlen=_REMEMBERED_CHANGES)
        self._whole_since = item.version

    @cached_property
    def _lines(self) -> list[str]:
        """Split when first asked for: most documents are opened and closed without that, and lines take several times
        as much memory as their text."""
        return split_keeping_ends(self.text)

    @property
    def text(self) -> str:
        if self._text is None:
            self._text = "".join(self._lines)
        return self._text

    @property
    def line_count(self) -> int:
        return len(self._lines)

    @property
    def lines(self) -> Sequence[str]:
        """The live lines with their ends, the last one without: to be looked at at once and not kept."""
        return self._lines

    def line(self, number: int) -> str:
        """A line without its end; empty beyond the document."""
        return self._lines[number].rstrip("\r\n") if 0 <= number < len(self._lines) else ""

    def offset(self, line: int, character: int) -> int:
        """Code points before a position in the client's units, clamped to the text."""
        number, column = self._point(Position(line, character))
        return sum(map(len, self._lines[:number])) + column

    def apply(self, version: int, changes: Sequence[Change]) -> None:
        if version <= self.version:
            self.desynced = True
            _log.warning("a document went from version %d to %d; it is out of step", self.version, version)
        for change in changes:
            if change.range is None:
                self._replace_all(version, change.text)
            else:
                self._replace(version, change.range, change.text)
        self.version = version
        self.changed_at = time.monotonic()
        if changes:
            self._text = None

    def moved(self, point: Point, version: int) -> Point | None:
        """Where a point of an earlier version is now. None when the text around it was changed or is forgotten."""
        if version < self._whole_since or version > self.version:
            return None
        if self._changes and len(self._changes) == _REMEMBERED_CHANGES and version < self._changes[0].version:
            return None
        for change in self._changes:
            if change.version <= version:
                continue
            if change.start < point < change.end:
                return None
            if point > change.start:
                point = _shifted(point, change)
            elif point == change.start:
                point = change.new_start
        return point[0], min(point[1], _LAST_COLUMN)

    def _replace_all(self, version: int, text: str) -> None:
        if self.follower is not None:
            self._tell(self.follower, 0, self.text, text)
        self._lines = split_keeping_ends(text)
        self._changes.clear()
        self._whole_since = version
        self.desynced = False

    def _replace(self, version: int, where: Range, text: str) -> None:
        start, end = sorted((self._point(where.start), self._point(where.end)))
        if self.follower is not None:
            at = sum(map(len, self._lines[: start[0]])) + start[1]
            old = "".join(self._lines[start[0] : end[0]]) + self._lines[end[0]][: end[1]]
            self._tell(self.follower, at, old[start[1] :], text)
        first, last = self._lines[start[0]], self._lines[end[0]]
        head, tail = first[: start[1]], last[end[1] :]
        begin, stop = start[0], end[0] + 1
        removed = (start[0], units(head, self.encoding)), (end[0], units(last[: end[1]], self.encoding))
        if (head + text + tail).startswith("\n") and begin > 0 and self._lines[begin - 1].endswith("\r"):
            # What stood between \r and \n is gone: together they are one line end.
            begin -= 1
            head = self._lines[begin] + head
        new = split_keeping_ends(head + text + tail)
        if stop < len(self._lines) and new[-1] == "":
            new.pop()
        self._lines[begin:stop] = new
        added = self._place(new, begin, len(head)), self._place(new, begin, len(head) + len(text))
        self._changes.append(_Change(version, *removed, *added))

    def _tell(self, follower: Callable[[int, int, int], None], at: int, old: str, new: str) -> None:
        """Editors may send more than what has changed."""
        head, tail = trimmed(old, new)
        follower(at + head, at + len(old) - tail, len(new) - head - tail)

    def _point(self, position: Position) -> Point:
        """Line and code points before a position, clamped to the text."""
        line = min(position.line, len(self._lines) - 1)
        character = position.character if line == position.line else _LAST_COLUMN
        return line, column_of(self._lines[line], character, self.encoding)

    def _place(self, lines: Sequence[str], first: int, offset: int) -> Point:
        """The point at an offset of `lines`, the first of which is line `first` of the document."""
        for number, line in enumerate(lines, first):
            if offset < len(line) or (offset == len(line) and line[-1:] not in ("\r", "\n")):
                return number, units(line.rstrip("\r\n")[:offset], self.encoding)
            offset -= len(line)
        return first + len(lines), 0


class Documents:
    """Open documents by URI, in order of opening. `touched` is set whenever one opens, changes or closes; who waits
    clears it first. `on_open` is called when a document is there, `on_close` while it still is."""

    def __init__(self) -> None:
        self.encoding: Encoding = "utf-16"
        self.touched = asyncio.Event()
        self.on_open: list[Callable[[str], None]] = []
        self.on_change: list[Callable[[str], None]] = []
        self.on_close: list[Callable[[str], None]] = []
        self._open: dict[str, Document] = {}
        self._uses = count(1)

    def get(self, uri: str) -> Document | None:
        return self._open.get(uri)

    def all(self) -> tuple[Document, ...]:
        return tuple(self._open.values())

    def use(self, document: Document) -> None:
        """The user is there: it is the one that was used last."""
        document.used = next(self._uses)

    async def quiet(self, uris: Iterable[str]) -> None:
        """Waits for a moment in which nobody types in these documents, but not for ever. Some editors tell of changes
        late and check no version: an edit that meets typing would land beside its place."""
        documents = [document for uri in uris if (document := self._open.get(uri)) is not None]
        give_up = time.monotonic() + _LONGEST_PAUSE
        while (now := time.monotonic()) < give_up:
            quiet_at = max((document.changed_at + _QUIET for document in documents), default=now)
            if quiet_at <= now:
                return
            await asyncio.sleep(min(quiet_at, give_up) - now)

    def opened(self, item: Opened) -> None:
        self._open[item.uri] = document = Document(item, self.encoding)
        self.use(document)
        for tell in self.on_open:
            tell(item.uri)
        self.touched.set()

    def changed(self, changed: Changed) -> None:
        document = self._open.get(changed.uri)
        if document is None:
            _log.warning("a change of a document that is not open was ignored")
            return
        try:
            document.apply(changed.version, changed.changes)
        except (ValueError, IndexError):
            document.desynced = True
            _log.exception("a change could not be applied; the document is out of step")
        self.use(document)
        for tell in self.on_change:
            tell(changed.uri)
        self.touched.set()

    def closed(self, uri: str) -> None:
        for tell in self.on_close:
            tell(uri)
        document = self._open.pop(uri, None)
        if document is not None and len(document.text) > _LARGE:
            # Not now: whoever works with its text has it for another moment.
            asyncio.get_running_loop().call_later(_MOMENT, return_freed_memory)
        self.touched.set()


def _shifted(point: Point, change: _Change) -> Point:
    lines = change.new_end[0] - change.end[0]
    if point[0] != change.end[0]:
        return point[0] + lines, point[1]
    return change.new_end[0], change.new_end[1] + point[1] - change.end[1]
