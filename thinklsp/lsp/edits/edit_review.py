"""The user's choice of hunks: the review of an edit before it is sent, and the hunks that the user undoes afterwards.

An editor with a review of its own lets the user choose the hunks to keep. In editors that cannot ask the user to
confirm individual changes, the server asks a question and shows the edit as a diff document on request. The changes
that the user does not keep become a pending edit. The `apply` code action then offers it in the files to change and in
the diff document.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from thinklsp.core.bounded_dict import BoundedDict
from thinklsp.core.choices import NOT_NOW, Review
from thinklsp.core.edits import EditSet, FileEdit, count_changed_lines, format_diff
from thinklsp.core.text_safety import escape_invisible
from thinklsp.engine.merge_plan import MergedFile, MergePlan, Scope, build_sent_edit
from thinklsp.engine.review_policy import (
    DOWNLOADS,
    UNTRUSTED,
    find_added_hosts,
    find_hunk_reasons,
    should_review,
)
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.edits.edit_comparison import (
    HunkNumbers,
    SplitEdit,
    number_hunks,
    parse_hunks,
    split_hunks,
)
from thinklsp.lsp.edits.edit_ledger import EditLedger
from thinklsp.lsp.edits.pending_edits import PendingEdit, PendingEdits
from thinklsp.lsp.edits.workspace_edits import GeneratedDocuments, build_workspace_edit

_FOLDER = ".thinklsp/review"
_APPLY, _SHOW = "Apply", "Show the diff"
_MAX_CHANGES = 50


class EditReview:
    def __init__(self, state: ConnectionState, snapshots: Snapshots, pending_edits: PendingEdits) -> None:
        self._state = state
        self._pending_edits = pending_edits
        self._documents = GeneratedDocuments(state, snapshots, _FOLDER, "review")

    def should_ask(self, plan: MergePlan, review: Review, scope: Scope | None) -> bool:
        """Return whether the user must confirm the edit before it is sent.

        An editor with change annotations asks the user itself after the edit is sent. Only VS Code also asks about
        annotated operations on entire files: Neovim 0.12 looks at the annotations of text edits only.
        """
        can = self._state.client.features
        confirms_annotations = can.change_annotations and can.document_changes and not can.has_own_review
        if confirms_annotations and not can.is_vs_code:
            confirms_annotations = not any(item.file.is_file_operation for item in plan.mergeable)
        return not confirms_annotations and can.apply_edit and should_review(plan.mergeable, review, scope)

    async def ask(
        self, pending: PendingEdit, plan: MergePlan, review: Review, scope: Scope | None
    ) -> PendingEdit | None:
        """Ask the user which changes to keep, and return the edit with these changes, or None if there are none."""
        if self._state.client.features.has_own_review:
            return await self._choose_hunks(pending, plan, scope)
        return pending if await self._confirm(pending, plan, review, scope) else None

    async def _choose_hunks(self, pending: PendingEdit, plan: MergePlan, scope: Scope | None) -> PendingEdit | None:
        """Let the user choose hunks in the editor. The files of the returned edit contain only the kept hunks."""
        can, encoding = self._state.client.features, self._state.documents.encoding
        edit = await asyncio.to_thread(
            build_workspace_edit, plan.mergeable, can, encoding=encoding, title=pending.title, review="never"
        )
        reasons = await asyncio.to_thread(_list_reasons, plan, scope)
        label = f"thinklsp: {pending.title}"
        params = {"turnId": pending.turn_id, "label": label, "edit": edit, "reasons": reasons}
        kept = parse_hunks(await self._state.client.review_edit(params), "kept")
        return await asyncio.to_thread(_select_hunks, pending, plan, kept)

    async def _confirm(self, pending: PendingEdit, plan: MergePlan, review: Review, scope: Scope | None) -> bool:
        """Ask the user to confirm the edit, and return whether the user agrees."""
        question = f"thinklsp: “{pending.title}” {_describe_plan(plan, review, scope)}. Apply it?"
        options = (_APPLY, _SHOW, NOT_NOW) if self._documents.is_possible else (_APPLY, NOT_NOW)
        answer = await self._state.client.ask_user(question, options)
        if answer == _SHOW and await self._show(pending, plan):
            answer = await self._state.client.ask_user(question, (_APPLY, NOT_NOW))
        return answer == _APPLY

    async def _show(self, pending: PendingEdit, plan: MergePlan) -> bool:
        files = tuple(replace(item.file, before=item.current.text, after=item.after) for item in plan.mergeable)
        name = "".join(char if char.isalnum() else "-" for char in pending.title).strip("-")[:40] or "edit"
        uri = await self._documents.create(name, ".diff", format_diff(EditSet(files)))
        if uri is None:
            return False
        self._pending_edits.offer_in(pending.turn_id, uri)
        await self._documents.show(uri, take_focus=True)
        return True


def _list_reasons(plan: MergePlan, scope: Scope | None) -> list[dict[str, Any]]:
    """Return the JSON form of the reasons why hunks need a review, with the number of each hunk in its file."""
    return [
        {"uri": item.file.uri, "hunk": number, "reason": reason}
        for item in plan.mergeable
        for number, reason in enumerate(find_hunk_reasons(item, scope))
        if reason
    ]


def _select_hunks(pending: PendingEdit, plan: MergePlan, kept: HunkNumbers) -> PendingEdit | None:
    """Return the edit with only the kept hunks, or None if the user kept none."""
    files: dict[str, FileEdit | None] = {file.uri: file for file in pending.files}
    declined: dict[str, SplitEdit] = {}
    for item in plan.mergeable:
        uri = item.file.uri
        split = split_hunks(build_sent_edit(item), kept.get(uri, frozenset()))
        if split.missing_part is not None:
            declined[uri], files[uri] = split, split.applied_part
    remaining = tuple(file for file in files.values() if file is not None)
    return replace(pending, files=remaining, declined=declined) if remaining else None


def _describe_plan(plan: MergePlan, review: Review, scope: Scope | None) -> str:
    # Operations on files come first, and all of them are named.
    items = sorted(plan.mergeable, key=lambda item: not item.file.is_file_operation)
    count = max(_MAX_CHANGES, sum(item.file.is_file_operation for item in items))
    more = f" and {len(items) - count} more" if len(items) > count else ""
    files = ", ".join(map(_describe_change, items[:count])) + more
    reasons = {reason for item in items for reason in find_hunk_reasons(item, scope)} if review == "auto" else set()
    if UNTRUSTED in reasons:
        return f"would change files in a folder that you do not trust: {files}"
    goes_beyond = any(reason is not None and not reason.startswith(DOWNLOADS) for reason in reasons)
    return f"goes beyond the requested file or lines: {files}" if goes_beyond else f"would change {files}"


def _describe_change(item: MergedFile) -> str:
    path = escape_invisible(item.file.path)
    if item.file.is_deletion:
        return f"deletes {path}"
    if item.file.new_uri is not None:
        return f"renames {path} to {escape_invisible(item.file.new_path or item.file.new_uri)}"
    added, removed = count_changed_lines(item.current.text or "", item.after or "")
    hosts = ", ".join(find_added_hosts(item.file.before or "", item.after or ""))
    verb = "creates " if item.file.is_creation else ""
    return f"{verb}{path} (+{added} −{removed}{f', {DOWNLOADS} {hosts}' if hosts else ''})"


_MAX_TURNS = 50


@dataclass(slots=True)
class _SentEdit:
    """The newest edit of a turn, with each file's change as it was sent and the undone hunks of each file."""

    pending: PendingEdit
    changes: dict[str, FileEdit] = field(default_factory=dict)
    undone: dict[str, frozenset[int]] = field(default_factory=dict)

    def add_undone(self, undone: HunkNumbers) -> list[SplitEdit]:
        """Record undone hunks, and return all undone hunks of these files. Unknown files and numbers are ignored.

        This method compares the texts of the files, so it runs in a thread.
        """
        splits = []
        for uri in undone.keys() & self.changes.keys():
            all_numbers = frozenset(range(number_hunks(self.changes[uri])))
            self.undone[uri] = self.undone.get(uri, frozenset()) | (undone[uri] & all_numbers)
            splits.append(split_hunks(self.changes[uri], all_numbers - self.undone[uri]))
        return [split for split in splits if split.missing_part is not None]


