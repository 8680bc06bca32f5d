"""Workspace edits in flight, and the verification that they appear in the open documents or on disk.

The edit ledger records each edit before it is sent and again after the editor's answer. Each edit is sent in its own
task. An answer that arrives after a cancellation is therefore still recorded. The editor's answer alone is not
sufficient, because some editors answer `applied: true` after applying only part of an edit or nothing.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol

from lsprotocol.types import WorkspaceEdit

from thinklsp.core.errors import PathRefused, TurnRefused
from thinklsp.engine.merge_plan import FileState, MergedFile, MergePlan, build_sent_edit
from thinklsp.engine.results import EditOutcome, FileStatus, count_unsent_hunks
from thinklsp.lsp.editor.client import ApplyReply
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.edits.edit_comparison import EditComparison, ObservedFile, compare_edit
from thinklsp.lsp.edits.edit_ledger import EditLedger
from thinklsp.lsp.edits.pending_edits import PendingEdit, PendingEdits
from thinklsp.sessions.ledger import EditIntent, WriteOutcome
from thinklsp.workspace.merge import is_equal_ignoring_format
from thinklsp.workspace.uri import normalize_uri
from thinklsp.workspace.view import WorkspaceView

EditState = Literal["drafted", "withdrawn", "sent", "unknown", "doubted", "answered"]
"""How far an edit in flight is. The usual order is `drafted`, `sent`, `answered`.

After a cancel, a drafted edit becomes `withdrawn` and a sent edit `unknown` until the editor answers. `doubted`: the
user was told that the edit may have been applied.
"""


class EditWatcher(Protocol):
    """An observer for an edit in flight."""

    def watch_question(self) -> None:
        """Called when the server asks the user about the edit."""

    def watch_sent(self, *, is_reviewed: bool) -> None:
        """Called when the edit has been sent. `is_reviewed` is True if the editor asks the user to confirm it."""

    def watch_applied(self, outcome: EditOutcome) -> None:
        """Called when the editor has applied the edit. A cancellation no longer affects the edit."""


@dataclass(frozen=True, slots=True)
class EditAnswer:
    """The editor's answer to an edit, with a comparison for each file by URI."""

    reply: ApplyReply
    comparisons: Mapping[str, EditComparison]


