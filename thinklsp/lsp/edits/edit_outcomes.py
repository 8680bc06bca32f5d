"""The outcome of an edit: the status of each file, the parts that wait, and notices for the user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from thinklsp.core.edits import FileEdit, split_comparable_lines
from thinklsp.core.lines import find_changed_blocks
from thinklsp.core.markdown import wrap_in_fence
from thinklsp.core.text_safety import escape_invisible
from thinklsp.engine.merge_plan import MergePlan
from thinklsp.engine.results import EditOutcome, FileStatus, HunkCounts, count_unsent_hunks
from thinklsp.lsp.edits.edit_comparison import SplitEdit, UnsavedFile
from thinklsp.lsp.edits.pending_edits import PendingEdit

_DECLINED = "you did not keep this change; the code action `thinklsp: apply` offers it again"
_WAITING = "it is waiting to be applied"
_NOT_UNDONE = "not undone; run the undo again"
_CREATED_EMPTY = "the file was created empty; its text is waiting to be applied"
_MAX_NAMES = 6
_INTRODUCTION = (
    "Your editor does not accept edits from a server, so change the files yourself. The line numbers are those before "
    "the changes."
)


def build_outcome(
    pending: PendingEdit,
    plan: MergePlan,
    statuses: Sequence[FileStatus],
    rests: Mapping[str, FileEdit],
    *,
    keeps_undo: bool,
) -> tuple[EditOutcome, PendingEdit | None]:
    """Return the outcome in the order of the edit set, and the pending edit, or None if every part was applied.

    `rests` contains the missing parts of the files that were sent, by URI. An undo becomes a pending edit only if
    `keeps_undo` is True. Otherwise, the user can run the undo again.
    """
    by_uri = {status.uri: status for status in statuses}
    files = tuple(by_uri[file.uri] for file in pending.files)
    waiting = tuple(rests.get(file.uri, file) for file in pending.files if by_uri[file.uri].status != "applied")
    if pending.declined:
        files, waiting = _add_declined(files, waiting, pending.declined)
    if not waiting or (pending.undo is not None and not keeps_undo):
        return EditOutcome(files), None
    texts = {file.uri: plan.current[file.uri].text for file in files if file.status == "conflict"}
    rest = replace(
        pending,
        files=waiting,
        conflict_texts={uri: text for uri, text in texts.items() if text is not None},
        state="incomplete" if any(file.is_pending for file in files) else "held",
        declined={},
    )
    return EditOutcome(files, pending.turn_id), rest


def _add_declined(
    statuses: Sequence[FileStatus], waiting: Sequence[FileEdit], declined: Mapping[str, SplitEdit]
) -> tuple[tuple[FileStatus, ...], tuple[FileEdit, ...]]:
    """Add the hunks that the user declined to the statuses and to the files that wait."""
    by_uri = {status.uri: status for status in statuses}
    files = {file.uri: file for file in waiting}
    for uri, split in declined.items():
        if uri in files:
            # A part of the kept hunks was not applied either.
            whole = split.change
            files[uri] = replace(files[uri], after=whole.after, new_uri=whole.new_uri, new_path=whole.new_path)
        elif split.missing_part is not None:
            files[uri] = split.missing_part
        by_uri[uri] = _add_declined_hunks(uri, by_uri.get(uri), split.hunks.pending)
    return tuple(by_uri.values()), tuple(files.values())


def _add_declined_hunks(uri: str, kept: FileStatus | None, count: int) -> FileStatus:
    """Return a file's status. `kept` is the status of the kept hunks, or None if the user kept none."""
    if kept is None:
        return FileStatus(uri, "held", _DECLINED, HunkCounts(0, count))
    hunks = HunkCounts(kept.hunks.applied, kept.hunks.pending + count)
    if kept.status != "applied":
        return replace(kept, hunks=hunks)
    reason = f"you kept {hunks.applied} of {hunks.applied + hunks.pending} changes"
    return replace(kept, status="some", reason=reason, hunks=hunks)


def reject_all(plan: MergePlan, reason: str) -> tuple[FileStatus, ...]:
    rejected = (FileStatus(item.file.uri, "refused", reason, count_unsent_hunks(item.file)) for item in plan.mergeable)
    return (*rejected, *plan.rejected)


def build_statuses(comparisons: Mapping[str, SplitEdit], reason: str | None, *, undo: bool) -> tuple[FileStatus, ...]:
    """Return a status for each file in a sent edit.

    `reason` is the editor's explanation if it did not apply the edit.
    """
    return tuple(_build_status(uri, found, reason, undo=undo) for uri, found in comparisons.items())


def _build_status(uri: str, comparison: SplitEdit, reason: str | None, *, undo: bool) -> FileStatus:
    hunks = comparison.hunks
    if comparison.missing_part is None:
        return FileStatus(uri, "applied", hunks=hunks)
    if comparison.applied_part is None:
        return FileStatus(uri, "refused", reason or (_NOT_UNDONE if undo else _WAITING), hunks, is_pending=True)
    state = "were not undone" if undo else "are waiting"
    why = f"{hunks.pending} of {hunks.applied + hunks.pending} changes {state}"
    if comparison.applied_part.before is None:
        why = _CREATED_EMPTY
    return FileStatus(uri, "some", why, hunks, is_pending=True)


def format_waiting(statuses: Sequence[FileStatus], files: Sequence[FileEdit], reason: str | None) -> str:
    """Return a notice about the files that the editor did not change, or an empty string if there are none."""
    names = _build_names(files)
    waiting = [names[status.uri] for status in statuses if status.is_pending]
    if not waiting:
        return ""
    changed = sum(status.status == "applied" or status.hunks.applied > 0 for status in statuses)
    count = f"{changed} of {len(statuses)} files changed" if changed else "Nothing was changed"
    if changed and len(statuses) == 1:
        hunks = statuses[0].hunks
        count = f"{hunks.applied} of {hunks.applied + hunks.pending} changes applied"
    sentence = f"{count}; {_format_subject(waiting)} waiting."
    if empty := [names[s.uri] for s in statuses if s.is_pending and s.status == "some" and not s.hunks.applied]:
        sentence += f" {_format_subject(empty)} empty until then."
    return sentence if reason is None else f"{sentence} The editor says: {reason}"


def _build_names(files: Sequence[FileEdit]) -> dict[str, str]:
    """Return a display name for each file: the file name, or the full path if two files have the same name."""
    short = {file.uri: file.path.rpartition("/")[2] for file in files}
    duplicates = {name for name, count in Counter(short.values()).items() if count > 1}
    return {
        file.uri: escape_invisible(file.path if short[file.uri] in duplicates else short[file.uri]) for file in files
    }


def _format_subject(names: Iterable[str]) -> str:
    *others, last = names
    if not others:
        return f"{last} is"
    if len(others) < _MAX_NAMES:
        return f"{', '.join(others)} and {last} are"
    return f"{', '.join(others[:_MAX_NAMES])} and {len(others) + 1 - _MAX_NAMES} more are"


def build_unsaved_notices(files: Sequence[UnsavedFile]) -> tuple[str, ...]:
    """Return a notice that names the unsaved files, or an empty tuple if there are no files."""
    names = ", ".join(sorted(file.path for file in files))
    return (f"Changed but not saved: {names}. Save all files to keep the change.",) if files else ()


def format_new_text(files: Sequence[FileEdit]) -> str:
    """Return the changes of files as Markdown for the user to insert, or an empty string if there are none."""
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
