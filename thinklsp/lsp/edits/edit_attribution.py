"""The attribution of text in open documents to the turns that wrote it, updated as the user types.

Attributions are kept in memory. If the user rewrites part of a text, only this part is no longer attributed. The
attributions to edits of other processes are added after the ledger has been read.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from operator import attrgetter

from lsprotocol.types import Position

from thinklsp.core.edits import FileEdit
from thinklsp.core.text_safety import to_one_line
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.edits.edit_comparison import ObservedFile, compare_edit
from thinklsp.lsp.protocol.positions import Span, count_common_ends, find_first_lines, find_written_spans, shift_spans
from thinklsp.sessions.titles import truncate_title
from thinklsp.workspace.merge import MergedText, merge_onto
from thinklsp.workspace.uri import normalize_uri

# The maximum numbers of turns per document, spans per turn and document, closed documents, and characters per closed
# document.
MAX_TURNS, _MAX_SPANS, _MAX_CLOSED, _MAX_CLOSED_LENGTH = 20, 200, 50, 2_000_000
_MAX_WAIT_SECONDS = 5.0
_MAX_GAP_LINES = 3


@dataclass(frozen=True, slots=True)
class UndoableTurn:
    """A turn that wrote to a document and can be undone."""

    turn_id: str
    title: str
    session_id: str

    @property
    def undo_title(self) -> str:
        """The words for undoing the turn, on one line."""
        return f"undo “{truncate_title(to_one_line(self.title))}”"


@dataclass(frozen=True, slots=True)
class Attribution:
    """The turn that wrote a piece of text.

    `explanation` is the end of the turn's answer. `verified` describes the result of the turn's tests, and is empty for
    the turns of other processes.
    """

    turn: UndoableTurn
    explanation: str
    model: str
    verified: str
    written_at: datetime


@dataclass(frozen=True, slots=True)
class EarlierText:
    """The text that an edit of another process wrote in a document. `edit_id` is the id of the edit in the ledger."""

    edit_id: str
    attribution: Attribution
    spans: Sequence[Span]


@dataclass(slots=True)
class _AttributedText:
    """The text that a turn wrote in a document.

    `is_unsaved` is True until the document is saved. Until then, code lenses mark the text. `is_changed` is True if the
    document has changed since the text was last checked. The text of another process has an `edit_id` and no `file`,
    and counts as saved.
    """

    attribution: Attribution
    spans: list[Span]
    file: FileEdit | None
    is_unsaved: bool = True
    is_changed: bool = False
    edit_id: str = ""


@dataclass(slots=True)
class _ClosedDocument:
    """A closed document, with its last text and the edits made to the file since then."""

    text: str = ""
    texts: list[_AttributedText] = field(default_factory=list)
    edits: list[tuple[Attribution, FileEdit]] = field(default_factory=list)


class EditAttribution:
    def __init__(self, state: ConnectionState) -> None:
        self._state = state
        self._open_texts: dict[str, list[_AttributedText]] = {}
        self._closed_documents: OrderedDict[str, _ClosedDocument] = OrderedDict()
        state.documents.on_open.append(self._on_open)
        state.documents.on_close.append(self._on_close)

    def record_edit(self, attribution: Attribution, file: FileEdit) -> None:
        """Record an edit that the editor made. The document may show the edit later, or only after it is opened."""
        if file.after is None:
            return
        uri = file.new_uri or file.uri
        document = self._state.documents.get(uri)
        if document is None:
            closed_document = self._get_closed(normalize_uri(uri))
            closed_document.edits = [*closed_document.edits, (attribution, file)][-MAX_TURNS:]
        elif not self._record_spans(document, attribution, file):
            self._state.spawn(self._wait_for_edit(uri, attribution, file))

    def list_earlier_edits(self, uri: str) -> frozenset[str]:
        """Return the ids of other processes' edits that an open document is attributed to."""
        texts = self._open_texts.get(normalize_uri(uri), ())
        return frozenset(text.edit_id for text in texts if text.edit_id)

    def add_earlier(self, document: Document, compared_text: str, added: Sequence[EarlierText]) -> None:
        """Attribute text to edits of other processes. The spans refer to `compared_text`, an earlier text.

        For an edit that is already attributed, only the attribution is updated, because its turn may have continued.
        """
        key = normalize_uri(document.uri)
        known = {text.edit_id: text for text in self._open_texts.get(key, ()) if text.edit_id}
        for text in added:
            if text.edit_id in known:
                known[text.edit_id].attribution = text.attribution
        new = [
            _AttributedText(
                text.attribution,
                _carry_spans(text.spans, compared_text, document.text)[:_MAX_SPANS],
                None,
                is_unsaved=False,
                edit_id=text.edit_id,
            )
            for text in added
            if text.edit_id not in known
        ]
        if new:
            texts = [*self._open_texts.get(key, ()), *new]
            self._keep_texts(key, sorted(texts, key=attrgetter("attribution.written_at")))

    def find_attribution(self, document: Document, line: int, character: int) -> Attribution | None:
        """Return the newest turn that wrote the text at a position, given in the client's units."""
        texts = self._open_texts.get(normalize_uri(document.uri))
        if not texts:
            return None
        offset = document.offset_at_position(Position(line, character))
        return next((t.attribution for t in reversed(texts) if any(a <= offset < b for a, b in t.spans)), None)

    def find_newest(self, document: Document) -> tuple[Attribution, list[int]] | None:
        """Return the newest turn with unsaved text in a document, and the first line of each group of its spans."""
        newest = next((text for text in reversed(self._drop_reverted(document)) if text.is_unsaved), None)
        if newest is None:
            return None
        return newest.attribution, find_first_lines(newest.spans, document.lines, _MAX_GAP_LINES)

    def _drop_reverted(self, document: Document) -> list[_AttributedText]:
        """Remove text that the user has reverted, and return the attributed text that remains in a document."""
        key = normalize_uri(document.uri)
        texts = self._open_texts.get(key, [])
        for text in [text for text in texts if text.is_changed]:
            text.is_changed = False
            if text.file is not None and not compare_edit(text.file, ObservedFile(document.text)).hunks.applied:
                texts = [other for other in texts if other is not text]
                self._keep_texts(key, texts)
        return texts

    def mark_saved(self, uri: str) -> None:
        """Mark the text of a saved document as accepted. Its lenses disappear, but its hovers remain."""
        texts = self._open_texts.get(normalize_uri(uri), ())
        if any(text.is_unsaved for text in texts):
            for text in texts:
                text.is_unsaved = False
            self._state.refresh_lenses()

    def forget(self, is_gone: Callable[[UndoableTurn], bool], uri: str | None = None) -> None:
        """Remove the attribution to the given turns in one document or in all documents."""
        keys, find_key = {*self._open_texts, *self._closed_documents}, self._state.file_keys.find
        if uri is not None:
            keys = {key for key in keys if find_key(key) == find_key(uri)}
        for key in keys:
            self._keep_texts(
                key, [text for text in self._open_texts.get(key, ()) if not is_gone(text.attribution.turn)]
            )
            if (closed_document := self._closed_documents.get(key)) is not None:
                closed_document.texts = [text for text in closed_document.texts if not is_gone(text.attribution.turn)]
                closed_document.edits = [edit for edit in closed_document.edits if not is_gone(edit[0].turn)]
        self._state.refresh_lenses()

    async def _wait_for_edit(self, uri: str, attribution: Attribution, file: FileEdit) -> None:
        """Wait until a document shows an edit, because some editors answer before they send the change."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_MAX_WAIT_SECONDS):
                while (document := self._state.documents.get(uri)) and not self._record_spans(
                    document, attribution, file
                ):
                    self._state.documents.change_event.clear()
                    await self._state.documents.change_event.wait()

    def _record_spans(self, document: Document, attribution: Attribution, file: FileEdit) -> bool:
        """Record the spans of an edit. Return False if the document does not show the edit yet."""
        before, after, now = file.before or "", file.after or "", document.text
        merged = merge_onto(now, before, after)
        if isinstance(merged, MergedText) and merged.text != now:
            return False
        if spans := find_written_spans(before, after, now)[:_MAX_SPANS]:
            key = normalize_uri(document.uri)
            self._keep_texts(
                key, [*self._open_texts.get(key, ()), _AttributedText(attribution, spans, _to_text_change(file))]
            )
            self._state.refresh_lenses()
        return True

    def _keep_texts(self, key: str, texts: list[_AttributedText]) -> None:
        texts = [text for text in texts if text.spans][-MAX_TURNS:]
        if texts:
            self._open_texts[key] = texts
        else:
            self._open_texts.pop(key, None)
        for document in self._state.documents.list_documents():
            if normalize_uri(document.uri) == key:
                document.change_listener = (lambda *change: self._shift_texts(key, *change)) if texts else None

    def _shift_texts(self, key: str, start: int, end: int, length: int) -> None:
        texts = self._open_texts.get(key, [])
        for text in texts:
            text.is_changed |= any(first <= end and start <= last for first, last in text.spans)
            text.spans = list(shift_spans(text.spans, start, end, length))[:_MAX_SPANS]
        if not all(text.spans for text in texts):
            self._keep_texts(key, texts)

    def _on_open(self, uri: str) -> None:
        document, key = self._state.documents.get(uri), normalize_uri(uri)
        closed_document = self._closed_documents.pop(key, None)
        if document is None or closed_document is None:
            return
        for text in closed_document.texts:
            text.spans = _carry_spans(text.spans, closed_document.text, document.text)
        self._keep_texts(key, closed_document.texts)
        for origin, file in closed_document.edits:
            self._record_spans(document, origin, file)

    def _on_close(self, uri: str) -> None:
        """Store the attribution of a document that is about to be closed."""
        document, key = self._state.documents.get(uri), normalize_uri(uri)
        texts = self._open_texts.pop(key, None)
        if document is not None and texts and len(document.text) <= _MAX_CLOSED_LENGTH:
            closed_document = self._get_closed(key)
            closed_document.text, closed_document.texts = document.text, texts

    def _get_closed(self, key: str) -> _ClosedDocument:
        closed_document = self._closed_documents.pop(key, None) or _ClosedDocument()
        self._closed_documents[key] = closed_document
        while len(self._closed_documents) > _MAX_CLOSED:
            self._closed_documents.popitem(last=False)
        return closed_document


def _carry_spans(spans: Iterable[Span], old: str, new: str) -> list[Span]:
    """Return the parts of the spans that remain after the text changed from `old` to `new`."""
    head, tail = count_common_ends(old, new)
    return list(shift_spans(spans, head, len(old) - tail, len(new) - head - tail))


def _to_text_change(file: FileEdit) -> FileEdit:
    """Return an edit's text change without its rename. A missing file is treated as an empty document."""
    return replace(file, before=file.before or "", new_uri=None, new_path=None)
