"""The merge of a turn's edit set with the current files, and the plan for undoing a turn.

Files that cannot be merged are rejected with a reason. An undo starts from the text that the turn wrote, according to
the edit ledger. It is then merged with the user's changes like any other edit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from urllib.parse import unquote

from thinklsp.core.edits import FileEdit, is_blank
from thinklsp.engine.results import FileStatus, HunkCounts, count_unsent_hunks
from thinklsp.sessions.ledger import LedgerEntry, PlannedWrite, WrittenTurn
from thinklsp.workspace.merge import Conflict, MergedText, is_equal_ignoring_format, merge_onto
from thinklsp.workspace.uri import normalize_uri

_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class FileState:
    """The current state of a file.

    `text` is None if the file does not exist. `version` is None if the file is not open.
    """

    text: str | None
    version: int | None = None
    is_desynced: bool = False
    refusal: str | None = None


@dataclass(frozen=True, slots=True)
class Scope:
    """The part of the workspace that the user asked to change. Hunks outside the scope need a review.

    `uri` is None if the request named no document. `lines` is a zero-based range that includes both ends. `untrusted`
    contains the paths of the edited files in folders that the user does not trust, which always need a review.
    """

    uri: str | None = None
    lines: tuple[int, int] | None = None
    untrusted: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class MergedFile:
    """A file that can be merged, with its edit, its current state and its text after the merge."""

    file: FileEdit
    current: FileState
    after: str | None


def build_sent_edit(item: MergedFile) -> FileEdit:
    """Return the change to send to the editor."""
    before = item.current.text
    if before is not None and item.file.is_deletion and (item.file.before or "").startswith(_BOM):
        before = _BOM + before.removeprefix(_BOM)
    return replace(item.file, before=before, after=item.after, version=item.current.version)


@dataclass(frozen=True, slots=True)
class MergePlan:
    """A merge plan.

    The mergeable files are sent as one workspace edit. Each rejected file has a status and a reason. `current` contains
    all files by URI, as they were.
    """

    mergeable: tuple[MergedFile, ...]
    rejected: tuple[FileStatus, ...]
    current: Mapping[str, FileState] = field(default_factory=dict)

    @property
    def uris(self) -> tuple[str, ...]:
        """The URIs of the mergeable files."""
        return tuple(item.file.uri for item in self.mergeable)


def plan_merge(
    files: Sequence[FileEdit],
    current: Mapping[str, FileState],
    operations: frozenset[str],
    *,
    conflict_texts: Mapping[str, str] | None = None,
) -> MergePlan:
    """Merge an edit set with the current files.

    `current` contains all files by URI, including the new URIs of renamed files. `operations` contains the operations
    that the client supports: `create`, `rename` and `delete`. `conflict_texts` is set if the user
    applies an edit again after a conflict. It maps URIs to the conflicting texts, which the turn's text then replaces.
    Changes that the user made after the conflict are merged as usual.
    """
    ready: list[MergedFile] = []
    left_out: list[FileStatus] = []
    for file in files:
        target = None if file.new_uri is None else current[file.new_uri]
        result = _merge_file(
            file, current[file.uri], target, operations, conflict_text=(conflict_texts or {}).get(file.uri)
        )
        if isinstance(result, MergedFile):
            ready.append(result)
        else:
            left_out.append(replace(result, hunks=count_unsent_hunks(file, is_applied=result.status == "applied")))
    return MergePlan(tuple(ready), tuple(left_out), current)


def _merge_file(
    file: FileEdit,
    current: FileState,
    target: FileState | None,
    operations: frozenset[str],
    *,
    conflict_text: str | None,
) -> MergedFile | FileStatus:
    if _is_applied(file, current, target):
        return FileStatus(file.uri, "applied")
    if current.refusal is not None:
        return FileStatus(file.uri, "refused", current.refusal)
    if target is not None and (target.refusal is not None or target.text is not None):
        reason = target.refusal or "a file with the new name was created in the meantime"
        return FileStatus(file.uri, "conflict" if target.refusal is None else "refused", reason)
    if current.is_desynced:
        reason = "the editor's changes to this document arrived out of order; close and reopen the document"
        return FileStatus(file.uri, "refused", reason)
    if (missing := _find_missing_operation(file, operations)) is not None:
        return FileStatus(file.uri, "refused", f"this editor does not let thinklsp {missing} files")
    if file.before is None:
        # The file may exist but be empty, because editors create a new file before they request its text.
        if is_blank(current.text) or current.text == conflict_text:
            return MergedFile(file, current, file.after)
        if is_equal_ignoring_format(current.text, file.after):
            return FileStatus(file.uri, "applied")
        return FileStatus(file.uri, "conflict", "a file with this name was created in the meantime")
    if current.text is None:
        return FileStatus(file.uri, "conflict", "the file was deleted in the meantime")
    if file.after is None:
        # The editor's own undo leaves a created file empty.
        if _is_same(current.text, file.before) or current.text == conflict_text or is_blank(current.text):
            return MergedFile(file, current, None)
        return FileStatus(file.uri, "conflict", "the file was changed in the meantime, so it was not deleted")
    merged = _merge_text(file.before, file.after, current.text, conflict_text)
    if isinstance(merged, Conflict):
        first, last = merged.regions[0]
        location = f"line {first}" if last <= first else f"lines {first}-{last}"
        return FileStatus(
            file.uri, "conflict", f"you edited the same lines in the meantime ({location}); your version was kept"
        )
    if merged.text == current.text and target is None:
        return FileStatus(file.uri, "applied")
    return MergedFile(file, current, merged.text)


def _is_same(left: str, right: str) -> bool:
    return is_equal_ignoring_format(left, right) or (is_blank(left) and is_blank(right))


def _merge_text(before: str, after: str, now: str, conflict_text: str | None) -> MergedText | Conflict:
    merged = merge_onto(now, before, after)
    if conflict_text is None or isinstance(merged, MergedText):
        return merged
    winning = merge_onto(conflict_text, before, after, ours_wins=True)
    return merge_onto(now, conflict_text, winning.text) if isinstance(winning, MergedText) else winning


def _is_applied(file: FileEdit, current: FileState, target: FileState | None) -> bool:
    """Return whether the file already contains the edit, for example because the user applied it with a code action."""
    if target is not None:
        return current.text is None and target.text == file.after
    return current.refusal is None and current.text == file.after


def _find_missing_operation(file: FileEdit, operations: frozenset[str]) -> str | None:
    needs = {"create": file.is_creation, "delete": file.is_deletion, "rename": file.new_uri is not None}
    return next((name for name, is_needed in needs.items() if is_needed and name not in operations), None)


_OVERLAP = "the turn changed this file more than once, and your changes in between overlap"
_DAMAGED = "a text of this edit is damaged in the session store, or cannot be decrypted"


@dataclass(frozen=True, slots=True)
class UndoPlan:
    """The plan for undoing a turn. `files` are the edits to send, and `rejected` are the conflicting files.

    `ledger_uris` maps the URI of each file edit to the URIs of the ledger entries that the edit reverts.
    """

    turn: WrittenTurn
    title: str
    files: tuple[FileEdit, ...]
    rejected: tuple[FileStatus, ...]
    ledger_uris: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _NetChange:
    """A turn's total change to a file, from `before` at `old_uri` to `after` at `uri`."""

    old_uri: str
    uri: str
    path: str
    before: str | None
    after: str | None
    ledger_uris: tuple[str, ...]
    problem: str = ""


