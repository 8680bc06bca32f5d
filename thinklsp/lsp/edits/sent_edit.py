"""One workspace edit on its way to the editor: in the ledger before it leaves, its outcome there after the answer.

It runs as a task of its own, so that an answer which comes after a cancel is recorded like any other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from thinklsp.engine.results import Outcome as EditOutcome
from thinklsp.lsp.editor.client import ApplyReply
from thinklsp.lsp.editor.present import Present
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.edits.arrival import Arrivals
from thinklsp.lsp.edits.comparing import Arrival
from thinklsp.lsp.edits.drafts import Draft
from thinklsp.lsp.edits.ledger import EditLedger
from thinklsp.lsp.edits.proposals import Kept
from thinklsp.sessions.ledger import Intent, Outcome


@dataclass(frozen=True, slots=True)
class Answered:
    """The editor's answer, and by URI what can be seen of the edit."""

    reply: ApplyReply
    arrived: Mapping[str, Arrival]


@dataclass(slots=True)
class SentEdit:
    """`present` are the texts that `made` was drafted for. `on_sent` is called when the editor is asked, with whether
    it asks the user in turn, `on_answer` when it has answered and the documents and the disk were looked at.

    `told`: the user was told that the outcome of the edit is unknown.
    """

    state: State
    ledger: EditLedger
    arrivals: Arrivals
    kept: Kept
    made: Draft
    present: Mapping[str, Present]
    edit: Mapping[str, Any]
    on_sent: Callable[[bool], None]
    on_answer: Callable[[SentEdit, Answered], None]
    stage: Literal["made", "sent", "answered"] = "made"
    abandoned: bool = False
    told: bool = False
    outcome: EditOutcome | None = None
    intent: Intent | None = None
    hurry: asyncio.Event = field(default_factory=asyncio.Event)
    _number: list[int] = field(default_factory=list)

    async def run(self) -> Answered | None:
        """The editor's answer. None: it was not sent, as the text moved on or nobody wanted it any more.

        When it is cancelled, the connection ends: the intent then stays open, and the next process looks what came of
        it. Raises SessionError if the ledger cannot be written; nothing was sent then.
        """
        intent = self.intent = await self.ledger.intend(self.kept, self.made.ready)
        if self.abandoned or self.has_moved():
            await self.ledger.settle(intent, dict.fromkeys(self._uris(), "refused"))
            return None
        self.stage = "sent"
        self.arrivals.watch(self.made.ready)
        self.on_sent(self._is_reviewed())
        label = f"thinklsp: {self.kept.title}"
        reply = await self.state.client.apply_edit(label, self.edit, self._number.append)
        self.stage = "answered"
        answered = Answered(reply, await self._arrived(reply))
        self.on_answer(self, answered)
        await self.settle(answered.arrived)
        return answered

    async def _arrived(self, reply: ApplyReply) -> Mapping[str, Arrival]:
        """An editor that says no may have stopped in the middle: then some files have their change already."""
        if reply.applied:
            return await self.arrivals.awaited(self.made.ready, self.hurry)
        return await self.arrivals.now(self.made.ready, exact=True)

    async def settle(self, arrived: Mapping[str, Arrival], otherwise: Outcome | None = "refused") -> None:
        """Store what can be seen of the edit. `otherwise`: the outcome of a file that shows nothing; None: open."""
        if self.intent is None:
            return
        written = {uri: arrival.written for uri, arrival in arrived.items() if arrival.written is not None}
        outcomes: dict[str, Outcome] = dict.fromkeys(written, "applied")
        if otherwise is not None:
            outcomes = {uri: outcomes.get(uri, otherwise) for uri in arrived}
        await self.ledger.settle(self.intent, outcomes, written.values())
        whole = [uri for uri in written if arrived[uri].rest is None]
        if self.kept.undoes is not None and whole:
            await self.ledger.undone(self.kept.undoes, whole)

    async def abandon(self) -> None:
        """Whoever asked for the edit no longer waits, and `abandoned` was set. The editor may take its preview away;
        until it answers, the outcome is unknown."""
        if self.stage == "sent" and self.intent is not None:
            for number in self._number:
                self.state.client.withdraw(number)
            await self.ledger.settle(self.intent, dict.fromkeys(self._uris(), "unknown"))

    def _is_reviewed(self) -> bool:
        """Whether the editor asks the user about a change of this edit."""
        return any(note["needsConfirmation"] for note in self.edit.get("changeAnnotations", {}).values())

    def has_moved(self) -> bool:
        """Whether a document has moved on since the edit was made for it. One that was closed and opened again counts
        its versions anew, so the same version may be another text."""
        for item in self.made.ready:
            document = self.state.documents.get(item.file.uri)
            if document is None:
                if item.present.version is not None:
                    return True
            elif (document.version, document.text) != (item.present.version, item.present.text):
                return True
        return False

    def _uris(self) -> tuple[str, ...]:
        return tuple(item.file.uri for item in self.made.ready)
