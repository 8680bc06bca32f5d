"""A connection's open documents, stored as lists of lines, and its workspace folders."""

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

from lsprotocol.types import (
    DidChangeWorkspaceFoldersParams,
    InitializeParams,
    Position,
    Range,
    TextDocumentContentChangeEvent,
    TextDocumentContentChangePartial,
    TextDocumentItem,
    VersionedTextDocumentIdentifier,
    WorkspaceFolder,
)
from pygls.workspace import TextDocument, Workspace

from thinklsp.core.check_results import EditorDiagnostic
from thinklsp.lsp.protocol.positions import Encoding, count_common_ends, count_units, find_column, split_keeping_ends

_log = logging.getLogger(__name__)

_MAX_CHANGES = 500
_LAST_COLUMN = 2**31 - 1
_IDLE_SECONDS = 0.25
_MAX_WAIT_SECONDS = 2.0

Point = tuple[int, int]
"""A zero-based line and character, in the client's encoding."""


@dataclass(frozen=True, slots=True)
class _Change:
    """A change of the range `[start, end)` to `[new_start, new_end)` in a document, in the client's units.

    The two starts differ only if a `\\r` before the change and a `\\n` after it were joined into a single line ending.
    """

    version: int
    start: Point
    end: Point
    new_start: Point
    new_end: Point


@dataclass(frozen=True, slots=True)
class TrackedDiagnostic:
    """A diagnostic, with its position in version `version` of the document, in the client's units.

    `reported_version` is the version for which the editor sent the diagnostic. `text` is the diagnostic's first line.
    """

    problem: EditorDiagnostic
    start: Point
    end: Point
    version: int
    reported_version: int
    text: str


