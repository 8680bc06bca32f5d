"""What a turn wrote as an edit set that takes it back. Pure: rows of the ledger in, file edits out.

The edits start from what the turn wrote, so that the drafting which merges a turn's edit onto what the user has typed
merges its undo, too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from thinklsp.core.edits import FileEdit
from thinklsp.engine.results import FileStatus, Hunks
from thinklsp.sessions.ledger import LedgerEntry, PlannedWrite, WrittenTurn
from thinklsp.workspace.forms import merge_onto
from thinklsp.workspace.merge import Merged
from thinklsp.workspace.uri import uri_key


@dataclass(frozen=True, slots=True)
class Undo:
    """`files` are to be sent. `left_out` cannot be: the turn's own edits of it cannot be told apart from the user's.
    `places`: by URI of a file edit, the URIs of the ledger that it takes back."""

    turn: WrittenTurn
    title: str
    files: tuple[FileEdit, ...]
    left_out: tuple[FileStatus, ...]
    places: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class _Net:
    """All that a turn did to one file: from `before` under the name `old_uri` to `after` under `uri`."""

    old_uri: str
    uri: str
    path: str
    before: str | None
    after: str | None
    places: tuple[str, ...]
    sound: bool = True


def undo_of(turn: WrittenTurn, title: str) -> Undo:
    nets = tuple(_nets(entry for edit in turn.edits for entry in edit.entries))
    files = {net: _back(net) for net in nets if net.sound}
    reason = "the turn changed it more than once, with changes of yours between that touch them"
    left_out = tuple(FileStatus(net.uri, "conflict", reason, Hunks(0, 1)) for net in nets if not net.sound)
    places = {file.uri: net.places for net, file in files.items()}
    return Undo(turn, title, tuple(files.values()), left_out, places)


def _nets(entries: Iterable[LedgerEntry]) -> Iterable[_Net]:
    found: dict[str, _Net] = {}
    for entry in entries:
        write = entry.write
        uri = write.new_uri or write.uri
        earlier = found.pop(uri_key(write.uri), None)
        if earlier is None:
            net = _Net(write.uri, uri, write.path, write.before, write.after, (write.uri,))
        else:
            net = _joined(earlier, write, uri)
        found[uri_key(uri)] = net
    return found.values()


def _joined(earlier: _Net, write: PlannedWrite, uri: str) -> _Net:
    """Two edits of one file in one turn. What the user typed between them is no part of either."""
    net = replace(earlier, uri=uri, after=write.after, places=(*earlier.places, write.uri))
    if write.before == earlier.after:
        return net
    if earlier.before is None or earlier.after is None or write.before is None:
        return replace(net, sound=False)
    merged = merge_onto(write.before, earlier.after, earlier.before)
    return replace(net, before=merged.text) if isinstance(merged, Merged) else replace(net, sound=False)


def _back(net: _Net) -> FileEdit:
    renamed = uri_key(net.uri) != uri_key(net.old_uri)
    if renamed and net.before is not None and net.after is not None:
        return FileEdit(net.uri, net.path, net.after, net.before, new_uri=net.old_uri, new_path=net.path)
    if net.after is None:
        return FileEdit(net.old_uri, net.path, None, net.before)
    return FileEdit(net.uri, net.path, net.after, net.before)