class UndoneHunks:
    """The undone hunks for a connection. The edits of the fifty newest turns are kept."""

    def __init__(self, ledger: EditLedger, pending_edits: PendingEdits) -> None:
        self._ledger = ledger
        self._pending_edits = pending_edits
        self._sent_edits: dict[str, _SentEdit] = BoundedDict(_MAX_TURNS)
        self._lock = asyncio.Lock()

    def record_sent(self, pending: PendingEdit, files: Sequence[MergedFile]) -> None:
        """Remember an edit that was sent. A later edit of the same turn replaces the changes of its files."""
        if pending.undo is not None:
            return
        sent = self._sent_edits.get(pending.turn_id) or _SentEdit(pending)
        for item in files:
            sent.changes[item.file.uri] = build_sent_edit(item)
            sent.undone.pop(item.file.uri, None)
        self._sent_edits[pending.turn_id] = sent

    async def undo(self, turn_id: str, undone: HunkNumbers) -> None:
        """Record hunks that the user has undone. The `apply` code action offers them again.

        The session's next prompt tells the model about them. Unknown turns and files are ignored.
        """
        async with self._lock:
            sent = self._sent_edits.get(turn_id)
            declined = [] if sent is None else await asyncio.to_thread(sent.add_undone, undone)
            if sent is None or not declined:
                return
            self._keep_pending(sent, declined)
            await self._ledger.record_undone_hunks(
                turn_id, sent.pending.session_id, {split.change.uri for split in declined if split.applied_part is None}
            )

    async def wait_until_recorded(self) -> None:
        """Wait until all hunks that the editor has reported so far are recorded."""
        async with self._lock:
            pass

    def _keep_pending(self, sent: _SentEdit, splits: Sequence[SplitEdit]) -> None:
        """Add the undone hunks to the turn's pending edit, which may already contain other hunks of the same files."""
        pending = self._pending_edits.get(sent.pending.turn_id)
        files: dict[str, FileEdit] = {} if pending is None else {file.uri: file for file in pending.files}
        for split in splits:
            uri, rest = split.change.uri, split.missing_part
            if rest is not None and (earlier := files.get(uri)) is not None:
                rest = replace(rest, after=earlier.after, new_uri=earlier.new_uri, new_path=earlier.new_path)
            if rest is not None:
                files[uri] = rest
        self._pending_edits.keep(replace(sent.pending, files=tuple(files.values()), declined={}, state="held"))
