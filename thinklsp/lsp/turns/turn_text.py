"""A turn's text, which is collected from the stream and delivered to a document."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from thinklsp.core.events import RetryScheduled, StepCommitted, TextStreamed, TurnAnswer, TurnEvent, TurnFinished
from thinklsp.core.messages import AssistantMessage, TextBlock
from thinklsp.engine import CompactRequest, Turn
from thinklsp.engine.results import ENDINGS, EditOutcome

_UNANSWERED_NOTICE = "Your prompt was saved without an answer."


@dataclass(frozen=True, slots=True)
class Delivery:
    """A turn's text for a document.

    `is_prompt_answered` is True if the conversation contains the prompt and an answer. `is_incomplete` is True if the
    turn was cancelled or failed.
    """

    session_id: str
    text: str
    notices: tuple[str, ...]
    is_prompt_answered: bool
    is_incomplete: bool = False


AnswerSink = Callable[[Delivery], "asyncio.Task[None]"]
"""A function that starts writing a text into a document. Its task continues if the turn is cancelled."""


@dataclass(slots=True)
class TurnText:
    """A turn's text so far, from its completed steps and the message that is still streaming.

    `deliver` is None if the caller shows the text itself or if the text has been delivered.
    """

    turn: Turn
    deliver: AnswerSink | None
    _steps_before: int = field(init=False)
    _completed_text: TurnAnswer = field(default_factory=TurnAnswer)
    _deltas: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._steps_before = self.turn.session.steps

    def add_event(self, event: TurnEvent) -> None:
        if isinstance(event, TextStreamed):
            self._deltas.append(event.delta)
        elif isinstance(event, StepCommitted):
            self._completed_text = self._completed_text.append(event.assistant)
            self._deltas.clear()
        elif isinstance(event, RetryScheduled) and event.restart:
            self._deltas.clear()

    @property
    def _partial(self) -> str:
        return "".join(self._deltas)

    @property
    def _current_text(self) -> TurnAnswer:
        return (
            self._completed_text.append(AssistantMessage((TextBlock(self._partial),)))
            if self._partial.strip()
            else self._completed_text
        )

    @property
    def latest_text(self) -> str:
        """The text of the latest message, which may be incomplete."""
        return self._current_text.text

    @property
    def full_text(self) -> str:
        return "\n\n".join(message.text for message in self._current_text.messages if message.text.strip())

    @property
    def is_prompt_answered(self) -> bool:
        """True if the turn has completed a step, so that the conversation contains the prompt and an answer."""
        return self.turn.session.steps > self._steps_before

    @property
    def unanswered_notices(self) -> tuple[str, ...]:
        """The notices for the user if the prompt was stored without an answer."""
        is_asked = not isinstance(self.turn.request, CompactRequest)
        return (_UNANSWERED_NOTICE,) if is_asked and not self.is_prompt_answered else ()

    async def deliver_answer(self, finished: TurnFinished, outcome: EditOutcome | None) -> None:
        if self.deliver is None:
            return
        deliver, self.deliver = self.deliver, None
        why = "" if finished.stop_reason in ("end_turn", "refusal") else ENDINGS[finished.stop_reason]
        notices = (*_format_ending(why, is_prompt_answered=self.is_prompt_answered), *self._collect_notices(outcome))
        # Finish writing the answer to the document even if the turn is cancelled.
        await asyncio.shield(deliver(self._create_delivery(finished.text, notices)))

    def deliver_partial(self, why: str, finished: TurnFinished | None, outcome: EditOutcome | None) -> None:
        """Deliver the partial text of a turn that was cancelled or failed."""
        if self.deliver is None:
            return
        lost_text = self._describe_lost_text() if finished is None else ""
        notices = (
            *_format_ending(why, is_prompt_answered=self.is_prompt_answered, lost_text=lost_text),
            *self._collect_notices(outcome),
        )
        self.deliver(self._create_delivery(self.full_text if finished is None else finished.text, notices, is_cut=True))

    def _create_delivery(self, text: str, notices: tuple[str, ...], *, is_cut: bool = False) -> Delivery:
        return Delivery(self.turn.session.id, text, notices, self.is_prompt_answered, is_cut)

    def _describe_lost_text(self) -> str:
        """Return a phrase that describes the unsaved part of the text, or an empty string if everything was saved."""
        if not self.full_text:
            return ""
        if not self.is_prompt_answered:
            return "this text"
        return "the end of this text" if self._partial.strip() else ""

    def _collect_notices(self, outcome: EditOutcome | None) -> tuple[str, ...]:
        """Collect the notices for the user. Notices about unchanged files come first."""
        outcome = outcome or EditOutcome(())
        unchanged = [file for file in outcome.files if file.status != "applied" and not file.is_pending]
        names = (f"{file.uri.rpartition('/')[2]} was not changed: {file.reason}." for file in unchanged)
        return (*names, *self.turn.output.notices, *outcome.notices)


def _format_ending(why: str, *, is_prompt_answered: bool, lost_text: str = "") -> tuple[str, ...]:
    """Return notices that explain why the turn ended early and which text was not saved."""
    reason = f"{why[:1].upper()}{why[1:]}"
    first = (reason if reason.endswith((".", "!", "?", "…")) else f"{reason}.",) if reason else ()
    if is_prompt_answered:
        return (*first, f"{lost_text[:1].upper()}{lost_text[1:]} was not saved.") if lost_text else first
    return (*first, f"Your prompt was saved, but {lost_text} was not." if lost_text else _UNANSWERED_NOTICE)
