"""The run of a command, with progress and a single result. A run executes a turn, or slash commands and their turns."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TypeVar

from thinklsp.core.edits import FileEdit
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.events import (
    RetryScheduled,
    StepCommitted,
    TextStreamed,
    TurnAnswer,
    TurnEvent,
    TurnFinished,
    TurnStopReason,
)
from thinklsp.core.messages import AssistantMessage, TextBlock
from thinklsp.core.usage import Usage, serialize_usage
from thinklsp.engine import ActionRequest, ChatRequest, CompactRequest, FrontEnd, Turn
from thinklsp.engine.merge_plan import Scope
from thinklsp.engine.results import (
    ENDINGS,
    EditOutcome,
    Result,
    build_plain_result,
    build_turn_result,
    format_compaction,
    format_outcome,
)
from thinklsp.jsonrpc.rpc_messages import format_error
from thinklsp.lsp.editor.client import Client
from thinklsp.lsp.editor.turn_progress import TurnProgress
from thinklsp.lsp.edits.edit_applier import EditApplier, FindScope, find_no_scope
from thinklsp.lsp.edits.pending_edits import PendingEdit
from thinklsp.sessions.titles import derive_title
from thinklsp.tools.tool import Editor

_UNANSWERED_NOTICE = "Your prompt was saved without an answer."

T = TypeVar("T")


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
class TurnRun:
    """The run of a command, which has exactly one result.

    `work` returns the TurnResult, and `shape` converts the TurnResult to the command's answer. `release` releases the
    session for other turns. `uri` is the command's document, if any. `is_cancelled` is True if the user cancelled the
    run, which may happen before it starts. `turns` contains the turns started so far, and `problem` is the error
    message of a run that was cancelled or failed. `is_waiting` is True while the run's prompt is queued. `leader` is
    the run whose turn took this run's prompt. `ended` receives the TurnResult or the error for the runs whose prompts
    joined this run's turn.
    """

    session_id: str
    uri: str | None
    progress: TurnProgress
    work: Callable[[TurnRun], Awaitable[Result]]
    release: Callable[[], None]
    editor: Editor
    applying: EditApplier
    is_cancelled: bool = False
    shape: Callable[[Result], Result] = lambda result: result
    turns: list[Turn] = field(default_factory=list)
    problem: str = ""
    is_waiting: bool = False
    leader: TurnRun | None = None
    ended: asyncio.Future[Result] = field(default_factory=lambda: asyncio.get_running_loop().create_future())
    _task: asyncio.Task[object] | None = None
    _partial_result: Result | None = None

    @property
    def id(self) -> str:
        return self.progress.turn_id

    @property
    def notices(self) -> tuple[str, ...]:
        return tuple(text for turn in self.turns for text in turn.output.notices)

    @property
    def _client(self) -> Client:
        return self.progress.client

    def cancel(self) -> None:
        """Cancel the run for the user. Its caller receives the partial result.

        If the client cancels its request or disconnects, the run's task is cancelled instead. In that case, the request
        has no result, but all other observers of the run are still notified of its end.
        """
        self.is_cancelled = True
        if self._task is not None:
            self._task.cancel()

    async def run(self) -> Result:
        """Run the command and return its answer. The session is always released, and the progress always ends.

        Raises CancelledError if the client cancelled the request, and ThinkLspError with a message for the user if the
        run failed.
        """
        self._task = asyncio.current_task()
        outcome = "failed"
        try:
            try:
                # A run with a queued prompt must take the prompt back.
                is_over = self.is_cancelled and not self.is_waiting
                result = self._build_partial_result("cancelled") if is_over else await self.work(self)
            except asyncio.CancelledError:
                self.problem = "The turn was cancelled."
                result = self._build_partial_result("cancelled")
                self.ended.set_result(result)
                if not self._end_cancel():
                    outcome = format_outcome(result)
                    self.progress.send_result(result)
                    raise
            finally:
                self.release()
            result |= {"usage": self._sum_usage()}
            if not self.ended.done():
                self.ended.set_result(result)
            self.progress.send_result(result)
            shaped = self.shape(result)
            outcome = format_outcome(result) if shaped is result else format_compaction(shaped)
            return shaped
        except Exception as error:
            self.problem = str(error) if isinstance(error, ThinkLspError) else ""
            outcome = format_error(error)
            if not self.ended.done():
                self.ended.set_exception(error)
                self.ended.exception()  # Without a joined prompt, nothing else reads the error.
            self.progress.send_result(self._build_partial_result("error", outcome))
            raise
        finally:
            self.progress.end(outcome)

    def _end_cancel(self) -> bool:
        """Return True if the user cancelled the run, and clear the task's own cancellation request.

        Only the run was cancelled then, so that the task can return a result.
        """
        if self.is_cancelled and self._task is not None and self._task.cancelling():
            self._task.uncancel()
        return self.is_cancelled

    async def run_turn(
        self, turn: Turn, find_scope: FindScope = find_no_scope, deliver: AnswerSink | None = None
    ) -> Result:
        """Run a turn: show its events, send its edit, deliver its text, and return its TurnResult.

        Raises CancelledError, or ThinkLspError with a message for the user. In both cases, the turn's text is delivered
        and its edit becomes a pending edit.
        """
        self.turns.append(turn)
        text = TurnText(turn, deliver)
        finished: TurnFinished | None = None
        outcome: EditOutcome | None = None
        result: Result | None = None
        await self.applying.undone_hunks.wait_until_recorded()
        try:
            finished = await turn.run(self._create_front_end(turn, text))
            if finished.stop_reason == "end_turn":
                outcome = await self._send_edit(turn, finished, find_scope)
                if deliver is not None and outcome is not None and outcome.pending_notice:
                    # A caller that shows the text itself gets the notice in the TurnResult.
                    message = f"{outcome.pending_notice} The code action `thinklsp: apply` applies the rest."
                    self._client.show_message("info", message)
            else:
                outcome = self._hold_edit(turn, finished, ENDINGS[finished.stop_reason])
            await text.deliver_answer(finished, outcome)
            result = build_turn_result(turn, finished, outcome, text.unanswered_notices)
            return result
        finally:
            if result is None:
                outcome, self._partial_result = self._end_early(text, finished, outcome, sys.exception())
            self._show_new_text(turn, outcome, deliver)
            if outcome is not None and outcome.applied != "all":
                await asyncio.shield(turn.record_unapplied_edits())

    def _create_front_end(self, turn: Turn, text: TurnText) -> FrontEnd:
        def show(event: TurnEvent) -> None:
            text.add_event(event)
            self.progress.show(event)

        client = self._client
        if turn.request.mode == "agent":
            client.announce_new_text()
        show_document = partial(client.show_document, take_focus=True) if client.features.show_document else None
        ask_text = self._ask_text if "input" in client.features.bridge_requests else None
        waiting = self.applying.pending_edits.describe_pending(turn.session.id)
        return FrontEnd(show, self._ask, self.editor, waiting, show_document, ask_text)

    def _sum_usage(self) -> dict[str, object]:
        return serialize_usage(sum((turn.usage.total for turn in self.turns), Usage()))

    def _build_partial_result(self, reason: TurnStopReason, text: str = "") -> Result:
        """Return the partial result of a run that was cancelled or failed.

        `text` is the error message of a failed run.
        """
        partial_result = self._partial_result or build_plain_result(
            self.id, self.session_id, reason, text, self.notices
        )
        return partial_result | {"usage": self._sum_usage()}

    def _end_early(
        self, text: TurnText, finished: TurnFinished | None, outcome: EditOutcome | None, error: BaseException | None
    ) -> tuple[EditOutcome | None, Result]:
        """Deliver the text of a turn that was cancelled or failed, and store its edit as a pending edit.

        Returns the edit's outcome and the turn's result.
        """
        turn, has_failed = text.turn, isinstance(error, Exception)
        reason: TurnStopReason = "error" if has_failed else "cancelled"
        why = format_error(error) if isinstance(error, Exception) else ENDINGS["cancelled"]
        outcome = outcome or self._hold_edit(turn, finished, ENDINGS[reason])
        if has_failed or text.full_text or text.is_prompt_answered:
            text.deliver_partial(why, finished, outcome)
        final_text = why if has_failed else text.answer.text or turn.output.text
        final_event = TurnFinished(reason, final_text, turn.output.answers.thinking, turn.usage.total)
        return outcome, build_turn_result(turn, final_event, outcome, text.unanswered_notices)

    def _show_new_text(self, turn: Turn, outcome: EditOutcome | None, deliver: AnswerSink | None) -> None:
        """Show the changes that the user has to insert. The TurnResult contains them, too.

        Editors ignore the result of a code action, even if they have sent a work-done token.
        """
        if outcome is None or not outcome.new_text:
            return
        if self.progress.has_partial_tokens:
            self.progress.show(TextStreamed(f"\n\n{outcome.new_text}"))
        elif deliver is not None or isinstance(turn.request, ActionRequest):
            self._client.show_text(outcome.new_text)

    async def _send_edit(self, turn: Turn, finished: TurnFinished, find_scope: FindScope) -> EditOutcome | None:
        files = turn.overlay.build_edit_set().files
        if not files:
            return None
        pending = replace(self._build_pending(turn, finished, files), explanation=finished.text)
        scope = partial(_find_scope, turn, files, find_scope)
        return await self.applying.send(pending, review=turn.review, progress=self.progress, find_scope=scope)

    def _hold_edit(self, turn: Turn, finished: TurnFinished | None, reason: str) -> EditOutcome | None:
        """Turn an unconfirmed edit into a pending edit. Return the edit's outcome, or None if the turn has no edit."""
        files = turn.overlay.build_edit_set().files
        return self.applying.hold(self._build_pending(turn, finished, files), reason) if files else None

    def _build_pending(self, turn: Turn, finished: TurnFinished | None, files: tuple[FileEdit, ...]) -> PendingEdit:
        if self.uri is not None:
            self.applying.pending_edits.offer_in(turn.id, self.uri)
        request = turn.request
        return PendingEdit(
            turn.id,
            turn.session.id,
            request.title,
            files,
            # All chats have the same title, so the prompt is used to distinguish the turns.
            turn_name=derive_title(request.prompt) if isinstance(request, ChatRequest) else "",
            model=turn.config.model.id,
            verified=None if finished is None else finished.test_outcome,
        )

    async def _ask(self, question: str, options: tuple[str, ...]) -> str | None:
        return await self._wait_for_user(self._client.ask_user(question, options))

    async def _ask_text(self, question: str) -> str | None:
        return await self._wait_for_user(self._client.ask_text(question))

    async def _wait_for_user(self, answer: Awaitable[T]) -> T:
        self.progress.show_waiting()
        try:
            return await answer
        finally:
            self.progress.show_resumed()


