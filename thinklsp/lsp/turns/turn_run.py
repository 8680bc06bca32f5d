"""The run of a command, with progress and a single result. A run executes a turn, or slash commands and their turns."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from thinklsp.core.choices import BUDGET_ANSWERS, BudgetAnswer
from thinklsp.core.edits import FileEdit
from thinklsp.core.errors import ThinkLspError
from thinklsp.core.events import TextStreamed, TurnEvent, TurnFinished, TurnStopReason
from thinklsp.core.usage import Usage, serialize_usage
from thinklsp.engine import ActionRequest, ChatRequest, FrontEnd, Turn
from thinklsp.engine.merge_plan import Scope
from thinklsp.engine.results import (
    ENDINGS,
    EditOutcome,
    EditStatus,
    Result,
    build_plain_result,
    build_turn_result,
    format_compaction,
    format_outcome,
)
from thinklsp.jsonrpc.error_responses import format_error
from thinklsp.lsp.editor.turn_progress import TurnProgress
from thinklsp.lsp.edits.edit_applier import EditApplier
from thinklsp.lsp.edits.pending_edits import PendingEdit
from thinklsp.lsp.turns.cancellation import RunCancellation
from thinklsp.lsp.turns.turn_text import AnswerSink, TurnText
from thinklsp.sessions.titles import derive_title
from thinklsp.tools.tool import Editor

FindScope = Callable[[], Scope | None]
"""A function that returns the range that the user asked to change. The range moves while the user types."""


def find_no_scope() -> None:
    """Return None, so that every change is in scope. Use this function for requests without a range."""


def _create_future() -> asyncio.Future[Result]:
    return asyncio.get_running_loop().create_future()


def _return_unchanged(result: Result) -> Result:
    return result


@dataclass(slots=True)
class TurnRun:
    """The run of a command, which has exactly one result.

    `work` returns the TurnResult, and `shape` converts the TurnResult to the command's answer. `release` releases the
    session for other turns. `uri` is the command's document, if any. `turns` contains the turns started so far, and
    `problem` is the error message of a run that was cancelled or failed. `is_waiting` is True while the run's prompt is
    queued. `leader` is the run whose turn took this run's prompt. `ended` receives the TurnResult or the error for the
    runs whose prompts joined this run's turn.
    """

    session_id: str
    uri: str | None
    progress: TurnProgress
    work: Callable[[TurnRun], Awaitable[Result]]
    release: Callable[[], None]
    editor: Editor
    applying: EditApplier
    cancellation: RunCancellation
    shape: Callable[[Result], Result] = _return_unchanged
    turns: list[Turn] = field(default_factory=list)
    problem: str = ""
    is_waiting: bool = False
    leader: TurnRun | None = None
    ended: asyncio.Future[Result] = field(default_factory=_create_future)
    _partial_result: Result | None = None

    @property
    def id(self) -> str:
        return self.progress.work_done.turn_id

    @property
    def notices(self) -> tuple[str, ...]:
        return tuple(text for turn in self.turns for text in turn.output.notices)

    async def run(self) -> Result:
        """Run the command and return its answer. The session is always released, and the progress always ends.

        Raises CancelledError if the client cancelled the request, and ThinkLspError with a message for the user if the
        run failed.
        """
        self.cancellation.watch()
        outcome = "failed"
        # A run with a queued prompt must take the prompt back.
        is_cancelled = self.cancellation.by_user and not self.is_waiting
        try:
            try:
                result = self._build_partial_result("cancelled") if is_cancelled else await self.work(self)
            except asyncio.CancelledError:
                self.problem = "The turn was cancelled."
                result = self._build_partial_result("cancelled")
                self.ended.set_result(result)
                if not self.cancellation.suppress_cancel():
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

        def show(event: TurnEvent) -> None:
            text.add_event(event)
            self.progress.show(event)

        await self.applying.undone_hunks.wait_until_recorded()
        waiting = self.applying.pending_edits.describe_pending(turn.session.id)
        try:
            client = self.progress.work_done.client
            if turn.request.mode == "agent":
                client.announce_new_text()
            show_document = partial(client.show_document, take_focus=True) if client.features.show_document else None
            can_ask_text = "input" in self.progress.work_done.client.features.bridge_requests
            ask_text = self._ask_text if can_ask_text else None
            front = FrontEnd(show, self._ask, self._ask_budget, self.editor, waiting, show_document, ask_text)
            finished = await turn.run(front)
            if finished.stop_reason == "end_turn":
                outcome = await self._send_edit(turn, finished, find_scope)
                if deliver is not None and outcome is not None and outcome.pending_notice:
                    # A caller that shows the text itself gets the notice in the TurnResult.
                    message = f"{outcome.pending_notice} The code action `thinklsp: apply` applies the rest."
                    self.progress.work_done.client.show_message("info", message)
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

    def _sum_usage(self) -> dict[str, object]:
        return serialize_usage(sum((turn.usage.total for turn in self.turns), Usage()))

    def _build_partial_result(self, reason: TurnStopReason, text: str = "") -> Result:
        """Return the partial result of a run that was cancelled or failed.

        `text` is the error message of a failed run.
        """
        partial = self._partial_result or build_plain_result(self.id, self.session_id, reason, text, self.notices)
        return partial | {"usage": self._sum_usage()}

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
        final_text = why if has_failed else text.latest_text or turn.output.text
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
            self.progress.work_done.client.show_text(outcome.new_text)

    async def _send_edit(self, turn: Turn, finished: TurnFinished, find_scope: FindScope) -> EditOutcome | None:
        files = turn.overlay.build_edit_set().files
        if not files:
            return None
        return await self.applying.send(
            replace(self._build_held_edit(turn, finished, files), explanation=finished.text),
            review=turn.setup.review,
            find_scope=partial(_find_scope, turn, files, find_scope),
            watcher=self,
        )

    def watch_question(self) -> None:
        self.progress.show_waiting()

    def watch_sent(self, *, is_reviewed: bool) -> None:
        self.cancellation.edit = "sent"
        if is_reviewed:
            self.progress.show_waiting()
        else:
            self.progress.show_applying()

    def watch_applied(self, outcome: EditOutcome) -> None:
        self.cancellation.edit = outcome

    def _hold_edit(self, turn: Turn, finished: TurnFinished | None, reason: str) -> EditOutcome | None:
        """Turn an unconfirmed edit into a pending edit. Return the edit's outcome, or None if the turn has no edit."""
        files = turn.overlay.build_edit_set().files
        if not files:
            return None
        if isinstance(self.cancellation.edit, EditOutcome):
            return self.cancellation.edit
        status: EditStatus = "held"
        if self.cancellation.edit == "sent":
            status, reason = "unknown", "the turn ended while the editor was applying the edit"
        return self.applying.hold(self._build_held_edit(turn, finished, files), reason, status=status)

    def _build_held_edit(self, turn: Turn, finished: TurnFinished | None, files: tuple[FileEdit, ...]) -> PendingEdit:
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
        self.progress.show_waiting()
        try:
            return await self.progress.work_done.client.ask_user(question, options)
        finally:
            self.progress.show_resumed()

    async def _ask_text(self, question: str) -> str | None:
        self.progress.show_waiting()
        try:
            return await self.progress.work_done.client.ask_text(question)
        finally:
            self.progress.show_resumed()

    async def _ask_budget(self, text: str) -> BudgetAnswer:
        answer = await self._ask(text, tuple(BUDGET_ANSWERS))
        return "stop" if answer is None else BUDGET_ANSWERS[answer]


def _find_scope(turn: Turn, files: Sequence[FileEdit], find_scope: FindScope) -> Scope | None:
    """Return the scope of the request, including the files in untrusted folders, which always need a review."""
    scope = find_scope()
    untrusted = frozenset(file.path for file in files if turn.is_untrusted(file))
    return replace(scope or Scope(), untrusted=untrusted) if untrusted else scope
