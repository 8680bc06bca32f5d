"""Which text of the open documents turns have written, and why: followed through everything that is typed around it.

From memory alone. What the user rewrites is no longer the turn's; what is left on both sides of it still is.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime

from thinklsp.core.edits import FileEdit
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.documents.spans import Span, first_lines, followed, trimmed, written
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.edits.comparing import Shown, compare
from thinklsp.lsp.edits.standing import Written
from thinklsp.workspace.forms import merge_onto
from thinklsp.workspace.merge import Merged
from thinklsp.workspace.uri import uri_key

# Turns remembered for a document, spans of a turn in it, documents that are not open, characters of one of these.
_MOST_TURNS, _MOST_SPANS, _MOST_CLOSED, _LARGEST = 20, 200, 50, 2_000_000
_LONGEST_ARRIVAL = 5.0
_NEAR = 3


@dataclass(frozen=True, slots=True)
class Origin:
    """The turn that wrote a text. `why`: what it said at its end; `verified`: a sentence, empty where no test ran."""

    turn: Written
    why: str
    model: str
    verified: str
    at: datetime


@dataclass(slots=True)
class _Text:
    """What one turn wrote in one document. `new`: the document was not saved since, so that lenses show it. `touched`:
    its text was changed since somebody last looked whether it is still there.
    """

    origin: Origin
    spans: list[Span]
    file: FileEdit
    new: bool = True
    touched: bool = False


@dataclass(slots=True)
class _Closed:
    """A document that is not open: as it was when it was closed, and edits that nobody has seen in it yet."""

    text: str = ""
    texts: list[_Text] = field(default_factory=list)
    edits: list[tuple[Origin, FileEdit]] = field(default_factory=list)


class WrittenText:
    def __init__(self, state: State) -> None:
        self._state = state
        self._open: dict[str, list[_Text]] = {}
        self._closed: OrderedDict[str, _Closed] = OrderedDict()
        state.documents.on_open.append(self._opened)
        state.documents.on_close.append(self._left)

    def wrote(self, origin: Origin, file: FileEdit) -> None:
        """The editor has made this edit, or says so: a document shows it now, soon, or when it is opened."""
        if file.after is None:
            return
        uri = file.new_uri or file.uri
        document = self._state.documents.get(uri)
        if document is None:
            closed = self._closed_at(uri_key(uri))
            closed.edits = [*closed.edits, (origin, file)][-_MOST_TURNS:]
        elif not self._take(document, origin, file):
            self._state.spawn(self._arrive(uri, origin, file))

    def at(self, document: Document, line: int, character: int) -> Origin | None:
        """The newest turn whose text stands at a position, in the client's units."""
        texts = self._open.get(uri_key(document.uri))
        if not texts:
            return None
        offset = document.offset(line, character)
        return next((t.origin for t in reversed(texts) if any(a <= offset < b for a, b in t.spans)), None)

    def newest(self, document: Document) -> tuple[Origin, list[int]] | None:
        """The newest turn with text in a document that was not saved since, and the lines where groups of it begin."""
        texts = self._without_reverted(document)
        if not texts or not texts[-1].new:
            return None
        return texts[-1].origin, first_lines(texts[-1].spans, document.lines, _NEAR)

    def _without_reverted(self, document: Document) -> list[_Text]:
        """What the user has taken back by hand, or by reverting the file, is no turn's any more."""
        key = uri_key(document.uri)
        texts = self._open.get(key, [])
        for text in [text for text in texts if text.touched]:
            text.touched = False
            if not compare(text.file, Shown(document.text)).hunks.applied:
                texts = [other for other in texts if other is not text]
                self._keep(key, texts)
        return texts

    def saved(self, uri: str) -> None:
        """The user has accepted what stands there: lenses go, the hover stays."""
        texts = self._open.get(uri_key(uri), ())
        if any(text.new for text in texts):
            for text in texts:
                text.new = False
            self._state.refresh_lenses()

    def forget(self, gone: Callable[[Written], bool], uri: str | None = None) -> None:
        """What these turns wrote, everywhere or in one document, is theirs no more."""
        keys = {*self._open, *self._closed} if uri is None else {uri_key(uri)}
        for key in keys:
            self._keep(key, [text for text in self._open.get(key, ()) if not gone(text.origin.turn)])
            if (closed := self._closed.get(key)) is not None:
                closed.texts = [text for text in closed.texts if not gone(text.origin.turn)]
                closed.edits = [edit for edit in closed.edits if not gone(edit[0].turn)]
        self._state.refresh_lenses()

    async def _arrive(self, uri: str, origin: Origin, file: FileEdit) -> None:
        """Some editors answer before they tell of the change."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_LONGEST_ARRIVAL):
                while (document := self._state.documents.get(uri)) and not self._take(document, origin, file):
                    self._state.documents.touched.clear()
                    await self._state.documents.touched.wait()

    def _take(self, document: Document, origin: Origin, file: FileEdit) -> bool:
        """False while the document does not show the edit."""
        before, after, now = file.before or "", file.after or "", document.text
        merged = merge_onto(now, before, after)
        if isinstance(merged, Merged) and merged.text != now:
            return False
        if spans := written(before, after, now)[:_MOST_SPANS]:
            key = uri_key(document.uri)
            self._keep(key, [*self._open.get(key, ()), _Text(origin, spans, _as_change(file))])
            self._state.refresh_lenses()
        return True

    def _keep(self, key: str, texts: list[_Text]) -> None:
        texts = [text for text in texts if text.spans][-_MOST_TURNS:]
        if texts:
            self._open[key] = texts
        else:
            self._open.pop(key, None)
        for document in self._state.documents.all():
            if uri_key(document.uri) == key:
                document.follower = (lambda *change: self._changed(key, *change)) if texts else None

    def _changed(self, key: str, start: int, end: int, length: int) -> None:
        texts = self._open.get(key, [])
        for text in texts:
            text.touched |= any(first <= end and start <= last for first, last in text.spans)
            text.spans = list(followed(text.spans, start, end, length))[:_MOST_SPANS]
        if not all(text.spans for text in texts):
            self._keep(key, texts)

    def _opened(self, uri: str) -> None:
        document, key = self._state.documents.get(uri), uri_key(uri)
        closed = self._closed.pop(key, None)
        if document is None or closed is None:
            return
        now = document.text
        head, tail = trimmed(closed.text, now)
        for text in closed.texts:
            text.spans = list(followed(text.spans, head, len(closed.text) - tail, len(now) - head - tail))
        self._keep(key, closed.texts)
        for origin, file in closed.edits:
            self._take(document, origin, file)

    def _left(self, uri: str) -> None:
        """The document is being closed: it is still there."""
        document, key = self._state.documents.get(uri), uri_key(uri)
        texts = self._open.pop(key, None)
        if document is not None and texts and len(document.text) <= _LARGEST:
            closed = self._closed_at(key)
            closed.text, closed.texts = document.text, texts

    def _closed_at(self, key: str) -> _Closed:
        closed = self._closed.pop(key, None) or _Closed()
        self._closed[key] = closed
        while len(self._closed) > _MOST_CLOSED:
            self._closed.popitem(last=False)
        return closed


def _as_change(file: FileEdit) -> FileEdit:
    """The change of the text alone: an empty document is one before which there was none."""
    return replace(file, before=file.before or "", new_uri=None, new_path=None)
