"""The outcome of a sent edit, and the parts of the edit that become a pending edit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from thinklsp.core.edits import FileEdit
from thinklsp.core.text_safety import escape_invisible
from thinklsp.engine.merge_plan import FileState, MergePlan
from thinklsp.engine.results import EditOutcome, FileStatus, count_unsent_hunks
from thinklsp.lsp.edits.hunk_choice import DeclinedHunks
from thinklsp.lsp.edits.pending_edits import PendingEdit, PendingState


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
