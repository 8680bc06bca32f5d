"""One turn as the editor sees it: events to progress, the edit set to the editor, what it says to the reader."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import partial

from thinklsp.core.choices import BUDGET_ANSWERS, BudgetAnswer
from thinklsp.core.edits import FileEdit
from thinklsp.core.events import RetryScheduled, StepCommitted, TextStreamed, TurnEvent, TurnFinished
from thinklsp.core.messages import AssistantMessage, TextBlock
from thinklsp.core.said import Said
from thinklsp.engine import ChatTask, CompactTask, Turn
from thinklsp.engine.results import ENDINGS, Outcome, Result, Status, turn_result
from thinklsp.lsp.editor.client import Client
from thinklsp.lsp.editor.progress import TurnProgress
from thinklsp.lsp.edits.applying import Applying
from thinklsp.lsp.edits.drafts import Scope
from thinklsp.lsp.edits.proposals import Kept
from thinklsp.lsp.protocol.errors import spoken
from thinklsp.lsp.turns.running import Running
from thinklsp.sessions.titles import title_of
from thinklsp.tools.editor import Editor

_NOT_ANSWERED = "The session keeps your prompt without an answer."


@dataclass(frozen=True, slots=True)
class Told:
    """What a turn has to tell whoever reads it in a document. `heard`: its prompt is part of the conversation now, and
    so the model knows it. `cut`: it was cancelled or failed."""

    session_id: str
    text: str
    notices: tuple[str, ...]
    heard: bool
    cut: bool = False


Deliver = Callable[[Told], "asyncio.Task[None]"]
"""Begins to put it where the user reads it. The task goes on when the turn is cancelled."""


@dataclass(slots=True)
class _Streamed:
    """The text of a turn as far as it has come: of its steps, and of the message that is not whole yet."""

    said: Said = field(default_factory=Said)
    pieces: list[str] = field(default_factory=list)

    def take(self, event: TurnEvent) -> None:
        if isinstance(event, TextStreamed):
            self.pieces.append(event.delta)
        elif isinstance(event, StepCommitted):
            self.said = self.said.then(event.assistant)
            self.pieces.clear()
        elif isinstance(event, RetryScheduled) and event.restart:
            self.pieces.clear()

    @property
    def partial(self) -> str:
        return "".join(self.pieces)

    @property
    def so_far(self) -> Said:
        return self.said.then(AssistantMessage((TextBlock(self.partial),))) if self.partial.strip() else self.said

    @property
    def text(self) -> str:
        return "\n\n".join(message.text for message in self.so_far.messages if message.text.strip())


@dataclass(slots=True)
class RunningTurn:
    """`scope` is asked for when the edit is sent, as the place may move. `deliver`: None where the caller shows what
    the turn says. `asked_in`: the document that it is about."""

    turn: Turn
    client: Client
    editor: Editor
    applying: Applying
    progress: TurnProgress
    scope: Callable[[], Scope | None]
    deliver: Deliver | None
    asked_in: str | None = None
    outcome: Outcome | None = None
    edit_sent: bool = False
    delivered: bool = False
    streamed: _Streamed = field(default_factory=_Streamed)

    async def run(self, running: Running) -> Result:
        """From its first event to its TurnResult; the session is let go of by what runs it.

        Raises CancelledError or, with a sentence, ThinkLspError: what there was until then is told to the reader.
        """
        steps = self.turn.session.steps
        finished: TurnFinished | None = None
        try:
            finished = await self._finished()
            if finished.stop_reason == "end_turn":
                self.outcome = await self._send(finished)
                self._tell_of_waiting()
            else:
                self.outcome = self._hold(ENDINGS[finished.stop_reason])
            if self.deliver is not None:
                why = "" if finished.stop_reason in ("end_turn", "refusal") else ENDINGS[finished.stop_reason]
                heard = self._heard(steps)
                notices = (*_sentences(why, heard=heard), *self._notices())
                # The document is edited to the end, even if the turn is cancelled meanwhile.
                await asyncio.shield(self._deliver(self.deliver, finished.text, notices, heard=heard))
        except asyncio.CancelledError:
            self.outcome = self.outcome or self._hold(ENDINGS["cancelled"])
            if self.streamed.text or self._heard(steps):
                self._cut(ENDINGS["cancelled"], finished, steps)
            text = self.streamed.so_far.text or self.turn.text
            cancelled = TurnFinished("cancelled", text, self.turn.thinking, self.turn.usage)
            running.cut = turn_result(self.turn, cancelled, self.outcome, self._unheard(steps))
            raise
        except Exception as error:
            self.outcome = self.outcome or self._hold(ENDINGS["error"])
            self._cut(spoken(error), finished, steps)
            failed = TurnFinished("error", spoken(error), self.turn.thinking, self.turn.usage)
            running.cut = turn_result(self.turn, failed, self.outcome, self._unheard(steps))
            raise
        finally:
            running.usage += self.turn.usage if finished is None else finished.usage
            running.notices += self.turn.said
            if self.outcome is not None and self.outcome.applied != "all":
                await asyncio.shield(self.turn.tell_of_unapplied())
        return turn_result(self.turn, finished, self.outcome, self._unheard(steps))

    def _heard(self, steps: int) -> bool:
        """Whether the conversation holds the prompt: a step of this turn has answered it."""
        return self.turn.session.steps > steps

    def _unheard(self, steps: int) -> tuple[str, ...]:
        """For who goes on in the session."""
        asked = not isinstance(self.turn.spec.task, CompactTask)
        return (_NOT_ANSWERED,) if asked and not self._heard(steps) else ()

    def _cut(self, why: str, finished: TurnFinished | None, steps: int) -> None:
        if self.deliver is None or self.delivered:
            return
        text = self.streamed.text if finished is None else finished.text
        heard = self._heard(steps)
        notices = (*_sentences(why, heard=heard, lost=self._lost(finished, heard=heard)), *self._notices())
        self._deliver(self.deliver, text, notices, heard=heard, cut=True)

    def _lost(self, finished: TurnFinished | None, *, heard: bool) -> str:
        """Name the part of the text that the session does not keep."""
        if finished is not None or not self.streamed.text:
            return ""
        if not heard:
            return "this text"
        return "the last words of this text" if self.streamed.partial.strip() else ""

    def _deliver(
        self, deliver: Deliver, text: str, notices: Sequence[str], *, heard: bool, cut: bool = False
    ) -> asyncio.Task[None]:
        self.delivered = True
        return deliver(Told(self.turn.session.id, text, tuple(notices), heard, cut))

    def _notices(self) -> tuple[str, ...]:
        """What the user should know beside the answer: sentences, files that were not changed first."""
        outcome = self.outcome or Outcome(())
        left = [file for file in outcome.files if file.status != "applied" and not file.waits]
        names = (f"{file.uri.rpartition('/')[2]} was not changed: {file.reason}." for file in left)
        return (*names, *self.turn.said, *outcome.notices)

    def _tell_of_waiting(self) -> None:
        """One message about what the editor did not change. A caller that shows the answer has it in the result."""
        if self.deliver is not None and self.outcome is not None and self.outcome.waiting:
            said = f"{self.outcome.waiting} The code action `thinklsp: apply` applies the rest."
            self.client.show_message("info", said)

    async def _finished(self) -> TurnFinished:
        async with aclosing(self.turn.events(self._ask, self._ask_budget, self.editor)) as events:
            async for event in events:
                self.streamed.take(event)
                self.progress.show(event)
                if isinstance(event, TurnFinished):
                    return event
        raise AssertionError("a turn ends with TurnFinished or an error")

    async def _send(self, finished: TurnFinished) -> Outcome | None:
        files = self.turn.overlay.edit_set().files
        if not files:
            return None
        return await self.applying.send(
            replace(self._kept(files), why=finished.text),
            review=self.turn.review,
            scope=partial(self._scope, files),
            asked=self.progress.waiting,
            sent=self._edit_is_sent,
            applied=self._edit_is_applied,
        )

    def _scope(self, files: Sequence[FileEdit]) -> Scope | None:
        """Return what was asked to be changed, with the files that need a look wherever their changes are."""
        scope = self.scope()
        untrusted = frozenset(file.uri for file in files if self.turn.is_untrusted(file))
        return replace(scope or Scope(), untrusted=untrusted) if untrusted else scope

    def _edit_is_sent(self, is_reviewed: bool) -> None:
        self.edit_sent = True
        if is_reviewed:
            self.progress.waiting()
        else:
            self.progress.applying()

    def _edit_is_applied(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def _hold(self, reason: str) -> Outcome | None:
        files = self.turn.overlay.edit_set().files
        if not files:
            return None
        if self.edit_sent:
            reason = "the turn was ended while the editor was applying the edit"
        status: Status = "unknown" if self.edit_sent else "held"
        return self.applying.hold(self._kept(files), reason, status=status)

    def _kept(self, files: tuple[FileEdit, ...]) -> Kept:
        if self.asked_in is not None:
            self.applying.proposals.offer_in(self.turn.id, self.asked_in)
        # Chats all have one title; the prompt of this turn tells it apart.
        task = self.turn.spec.task
        name = title_of(task.prompt) if isinstance(task, ChatTask) else ""
        turn, model = self.turn, self.turn.config.model.id
        title = turn.spec.title
        return Kept(turn.id, turn.session.id, title, files, known_as=name, model=model, verified=turn.verified)

    async def _ask(self, question: str, options: tuple[str, ...]) -> str | None:
        self.progress.waiting()
        try:
            return await self.client.question(question, options)
        finally:
            self.progress.resumed()

    async def _ask_budget(self, text: str) -> BudgetAnswer:
        answer = await self._ask(text, tuple(BUDGET_ANSWERS))
        return "stop" if answer is None else BUDGET_ANSWERS[answer]


def _sentences(why: str, *, heard: bool, lost: str = "") -> tuple[str, ...]:
    """Say why the turn has not come to its end, and what of it the session does not keep."""
    said = f"{why[:1].upper()}{why[1:]}"
    first = (said if said.endswith((".", "!", "?", "…")) else f"{said}.",) if said else ()
    if heard:
        return (*first, f"The session does not keep {lost}.") if lost else first
    return (*first, f"The session keeps your prompt, but not {lost}." if lost else _NOT_ANSWERED)
