"""The edit ledger for a connection, and the lookup of edits that other processes made in open documents.

The ledger records each edit that is sent and the turns that wrote to each document. The records are in the store. After
a crash, the ledger finds the interrupted edits and reports their outcome.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime, timedelta
from functools import partial
from urllib.parse import unquote

from thinklsp.core.edits import FileEdit
from thinklsp.core.errors import SessionError
from thinklsp.engine import Engine
from thinklsp.engine.edit_records import build_files_title, format_names, is_undo, settle_unconfirmed, to_planned_write
from thinklsp.engine.merge_plan import FileState, MergedFile, UndoPlan, build_sent_edit, plan_undo
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.edits.edit_attribution import MAX_TURNS, Attribution, EarlierText, EditAttribution, UndoableTurn
from thinklsp.lsp.edits.pending_edits import PendingEdit
from thinklsp.lsp.protocol.positions import Span, find_written_spans
from thinklsp.sessions.ledger import (
    EarlierEdit,
    EditIntent,
    LedgerEdit,
    PlannedWrite,
    WriteOutcome,
    WrittenFile,
    WrittenTurn,
)
from thinklsp.sessions.store import SessionStore
from thinklsp.workspace.uri import normalize_uri

_log = logging.getLogger(__name__)

HISTORY = timedelta(days=7)


class EditLedger:
    def __init__(self, state: ConnectionState, snapshots: Snapshots, engine: Engine) -> None:
        self._state = state
        self._snapshots = snapshots
        self._engine = engine
        # The turns that wrote to each document and can be undone, from oldest to newest.
        self._undoable_turns: dict[str, dict[str, UndoableTurn]] = {}
        # The edits of this connection that have already been recorded.
        self._recorded_edits: set[tuple[str, str, int]] = set()
        # The spellings in the ledger of each document's URI.
        self._ledger_uris: dict[str, set[str]] = {}
        # The version of the store's data that was read last, or None if no version was read.
        self._data_version: tuple[int, ...] | None = None
        # The number of times that turns were forgotten.
        self._forget_count = 0
        self._load_task: asyncio.Future[None] | None = None
        self.attribution = EditAttribution(state)

    def find_undoable_turn(self, uri: str) -> UndoableTurn | None:
        """Return the newest turn that wrote to a document and was not undone. This method does not access the store."""
        turns = self._undoable_turns.get(self._state.file_keys.find(uri))
        return next(reversed(turns.values()), None) if turns else None

    def find_turn(self, uri: str, turn_id: str) -> UndoableTurn | None:
        """Return a turn that wrote to a document, or None if the turn is unknown or was undone."""
        return self._undoable_turns.get(self._state.file_keys.find(uri), {}).get(turn_id)

    def list_ledger_uris(self, uri: str) -> tuple[str, ...]:
        """Return the spellings of a document's URI in the ledger. The result is empty if no turn wrote to it."""
        return tuple(self._ledger_uris.get(self._state.file_keys.find(uri), ()))

    def has_written(self, turn_id: str) -> bool:
        return any(turn_id in turns for turns in self._undoable_turns.values())

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
        count = None
        while count != self._forget_count:
            count = self._forget_count
            version = await self._engine.store.read_data_version()
            since = datetime.now(UTC) - HISTORY
            written = await self._engine.store.list_written_files(self._snapshots.key, since)
            await asyncio.to_thread(self._state.file_keys.learn, {file.uri for file in written})
        self._data_version = version
        files = [file for file in written if not file.is_undone]
        known, self._undoable_turns, self._ledger_uris = self._undoable_turns, {}, {}
        names = {turn_id: turn for turns in known.values() for turn_id, turn in turns.items()}
        titles = _build_titles(files)
        for file in files:
            turn = names.get(file.turn_id) or UndoableTurn(file.turn_id, titles[file.turn_id], file.session_id)
            self._remember(file.uri, turn)
            self._ledger_uris.setdefault(self._state.file_keys.find(file.uri), set()).add(file.uri)
        self._keep_own_turns(known, {(file.turn_id, self._state.file_keys.find(file.uri)) for file in written})
        return version

    def _keep_own_turns(
        self, known: Mapping[str, Mapping[str, UndoableTurn]], written: AbstractSet[tuple[str, str]]
    ) -> None:
        """Keep the turns of this connection that are not in the ledger yet, and forget all others that are missing."""
        own = {turn_id for turn_id, _, _ in self._recorded_edits}
        for key, turns in known.items():
            current = self._undoable_turns.setdefault(key, {})
            missing = {turn_id for turn_id in turns if turn_id not in current}
            kept = {turn_id for turn_id in missing if turn_id in own and (turn_id, key) not in written}
            current.update((turn_id, turns[turn_id]) for turn_id in turns if turn_id in kept)
            if gone := missing - kept:
                self.attribution.forget(partial(_is_among, gone), key)

    async def record_intent(self, pending: PendingEdit, files: Sequence[MergedFile]) -> EditIntent:
        """Record an edit before it is sent. Raise SessionError if it cannot be stored."""
        return await self._record_writes(pending, [to_planned_write(build_sent_edit(item)) for item in files])

    async def _record_writes(self, pending: PendingEdit, writes: Sequence[PlannedWrite]) -> EditIntent:
        turn_id = pending.turn_id if pending.undo is None else pending.undo.turn.turn_id
        undo = pending.undo is not None
        return await self._engine.store.record_intent(
            pending.session_id, self._snapshots.key, turn_id, writes, is_undo=undo
        )

    async def settle(
        self, intent: EditIntent, outcomes: Mapping[str, WriteOutcome], applied_files: Iterable[FileEdit] = ()
    ) -> None:
        """Record the outcome of an edit. `applied_files` contains the applied part of each file's change."""
        try:
            await self._engine.store.settle_edit(intent, outcomes, [to_planned_write(file) for file in applied_files])
        except SessionError:
            _log.exception("the outcome of an edit could not be recorded")

    def record_written(self, pending: PendingEdit, files: Sequence[FileEdit]) -> None:
        """Record, in memory only, the files that the editor changed for a pending edit."""
        if pending.undo is not None:
            return
        turn = UndoableTurn(pending.turn_id, pending.turn_name or pending.title, pending.session_id)
        verified = "" if pending.verified is None else pending.verified.format_sentence()
        origin = Attribution(turn, pending.explanation, pending.model, verified, datetime.now().astimezone())
        self._state.file_keys.learn(file.new_uri or file.uri for file in files)
        for file in files:
            self._recorded_edits.add(_build_key(pending, file))
            self._remember(file.new_uri or file.uri, turn)
            self.attribution.record_edit(origin, file)

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
        self.record_written(pending, new_files)

    async def find_turn_to_undo(self, turn_id: str | None, session_id: str | None = None) -> WrittenTurn | None:
        """Return the turn to undo, by default the newest, or None. Raise SessionError if the store fails."""
        await self.load()
        turn = await self._engine.store.find_written_turn(self._snapshots.key, turn_id, session_id)
        if turn is None and turn_id is not None:
            # The turn was undone or deleted by another process.
            self._forget(lambda written: written.turn_id == turn_id)
        return turn

    def forget(self, session_id: str) -> None:
        """Forget a deleted session's edits."""
        self._forget(lambda written: written.session_id == session_id)

    def _forget(self, is_gone: Callable[[UndoableTurn], bool]) -> None:
        self._forget_count += 1
        for key, turns in self._undoable_turns.items():
            self._undoable_turns[key] = {turn_id: turn for turn_id, turn in turns.items() if not is_gone(turn)}
        self.attribution.forget(is_gone)

    async def record_undone(self, undo: UndoPlan, uris: Iterable[str]) -> None:
        """Record that an undo restored the earlier text of these files."""
        ledger_uris = [place for uri in uris for place in undo.ledger_uris.get(uri, ())]
        if not ledger_uris:
            return
        self._forget_count += 1
        for edit in undo.turn.edits:
            for entry in edit.entries:
                if entry.write.uri in ledger_uris:
                    now = entry.write.new_uri or entry.write.uri
                    self._undoable_turns.get(self._state.file_keys.find(now), {}).pop(edit.turn_id, None)
                    self.attribution.forget(lambda written: written.turn_id == undo.turn.turn_id, now)
        await self._record_undo(undo.turn.session_id, undo.turn, ledger_uris)

    async def _record_undo(self, session_id: str, turn: WrittenTurn | None = None, uris: Sequence[str] = ()) -> None:
        """Tell the session that the user has undone changes, and mark a turn's changes to `uris` as undone."""
        try:
            if turn is not None:
                await self._engine.store.mark_undone(turn, uris)
            await self._engine.record_undo(session_id)
        except SessionError as error:
            message = f"Could not record the undo in its session: {error}"
            self._state.client.show_message("warning", message)

    async def record_undone_hunks(self, turn_id: str, session_id: str, undone_uris: Collection[str]) -> None:
        """Record that the user has undone hunks of a turn in the editor.

        `undone_uris` contains the files of which the user has undone every hunk.
        """
        turn = await self.find_turn_to_undo(turn_id) if undone_uris else None
        undo = None if turn is None else plan_undo(turn, "")
        if undo is not None and (uris := [uri for uri in undone_uris if uri in undo.ledger_uris]):
            await self.record_undone(undo, uris)
            return
        await self._record_undo(session_id)

    def find_title(self, turn: WrittenTurn) -> str:
        """Return the title of a turn, or a title based on its file names."""
        for turns in self._undoable_turns.values():
            if turn.turn_id in turns and turns[turn.turn_id].title:
                return turns[turn.turn_id].title
        entries = [entry for edit in turn.edits for entry in edit.entries]
        return build_files_title([entry.write.path for entry in entries], entries[-1].created)

    def _remember(self, uri: str, turn: UndoableTurn) -> None:
        turns = self._undoable_turns.setdefault(self._state.file_keys.find(uri), {})
        turns.pop(turn.turn_id, None)
        turns[turn.turn_id] = turn

    async def _report_unknown(self, edit: LedgerEdit) -> None:
        """Compare an edit whose outcome is unknown with the current files, then record and report the outcome."""
        view = self._snapshots.create_view()

        async def read_state(uri: str) -> FileState:
            view.find_key(uri)  # The URI may lead through a link.
            return self._snapshots.read_state(uri, view)

        outcomes = await settle_unconfirmed(self._engine.store, self._snapshots.key, edit, read_state)
        names: dict[WriteOutcome, list[str]] = {"applied": [], "refused": [], "unknown": []}
        for entry in edit.entries:
            names[outcomes[entry.write.uri]].append(entry.write.path)
        self._state.client.show_message("warning", self._format_report(edit, names, undo=is_undo(edit)))

    def _format_report(self, edit: LedgerEdit, names: Mapping[WriteOutcome, list[str]], *, undo: bool) -> str:
        title = self.find_title(WrittenTurn(edit.turn_id, edit.intent.session_id, (edit,)))
        subject = f"the undo of “{title}”" if undo else f"the edit from “{title}”"
        phrases = {
            "applied": "appears to be applied in",
            "refused": "appears not to be applied in",
            "unknown": "cannot be distinguished from other changes in",
        }
        parts = [f"{phrases[outcome]} {format_names(files)}" for outcome, files in names.items() if files]
        after = "" if undo or not names["applied"] else " Run `thinklsp.undo` to undo the applied part."
        state = f"It {'; it '.join(parts)}"
        return f"thinklsp stopped while {subject} was being applied. {state}. The edit will not be sent again.{after}"


