"""The edit applier. It merges a turn's edit set, sends it, and resends it once if a document changed at the same time.

Hunks that are neither in the editor nor on disk afterwards become a pending edit.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from lsprotocol.types import WorkspaceEdit

from thinklsp.core.choices import Review
from thinklsp.core.edits import FileEdit, split_comparable_lines
from thinklsp.core.errors import SessionError, TurnRefused
from thinklsp.core.lines import find_changed_blocks
from thinklsp.core.markdown import wrap_in_fence
from thinklsp.core.text_safety import escape_invisible
from thinklsp.engine.merge_plan import FileState, MergePlan, Scope, build_sent_edit, plan_merge, plan_undo
from thinklsp.engine.results import INSERT_TEXT, EditOutcome, EditStatus, FileStatus, count_unsent_hunks
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.edits.edit_comparison import DeclinedHunks
from thinklsp.lsp.edits.edit_ledger import EditLedger
from thinklsp.lsp.edits.edit_review import NOT_CONFIRMED, EditReview, UndoneHunks
from thinklsp.lsp.edits.in_flight_edit import (
    EditAnswer,
    EditVerifier,
    EditWatcher,
    InFlightEdit,
    UnconfirmedEdits,
    build_statuses,
    build_unsaved_notices,
    format_waiting,
)
from thinklsp.lsp.edits.pending_edits import PendingEdit, PendingEdits, PendingState
from thinklsp.lsp.edits.workspace_edits import build_workspace_edit
from thinklsp.workspace.view import WorkspaceView

_MAX_PLANS = 5

_NO_EDITS = "this editor does not accept edits from a server"
_ALL_OPERATIONS = frozenset(("create", "rename", "delete"))
_USE_ACTION = "use the code action `thinklsp: apply`"

_NOTHING_TO_UNDO = "Nothing to undo: no turn has changed a file here, or every change has already been undone."
_NOTHING_TO_UNDO_IN_TURN = "Nothing to undo: this turn has not changed a file here, or it has already been undone."
_NOTHING_LEFT = "Nothing was left to undo: the files no longer contain the edits of “{title}”."
_NOTHING_TO_UNDO_IN_SESSION = (
    "Nothing to undo in this session: none of its turns has changed a file here, or every change has already been "
    "undone. `thinklsp.undo` undoes the newest turn in all sessions."
)


class _PlannedEdit(NamedTuple):
    """An edit with the present URIs of its files, its merge plan, and the state of the files by URI."""

    pending: PendingEdit
    plan: MergePlan
    current: Mapping[str, FileState]


class EditApplier:
    """The edit applier for a connection. Hunks that are not applied are added to `pending_edits`.

    Edits are sent one at a time. Two concurrent merge plans for a closed file start from the same text, so the second
    edit might change the wrong lines.
    """

    def __init__(self, state: ConnectionState, snapshots: Snapshots, ledger: EditLedger) -> None:
        self._state = state
        self._snapshots = snapshots
        self._ledger = ledger
        self._verifier = EditVerifier(state, snapshots)
        self._apply_lock = asyncio.Lock()
        self.pending_edits = PendingEdits(state)
        self._unconfirmed = UnconfirmedEdits(state, ledger, self._verifier, self.pending_edits)
        self._edit_review = EditReview(state, snapshots, self.pending_edits)
        self.undone_hunks = UndoneHunks(ledger, self.pending_edits)

    def hold(self, pending: PendingEdit, reason: str, *, status: EditStatus = "held") -> EditOutcome:
        """Store the edits of a turn that did not end normally, so that the `apply` code action can offer them."""
        self.pending_edits.keep(replace(pending, state="unknown" if status == "unknown" else "held"))
        held = (FileStatus(file.uri, status, reason, count_unsent_hunks(file)) for file in pending.files)
        new_text = format_new_text([file for file in pending.files if self._needs_user(file)])
        return EditOutcome(tuple(held), pending.turn_id, new_text=new_text)

    async def send(
        self,
        pending: PendingEdit,
        *,
        review: Review,
        find_scope: Callable[[], Scope | None] = lambda: None,
        watcher: EditWatcher | None = None,
    ) -> EditOutcome:
        """Send a single workspace edit for all mergeable files. The other files become a pending edit.

        If the user must confirm the edit but does not, the entire edit becomes a pending edit.
        """
        async with self._apply_lock:
            planned = await self._plan_when_idle(pending)
            if not self._edit_review.should_ask(planned.plan, review, find_scope()):
                return await self._send_edit(planned, review, find_scope, watcher)
        if watcher is not None:
            watcher.watch_question()
        kept = await self._edit_review.ask(planned.pending, planned.plan, review, find_scope())
        if kept is None:
            return self.hold(pending, NOT_CONFIRMED)
        async with self._apply_lock:
            # Plan the merge again, because the text may have changed while the user was reading the question.
            return await self._send_edit(await self._plan_when_idle(kept), "never", find_scope, watcher)

    async def apply(self, pending: PendingEdit) -> EditOutcome:
        """Send a pending edit at the user's request, which is the confirmation: the editor asks nothing.

        An edit that may already be applied is first compared with the documents. It is resent only if the user asks
        again.
        """
        async with self._apply_lock:
            rest, outcome = await self._unconfirmed.prepare_apply(pending)
            if outcome is not None:
                return outcome
            return await self._send_edit(await self._plan_when_idle(rest), "never", should_record=True)

    def forget(self, session_id: str) -> None:
        """Remove the pending edits, the undoable turns and the attributions of a deleted session."""
        self.pending_edits.forget(session_id)
        self._ledger.forget(session_id)

    async def settle_applied(self) -> None:
        """Record pending edits that are already in the documents.

        Some clients apply the edit of a code action without running its command, and some editors apply a change late.
        """
        if not self.pending_edits.can_be_applied_elsewhere():
            return
        # Check again while holding the lock, because editors call this method with each cursor move.
        async with self._apply_lock:
            for document in self._state.documents.list_documents():
                self.pending_edits.find_offers(document.uri)
            for pending in self.pending_edits.list_applied():
                await self._send_edit(await self._plan_when_idle(pending), "never", should_record=True)

    async def undo(self, turn_id: str | None, *, session_id: str | None = None) -> EditOutcome:
        """Undo a turn. By default, undo the newest turn that wrote files, in the given session or in all sessions.

        The user's later text is kept, and no review is needed. The turn's pending edit is dropped. Raise TurnRefused if
        there is nothing to undo, for example because the editor's own undo has reverted the turn.
        """
        await self.settle_applied()
        async with self._apply_lock:
            await self._unconfirmed.check_turn(turn_id, session_id)
            turn = await self._ledger.find_turn_to_undo(turn_id, session_id)
            if turn is None and session_id is not None:
                raise TurnRefused(_NOTHING_TO_UNDO_IN_SESSION)
            if turn is None:
                raise TurnRefused(_NOTHING_TO_UNDO if turn_id is None else _NOTHING_TO_UNDO_IN_TURN)
            title = self._ledger.find_title(turn)
            undo = plan_undo(turn, title, self._snapshots.create_view().find_key)
            await self._unconfirmed.refuse_undo(f"undo-{turn.turn_id}")
            pending = PendingEdit(f"undo-{turn.turn_id}", turn.session_id, f"undo: {title}", undo.files, undo=undo)
            if not undo.files:
                return EditOutcome(undo.rejected)
            planned = await self._plan_when_idle(pending)
            outcome = await self._send_edit(planned, "never")
            if outcome.applied != "none":
                self.pending_edits.drop(turn.turn_id)
            if not planned.plan.mergeable and outcome.applied == "all" and not undo.rejected:
                raise TurnRefused(_NOTHING_LEFT.format(title=title))
            return replace(outcome, files=(*outcome.files, *undo.rejected))

    async def _send_edit(
        self,
        planned: _PlannedEdit,
        review: Review,
        find_scope: Callable[[], Scope | None] = lambda: None,
        watcher: EditWatcher | None = None,
        *,
        should_record: bool = False,
    ) -> EditOutcome:
        """Send an edit. If `should_record` is True, also record files that a code action has already changed."""
        races, is_resent = 0, False
        while True:
            pending, plan, current = planned
            await self._record_applied(pending, plan, should_record=should_record)
            if not self._state.client.features.apply_edit:
                return await self._leave_to_user(pending, plan, current)
            if not plan.mergeable:
                return self._build_outcome(pending, plan.rejected, current)
            edit = await self._build_edit(plan, pending, review=review, scope=find_scope())
            in_flight = InFlightEdit(
                self._state, self._ledger, self._verifier, pending, plan, current, edit, watcher, self._record_answer
            )
            try:
                answered = await self._send_and_wait(in_flight)
            except SessionError as error:
                return self._build_outcome(pending, reject_all(plan, str(error)), current)
            if answered is None and races >= _MAX_PLANS:
                return self._build_outcome(
                    pending, reject_all(plan, "the text kept changing; apply the edit again"), current
                )
            if answered is None:
                races += 1
            elif answered.reply.applied or is_resent or not in_flight.has_changed():
                return await self._save_opened(in_flight, answered)
            else:
                is_resent = True
            planned = await self._plan_merge(pending)

    async def _leave_to_user(
        self, pending: PendingEdit, plan: MergePlan, current: Mapping[str, FileState]
    ) -> EditOutcome:
        """Reject an edit for an editor that accepts none from a server. A code action or the user changes each file."""
        by_user = {file.uri for file in pending.files if self._needs_user(file)}
        rejected = (
            replace(status, reason=f"{_NO_EDITS}; {INSERT_TEXT if status.uri in by_user else _USE_ACTION}")
            for status in reject_all(replace(plan, rejected=()), _NO_EDITS)
        )
        conflicts = {status.uri for status in plan.rejected if status.status == "conflict"}
        files = [*map(build_sent_edit, plan.mergeable), *(file for file in pending.files if file.uri in conflicts)]
        outcome = self._build_outcome(pending, (*rejected, *plan.rejected), current)
        new_text = await asyncio.to_thread(format_new_text, [file for file in files if file.uri in by_user])
        return replace(outcome, new_text=new_text)

    def _needs_user(self, file: FileEdit) -> bool:
        """Return whether the user has to change a file. A code action can change the text of an open document."""
        can = self._state.client.features
        is_offered = can.code_action_literals and self._state.documents.get(file.uri) and not file.is_file_operation
        return not can.apply_edit and not is_offered

    async def _send_and_wait(self, edit: InFlightEdit) -> EditAnswer | None:
        """Send the edit in its own task, so that the ledger records the answer even if the caller is cancelled."""
        task = self._state.spawn(edit.run(), is_awaited=True)
        try:
            return await asyncio.shield(task)
        finally:
            # If the connection ends before the editor answers, the ledger entry stays open for the next process.
            if not task.done() and not task.cancelling():
                if edit.state == "answered":
                    edit.stop_waiting.set()
                    await asyncio.shield(task)
                else:
                    self._detach_edit(edit)

    def _detach_edit(self, edit: InFlightEdit) -> None:
        edit.cancel()
        if edit.state == "unknown":
            self._unconfirmed.add(edit)
        self._state.spawn(edit.record_cancel())

    def _record_answer(self, edit: InFlightEdit, answered: EditAnswer) -> None:
        """Record the applied part of an edit, and store the remaining part as a pending edit.

        The answer may arrive long after a cancellation. The method does not await, so it cannot be cancelled.
        """
        pending, comparisons = edit.pending, answered.comparisons
        is_late = self._unconfirmed.remove(edit)
        applied_parts = [
            comparison.applied_part for comparison in comparisons.values() if comparison.applied_part is not None
        ]
        self._ledger.record_written(pending, applied_parts)
        self.undone_hunks.record_sent(pending, edit.plan.mergeable)
        reason = answered.reply.reason
        sent_files = build_statuses(comparisons, reason, undo=pending.undo is not None)
        rests = {
            uri: comparison.missing_part
            for uri, comparison in comparisons.items()
            if comparison.missing_part is not None
        }
        outcome = self._build_outcome(pending, (*sent_files, *edit.plan.rejected), edit.current_files, rests)
        if pending.undo is None:
            outcome = replace(outcome, pending_notice=format_waiting(outcome.files, build_names(pending.files), reason))
        if is_late and applied_parts:
            names = ", ".join(file.path for file in applied_parts)
            message = f"The editor applied the edit from “{pending.title}” after it was cancelled: {names}."
            hint = "" if pending.undo else " Run `thinklsp.undo` to undo it."
            self._state.client.show_message("info", message + hint)
        outcome = replace(
            outcome, notices=build_unsaved_notices(self._verifier.find_unsaved(edit.plan.mergeable, comparisons))
        )
        edit.outcome = outcome
        if answered.reply.applied and not is_late and edit.watcher is not None:
            edit.watcher.watch_applied(outcome)

    async def _save_opened(self, edit: InFlightEdit, answered: EditAnswer) -> EditOutcome:
        """Ask the editor to save the files that it opened only for the edit.

        Otherwise, the changes stay unsaved until the user notices them. The user saves files that were already open and
        files in which the user has typed.
        """
        outcome, ready, comparisons = edit.outcome, edit.plan.mergeable, answered.comparisons
        if outcome is None:
            raise AssertionError("an answered edit has an outcome")
        unmodified_uris = [file.uri for file in self._verifier.find_unsaved(ready, comparisons) if file.is_whole]
        if not unmodified_uris or not await self._state.client.save(unmodified_uris):
            return outcome
        return replace(outcome, notices=build_unsaved_notices(self._verifier.find_unsaved(ready, comparisons)))

    async def _record_applied(self, pending: PendingEdit, plan: MergePlan, *, should_record: bool) -> None:
        """Record the files that already contain the text of the edit."""
        applied = [status.uri for status in plan.rejected if status.status == "applied"]
        if applied and pending.undo is not None:
            await self._ledger.record_undone(pending.undo, applied)
        elif applied and should_record:
            await self._ledger.record_taken(pending, [file for file in pending.files if file.uri in applied])

    async def _plan_when_idle(self, pending: PendingEdit) -> _PlannedEdit:
        """Wait until the user is not typing in the files, then create the merge plan."""
        pending = self._move(pending, self._snapshots.create_view())
        await self._state.documents.wait_until_idle(file.uri for file in pending.files)
        return await self._plan_merge(pending)

    def _move(self, pending: PendingEdit, view: WorkspaceView) -> PendingEdit:
        """Return the edit with the URIs under which the editor has its files now."""
        return pending.move({file.uri: self._snapshots.find_uri(file, view) for file in pending.files})

    async def _plan_merge(self, pending: PendingEdit) -> _PlannedEdit:
        """Create the merge plan in a thread, because files can be large.

        Before the edit is sent, the text is checked for changes since the plan was made.
        """
        view = self._snapshots.create_view()
        pending = self._move(pending, view)
        uris = {uri for file in pending.files for uri in (file.uri, file.new_uri) if uri is not None}
        current = {uri: self._snapshots.read_state(uri, view) for uri in uris}
        can = self._state.client.features
        # Without an editor that accepts edits, the user creates, renames and deletes the files.
        operations = can.file_operations if can.apply_edit else _ALL_OPERATIONS
        plan = await asyncio.to_thread(
            plan_merge, pending.files, current, operations, conflict_texts=pending.conflict_texts
        )
        return _PlannedEdit(pending, plan, current)

    async def _build_edit(
        self, plan: MergePlan, pending: PendingEdit, *, review: Review, scope: Scope | None
    ) -> WorkspaceEdit:
        return await asyncio.to_thread(
            build_workspace_edit,
            plan.mergeable,
            self._state.client.features,
            encoding=self._state.documents.encoding,
            title=pending.title,
            review=review,
            scope=scope,
            verified="" if pending.verified is None else pending.verified.format_sentence(),
        )

    def _build_outcome(
        self,
        pending: PendingEdit,
        file_statuses: Sequence[FileStatus],
        present: Mapping[str, FileState],
        rests: Mapping[str, FileEdit] | None = None,
    ) -> EditOutcome:
        """Build the outcome, and store the parts that were not applied as a pending edit."""
        can_rerun_undo = self._state.client.features.apply_edit
        outcome, rest = build_outcome(pending, file_statuses, present, rests or {}, keeps_undo=not can_rerun_undo)
        if rest is None:
            self.pending_edits.drop(pending.turn_id)
        else:
            self.pending_edits.keep(rest)
        return outcome


def build_outcome(
    pending: PendingEdit,
    file_statuses: Sequence[FileStatus],
    present: Mapping[str, FileState],
    rests: Mapping[str, FileEdit],
    *,
    keeps_undo: bool,
) -> tuple[EditOutcome, PendingEdit | None]:
    """Return the outcome in the order of the edit set, and the pending edit, or None if every part was applied.

    `present` contains the files as they are now, and `rests` the missing parts of the files that were sent, by URI. An
    undo becomes a pending edit only if `keeps_undo` is True. Otherwise, the user can run the undo again.
    """
    by_uri = {status.uri: status for status in file_statuses}
    files = tuple(by_uri[file.uri] for file in pending.files)
    waiting = tuple(rests.get(file.uri, file) for file in pending.files if by_uri[file.uri].status != "applied")
    if pending.declined:
        files, waiting = _add_declined(files, waiting, pending.declined)
    if not waiting or (pending.undo is not None and not keeps_undo):
        return EditOutcome(files), None
    texts = {file.uri: present[file.uri].text for file in files if file.status == "conflict"}
    conflict_texts = {uri: text for uri, text in texts.items() if text is not None}
    state: PendingState = "incomplete" if any(file.is_pending for file in files) else "held"
    rest = replace(pending, files=waiting, conflict_texts=conflict_texts, state=state, declined={})
    return EditOutcome(files, pending.turn_id), rest


def _add_declined(
    statuses: Sequence[FileStatus], waiting: Sequence[FileEdit], declined: Mapping[str, DeclinedHunks]
) -> tuple[tuple[FileStatus, ...], tuple[FileEdit, ...]]:
    """Add the hunks that the user declined to the statuses and to the files that wait."""
    by_uri = {status.uri: status for status in statuses}
    files = {file.uri: file for file in waiting}
    for uri, hunks in declined.items():
        files[uri] = hunks.extend(files[uri]) if uri in files else hunks.rest
        by_uri[uri] = hunks.build_status(by_uri.get(uri))
    return tuple(by_uri.values()), tuple(files.values())


def build_names(files: Sequence[FileEdit]) -> dict[str, str]:
    """Return a display name for each file: the file name, or the full path if two files have the same name."""
    short = {file.uri: file.path.rpartition("/")[2] for file in files}
    duplicates = {name for name, count in Counter(short.values()).items() if count > 1}
    return {
        file.uri: escape_invisible(file.path if short[file.uri] in duplicates else short[file.uri]) for file in files
    }


def reject_all(plan: MergePlan, reason: str) -> tuple[FileStatus, ...]:
    rejected = (FileStatus(item.file.uri, "refused", reason, count_unsent_hunks(item.file)) for item in plan.mergeable)
    return (*rejected, *plan.rejected)


_INTRODUCTION = (
    "Your editor does not accept edits from a server, so change the files yourself. The line numbers are those before "
    "the changes."
)


def format_new_text(files: Sequence[FileEdit]) -> str:
    """Return the changes of files as Markdown, or an empty string if there are none."""
    parts = [part for file in files for part in _describe_changes(file)]
    return "\n\n".join((_INTRODUCTION, *parts)) if parts else ""


def _describe_changes(file: FileEdit) -> Iterator[str]:
    name = f"`{escape_invisible(file.path)}`"
    if file.after is None:
        yield f"Delete {name}."
        return
    if file.before is None:
        yield f"Create {name}:\n\n{wrap_in_fence(file.after)}"
    elif file.before != file.after:
        yield from _describe_lines(name, file.before, file.after)
    if file.new_uri is not None:
        yield f"Rename {name} to `{escape_invisible(file.new_path or file.new_uri)}`."


def _describe_lines(name: str, before: str, after: str) -> Iterator[str]:
    old, new = split_comparable_lines(before), split_comparable_lines(after)
    blocks = find_changed_blocks(old, new)
    if not blocks:
        yield f"Change the line endings of {name}."
    for i1, i2, j1, j2 in blocks:
        lines = f"line {i2}" if i2 - i1 < 2 else f"lines {i1 + 1}–{i2}"
        if j1 == j2:
            yield f"In {name}, delete {lines}."
            continue
        place = f"replace {lines}" if i1 < i2 else f"insert after {lines}" if i1 else "insert before line 1"
        new_lines = wrap_in_fence("\n".join(new[j1:j2]))
        yield f"In {name}, {place}:\n\n{new_lines}"