@dataclass(slots=True)
class InFlightEdit:
    """An edit that is being sent to the editor.

    `current_files` contains the file states from which the merge plan was made. After the editor's answer, the verifier
    checks the documents and the disk. Then `on_answer` is called and `outcome` is set.
    """

    connection: ConnectionState
    ledger: EditLedger
    verifier: EditVerifier
    pending: PendingEdit
    plan: MergePlan
    current_files: Mapping[str, FileState]
    edit: WorkspaceEdit
    watcher: EditWatcher | None
    on_answer: Callable[[InFlightEdit, EditAnswer], None]
    state: EditState = "drafted"
    outcome: EditOutcome | None = None
    intent: EditIntent | None = None
    stop_waiting: asyncio.Event = field(default_factory=asyncio.Event)
    _request_ids: list[int] = field(default_factory=list)

    async def run(self) -> EditAnswer | None:
        """Send the edit and return the editor's answer, or None if the text has changed or the edit was cancelled.

        This task is cancelled only if the connection ends. In that case, the ledger entry stays open for the next
        process. Raise SessionError without sending the edit if the ledger cannot be written.
        """
        intent = self.intent = await self.ledger.record_intent(self.pending, self.plan.mergeable)
        if self.state == "withdrawn" or self.has_changed():
            await self.ledger.settle(intent, dict.fromkeys(self._list_uris(), "refused"))
            return None
        self.state = "sent"
        self.verifier.watch(self.plan.mergeable)
        if self.watcher is not None:
            self.watcher.watch_sent(is_reviewed=self._is_reviewed())
        label = f"thinklsp: {self.pending.title}"
        reply = await self.connection.client.apply_edit(label, self.edit, self._request_ids.append)
        self.state = "answered"
        answered = EditAnswer(reply, await self._verify(reply))
        self.on_answer(self, answered)
        await self.settle(answered.comparisons)
        return answered

    async def _verify(self, reply: ApplyReply) -> Mapping[str, EditComparison]:
        """Compare the files with the edit. An editor that rejects the edit may already have changed some files."""
        if reply.applied:
            return await self.verifier.wait_until_applied(self.plan.mergeable, self.stop_waiting)
        return await self.verifier.check_applied(self.plan.mergeable, exact=True)

    async def settle(
        self, comparisons: Mapping[str, EditComparison], otherwise: WriteOutcome | None = "refused"
    ) -> None:
        """Record the outcome of the edit for each file in the edit ledger.

        `otherwise` is the outcome for unchanged files. If `otherwise` is None, the entries of unchanged files stay
        open.
        """
        if self.intent is None:
            return
        applied_parts = {
            uri: comparison.applied_part
            for uri, comparison in comparisons.items()
            if comparison.applied_part is not None
        }
        outcomes: dict[str, WriteOutcome] = dict.fromkeys(applied_parts, "applied")
        if otherwise is not None:
            outcomes = {uri: outcomes.get(uri, otherwise) for uri in comparisons}
        await self.ledger.settle(self.intent, outcomes, applied_parts.values())
        complete_uris = [uri for uri in applied_parts if comparisons[uri].missing_part is None]
        if self.pending.undo is not None and complete_uris:
            await self.ledger.record_undone(self.pending.undo, complete_uris)

    def cancel(self) -> None:
        """Mark the edit as cancelled. The caller no longer waits for its answer."""
        self.state = "withdrawn" if self.state == "drafted" else "unknown"

    async def record_cancel(self) -> None:
        """Cancel the request, so that the editor can remove a preview, and record the cancellation in the ledger."""
        if self.state == "unknown" and self.intent is not None:
            for number in self._request_ids:
                self.connection.client.cancel_request(number)
            await self.ledger.settle(self.intent, dict.fromkeys(self._list_uris(), "unknown"))

    def _is_reviewed(self) -> bool:
        """Return whether the editor asks the user to confirm a change in this edit."""
        return any(note.needs_confirmation for note in (self.edit.change_annotations or {}).values())

    def has_changed(self) -> bool:
        """Return whether a document has changed since the merge plan was made.

        Reopening a document resets its version number, so the texts are also compared.
        """
        for item in self.plan.mergeable:
            document = self.connection.documents.get(item.file.uri)
            if document is None:
                if item.current.version is not None:
                    return True
            elif (document.version, document.text) != (item.current.version, item.current.text):
                return True
        return False

    def _list_uris(self) -> tuple[str, ...]:
        return tuple(item.file.uri for item in self.plan.mergeable)


_UNDO_IN_DOUBT = (
    "The editor did not confirm the undo before it was cancelled, so some files may be unchanged. Check the files, "
    "or run undo again."
)
_UNCONFIRMED_OPEN = (
    "the editor did not confirm this change, and the document does not show it; apply the edit again to send it once "
    "more"
)
_UNCONFIRMED_CLOSED = (
    "the editor did not confirm this change, and the file on disk does not show it; open the file to check for unsaved "
    "changes, or apply the edit again to send it once more"
)
_WAITING_FOR_OTHERS = "waiting until the state of the other files is known"


