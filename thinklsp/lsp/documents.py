"""The open documents of one connection: kept as lists of lines, read by everybody else as immutable snapshots."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass

from lsprotocol import types

from thinklsp.lsp.convert import Encoding, column_of, split_keeping_ends, units

_log = logging.getLogger(__name__)

_REMEMBERED_CHANGES = 500

Point = tuple[int, int]
"""Line and character as the client counts them."""


@dataclass(frozen=True, slots=True)
class _Change:
    """One change of a document, in the client's units. `end` is where the replaced range ended, `new_end` the new."""

    version: int
    start: Point
    end: Point
    new_end: Point


class Document:
    """Live text of one open document. `desynced`: the client's versions or ranges made no sense; no edits for it
    until it is sent whole again."""

    def __init__(self, item: types.TextDocumentItem, encoding: Encoding) -> None:
        self.uri = item.uri
        self.language_id = item.language_id
        self.version = item.version
        self.desynced = False
        self._encoding: Encoding = encoding
        self._lines = split_keeping_ends(item.text)
        self._text: str | None = item.text
        self._changes: deque[_Change] = deque(maxlen=_REMEMBERED_CHANGES)
        self._whole_since = item.version

    @property
    def text(self) -> str:
        if self._text is None:
            self._text = "".join(self._lines)
        return self._text

    @property
    def line_count(self) -> int:
        return len(self._lines)

    def line(self, number: int) -> str:
        """A line without its end; empty beyond the document."""
        return self._lines[number].rstrip("\r\n") if 0 <= number < len(self._lines) else ""

    def apply(self, version: int, changes: Sequence[types.TextDocumentContentChangeEvent]) -> None:
        if version <= self.version:
            self.desynced = True
            _log.warning("a document went from version %d to %d; it is out of step", self.version, version)
        for change in changes:
            if isinstance(change, types.TextDocumentContentChangePartial):
                self._replace(version, change.range, change.text)
            else:
                self._replace_all(version, change.text)
        self.version = version
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
            if point > change.start:
                if point < change.end:
                    return None
                point = _shifted(point, change)
        return point

    def _replace_all(self, version: int, text: str) -> None:
        self._lines = split_keeping_ends(text)
        self._changes.clear()
        self._whole_since = version
        self.desynced = False

    def _replace(self, version: int, where: types.Range, text: str) -> None:
        start, end = sorted((self._point(where.start), self._point(where.end)))
        first, last = self._lines[start[0]], self._lines[end[0]]
        head = first[: column_of(first, start[1], self._encoding)]
        tail = last[column_of(last, end[1], self._encoding) :]
        joined, begin, stop = head + text + tail, start[0], end[0] + 1
        if joined.startswith("\n") and begin > 0 and self._lines[begin - 1].endswith("\r"):
            # What stood between \r and \n is gone: together they are one line end.
            begin -= 1
            joined = self._lines[begin] + joined
        new = split_keeping_ends(joined)
        if stop < len(self._lines) and new[-1] == "":
            new.pop()
        self._lines[begin:stop] = new
        self._changes.append(_Change(version, start, end, self._end_of(start, text)))

    def _point(self, position: types.Position) -> Point:
        if position.line >= len(self._lines):
            last = len(self._lines) - 1
            return last, units(self._lines[last].rstrip("\r\n"), self._encoding)
        line = self._lines[position.line].rstrip("\r\n")
        return position.line, min(position.character, units(line, self._encoding))

    def _end_of(self, start: Point, text: str) -> Point:
        lines = split_keeping_ends(text)
        width = units(lines[-1], self._encoding)
        return (start[0] + len(lines) - 1, width if len(lines) > 1 else start[1] + width)


class Documents:
    """Open documents by URI, in order of opening."""

    def __init__(self) -> None:
        self.encoding: Encoding = "utf-16"
        self._open: dict[str, Document] = {}

    def get(self, uri: str) -> Document | None:
        return self._open.get(uri)

    def all(self) -> tuple[Document, ...]:
        return tuple(self._open.values())

    def opened(self, params: types.DidOpenTextDocumentParams) -> None:
        self._open[params.text_document.uri] = Document(params.text_document, self.encoding)

    def changed(self, params: types.DidChangeTextDocumentParams) -> None:
        document = self._open.get(params.text_document.uri)
        if document is None:
            _log.warning("a change of a document that is not open was ignored")
            return
        try:
            document.apply(params.text_document.version, params.content_changes)
        except (ValueError, IndexError):
            document.desynced = True
            _log.exception("a change could not be applied; the document is out of step")

    def closed(self, params: types.DidCloseTextDocumentParams) -> None:
        self._open.pop(params.text_document.uri, None)


def _shifted(point: Point, change: _Change) -> Point:
    lines = change.new_end[0] - change.end[0]
    if point[0] != change.end[0]:
        return point[0] + lines, point[1]
    return change.new_end[0], change.new_end[1] + point[1] - change.end[1]
