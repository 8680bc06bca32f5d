"""The edit ledger for a connection, and the attribution of text in open documents to the turns that wrote it.

The ledger records each edit that is sent and the turns that wrote to each document. The records are in the store. After
a crash, the ledger finds the interrupted edits and reports their outcome. The attribution follows the text as the user
types. If the user rewrites part of a text, only this part is no longer attributed.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from operator import attrgetter
from urllib.parse import unquote
from weakref import WeakKeyDictionary

from lsprotocol.types import Position

from thinklsp.core.bounded_dict import BoundedDict
from thinklsp.core.edits import FileEdit
from thinklsp.core.errors import SessionError
from thinklsp.core.text_safety import to_one_line
from thinklsp.engine import Engine
from thinklsp.engine.edit_records import (
    build_files_title,
    build_turn_title,
    format_names,
    is_undo,
    settle_unconfirmed,
    to_planned_write,
)
from thinklsp.engine.merge_plan import FileState, MergedFile, UndoPlan, build_sent_edit, plan_undo
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.edits.pending_edits import PendingEdit
from thinklsp.lsp.protocol.positions import (
    Span,
    count_common_ends,
    find_first_lines,
    find_written_spans,
    shift_spans,
)
from thinklsp.sessions.ledger import EditIntent, LedgerEdit, PlannedWrite, WriteOutcome, WrittenFile, WrittenTurn
from thinklsp.sessions.titles import truncate_title
from thinklsp.workspace.uri import normalize_uri

_log = logging.getLogger(__name__)

_HISTORY = timedelta(days=7)
# The maximum numbers of turns per document, spans per turn and document, and characters of an attributed document.
_MAX_TURNS, _MAX_SPANS, _MAX_LENGTH = 20, 200, 2_000_000
_MAX_GAP_LINES = 3
# The maximum numbers of undoable turns per file, and of edits of files that are remembered in memory.
_MAX_UNDOABLE, _MAX_RECORDED = 100, 10_000

_PHRASES: Mapping[WriteOutcome, str] = {
    "applied": "appears to be applied in",
    "refused": "appears not to be applied in",
    "unknown": "cannot be distinguished from other changes in",
}


@dataclass(frozen=True, slots=True)
class UndoableTurn:
    """A turn that wrote to a document and can be undone.

    `verified` describes the result of the turn's tests, and is empty for the turns of other processes.
    """

    turn_id: str
    title: str
    session_id: str
    verified: str = ""

    @property
    def undo_title(self) -> str:
        """The words for undoing the turn, on one line."""
        return f"undo “{truncate_title(to_one_line(self.title))}”"


@dataclass(frozen=True, slots=True)
class Attribution:
    """The turn that wrote a piece of text. `explanation` is the end of the turn's answer."""

    turn: UndoableTurn
    explanation: str
    model: str
    written_at: datetime


@dataclass(slots=True)
class AttributedText:
    """The text that an edit wrote in a document, with the document's text before and after the edit.

    `edit_id` is the id of the edit in the ledger.
    """

    edit_id: str
    attribution: Attribution
    before: str
    after: str
    spans: Sequence[Span] = ()

    def find_spans(self, text: str) -> Sequence[Span]:
        """Return the spans of the edit's lines in a text. Large texts are compared in a thread."""
        return find_written_spans(self.before, self.after, text)[:_MAX_SPANS]