class UnconfirmedEdits:
    """The cancelled edits that the editor has not confirmed yet."""

    def __init__(
        self, state: ConnectionState, ledger: EditLedger, verifier: EditVerifier, pending_edits: PendingEdits
    ) -> None:
        self._state = state
        self._ledger = ledger
        self._verifier = verifier
        self._pending_edits = pending_edits
        self._by_turn: dict[str, InFlightEdit] = {}

    def add(self, edit: InFlightEdit) -> None:
        self._by_turn[edit.pending.turn_id] = edit

    def remove(self, edit: InFlightEdit) -> bool:
        """Remove an edit. Return True if the edit was in the collection, which means that its answer came late."""
        is_late = self._by_turn.get(edit.pending.turn_id) is edit
        if is_late:
            del self._by_turn[edit.pending.turn_id]
        return is_late

    async def prepare_apply(self, pending: PendingEdit) -> tuple[PendingEdit, EditOutcome | None]:
        """Return the part of a pending edit that is not applied yet, and an outcome if nothing should be sent now.

        If the edit was sent but not confirmed, the first call returns an outcome that warns the user. The next call
        allows the edit to be resent.
        """
        edit = self._by_turn.get(pending.turn_id)
        if edit is None:
            return pending, None
        pending, applied = await self._check_edit(edit, pending)
        if pending.files and edit.state == "doubted":
            self.remove(edit)
            return pending, None
        if edit.state == "unknown":
            edit.state = "doubted"
        return pending, EditOutcome(
            applied + self._build_unconfirmed_statuses(edit, pending), pending.turn_id if pending.files else None
        )

    async def check_turn(self, turn_id: str | None, session_id: str | None) -> None:
        """Check the unconfirmed edits of one turn or of all turns, and record the parts that are applied."""
        for edit in [edit for edit in self._by_turn.values() if turn_id in (None, edit.pending.turn_id)]:
            if edit.pending.undo is None and session_id in (None, edit.pending.session_id):
                await self._check_edit(edit, self._pending_edits.get(edit.pending.turn_id) or edit.pending)

    async def refuse_undo(self, undo_id: str) -> None:
        """Raise TurnRefused if an undo was cancelled and may still be applied. The next call allows the undo."""
        edit = self._by_turn.pop(undo_id, None)
        if edit is None or edit.state == "doubted":
            return
        comparisons = await self._verifier.check_applied(edit.plan.mergeable)
        if all(comparison.missing_part is None for comparison in comparisons.values()):
            return
        edit.state = "doubted"
        self.add(edit)
        raise TurnRefused(_UNDO_IN_DOUBT)

    async def _check_edit(self, edit: InFlightEdit, pending: PendingEdit) -> tuple[PendingEdit, tuple[FileStatus, ...]]:
        """Return the remaining part of a pending edit, and a status for each file in which no part is missing."""
        comparisons = await self._verifier.check_applied(edit.plan.mergeable)
        visible = {uri: comparison for uri, comparison in comparisons.items() if comparison.applied_part is not None}
        self._ledger.record_written(
            pending, [comparison.applied_part for comparison in visible.values() if comparison.applied_part is not None]
        )
        await edit.settle(visible, None)
        rests = [visible[file.uri].missing_part if file.uri in visible else file for file in pending.files]
        pending = replace(pending, files=tuple(file for file in rests if file is not None))
        if pending.files:
            self._pending_edits.keep(pending)
        else:
            self._pending_edits.drop(pending.turn_id)
            self._by_turn.pop(pending.turn_id, None)
        complete = {uri: comparison for uri, comparison in visible.items() if comparison.missing_part is None}
        return pending, build_statuses(complete, None, undo=pending.undo is not None)

    def _build_unconfirmed_statuses(self, edit: InFlightEdit, pending: PendingEdit) -> tuple[FileStatus, ...]:
        sent_uris = {item.file.uri for item in edit.plan.mergeable}
        return tuple(
            FileStatus(
                file.uri,
                "unknown",
                _UNCONFIRMED_OPEN if self._state.documents.get(file.uri) else _UNCONFIRMED_CLOSED,
                count_unsent_hunks(file),
            )
            if file.uri in sent_uris
            else FileStatus(file.uri, "held", _WAITING_FOR_OTHERS, count_unsent_hunks(file))
            for file in pending.files
        )


_WAITING = "it is waiting to be applied"
_NOT_UNDONE = "not undone; run the undo again"
_MAX_NAMES = 6


def build_statuses(
    comparisons: Mapping[str, EditComparison], reason: str | None, *, undo: bool
) -> tuple[FileStatus, ...]:
    """Return a status for each file in a sent edit.

    `reason` is the editor's explanation if it did not apply the edit.
    """
    return tuple(_build_status(uri, arrival, reason, undo=undo) for uri, arrival in comparisons.items())


def _build_status(uri: str, comparison: EditComparison, reason: str | None, *, undo: bool) -> FileStatus:
    hunks = comparison.hunks
    if comparison.missing_part is None:
        return FileStatus(uri, "applied", hunks=hunks)
    if comparison.applied_part is None:
        return FileStatus(uri, "refused", reason or (_NOT_UNDONE if undo else _WAITING), hunks, is_pending=True)
    if comparison.applied_part.before is None:
        return FileStatus(
            uri, "some", "the file was created empty; its text is waiting to be applied", hunks, is_pending=True
        )
    total = hunks.applied + hunks.pending
    state = "were not undone" if undo else "are waiting"
    return FileStatus(uri, "some", f"{hunks.pending} of {total} changes {state}", hunks, is_pending=True)