def _build_titles(written_files: Iterable[WrittenFile]) -> dict[str, str]:
    """Return a title based on file names for each turn. A session's title describes only the session's first turn."""
    files: dict[str, list[WrittenFile]] = {}
    for file in written_files:
        files.setdefault(file.turn_id, []).append(file)
    return {
        turn: build_files_title([unquote(item.uri) for item in group], group[-1].created)
        for turn, group in files.items()
    }


def _is_among(turn_ids: AbstractSet[str], turn: UndoableTurn) -> bool:
    return turn.turn_id in turn_ids


def _build_key(pending: PendingEdit, file: FileEdit) -> tuple[str, str, int]:
    return pending.turn_id, normalize_uri(file.new_uri or file.uri), hash(file.after)


_log = logging.getLogger(__name__)

_MAX_LENGTH = 2_000_000


class EditLookup:
    def __init__(self, state: ConnectionState, snapshots: Snapshots, ledger: EditLedger, store: SessionStore) -> None:
        self._state = state
        self._snapshots = snapshots
        self._ledger = ledger
        self._store = store
        # The open documents to look up, in order. A dict is used as an ordered set.
        self._waiting: dict[str, None] = {}
        self._task: asyncio.Task[None] | None = None
        # The version of the store's data with which each open document was looked up.
        self._versions: dict[str, tuple[int, ...]] = {}
        state.documents.on_open.append(self.request)
        state.documents.on_close.append(self._forget_document)
        for document in state.documents.list_documents():
            self.request(document.uri)

    def request(self, uri: str) -> None:
        """Start a lookup in the background, unless nothing was written since the document's last lookup."""
        if self._state.is_stopped:
            return
        self._waiting[uri] = None
        if self._task is None or self._task.done():
            self._task = self._state.spawn(self._look_up_all())

    def _forget_document(self, uri: str) -> None:
        self._waiting.pop(uri, None)
        self._versions.pop(uri, None)

    async def _look_up_all(self) -> None:
        while self._waiting:
            uri = next(iter(self._waiting))
            del self._waiting[uri]
            try:
                await self._look_up(uri)
            except SessionError as error:
                _log.info("cannot look up the edits of a document: %s", error)

    async def _look_up(self, uri: str) -> None:
        await asyncio.to_thread(self._state.file_keys.learn, [uri])
        version = await self._ledger.refresh()
        document = self._state.documents.get(uri)
        if document is None or self._versions.get(uri) == version:
            return
        uris = self._ledger.list_ledger_uris(uri)
        if uris and len(document.text) <= _MAX_LENGTH:
            since = datetime.now(UTC) - HISTORY
            edits = await self._store.list_earlier_edits(self._snapshots.key, uris, since, MAX_TURNS)
            await self._attribute(document, edits)
        if self._state.documents.get(uri) is document:
            self._versions[uri] = version

    async def _attribute(self, document: Document, edits: Sequence[EarlierEdit]) -> None:
        known, text = self._ledger.attribution.list_earlier_edits(document.uri), document.text
        new = [edit for edit in edits if edit.id not in known]
        spans = await asyncio.to_thread(_find_spans, new, text) if new else []
        spans_by_edit = {edit.id: found for edit, found in zip(new, spans, strict=True)}
        if self._state.documents.get(document.uri) is document:
            added = [
                EarlierText(edit.id, _build_attribution(edit, turn), spans_by_edit.get(edit.id, ()))
                for edit in edits
                # A turn that was undone in the meantime is unknown now.
                if (turn := self._ledger.find_turn(document.uri, edit.turn_id)) is not None
            ]
            self._ledger.attribution.add_earlier(document, text, added)


def _build_attribution(edit: EarlierEdit, turn: UndoableTurn) -> Attribution:
    return Attribution(turn, edit.answer, edit.model, "", edit.created.astimezone())


def _find_spans(edits: Sequence[EarlierEdit], text: str) -> list[list[Span]]:
    return [[] if edit.after is None else find_written_spans(edit.before or "", edit.after, text) for edit in edits]