class EditAttribution:
    """The texts of open documents that turns wrote. Edits of this connection are unsaved until the user saves."""

    def __init__(self, state: ConnectionState) -> None:
        self._state = state
        # The texts by the document's normalized URI, from oldest to newest.
        self._texts: dict[str, list[AttributedText]] = {}
        # The documents and edits of this connection that were not saved yet. Code lenses mark their texts.
        self._unsaved: dict[tuple[str, str], None] = BoundedDict(_MAX_RECORDED)
        state.documents.on_close.append(self._forget_document)

    def _forget_document(self, uri: str) -> None:
        self._texts.pop(normalize_uri(uri), None)

    def record(self, edit_id: str, attribution: Attribution, file: FileEdit) -> None:
        """Attribute an edit that the editor has applied. A closed document is looked up in the ledger when it opens."""
        if file.after is None:
            return
        uri = file.new_uri or file.uri
        self._unsaved[normalize_uri(uri), edit_id] = None
        if (document := self._state.documents.get(uri)) is not None:
            text = AttributedText(edit_id, attribution, file.before or "", file.after)
            text.spans = text.find_spans(document.text)
            self.add(document, document.text, [text])

    def list_edits(self, uri: str) -> frozenset[str]:
        """Return the ids of the edits that an open document is attributed to."""
        return frozenset(text.edit_id for text in self._texts.get(normalize_uri(uri), ()))

    def add(self, document: Document, compared_text: str, added: Sequence[AttributedText]) -> None:
        """Add attributed texts. Their spans refer to `compared_text`, an earlier text of the document."""
        head, tail = count_common_ends(compared_text, document.text)
        change = head, len(compared_text) - tail, len(document.text) - head - tail
        for text in added:
            text.spans = list(shift_spans(text.spans, *change))[:_MAX_SPANS]
        key, ids = normalize_uri(document.uri), {text.edit_id for text in added}
        texts = [text for text in self._texts.get(key, ()) if text.edit_id not in ids]
        self._keep(key, sorted((*texts, *added), key=attrgetter("attribution.written_at")))
        if any((key, edit_id) in self._unsaved for edit_id in ids):
            self._state.refresh_lenses()

    def find_attribution(self, document: Document, line: int, character: int) -> Attribution | None:
        """Return the newest turn that wrote the text at a position, given in the client's units."""
        texts = self._texts.get(normalize_uri(document.uri))
        if not texts:
            return None
        offset = document.offset_at_position(Position(line, character))
        return next((t.attribution for t in reversed(texts) if any(a <= offset < b for a, b in t.spans)), None)

    def find_newest(self, document: Document) -> tuple[Attribution, list[int]] | None:
        """Return the newest turn with unsaved text in a document, and the first line of each group of its spans."""
        key = normalize_uri(document.uri)
        for text in reversed(self._texts.get(key, ())):
            if (key, text.edit_id) in self._unsaved:
                return text.attribution, find_first_lines(text.spans, document.lines, _MAX_GAP_LINES)
        return None

    def mark_saved(self, uri: str) -> None:
        """Mark the text of a saved document as accepted. Its lenses disappear, but its hovers remain."""
        key = normalize_uri(uri)
        if saved := [unsaved for unsaved in self._unsaved if unsaved[0] == key]:
            for unsaved in saved:
                del self._unsaved[unsaved]
            self._state.refresh_lenses()

    def forget(self, turn_ids: Collection[str], uri: str | None = None) -> None:
        """Remove the attribution to turns in one document or in all documents."""
        find_key = self._state.file_keys.find
        for key, texts in list(self._texts.items()):
            if uri is None or find_key(key) == find_key(uri):
                self._keep(key, [text for text in texts if text.attribution.turn.turn_id not in turn_ids])
        self._state.refresh_lenses()

    def _keep(self, key: str, texts: Sequence[AttributedText]) -> None:
        if kept := [text for text in texts if text.spans][-_MAX_TURNS:]:
            self._texts[key] = kept
        else:
            self._texts.pop(key, None)
        for document in self._state.documents.list_documents():
            if normalize_uri(document.uri) == key:
                document.change_listener = (lambda *change: self._shift(key, *change)) if kept else None

    def _shift(self, key: str, start: int, end: int, length: int) -> None:
        texts = self._texts.get(key, [])
        for text in texts:
            text.spans = list(shift_spans(text.spans, start, end, length))[:_MAX_SPANS]
        if not all(text.spans for text in texts):
            self._keep(key, texts)