def format_waiting(files: Sequence[FileStatus], names: Mapping[str, str], reason: str | None) -> str:
    """Return a notice about the files that the editor did not change, or an empty string if there are none.

    `names` maps URIs to names.
    """
    waiting = [names[file.uri] for file in files if file.is_pending]
    if not waiting:
        return ""
    changed = sum(file.status == "applied" or file.hunks.applied > 0 for file in files)
    count = f"{changed} of {len(files)} files changed" if changed else "Nothing was changed"
    if changed and len(files) == 1:
        hunks = files[0].hunks
        count = f"{hunks.applied} of {hunks.applied + hunks.pending} changes applied"
    sentence = f"{count}; {_format_names(waiting)} {'is' if len(waiting) == 1 else 'are'} waiting."
    empty = [names[file.uri] for file in files if file.is_pending and file.status == "some" and not file.hunks.applied]
    more = f" {_format_names(empty)} {'is' if len(empty) == 1 else 'are'} empty until then." if empty else ""
    return f"{sentence}{more}" if reason is None else f"{sentence}{more} The editor says: {reason}"


def _format_names(names: Iterable[str]) -> str:
    *others, last = names
    if len(others) >= _MAX_NAMES:
        return f"{', '.join(others[:_MAX_NAMES])} and {len(others) + 1 - _MAX_NAMES} more"
    return f"{', '.join(others)} and {last}" if others else last


# The maximum time to wait for changes. Editors may report a change after they answer: Neovim waits for 0.15 s. Later
# changes are detected when the pending edit is next offered.
_MAX_WAIT_SECONDS = 1.5
# The maximum time between the first and the last report about an edit.
_REST_SECONDS = 0.4
_MAX_TEXTS = 8
_CHECK_INTERVAL_SECONDS = 0.1


@dataclass(frozen=True, slots=True)
class UnsavedFile:
    """A file that the editor opened for an edit and has not saved.

    `is_whole` is True if the user has not typed in the file.
    """

    uri: str
    path: str
    is_whole: bool


def build_unsaved_notices(files: Sequence[UnsavedFile]) -> tuple[str, ...]:
    """Return a notice that names the unsaved files, or an empty tuple if there are no files."""
    names = ", ".join(sorted(file.path for file in files))
    return (f"Changed but not saved: {names}. Save all files to keep the change.",) if files else ()


