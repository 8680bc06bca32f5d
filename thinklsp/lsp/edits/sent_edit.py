"""One workspace edit on its way to the editor: in the ledger before it leaves, its outcome there after the answer.

It runs as a task of its own, so that an answer which comes after a cancel is recorded like any other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from thinklsp.core.errors import SessionError
from thinklsp.lsp.editor.client import ApplyReply
from thinklsp.lsp.editor.present import Present
from thinklsp.lsp.editor.state import State
from thinklsp.lsp.edits.drafts import Draft
from thinklsp.lsp.edits.ledger import EditLedger
from thinklsp.lsp.edits.proposals import Kept
from thinklsp.sessions.ledger import Intent, Outcome


@dataclass(slots=True)
class SentEdit:
    """`present` are the texts that `made` was drafted for. `on_sent` is called when the editor is asked, `on_answer`
    when it has answered: at once, before anything can be cancelled. It gives the outcome by URI.

    `told`: the user has heard that nobody knows what came of the edit.
    """

    state: State
    ledger: EditLedger
    kept: Kept
    made: Draft
    present: Mapping[str, Present]
    edit: Mapping[str, Any]
    on_sent: Callable[[], None]
    on_answer: Callable[[SentEdit, ApplyReply], Mapping[str, Outcome]]
    stage: Literal["made", "sent", "answered"] = "made"
    abandoned: bool = False
    told: bool = False
    intent: Intent | None = None
    _number: list[int] = field(default_factory=list)

    async def run(self) -> ApplyReply | None:
        """The editor's answer. None: it was not sent, as the text moved on or nobody wanted it any more.

        When it is cancelled, the connection ends: the intent then stays open, and the next process looks what came of
        it.
        """
        try:
            intent = self.intent = await self.ledger.intend(self.kept, self.made.ready)
        except SessionError as error:
            return ApplyReply(False, str(error))
        if self.abandoned or self.has_moved():
            await self._settle(intent, dict.fromkeys(self._uris(), "refused"))
            return None
        self.stage = "sent"
        self.on_sent()
        label = f"thinklsp: {self.kept.title}"
        reply = await self.state.client.apply_edit(label, self.edit, self._number.append)
        self.stage = "answered"
        await self._settle(intent, self.on_answer(self, reply))
        return reply

    async def _settle(self, intent: Intent, outcomes: Mapping[str, Outcome]) -> None:
        await self.ledger.settle(intent, outcomes)
        applied = [uri for uri, outcome in outcomes.items() if outcome == "applied"]
        if self.kept.undoes is not None and applied:
            await self.ledger.undone(self.kept.undoes, applied)

    async def abandon(self) -> None:
        """Whoever asked for the edit no longer waits, and `abandoned` was set. The editor may take its preview away;
        until it answers, the outcome is unknown."""
        if self.stage == "sent" and self.intent is not None:
            for number in self._number:
                self.state.client.withdraw(number)
            await self.ledger.settle(self.intent, dict.fromkeys(self._uris(), "unknown"))

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
