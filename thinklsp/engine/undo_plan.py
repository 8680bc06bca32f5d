"""The plan for undoing a turn, computed from the records in the edit ledger.

The undo starts from the text that the turn wrote. It is then merged with the user's changes like any other edit.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace

from thinklsp.core.edits import FileEdit
from thinklsp.engine.results import FileStatus, HunkCounts
from thinklsp.sessions.ledger import LedgerEntry, PlannedWrite, WrittenTurn
from thinklsp.workspace.merge import MergedText, merge_onto
from thinklsp.workspace.uri import normalize_uri

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
        return FileEdit(net.uri, net.path, net.after, net.before, new_uri=net.old_uri, new_path=net.path)
    if net.after is None:
        return FileEdit(net.old_uri, net.path, None, net.before)
    return FileEdit(net.uri, net.path, net.after, net.before)