class EditVerifier:
    """The verifier for sent edits. Call `watch` before sending an edit. Only one edit is sent at a time."""

    def __init__(self, state: ConnectionState, snapshots: Snapshots) -> None:
        self._state = state
        self._snapshots = snapshots
        # The texts of each document since the edit was sent, by normalized URI. Later texts may include the user's
        # changes.
        self._texts: dict[str, deque[str]] = {}
        # The documents that the editor opened for an edit, and those of them that were saved before the latest edit.
        self._opened_documents: set[str] = set()
        self._saved_documents: set[str] = set()
        state.documents.on_change.append(self._on_change)
        state.documents.on_close.append(lambda uri: self._opened_documents.discard(normalize_uri(uri)))

    def watch(self, files: Sequence[MergedFile]) -> None:
        states_by_key = {
            key: item.current for item in files if (key := normalize_uri(item.file.uri)) in self._opened_documents
        }
        disk = self._snapshots.create_disk_view()
        self._saved_documents = {
            key
            for key, now in states_by_key.items()
            if is_equal_ignoring_format(self._snapshots.read_disk(key, disk), now.text)
        }
        self._texts = {normalize_uri(item.file.uri): deque(maxlen=_MAX_TEXTS) for item in files}

    def find_unsaved(
        self, ready: Sequence[MergedFile], comparisons: Mapping[str, EditComparison]
    ) -> tuple[UnsavedFile, ...]:
        """Return the files that the editor opened for the edit and has not saved."""
        disk = self._snapshots.create_disk_view()
        files = []
        for item in ready:
            comparison = comparisons[item.file.uri]
            applied_part = comparison.applied_part
            document = (
                None if applied_part is None else self._state.documents.get(applied_part.new_uri or applied_part.uri)
            )
            if applied_part is None or document is None:
                continue
            if item.current.version is not None and normalize_uri(item.file.uri) not in self._saved_documents:
                continue
            self._opened_documents.add(normalize_uri(document.uri))
            if not is_equal_ignoring_format(self._snapshots.read_disk(document.uri, disk), document.text):
                is_whole = comparison.missing_part is None and is_equal_ignoring_format(document.text, item.after)
                files.append(UnsavedFile(document.uri, applied_part.new_path or applied_part.path, is_whole))
        return tuple(files)

    def _on_change(self, uri: str) -> None:
        texts, document = self._texts.get(normalize_uri(uri)), self._state.documents.get(uri)
        if texts is not None and document is not None:
            texts.append(document.text)

    async def check_applied(self, ready: Sequence[MergedFile], *, exact: bool = False) -> dict[str, EditComparison]:
        """Compare an edit with the current state of its files and return the comparisons by URI.

        The comparison runs in a thread. If `exact` is True, the result makes no allowance for the user's own changes.
        """
        view = self._snapshots.create_view()
        observed = [self._observe_file(item, view, exact=exact) for item in ready]
        return await asyncio.to_thread(_compare_files, ready, observed, exact=exact)

    async def wait_until_applied(
        self, ready: Sequence[MergedFile], stop_waiting: asyncio.Event
    ) -> dict[str, EditComparison]:
        """Wait until an edit is applied, `stop_waiting` is set or a timeout expires. Return the comparisons by URI."""
        end = time.monotonic() + _MAX_WAIT_SECONDS
        comparisons: dict[str, EditComparison] = {}
        waiting = tuple(ready)
        applied_count = 0
        while True:
            self._state.documents.change_event.clear()
            comparisons |= await self.check_applied(waiting)
            waiting = tuple(item for item in waiting if comparisons[item.file.uri].missing_part is not None)
            if (count := _count_applied(comparisons)) > applied_count:
                applied_count, end = count, min(end, time.monotonic() + _REST_SECONDS)
            if not waiting or stop_waiting.is_set() or time.monotonic() > end:
                return comparisons
            await self._wait_for_change(stop_waiting)

    async def _wait_for_change(self, stop_waiting: asyncio.Event) -> None:
        """Wait until a document changes or the next check of the disk is due."""
        waits = [asyncio.ensure_future(event.wait()) for event in (self._state.documents.change_event, stop_waiting)]
        try:
            await asyncio.wait(waits, timeout=_CHECK_INTERVAL_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for wait in waits:
                wait.cancel()

    def _observe_file(self, item: MergedFile, view: WorkspaceView, *, exact: bool) -> tuple[ObservedFile, ...]:
        file, disk = item.file, self._snapshots.create_disk_view()
        current_text = self._snapshots.read_text(file.uri, view)
        if file.after is None:
            return (ObservedFile((current_text or "") if _is_on_disk(disk, file.uri) else None),)
        if file.new_uri is not None:
            new_text = self._snapshots.read_text(file.new_uri, view)
            is_moved = new_text is not None and not _is_on_disk(disk, file.uri)
            return (ObservedFile(new_text if is_moved else current_text, is_moved),)
        earlier = () if exact else self._texts.get(normalize_uri(file.uri), ())
        return (ObservedFile(current_text), *map(ObservedFile, earlier))


def _compare_files(
    ready: Sequence[MergedFile], observed: Sequence[Sequence[ObservedFile]], *, exact: bool
) -> dict[str, EditComparison]:
    """Compare each file's recent texts with the edit. Return, by URI, the comparison with the most applied hunks."""
    return {
        item.file.uri: max(
            (compare_edit(build_sent_edit(item), text, exact=exact) for text in file_texts),
            key=lambda arrival: arrival.hunks.applied,
        )
        for item, file_texts in zip(ready, observed, strict=True)
    }


def _count_applied(comparisons: Mapping[str, EditComparison]) -> int:
    return sum(arrival.hunks.applied + (arrival.applied_part is not None) for arrival in comparisons.values())


def _is_on_disk(disk: WorkspaceView, uri: str) -> bool:
    try:
        return disk.find_kind(disk.locate(uri)) is not None
    except PathRefused:
        return False