def _find_scope(turn: Turn, files: Sequence[FileEdit], find_scope: FindScope) -> Scope | None:
    """Return the scope of the request, including the files in untrusted folders, which always need a review."""
    scope = find_scope()
    untrusted = frozenset(file.path for file in files if turn.is_untrusted(file))
    return replace(scope or Scope(), untrusted=untrusted) if untrusted else scope


@dataclass(slots=True)
class TurnText:
    """A turn's text so far, from its completed steps and the message that is still streaming.

    `deliver` is None if the caller shows the text itself or if the text has been delivered.
    """

    turn: Turn
    deliver: AnswerSink | None
    _steps_before: int = field(init=False)
    _completed: TurnAnswer = field(default_factory=TurnAnswer)
    _deltas: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._steps_before = self.turn.session.steps

    def add_event(self, event: TurnEvent) -> None:
        if isinstance(event, TextStreamed):
            self._deltas.append(event.delta)
        elif isinstance(event, StepCommitted):
            self._completed = self._completed.append(event.assistant)
            self._deltas.clear()
        elif isinstance(event, RetryScheduled) and event.restart:
            self._deltas.clear()

    @property
    def answer(self) -> TurnAnswer:
        """The messages of the turn. The last one may be incomplete."""
        partial_text = "".join(self._deltas)
        if not partial_text.strip():
            return self._completed
        return self._completed.append(AssistantMessage((TextBlock(partial_text),)))

    @property
    def full_text(self) -> str:
        return "\n\n".join(message.text for message in self.answer.messages if message.text.strip())

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
        delivery = self._build_delivery(finished.text, self._format_ending(why), outcome)
        # Finish writing the answer to the document even if the turn is cancelled.
        await asyncio.shield(deliver(delivery))

    def deliver_partial(self, why: str, finished: TurnFinished | None, outcome: EditOutcome | None) -> None:
        """Deliver the partial text of a turn that was cancelled or failed."""
        if self.deliver is None:
            return
        text, lost_text = self.full_text if finished is None else finished.text, ""
        if finished is None and text and not self.is_prompt_answered:
            lost_text = "this text"
        elif finished is None and self.answer is not self._completed:
            lost_text = "the end of this text"
        delivery = self._build_delivery(text, self._format_ending(why, lost_text), outcome)
        self.deliver(replace(delivery, is_incomplete=True))

    def _build_delivery(self, text: str, ending: tuple[str, ...], outcome: EditOutcome | None) -> Delivery:
        """Build the delivery with all notices for the user. Notices about unchanged files come before the others."""
        outcome = outcome or EditOutcome(())
        unchanged = [file for file in outcome.files if file.status != "applied" and not file.is_pending]
        names = (f"{file.uri.rpartition('/')[2]} was not changed: {file.reason}." for file in unchanged)
        notices = (*ending, *names, *self.turn.output.notices, *outcome.notices)
        return Delivery(self.turn.session.id, text, notices, self.is_prompt_answered)

    def _format_ending(self, why: str, lost_text: str = "") -> tuple[str, ...]:
        """Return notices that explain why the turn ended early and which part of the text was not saved."""
        reason = f"{why[:1].upper()}{why[1:]}"
        first = (reason if reason.endswith((".", "!", "?", "…")) else f"{reason}.",) if reason else ()
        if not self.is_prompt_answered:
            return (*first, f"Your prompt was saved, but {lost_text} was not." if lost_text else _UNANSWERED_NOTICE)
        return (*first, f"{lost_text[:1].upper()}{lost_text[1:]} was not saved.") if lost_text else first
