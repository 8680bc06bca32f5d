"""The hunks of sent edits that the user has undone in the editor. They become part of the turn's pending edit."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from thinklsp.core.edits import FileEdit
from thinklsp.engine.merge_plan import MergedFile, build_sent_edit
from thinklsp.lsp.edits.edit_ledger import EditLedger
from thinklsp.lsp.edits.hunk_choice import DeclinedHunks, HunkNumbers, number_hunks, split_hunks
from thinklsp.lsp.edits.pending_edits import PendingEdit, PendingEdits

_MAX_TURNS = 50


@dataclass(slots=True)
class _SentEdit:
    """The newest edit of a turn, with each file's change as it was sent and the undone hunks of each file."""

    pending: PendingEdit
    changes: dict[str, FileEdit] = field(default_factory=dict)
    undone: dict[str, frozenset[int]] = field(default_factory=dict)

    def add_undone(self, undone: HunkNumbers) -> list[DeclinedHunks]:
        """Record undone hunks, and return all undone hunks of these files. Unknown files and numbers are ignored.

        This method compares the texts of the files, so it runs in a thread.
        """
        declined = []
        for uri in undone.keys() & self.changes.keys():
            change = self.changes[uri]
            all_numbers = frozenset(range(number_hunks(change)))
            self.undone[uri] = self.undone.get(uri, frozenset()) | (undone[uri] & all_numbers)
            _, hunks = split_hunks(change, all_numbers - self.undone[uri])
            if hunks is not None:
                declined.append(hunks)
        return declined


class UndoneHunks:
    """The undone hunks for a connection. The edits of the fifty newest turns are kept."""

    def __init__(self, ledger: EditLedger, pending_edits: PendingEdits) -> None:
        self._ledger = ledger
        self._pending_edits = pending_edits
        self._sent_edits: OrderedDict[str, _SentEdit] = OrderedDict()
        self._lock = asyncio.Lock()

    def record_sent(self, pending: PendingEdit, files: Sequence[MergedFile]) -> None:
        """Remember an edit that was sent. A later edit of the same turn replaces the changes of its files."""
        if pending.undo is not None:
            return
        sent = self._sent_edits.pop(pending.turn_id, None) or _SentEdit(pending)
        for item in files:
            sent.changes[item.file.uri] = build_sent_edit(item)
            sent.undone.pop(item.file.uri, None)
        self._sent_edits[pending.turn_id] = sent
        while len(self._sent_edits) > _MAX_TURNS:
            self._sent_edits.popitem(last=False)

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
                turn_id, sent.pending.session_id, {hunks.whole.uri for hunks in declined if hunks.rest is hunks.whole}
            )

    async def wait_until_recorded(self) -> None:
        """Wait until all hunks that the editor has reported so far are recorded."""
        async with self._lock:
            pass

    def _keep_pending(self, sent: _SentEdit, declined: Sequence[DeclinedHunks]) -> None:
        """Add the undone hunks to the turn's pending edit, which may already contain other hunks of the same files."""
        pending = self._pending_edits.get(turn_id := sent.pending.turn_id)
        files: dict[str, FileEdit] = {} if pending is None else {file.uri: file for file in pending.files}
        files |= {hunks.whole.uri: _extend(hunks, files) for hunks in declined}
        self._pending_edits.keep(
            replace(sent.pending, turn_id=turn_id, files=tuple(files.values()), declined={}, state="held")
        )


def _extend(hunks: DeclinedHunks, files: Mapping[str, FileEdit]) -> FileEdit:
    earlier = files.get(hunks.whole.uri)
    if earlier is None:
        return hunks.rest
    return replace(hunks.rest, after=earlier.after, new_uri=earlier.new_uri, new_path=earlier.new_path)
