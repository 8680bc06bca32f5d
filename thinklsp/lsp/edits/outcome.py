"""What became of the edit of a turn, file by file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from thinklsp.engine.results import FileStatus
from thinklsp.lsp.edits.comparing import Arrival

_WAITING = "it is waiting to be applied"
_NOT_UNDONE = "it was not undone; ask for the undo again"
_MAX_NAMES = 6


def statuses(arrived: Mapping[str, Arrival], reason: str | None, *, undo: bool) -> tuple[FileStatus, ...]:
    """The status of each file that was sent. `reason`: why the editor did not apply the edit, in its own words."""
    return tuple(_status(uri, arrival, reason, undo=undo) for uri, arrival in arrived.items())


def _status(uri: str, arrival: Arrival, reason: str | None, *, undo: bool) -> FileStatus:
    hunks = arrival.hunks
    if arrival.rest is None:
        return FileStatus(uri, "applied", hunks=hunks)
    if arrival.written is None:
        return FileStatus(uri, "refused", reason or (_NOT_UNDONE if undo else _WAITING), hunks, waits=True)
    if arrival.written.before is None:
        return FileStatus(uri, "some", "the file was created empty; its text is waiting", hunks, waits=True)
    total = hunks.applied + hunks.waiting
    said = "were not undone" if undo else "are waiting"
    return FileStatus(uri, "some", f"{hunks.waiting} of {total} changes {said}", hunks, waits=True)


def waiting_sentence(files: Sequence[FileStatus], names: Mapping[str, str], reason: str | None) -> str:
    """One sentence about the files that the editor did not change; empty if there is none. `names` by URI."""
    waiting = [names[file.uri] for file in files if file.waits]
    if not waiting:
        return ""
    changed = sum(file.status == "applied" or file.hunks.applied > 0 for file in files)
    count = f"{changed} of {len(files)} files changed" if changed else "Nothing was changed"
    if changed and len(files) == 1:
        hunks = files[0].hunks
        count = f"{hunks.applied} of {hunks.applied + hunks.waiting} changes applied"
    said = f"{count}; {_listed(waiting)} {'is' if len(waiting) == 1 else 'are'} waiting."
    empty = [names[file.uri] for file in files if file.waits and file.status == "some" and not file.hunks.applied]
    more = f" {_listed(empty)} {'is' if len(empty) == 1 else 'are'} empty until then." if empty else ""
    return f"{said}{more}" if reason is None else f"{said}{more} The editor says: {reason}"


def _listed(names: Iterable[str]) -> str:
    *some, last = names
    if len(some) >= _MAX_NAMES:
        return f"{', '.join(some[:_MAX_NAMES])} and {len(some) + 1 - _MAX_NAMES} more"
    return f"{', '.join(some)} and {last}" if some else last
