"""Edits that were sent when their turn was ended, and that the editor has not answered."""

from __future__ import annotations

from dataclasses import replace

from thinklsp.core.errors import TurnRefused
from thinklsp.engine.results import FileStatus, Outcome, not_sent
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.edits.arrival import Arrivals
from thinklsp.lsp.edits.ledger import EditLedger
from thinklsp.lsp.edits.outcome import statuses
from thinklsp.lsp.edits.proposals import Kept, Proposals
from thinklsp.lsp.edits.sent_edit import SentEdit

_UNDO_IN_DOUBT = (
    "The editor has not said whether it made the undo that was cancelled, and not all files show it. Look at them, or "
    "ask again to have it sent once more."
)
_OPEN = (
    "the editor has not said whether it made this change, and the document does not show it; ask again to have it sent "
    "once more"
)
_NOT_OPEN = (
    "the editor has not said whether it made this change, and the file on disk does not show it, but the editor may "
    "hold it unsaved; open the file to see, or ask again to have it sent once more"
)
_BESIDE = "it waits until it is known what came of the other files"


class Unanswered:
    def __init__(self, state: State, ledger: EditLedger, arrivals: Arrivals, proposals: Proposals) -> None:
        self._state = state
        self._ledger = ledger
        self._arrivals = arrivals
        self._proposals = proposals
        self._by_turn: dict[str, SentEdit] = {}

    def add(self, sending: SentEdit) -> None:
        self._by_turn[sending.kept.turn_id] = sending

    def has(self, sending: SentEdit) -> bool:
        return self._by_turn.get(sending.kept.turn_id) is sending

    def drop(self, sending: SentEdit) -> bool:
        """Whether it was there: its answer comes late."""
        is_late = self.has(sending)
        if is_late:
            del self._by_turn[sending.kept.turn_id]
        return is_late

    async def before_apply(self, kept: Kept) -> tuple[Kept, Outcome | None]:
        """What is left to apply. The outcome is set if nothing is, or if the user does not know yet that the edit may
        have arrived: it is sent again only if they ask once more.
        """
        sending = self._by_turn.get(kept.turn_id)
        if sending is None:
            return kept, None
        kept, there = await self._look(sending, kept)
        if kept.files and sending.told:
            self.drop(sending)
            return kept, None
        sending.told = True
        return kept, Outcome(there + self._in_doubt(sending, kept), kept.turn_id if kept.files else None)

    async def look_for(self, turn_id: str | None, session_id: str | None) -> None:
        """Record what can be seen of the edits of a turn, or of all."""
        for sending in [one for one in self._by_turn.values() if turn_id in (None, one.kept.turn_id)]:
            if sending.kept.undoes is None and session_id in (None, sending.kept.session_id):
                await self._look(sending, self._proposals.get(sending.kept.turn_id) or sending.kept)

    async def refuse_undo(self, undo_id: str) -> None:
        """Raise TurnRefused once for an undo that was cancelled while the editor was making it."""
        sending = self._by_turn.pop(undo_id, None)
        if sending is None or sending.told:
            return
        arrived = await self._arrivals.now(sending.made.ready)
        if all(arrival.rest is None for arrival in arrived.values()):
            return
        sending.told = True
        self.add(sending)
        raise TurnRefused(_UNDO_IN_DOUBT)

    async def _look(self, sending: SentEdit, kept: Kept) -> tuple[Kept, tuple[FileStatus, ...]]:
        """What is left of the proposal, and the files that show their whole change."""
        arrived = await self._arrivals.now(sending.made.ready)
        seen = {uri: arrival for uri, arrival in arrived.items() if arrival.written is not None}
        self._ledger.wrote(kept, [arrival.written for arrival in seen.values() if arrival.written is not None])
        await sending.settle(seen, None)
        left = [seen[file.uri].rest if file.uri in seen else file for file in kept.files]
        kept = replace(kept, files=tuple(file for file in left if file is not None))
        if kept.files:
            self._proposals.keep(kept)
        else:
            self._proposals.drop(kept.turn_id)
            self._by_turn.pop(kept.turn_id, None)
        whole = {uri: arrival for uri, arrival in seen.items() if arrival.rest is None}
        return kept, statuses(whole, None, undo=kept.undoes is not None)

    def _in_doubt(self, sending: SentEdit, kept: Kept) -> tuple[FileStatus, ...]:
        sent = {item.file.uri for item in sending.made.ready}
        return tuple(
            FileStatus(file.uri, "unknown", _OPEN if self._state.documents.get(file.uri) else _NOT_OPEN, not_sent(file))
            if file.uri in sent
            else FileStatus(file.uri, "held", _BESIDE, not_sent(file))
            for file in kept.files
        )