class EditLedger:
    def __init__(self, state: ConnectionState, snapshots: Snapshots, engine: Engine) -> None:
        self._state = state
        self._snapshots = snapshots
        self._engine = engine
        self.attribution = EditAttribution(state)
        # By the key of each file: the turns that wrote to the file and can be undone, from oldest to newest, and the
        # spellings of its URI in the ledger.
        self._turns: dict[str, dict[str, UndoableTurn]] = {}
        self._ledger_uris: dict[str, set[str]] = {}
        # The edits of this connection that have already been recorded.
        self._recorded_edits: dict[tuple[str, str, int], None] = BoundedDict(_MAX_RECORDED)
        # The version of the store's data that was read last, or None if no version was read.
        self._data_version: tuple[int, ...] | None = None
        # The number of changes to `_turns`. If it changes while the store is being read, the result is stale.
        self._change_count = 0
        self._load_task: asyncio.Future[None] | None = None
        # The open documents to look up, and the versions of the store's data and of the document at the last lookup.
        self._waiting: set[str] = set()
        self._looked_up = WeakKeyDictionary[Document, tuple[int, ...]]()
        self._lookup_lock = asyncio.Lock()
        state.documents.on_open.append(self.request_lookup)
        for document in state.documents.list_documents():
            self.request_lookup(document.uri)

    def find_undoable_turn(self, uri: str) -> UndoableTurn | None:
        """Return the newest turn that wrote to a document and was not undone. This method does not access the store."""
        turns = self._turns.get(self._state.file_keys.find(uri))
        return next(reversed(turns.values()), None) if turns else None

    def has_written(self, turn_id: str) -> bool:
        return any(turn_id in turns for turns in self._turns.values())

    async def load(self) -> None:
        """Load recent edits, and report edits that a crash interrupted. Concurrent callers share a single load."""
        if self._load_task is None:
            self._load_task = self._state.spawn(self._load(), is_awaited=True)
        await asyncio.shield(self._load_task)

    async def _load(self) -> None:
        try:
            for edit in await self._engine.store.list_unknown_edits(self._snapshots.key):
                await self._report_unknown(edit)
            await self._read_written_files()
        except SessionError as error:
            _log.warning("cannot read the edit ledger: %s", error)

    async def refresh(self) -> tuple[int, ...]:
        """Read the ledger again if another process has written to the store. Return the version of the data.

        Raise SessionError if the store fails.
        """
        await self.load()
        version = await self._engine.store.read_data_version()
        return version if version == self._data_version else await self._read_written_files()

    async def _read_written_files(self) -> tuple[int, ...]:
        """Read which turns wrote to each document, and return the version of the data.

        The turns that another process has undone are forgotten.
        """
        change_count = None
        while change_count != self._change_count:
            change_count = self._change_count
            version = await self._engine.store.read_data_version()
            since = datetime.now(UTC) - _HISTORY
            written = await self._engine.store.list_written_files(self._snapshots.key, since)
            await asyncio.to_thread(self._state.file_keys.learn, {file.uri for file in written})
        self._data_version = version
        earlier, self._turns, self._ledger_uris = self._turns, {}, {}
        known = {turn_id: turn for turns in earlier.values() for turn_id, turn in turns.items()}
        groups: dict[str, list[WrittenFile]] = {}
        for file in written:
            if not file.is_undone:
                groups.setdefault(file.turn_id, []).append(file)
        for turn_id, files in groups.items():
            # A session's title describes only the session's first turn.
            title = build_files_title([unquote(file.uri) for file in files], files[-1].created)
            known.setdefault(turn_id, UndoableTurn(turn_id, title, files[0].session_id))
        for file in written:
            if not file.is_undone:
                self._remember(file.uri, known[file.turn_id])
        for key, turns in earlier.items():
            if gone := turns.keys() - self._turns.get(key, {}).keys():
                self.attribution.forget(gone, key)
        return version

    def request_lookup(self, uri: str) -> None:
        """Attribute an open document to the edits in the ledger, in the background.

        A document is looked up after it was opened, and again if it has changed or another process has written to the
        store since. The session store reads in its own thread, and texts are compared in a thread.
        """
        if uri not in self._waiting and not self._state.is_stopped:
            self._waiting.add(uri)
            self._state.spawn(self._look_up(uri))

    async def _look_up(self, uri: str) -> None:
        try:
            async with self._lookup_lock:
                self._waiting.discard(uri)
                await asyncio.to_thread(self._state.file_keys.learn, [uri])
                data_version, document = await self.refresh(), self._state.documents.get(uri)
                if document is None:
                    return
                version = (*data_version, document.version)
                if self._looked_up.get(document) == version:
                    return
                if len(document.text) <= _MAX_LENGTH:
                    await self._attribute(document)
                self._looked_up[document] = version
        except SessionError as error:
            _log.info("cannot look up the edits of a document: %s", error)

    async def _attribute(self, document: Document) -> None:
        key, text, since = self._state.file_keys.find(document.uri), document.text, datetime.now(UTC) - _HISTORY
        uris, turns = tuple(self._ledger_uris.get(key, ())), self._turns.get(key, {})
        known = self.attribution.list_edits(document.uri)
        edits = (
            await self._engine.store.list_earlier_edits(self._snapshots.key, uris, since, _MAX_TURNS) if uris else ()
        )
        texts = [
            AttributedText(
                edit.id,
                Attribution(turns[edit.turn_id], edit.answer, edit.model, edit.created.astimezone()),
                edit.before or "",
                edit.after,
            )
            for edit in edits
            if edit.turn_id in turns and edit.after is not None and edit.id not in known
        ]
        await asyncio.to_thread(_find_spans, texts, text)
        if texts and self._state.documents.get(document.uri) is document:
            # A turn that was undone in the meantime is unknown now.
            turns = self._turns.get(key, {})
            found = [earlier for earlier in texts if earlier.attribution.turn.turn_id in turns]
            self.attribution.add(document, text, found)

    async def record_intent(self, pending: PendingEdit, files: Sequence[MergedFile]) -> EditIntent:
        """Record an edit before it is sent. Raise SessionError if it cannot be stored."""
        return await self._record_writes(pending, [to_planned_write(build_sent_edit(item)) for item in files])

    async def _record_writes(self, pending: PendingEdit, writes: Sequence[PlannedWrite]) -> EditIntent:
        undo = pending.undo
        turn_id = pending.turn_id if undo is None else undo.turn.turn_id
        return await self._engine.store.record_intent(
            pending.session_id, self._snapshots.key, turn_id, writes, is_undo=undo is not None
        )

    async def settle(
        self, intent: EditIntent, outcomes: Mapping[str, WriteOutcome], applied_files: Iterable[FileEdit] = ()
    ) -> None:
        """Record the outcome of an edit. `applied_files` contains the applied part of each file's change."""
        try:
            await self._engine.store.settle_edit(intent, outcomes, [to_planned_write(file) for file in applied_files])
        except SessionError:
            _log.exception("the outcome of an edit could not be recorded")

    def record_written(self, pending: PendingEdit, intent: EditIntent, files: Sequence[FileEdit]) -> None:
        """Record, in memory only, the files that the editor changed for a pending edit."""
        if pending.undo is not None or not files:
            return
        verified = "" if pending.verified is None else pending.verified.format_sentence()
        turn = UndoableTurn(pending.turn_id, pending.turn_name or pending.title, pending.session_id, verified)
        attribution = Attribution(turn, pending.explanation, pending.model, datetime.now().astimezone())
        self._change_count += 1
        self._state.file_keys.learn(file.new_uri or file.uri for file in files)
        for file in files:
            uri = file.new_uri or file.uri
            self._recorded_edits[_build_key(pending, file)] = None
            self._remember(uri, turn)
            self.attribution.record(intent.id, attribution, file)

    async def record_taken(self, pending: PendingEdit, files: Sequence[FileEdit]) -> None:
        """Record an edit that the user applied through a code action rather than through a server request."""
        new_files = [file for file in files if _build_key(pending, file) not in self._recorded_edits]
        if not new_files or pending.undo is not None:
            return
        try:
            intent = await self._record_writes(pending, [to_planned_write(file) for file in new_files])
        except SessionError:
            _log.exception("an edit that the user applied could not be recorded")
            return
        await self.settle(intent, {file.uri: "applied" for file in new_files})
        self.record_written(pending, intent, new_files)

    async def find_turn_to_undo(self, turn_id: str | None, session_id: str | None = None) -> WrittenTurn | None:
        """Return the turn to undo, by default the newest, or None. Raise SessionError if the store fails."""
        await self.load()
        turn = await self._engine.store.find_written_turn(self._snapshots.key, turn_id, session_id)
        if turn is None and turn_id is not None:
            # The turn was undone or deleted by another process.
            self._forget({turn_id})
        return turn

    def forget(self, session_id: str) -> None:
        """Forget a deleted session's edits."""
        known = (turn for turns in self._turns.values() for turn in turns.values())
        self._forget({turn.turn_id for turn in known if turn.session_id == session_id})

    def _forget(self, turn_ids: Collection[str]) -> None:
        self._change_count += 1
        for turns in self._turns.values():
            for turn_id in turn_ids:
                turns.pop(turn_id, None)
        self.attribution.forget(turn_ids)

    async def record_undone(self, undo: UndoPlan, uris: Iterable[str]) -> None:
        """Record that an undo restored the earlier text of these files."""
        ledger_uris = [place for uri in uris for place in undo.ledger_uris.get(uri, ())]
        if not ledger_uris:
            return
        self._change_count += 1
        for edit in undo.turn.edits:
            for entry in edit.entries:
                if entry.write.uri in ledger_uris:
                    uri = entry.write.new_uri or entry.write.uri
                    self._turns.get(self._state.file_keys.find(uri), {}).pop(edit.turn_id, None)
                    self.attribution.forget({undo.turn.turn_id}, uri)
        await self._record_undo(undo.turn.session_id, undo.turn, ledger_uris)

    async def record_undone_hunks(self, turn_id: str, session_id: str, undone_uris: Collection[str]) -> None:
        """Record that the user has undone hunks of a turn in the editor.

        `undone_uris` contains the files of which the user has undone every hunk.
        """
        turn = await self.find_turn_to_undo(turn_id) if undone_uris else None
        undo = None if turn is None else plan_undo(turn, "")
        if undo is not None and (uris := [uri for uri in undone_uris if uri in undo.ledger_uris]):
            await self.record_undone(undo, uris)
        else:
            await self._record_undo(session_id)

    async def _record_undo(self, session_id: str, turn: WrittenTurn | None = None, uris: Sequence[str] = ()) -> None:
        """Tell the session that the user has undone changes, and mark a turn's changes to `uris` as undone."""
        try:
            if turn is not None:
                await self._engine.store.mark_undone(turn, uris)
            await self._engine.record_undo(session_id)
        except SessionError as error:
            message = f"Could not record the undo in its session: {error}"
            self._state.client.show_message("warning", message)

    def find_title(self, turn: WrittenTurn) -> str:
        """Return the title of a turn, or a title based on its file names."""
        known = (turns[turn.turn_id].title for turns in self._turns.values() if turn.turn_id in turns)
        return next(filter(None, known), "") or build_turn_title(turn)

    def _remember(self, uri: str, turn: UndoableTurn) -> None:
        key = self._state.file_keys.find(uri)
        self._ledger_uris.setdefault(key, set()).add(uri)
        self._turns.setdefault(key, BoundedDict(_MAX_UNDOABLE))[turn.turn_id] = turn

    async def _report_unknown(self, edit: LedgerEdit) -> None:
        """Compare an edit whose outcome is unknown with the current files, then record and report the outcome."""
        view = self._snapshots.create_view()

        async def read_state(uri: str) -> FileState:
            view.find_key(uri)  # The URI may lead through a link.
            return self._snapshots.read_state(uri, view)

        outcomes = await settle_unconfirmed(self._engine.store, self._snapshots.key, edit, read_state)
        names: dict[WriteOutcome, list[str]] = {outcome: [] for outcome in _PHRASES}
        for entry in edit.entries:
            names[outcomes[entry.write.uri]].append(entry.write.path)
        title = self.find_title(WrittenTurn(edit.turn_id, edit.session_id, (edit,)))
        subject = f"the undo of “{title}”" if is_undo(edit) else f"the edit from “{title}”"
        parts = [f"{_PHRASES[outcome]} {format_names(files)}" for outcome, files in names.items() if files]
        hint = "" if is_undo(edit) or not names["applied"] else " Run `thinklsp.undo` to undo the applied part."
        self._state.client.show_message(
            "warning",
            f"thinklsp stopped while {subject} was being applied. It {'; it '.join(parts)}. The edit will not be sent "
            f"again.{hint}",
        )


def _build_key(pending: PendingEdit, file: FileEdit) -> tuple[str, str, int]:
    return pending.turn_id, normalize_uri(file.new_uri or file.uri), hash(file.after)


def _find_spans(texts: Sequence[AttributedText], text: str) -> None:
    for earlier in texts:
        earlier.spans = earlier.find_spans(text)