def plan_undo(turn: WrittenTurn, title: str, find_key: Callable[[str], str] = normalize_uri) -> UndoPlan:
    """Return the plan. `find_key` returns a key that is the same for all URIs of a file."""
    nets = tuple(_combine_entries((entry for edit in turn.edits for entry in edit.entries), find_key))
    files = {net: _revert_change(net) for net in nets if not net.problem}
    left_out = tuple(FileStatus(net.uri, "conflict", net.problem, HunkCounts(0, 1)) for net in nets if net.problem)
    places = {file.uri: net.ledger_uris for net, file in files.items()}
    return UndoPlan(turn, title, tuple(files.values()), left_out, places)


def _combine_entries(entries: Iterable[LedgerEntry], find_key: Callable[[str], str]) -> Iterable[_NetChange]:
    changes: dict[str, _NetChange] = {}
    for entry in entries:
        write = entry.write
        uri = write.new_uri or write.uri
        earlier = changes.pop(find_key(write.uri), None)
        if earlier is None:
            net = _NetChange(write.uri, uri, write.path, write.before, write.after, (write.uri,))
        else:
            net = _join_changes(earlier, write, uri)
        if entry.is_damaged:
            net = replace(net, problem=_DAMAGED)
        changes[find_key(uri)] = net
    return changes.values()


def _join_changes(earlier: _NetChange, write: PlannedWrite, uri: str) -> _NetChange:
    """Combine two edits of a file in the same turn, without the user's own changes between them."""
    net = replace(earlier, uri=uri, after=write.after, ledger_uris=(*earlier.ledger_uris, write.uri))
    if write.before == earlier.after:
        return net
    if earlier.before is None or earlier.after is None or write.before is None:
        return replace(net, problem=_OVERLAP)
    merged = merge_onto(write.before, earlier.after, earlier.before)
    return replace(net, before=merged.text) if isinstance(merged, MergedText) else replace(net, problem=_OVERLAP)


def _revert_change(net: _NetChange) -> FileEdit:
    is_renamed = normalize_uri(net.uri) != normalize_uri(net.old_uri)
    if is_renamed and net.before is not None and net.after is not None:
        # The ledger keeps only the path before the rename.
        path = unquote(net.uri.rpartition("/")[2])
        return FileEdit(net.uri, path, net.after, net.before, new_uri=net.old_uri, new_path=net.path)
    if net.after is None:
        return FileEdit(net.old_uri, net.path, None, net.before)
    return FileEdit(net.uri, net.path, net.after, net.before)