class Document(TextDocument):
    """The live text of an open document, stored as lines.

    pygls' TextDocument copies the entire text for each change, splits lines at characters that are not line endings in
    LSP, and clamps positions wrongly.

    `is_desynced` is True if the client sent inconsistent versions or ranges. The document then gets no edits until the
    client sends its full text. `changed_at` is the time of the user's last change in monotonic seconds. `last_use` is
    higher for more recently used documents. `is_edit_expected` is True until the editor reports an edit by the server,
    which does not count as use. `tracked_diagnostics` contains the editor's diagnostics. `change_listener` is called
    for each change with the replaced range and the new length in code points.
    """

    version: int
    language_id: str

    def __init__(self, item: TextDocumentItem, encoding: Encoding) -> None:
        try:
            super().__init__(item.uri, version=item.version, language_id=item.language_id)
        except ValueError:  # The URI is invalid, for example `file://[`.
            super().__init__("", version=item.version, language_id=item.language_id)
            self.uri = item.uri
        self.is_desynced = False
        self.changed_at = -math.inf
        self.last_use = 0
        self.is_edit_expected = False
        self.tracked_diagnostics: tuple[TrackedDiagnostic, ...] = ()
        self.change_listener: Callable[[int, int, int], None] | None = None
        self.encoding: Encoding = encoding
        self._text: str | None = item.text
        self._changes: deque[_Change] = deque(maxlen=_MAX_CHANGES)
        self._first_known_version = item.version

    @cached_property
    def _lines(self) -> list[str]:
        """The lines of the text, split on first use.

        Most documents are closed before their lines are needed, and lines use several times as much memory as the text.
        """
        return split_keeping_ends(self.text)

    @property
    def text(self) -> str:
        if self._text is None:
            self._text = "".join(self._lines)
        return self._text

    @property
    def source(self) -> str:
        """The document's text, under the name that pygls uses."""
        return self.text

    @property
    def line_count(self) -> int:
        return len(self._lines)

    @property
    def lines(self) -> Sequence[str]:
        """The live lines with their line endings. Callers must not keep the list, because changes modify it."""
        return self._lines

    def get_line(self, number: int) -> str:
        """Return a line without its line ending, or an empty string for a line beyond the end of the document."""
        return self._lines[number].rstrip("\r\n") if 0 <= number < len(self._lines) else ""

    def offset_at_position(self, client_position: Position) -> int:
        """Return the number of code points before a position in the client's units, clamped to the text."""
        number, column = self._clamp_position(client_position)
        return sum(map(len, self._lines[:number])) + column

    def apply_change(self, change: TextDocumentContentChangeEvent) -> None:
        self.apply(self.version + 1, [change])

    def apply(self, version: int, changes: Sequence[TextDocumentContentChangeEvent]) -> None:
        """Apply the changes and set the document's version."""
        if version <= self.version:
            self.is_desynced = True
            _log.warning("a document went from version %d to %d; it is out of sync", self.version, version)
        for change in changes:
            if isinstance(change, TextDocumentContentChangePartial):
                self._replace(version, change.range, change.text)
            else:
                self._replace_all(version, change.text)
        self.version = version
        self.changed_at = time.monotonic()
        if changes:
            self._text = None

    def map_position(self, point: Point, version: int) -> Point | None:
        """Map a position in an older version to the current text, or return None if the position no longer exists."""
        if version < self._first_known_version or version > self.version:
            return None
        if self._changes and len(self._changes) == _MAX_CHANGES and version < self._changes[0].version:
            return None
        for change in self._changes:
            if change.version <= version:
                continue
            if change.start < point < change.end:
                return None
            if point > change.start:
                point = _shift_point(point, change)
            elif point == change.start:
                point = change.new_start
        return point[0], min(point[1], _LAST_COLUMN)

    def _replace_all(self, version: int, text: str) -> None:
        if self.change_listener is not None:
            self._notify_listener(self.change_listener, 0, self.text, text)
        self._lines = split_keeping_ends(text)
        self._changes.clear()
        self._first_known_version = version
        self.is_desynced = False

    def _replace(self, version: int, range_: Range, text: str) -> None:
        start, end = sorted((self._clamp_position(range_.start), self._clamp_position(range_.end)))
        if self.change_listener is not None:
            offset = sum(map(len, self._lines[: start[0]])) + start[1]
            old = "".join(self._lines[start[0] : end[0]]) + self._lines[end[0]][: end[1]]
            self._notify_listener(self.change_listener, offset, old[start[1] :], text)
        first, last = self._lines[start[0]], self._lines[end[0]]
        head, tail = first[: start[1]], last[end[1] :]
        begin, stop = start[0], end[0] + 1
        removed = (start[0], count_units(head, self.encoding)), (end[0], count_units(last[: end[1]], self.encoding))
        if (head + text + tail).startswith("\n") and begin > 0 and self._lines[begin - 1].endswith("\r"):
            # The text between `\r` and `\n` was removed, so the two characters now form a single line ending.
            begin -= 1
            head = self._lines[begin] + head
        new = split_keeping_ends(head + text + tail)
        if stop < len(self._lines) and new[-1] == "":
            new.pop()
        self._lines[begin:stop] = new
        added = self._locate_offset(new, begin, len(head)), self._locate_offset(new, begin, len(head) + len(text))
        self._changes.append(_Change(version, *removed, *added))

    def _notify_listener(self, listener: Callable[[int, int, int], None], at: int, old: str, new: str) -> None:
        """Notify the listener of the smallest change, because editors may send more text than they changed."""
        head, tail = count_common_ends(old, new)
        listener(at + head, at + len(old) - tail, len(new) - head - tail)

    def _clamp_position(self, position: Position) -> Point:
        """Return the line and the number of code points before a position, clamped to the text."""
        line = min(position.line, len(self._lines) - 1)
        character = position.character if line == position.line else _LAST_COLUMN
        return line, find_column(self._lines[line], character, self.encoding)

    def _locate_offset(self, lines: Sequence[str], first: int, offset: int) -> Point:
        """Return the position at an offset in `lines`. The first item of `lines` is line `first` of the document."""
        for number, line in enumerate(lines, first):
            if offset < len(line) or (offset == len(line) and line[-1:] not in ("\r", "\n")):
                return number, count_units(line.rstrip("\r\n")[:offset], self.encoding)
            offset -= len(line)
        return first + len(lines), 0


