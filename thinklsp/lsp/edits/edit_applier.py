"""The edit applier. It merges a turn's edit set, sends it, and resends it once if a document changed at the same time.

The edit ledger records each edit before it is sent and again after the editor's answer. Each edit is sent in its own
task. An answer that arrives after a cancellation is therefore still recorded. Hunks that are neither in the editor nor
on disk afterwards become a pending edit.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from lsprotocol.types import WorkspaceEdit

from thinklsp.core.choices import Review
from thinklsp.core.edits import FileEdit
from thinklsp.core.errors import SessionError, TurnRefused
from thinklsp.engine.merge_plan import MergedFile, MergePlan, Scope, build_sent_edit, plan_merge, plan_undo
from thinklsp.engine.results import INSERT_TEXT, EditOutcome, FileStatus, count_unsent_hunks
from thinklsp.lsp.editor.client import ApplyReply
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.editor.turn_progress import TurnProgress
from thinklsp.lsp.edits.edit_comparison import EditVerifier, SplitEdit
from thinklsp.lsp.edits.edit_ledger import EditLedger
from thinklsp.lsp.edits.edit_outcomes import (
    build_outcome,
    build_statuses,
    build_unsaved_notices,
    format_new_text,
    format_waiting,
    reject_all,
)
from thinklsp.lsp.edits.edit_review import EditReview, UndoneHunks
from thinklsp.lsp.edits.pending_edits import PendingEdit, PendingEdits
from thinklsp.lsp.edits.workspace_edits import build_workspace_edit
from thinklsp.sessions.ledger import EditIntent, WriteOutcome
from thinklsp.workspace.view import WorkspaceView

# The maximum number of merge plans for an edit whose documents keep changing.
_MAX_PLANS = 6
_ALL_OPERATIONS = frozenset(("create", "rename", "delete"))

_NOT_CONFIRMED = "not confirmed; the code action `thinklsp: apply` offers it again"
_NO_EDITS = "this editor does not accept edits from a server"
_USE_ACTION = "use the code action `thinklsp: apply`"
_NOTHING_TO_UNDO = "Nothing to undo: no turn has changed a file here, or every change has already been undone."
_NOTHING_TO_UNDO_IN_TURN = "Nothing to undo: this turn has not changed a file here, or it has already been undone."
_NOTHING_LEFT = "Nothing was left to undo: the files no longer contain the edits of “{title}”."
_NOTHING_TO_UNDO_IN_SESSION = (
    "Nothing to undo in this session: none of its turns has changed a file here, or every change has already been "
    "undone. `thinklsp.undo` undoes the newest turn in all sessions."
)
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

FindScope = Callable[[], Scope | None]
"""A function that returns the range that the user asked to change. The range moves while the user types."""


def find_no_scope() -> None:
    """Return None, so that every change is in scope. Use this function for requests without a range."""


@dataclass(slots=True)
class InFlightEdit:
    """An edit that is being sent to the editor. `reply` is the editor's answer, and `outcome` what the files show.

    `is_cancelled` is True if the caller no longer waits. `is_doubted` is True if the user was then told that the edit
    may have been applied.
    """

    pending: PendingEdit
    plan: MergePlan
    edit: WorkspaceEdit
    is_sent: bool = False
    is_cancelled: bool = False
    is_doubted: bool = False
    intent: EditIntent | None = None
    reply: ApplyReply | None = None
    outcome: EditOutcome | None = None
    comparisons: Mapping[str, SplitEdit] = field(default_factory=dict)
    request_ids: list[int] = field(default_factory=list)

    @property
    def is_reviewed(self) -> bool:
        """True if the editor asks the user to confirm a change in this edit."""
        return any(note.needs_confirmation for note in (self.edit.change_annotations or {}).values())

    @property
    def is_late(self) -> bool:
        """True if the editor has not answered before the cancellation."""
        return self.is_cancelled and self.is_sent and self.reply is None

    @property
    def is_unconfirmed(self) -> bool:
        """True if the edit has left and it is not known yet what the editor did."""
        return self.is_sent and self.outcome is None


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
        self._edit_review = EditReview(state, snapshots, self.pending_edits)
        self.undone_hunks = UndoneHunks(ledger, self.pending_edits)
        # The newest edit of each turn, until its caller has the outcome.
        self._edits: dict[str, InFlightEdit] = {}

    def hold(self, pending: PendingEdit, reason: str) -> EditOutcome:
        """Keep the edit of a turn that did not end normally, so that the `apply` code action can offer the edit.

        If the edit was sent before the turn ended, return what is known about it.
        """
        edit = self._edits.get(pending.turn_id)
        if edit is not None and edit.is_unconfirmed:
            self.pending_edits.keep(replace(pending, state="unknown"))
            reason = "the turn ended while the editor was applying the edit"
            files = (FileStatus(file.uri, "unknown", reason, count_unsent_hunks(file)) for file in pending.files)
            return EditOutcome(tuple(files), pending.turn_id)
        self._edits.pop(pending.turn_id, None)
        if edit is not None and edit.outcome is not None:
            return edit.outcome
        self.pending_edits.keep(replace(pending, state="held"))
        files = (FileStatus(file.uri, "held", reason, count_unsent_hunks(file)) for file in pending.files)
        new_text = format_new_text([file for file in pending.files if self._needs_user(file)])
        return EditOutcome(tuple(files), pending.turn_id, new_text=new_text)

    async def send(
        self, pending: PendingEdit, *, review: Review, progress: TurnProgress, find_scope: FindScope = find_no_scope
    ) -> EditOutcome:
        """Send a single workspace edit for all mergeable files. The other files become a pending edit.

        If the user must confirm the edit but does not, the entire edit becomes a pending edit.
        """
        async with self._apply_lock:
            planned, plan = await self._plan_when_idle(pending)
            if not self._edit_review.should_ask(plan, review, find_scope()):
                return await self._send_edit(planned, plan, review, find_scope, progress)
        progress.show_waiting()
        kept = await self._edit_review.ask(planned, plan, review, find_scope())
        if kept is None:
            return self.hold(pending, _NOT_CONFIRMED)
        async with self._apply_lock:
            # Plan the merge again, because the text may have changed while the user was reading the question.
            return await self._send_edit(*await self._plan_when_idle(kept), "never", find_scope, progress)

    async def apply(self, pending: PendingEdit) -> EditOutcome:
        """Send a pending edit at the user's request, which is the confirmation: the editor asks nothing.

        An edit that may already be applied is first compared with the documents. It is resent only if the user asks
        again.
        """
        async with self._apply_lock:
            edit = self._edits.get(pending.turn_id)
            if edit is not None and edit.is_unconfirmed:
                pending, applied = await self._check_unconfirmed(edit, pending)
                if not pending.files or not edit.is_doubted or edit.reply is not None:
                    edit.is_doubted = True
                    rest = self._build_unconfirmed_statuses(edit, pending)
                    return EditOutcome(applied + rest, pending.turn_id if pending.files else None)
                del self._edits[pending.turn_id]
            return await self._send_edit(*await self._plan_when_idle(pending), "never", should_record=True)

    async def _check_unconfirmed(
        self, edit: InFlightEdit, pending: PendingEdit
    ) -> tuple[PendingEdit, tuple[FileStatus, ...]]:
        """Return the remaining part of a pending edit, and a status for each file in which no part is missing."""
        comparisons = await self._verifier.check_applied(edit.plan.mergeable)
        visible = {uri: comparison for uri, comparison in comparisons.items() if comparison.applied_part is not None}
        await self._record_outcome(edit, visible)
        rests = [visible[file.uri].missing_part if file.uri in visible else file for file in pending.files]
        pending = replace(pending, files=tuple(file for file in rests if file is not None))
        if pending.files:
            self.pending_edits.keep(pending)
        else:
            self.pending_edits.drop(pending.turn_id)
            self._edits.pop(pending.turn_id, None)
        complete = {uri: comparison for uri, comparison in visible.items() if comparison.missing_part is None}
        return pending, build_statuses(complete, None, undo=pending.undo is not None)

    def _build_unconfirmed_statuses(self, edit: InFlightEdit, pending: PendingEdit) -> tuple[FileStatus, ...]:
        sent_uris, statuses = edit.plan.uris, []
        for file in pending.files:
            reason = _UNCONFIRMED_OPEN if self._state.documents.get(file.uri) else _UNCONFIRMED_CLOSED
            status = FileStatus(file.uri, "unknown", reason, count_unsent_hunks(file))
            if file.uri not in sent_uris:
                status = replace(status, status="held", reason=_WAITING_FOR_OTHERS)
            statuses.append(status)
        return tuple(statuses)

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
                await self._send_edit(*await self._plan_when_idle(pending), "never", should_record=True)

    async def undo(self, turn_id: str | None, *, session_id: str | None = None) -> EditOutcome:
        """Undo a turn. By default, undo the newest turn that wrote files, in the given session or in all sessions.

        The user's later text is kept, and no review is needed. The turn's pending edit is dropped. Raise TurnRefused if
        there is nothing to undo, for example because the editor's own undo has reverted the turn.
        """
        await self.settle_applied()
        async with self._apply_lock:
            await self._check_turns(turn_id, session_id)
            turn = await self._ledger.find_turn_to_undo(turn_id, session_id)
            if turn is None and session_id is not None:
                raise TurnRefused(_NOTHING_TO_UNDO_IN_SESSION)
            if turn is None:
                raise TurnRefused(_NOTHING_TO_UNDO if turn_id is None else _NOTHING_TO_UNDO_IN_TURN)
            title, undo_id = self._ledger.find_title(turn), f"undo-{turn.turn_id}"
            undo = plan_undo(turn, title, self._snapshots.create_view().find_key)
            await self._refuse_doubtful_undo(undo_id)
            if not undo.files:
                return EditOutcome(undo.rejected)
            pending = PendingEdit(undo_id, turn.session_id, f"undo: {title}", undo.files, undo=undo)
            pending, plan = await self._plan_when_idle(pending)
            outcome = await self._send_edit(pending, plan, "never")
            if outcome.applied != "none":
                self.pending_edits.drop(turn.turn_id)
            if not plan.mergeable and outcome.applied == "all" and not undo.rejected:
                raise TurnRefused(_NOTHING_LEFT.format(title=title))
            return replace(outcome, files=(*outcome.files, *undo.rejected))

    async def _check_turns(self, turn_id: str | None, session_id: str | None) -> None:
        """Check the unconfirmed edits of one turn or of all turns, and record the parts that are applied."""
        for edit in [edit for edit in self._edits.values() if edit.is_unconfirmed and edit.pending.undo is None]:
            pending = edit.pending
            if turn_id in (None, pending.turn_id) and session_id in (None, pending.session_id):
                await self._check_unconfirmed(edit, self.pending_edits.get(pending.turn_id) or pending)

    async def _refuse_doubtful_undo(self, undo_id: str) -> None:
        """Raise TurnRefused if an undo was cancelled and may still be applied. The next call allows the undo."""
        edit = self._edits.pop(undo_id, None)
        if edit is None or not edit.is_unconfirmed or (edit.is_doubted and edit.reply is None):
            return
        comparisons = await self._verifier.check_applied(edit.plan.mergeable)
        if any(comparison.missing_part is not None for comparison in comparisons.values()):
            edit.is_doubted, self._edits[undo_id] = True, edit
            raise TurnRefused(_UNDO_IN_DOUBT)

    async def _send_edit(
        self,
        pending: PendingEdit,
        plan: MergePlan,
        review: Review,
        find_scope: FindScope = find_no_scope,
        progress: TurnProgress | None = None,
        *,
        should_record: bool = False,
    ) -> EditOutcome:
        """Send an edit. If `should_record` is True, also record files that a code action has already changed."""
        is_resent = False
        for _ in range(_MAX_PLANS):
            await self._record_applied(pending, plan, should_record=should_record)
            if not self._state.client.features.apply_edit:
                return await self._leave_to_user(pending, plan)
            if not plan.mergeable:
                return self._build_outcome(pending, plan, plan.rejected)
            edit = InFlightEdit(pending, plan, await self._build_edit(plan, pending, review, find_scope()))
            try:
                await self._send_and_wait(edit, progress)
            except SessionError as error:
                self._edits.pop(pending.turn_id, None)
                return self._build_outcome(pending, plan, reject_all(plan, str(error)))
            if edit.reply is not None and (edit.reply.applied or is_resent or not self._has_changed(plan.mergeable)):
                outcome = await self._save_opened(edit)
                self._edits.pop(pending.turn_id, None)
                return outcome
            is_resent |= edit.reply is not None
            pending, plan = await self._plan_merge(pending)
        self._edits.pop(pending.turn_id, None)
        return self._build_outcome(pending, plan, reject_all(plan, "the text kept changing; apply the edit again"))

    async def _leave_to_user(self, pending: PendingEdit, plan: MergePlan) -> EditOutcome:
        """Reject an edit for an editor that accepts none from a server. A code action or the user changes each file."""
        by_user = {file.uri for file in pending.files if self._needs_user(file)}
        rejected = (
            replace(status, reason=f"{_NO_EDITS}; {INSERT_TEXT if status.uri in by_user else _USE_ACTION}")
            for status in reject_all(replace(plan, rejected=()), _NO_EDITS)
        )
        conflicts = {status.uri for status in plan.rejected if status.status == "conflict"}
        files = [*map(build_sent_edit, plan.mergeable), *(file for file in pending.files if file.uri in conflicts)]
        outcome = self._build_outcome(pending, plan, (*rejected, *plan.rejected))
        new_text = await asyncio.to_thread(format_new_text, [file for file in files if file.uri in by_user])
        return replace(outcome, new_text=new_text)

    def _needs_user(self, file: FileEdit) -> bool:
        """Return whether the user has to change a file. A code action can change the text of an open document."""
        can = self._state.client.features
        is_offered = can.code_action_literals and self._state.documents.get(file.uri) and not file.is_file_operation
        return not can.apply_edit and not is_offered

    async def _send_and_wait(self, edit: InFlightEdit, progress: TurnProgress | None) -> None:
        """Send an edit in its own task, so that the ledger records the answer even if the caller is cancelled."""
        task = self._state.spawn(self._run(edit, progress), is_awaited=True)
        try:
            await asyncio.shield(task)
        finally:
            # If the connection ends before the editor answers, the ledger entry stays open for the next process.
            if not task.done() and not task.cancelling():
                edit.is_cancelled = True
                if edit.reply is not None:
                    self._state.documents.change_event.set()  # End the wait for changes.
                    await asyncio.shield(task)
                elif edit.is_sent:
                    self._state.spawn(self._record_cancel(edit))

    async def _run(self, edit: InFlightEdit, progress: TurnProgress | None) -> None:
        """Send an edit and record the outcome, unless the text has changed or the edit was cancelled.

        This task is cancelled only if the connection ends. In that case, the ledger entry stays open for the next
        process. Raise SessionError without sending the edit if the ledger cannot be written.
        """
        files, client = edit.plan.mergeable, self._state.client
        edit.intent = await self._ledger.record_intent(edit.pending, files)
        if edit.is_cancelled or self._has_changed(files):
            await self._ledger.settle(edit.intent, dict.fromkeys(edit.plan.uris, "refused"))
            return
        edit.is_sent = True
        self._edits[edit.pending.turn_id] = edit
        self._verifier.watch(files)
        if progress is not None:
            progress.show_sent(is_reviewed=edit.is_reviewed)
        reply = await client.apply_edit(f"thinklsp: {edit.pending.title}", edit.edit, edit.request_ids.append)
        is_late, edit.reply = edit.is_late, reply
        if reply.applied:
            # A caller that is cancelled now still waits for the outcome. Nobody waits for a late answer.
            edit.comparisons = await self._verifier.wait_until_applied(files, lambda: edit.is_cancelled and not is_late)
        else:
            # An editor that rejects the edit may already have changed some files.
            edit.comparisons = await self._verifier.check_applied(files, exact=True)
        self._set_outcome(edit)
        await self._record_outcome(edit, edit.comparisons, "refused")
        if is_late:
            self._report_late(edit)

    async def _record_cancel(self, edit: InFlightEdit) -> None:
        """Cancel the request, so that the editor can remove a preview, and record the cancellation in the ledger."""
        for number in edit.request_ids:
            self._state.client.cancel_request(number)
        if edit.intent is not None:
            await self._ledger.settle(edit.intent, dict.fromkeys(edit.plan.uris, "unknown"))

    def _set_outcome(self, edit: InFlightEdit) -> None:
        """Set the outcome of an answered edit, and store the part that is not applied as a pending edit."""
        pending, comparisons = edit.pending, edit.comparisons
        reason = None if edit.reply is None else edit.reply.reason
        self.undone_hunks.record_sent(pending, edit.plan.mergeable)
        for item in edit.plan.mergeable:
            self._state.documents.record_edit(item.file.uri, item.after)
        sent_files = build_statuses(comparisons, reason, undo=pending.undo is not None)
        rests = {uri: part.missing_part for uri, part in comparisons.items() if part.missing_part is not None}
        outcome = self._build_outcome(pending, edit.plan, (*sent_files, *edit.plan.rejected), rests)
        if pending.undo is None:
            outcome = replace(outcome, pending_notice=format_waiting(outcome.files, pending.files, reason))
        unsaved = self._verifier.find_unsaved(edit.plan.mergeable, comparisons)
        edit.outcome = replace(outcome, notices=build_unsaved_notices(unsaved))

    def _report_late(self, edit: InFlightEdit) -> None:
        """Report an edit whose answer arrived after its cancellation, perhaps long after it."""
        title, parts = edit.pending.title, [part.applied_part for part in edit.comparisons.values()]
        if self._edits.get(edit.pending.turn_id) is edit:
            del self._edits[edit.pending.turn_id]
        if names := ", ".join(part.path for part in parts if part is not None):
            message = f"The editor applied the edit from “{title}” after it was cancelled: {names}."
            hint = "" if edit.pending.undo else " Run `thinklsp.undo` to undo it."
            self._state.client.show_message("info", message + hint)

    async def _record_outcome(
        self,
        edit: InFlightEdit,
        comparisons: Mapping[str, SplitEdit],
        otherwise: WriteOutcome | None = None,
    ) -> None:
        """Record the outcome of an edit for each file in the edit ledger.

        `otherwise` is the outcome for unchanged files. If `otherwise` is None, their entries stay open.
        """
        if edit.intent is None:
            raise AssertionError("an edit is recorded before it is sent")
        applied = {uri: part.applied_part for uri, part in comparisons.items() if part.applied_part is not None}
        outcomes: dict[str, WriteOutcome] = {} if otherwise is None else dict.fromkeys(comparisons, otherwise)
        await self._ledger.settle(edit.intent, outcomes | dict.fromkeys(applied, "applied"), applied.values())
        self._ledger.record_written(edit.pending, edit.intent, list(applied.values()))
        complete_uris = [uri for uri in applied if comparisons[uri].missing_part is None]
        if edit.pending.undo is not None and complete_uris:
            await self._ledger.record_undone(edit.pending.undo, complete_uris)

    def _has_changed(self, files: Sequence[MergedFile]) -> bool:
        """Return whether a document has changed since the merge plan was made.

        Reopening a document resets its version number, so the texts are also compared.
        """
        for item in files:
            document = self._state.documents.get(item.file.uri)
            if document is None and item.current.version is not None:
                return True
            if document is not None and (document.version, document.text) != (item.current.version, item.current.text):
                return True
        return False

    async def _save_opened(self, edit: InFlightEdit) -> EditOutcome:
        """Ask the editor to save the files that it opened only for the edit.

        Otherwise, the changes stay unsaved until the user notices them. The user saves files that were already open and
        files in which the user has typed.
        """
        if edit.outcome is None:
            raise AssertionError("an answered edit has an outcome")
        ready, comparisons = edit.plan.mergeable, edit.comparisons
        unmodified_uris = [file.uri for file in self._verifier.find_unsaved(ready, comparisons) if file.is_whole]
        if not unmodified_uris or not await self._state.client.save(unmodified_uris):
            return edit.outcome
        return replace(edit.outcome, notices=build_unsaved_notices(self._verifier.find_unsaved(ready, comparisons)))

    async def _record_applied(self, pending: PendingEdit, plan: MergePlan, *, should_record: bool) -> None:
        """Record the files that already contain the text of the edit."""
        applied = [status.uri for status in plan.rejected if status.status == "applied"]
        if applied and pending.undo is not None:
            await self._ledger.record_undone(pending.undo, applied)
        elif applied and should_record:
            await self._ledger.record_taken(pending, [file for file in pending.files if file.uri in applied])

    async def _plan_when_idle(self, pending: PendingEdit) -> tuple[PendingEdit, MergePlan]:
        """Wait until the user is not typing in the files, then create the merge plan."""
        pending = self._move(pending, self._snapshots.create_view())
        await self._state.documents.wait_until_idle(file.uri for file in pending.files)
        return await self._plan_merge(pending)

    def _move(self, pending: PendingEdit, view: WorkspaceView) -> PendingEdit:
        """Return the edit with the URIs under which the editor has its files now."""
        return pending.move({file.uri: self._snapshots.find_uri(file, view) for file in pending.files})

    async def _plan_merge(self, pending: PendingEdit) -> tuple[PendingEdit, MergePlan]:
        """Create the merge plan in a thread, because files can be large. Also return the edit with its present URIs.

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
        return pending, plan

    async def _build_edit(
        self, plan: MergePlan, pending: PendingEdit, review: Review, scope: Scope | None
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
        plan: MergePlan,
        statuses: Sequence[FileStatus],
        rests: Mapping[str, FileEdit] | None = None,
    ) -> EditOutcome:
        """Build the outcome, and store the parts that were not applied as a pending edit."""
        can_rerun_undo = self._state.client.features.apply_edit
        outcome, rest = build_outcome(pending, plan, statuses, rests or {}, keeps_undo=not can_rerun_undo)
        if rest is None:
            self.pending_edits.drop(pending.turn_id)
        else:
            self.pending_edits.keep(rest)
        return outcome