class Documents(Workspace):
    """The open documents by URI, in the order in which they were opened, and the workspace folders by URI.

    `change_event` is set when a document is opened, changed or closed. Callers clear the event before they wait for it.
    `on_open` callbacks run after a document is added, and `on_close` callbacks before it is removed. `root` is the root
    folder of a client that sends no folder list.
    """

    def __init__(self) -> None:
        super().__init__(None)
        self.encoding: Encoding = "utf-16"
        self.root: str | None = None
        self.change_event = asyncio.Event()
        self.on_open: list[Callable[[str], None]] = []
        self.on_change: list[Callable[[str], None]] = []
        self.on_close: list[Callable[[str], None]] = []
        self._open: dict[str, Document] = {}
        self._uses = count(1)

    @property
    def text_documents(self) -> dict[str, Document]:
        return self._open

    def get_text_document(self, doc_uri: str) -> Document:
        """Return an open document. Raise KeyError for other files, which are read only through `workspace/paths`."""
        return self._open[doc_uri]

    def get(self, uri: str) -> Document | None:
        return self._open.get(uri)

    def list_documents(self) -> tuple[Document, ...]:
        return tuple(self._open.values())

    def mark_used(self, document: Document) -> None:
        """Mark a document as the most recently used."""
        document.last_use = next(self._uses)

    def record_edit(self, uri: str, text: str | None) -> None:
        """Record that an edit by the server gave a document this text. If it is the latest, the user is not typing."""
        document = self._open.get(uri)
        if document is not None and document.text == text:
            document.changed_at = -math.inf

    async def wait_until_idle(self, uris: Iterable[str]) -> None:
        """Wait until no document has changed for a moment, or for at most two seconds.

        Some editors report changes late and do not check versions, so an edit sent during typing could affect the wrong
        line.
        """
        documents = [document for uri in uris if (document := self._open.get(uri)) is not None]
        deadline = time.monotonic() + _MAX_WAIT_SECONDS
        while (now := time.monotonic()) < deadline:
            idle_at = max((document.changed_at + _IDLE_SECONDS for document in documents), default=now)
            if idle_at <= now:
                return
            await asyncio.sleep(min(idle_at, deadline) - now)

    def put_text_document(
        self,
        text_document: TextDocumentItem,
        notebook_uri: str | None = None,  # noqa: ARG002 - part of pygls' interface
    ) -> None:
        uri = text_document.uri
        self._open[uri] = document = Document(text_document, self.encoding)
        self.mark_used(document)
        for notify in self.on_open:
            notify(uri)
        self.change_event.set()

    def change_text_document(
        self, identifier: VersionedTextDocumentIdentifier, changes: Sequence[TextDocumentContentChangeEvent]
    ) -> None:
        """Apply all changes in a notification. Together, they produce a single new version."""
        document = self._open.get(identifier.uri)
        if document is None:
            _log.warning("ignored a change to a document that is not open")
            return
        try:
            document.apply(identifier.version, changes)
        except (ValueError, IndexError):
            document.is_desynced = True
            _log.exception("a change could not be applied; the document is out of sync")
        if not document.is_edit_expected:
            self.mark_used(document)
        document.is_edit_expected = False
        for notify in self.on_change:
            notify(identifier.uri)
        self.change_event.set()

    def remove_text_document(self, doc_uri: str) -> None:
        for notify in self.on_close:
            notify(doc_uri)
        self._open.pop(doc_uri, None)
        self.change_event.set()

    def set_first_folders(self, params: InitializeParams) -> None:
        """Set the folders from `initialize`. A root folder is used only until the client adds a folder."""
        folders, root = params.workspace_folders, params.root_uri
        # An empty list means that no folder is open, even though Kate still sends the home folder as `rootUri`.
        self.root = root if folders is None and root else None
        self._folders = {folder.uri: folder for folder in folders or ()}
        if self.root is not None:
            self._folders[self.root] = WorkspaceFolder(self.root, "")

    def change_folders(self, params: DidChangeWorkspaceFoldersParams) -> None:
        if params.event.added and self.root is not None:
            self._folders.pop(self.root, None)
            self.root = None
        for folder in params.event.removed:
            self._folders.pop(folder.uri, None)
        for folder in params.event.added:
            self._folders[folder.uri] = folder


def _shift_point(point: Point, change: _Change) -> Point:
    lines = change.new_end[0] - change.end[0]
    if point[0] != change.end[0]:
        return point[0] + lines, point[1]
    return change.new_end[0], change.new_end[1] + point[1] - change.end[1]
