"""One turn of a session: its updates, its questions, and its edits at the end."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Literal

from thinklsp.acp.edit_writer import EditOrigin, format_status
from thinklsp.acp.initialization import SETUP_HINT
from thinklsp.acp.open_session import OpenSession
from thinklsp.acp.peer import AUTHENTICATION_REQUIRED, AcpError
from thinklsp.acp.questions import Questions
from thinklsp.acp.turn_updates import TurnUpdates
from thinklsp.core.edits import FileEdit
from thinklsp.core.errors import TurnRefused
from thinklsp.core.events import TurnFinished, TurnStopReason
from thinklsp.engine import Choices, CompactRequest, FrontEnd, Turn, TurnRequest
from thinklsp.engine.merge_plan import MergedFile, Scope
from thinklsp.engine.results import ENDINGS, FileStatus
from thinklsp.engine.review_policy import should_review
from thinklsp.settings.sources import EditorSettings

PromptStopReason = Literal["end_turn", "max_tokens", "max_turn_requests", "refusal", "cancelled"]

_STOP_REASONS: Mapping[TurnStopReason, PromptStopReason] = {
    "end_turn": "end_turn",
    "max_tokens": "max_tokens",
    "context_window": "max_tokens",
    "max_steps": "max_turn_requests",
    "budget": "max_turn_requests",
    "refusal": "refusal",
    "cancelled": "cancelled",
    "error": "end_turn",
}


class AcpTurn:
    """A turn of a session. `cancel` cancels the prompt that the turn belongs to."""

    def __init__(self, opened: OpenSession, request: TurnRequest, turn_id: str, cancel: Callable[[], None]) -> None:
        self._opened = opened
        self._request = request
        self._turn_id = turn_id
        self._cancel = cancel
        self._statuses: list[FileStatus] = []

    async def run(self) -> PromptStopReason:
        """Run the turn and return why it ended. Raises ThinkLspError with a message for the user if it fails."""
        with await self._start() as turn:
            updates = TurnUpdates(self._opened.client, turn)
            for text in self._opened.take_notices():
                updates.add_notice(text)
            try:
                return await self._run(turn, updates)
            finally:
                for text in self._opened.take_notices():
                    updates.add_notice(text)
                updates.finish()
                self._send_title(turn)

    async def _start(self) -> Turn:
        engine = self._opened.engine
        # The client shows thinking by itself, so its summary is sent unless the user has chosen another display.
        thinking = engine.resolve_settings(EditorSettings()).settings.thinking
        choices: Choices = {} if "display" in thinking.model_fields_set else {"thinking.display": "summary"}
        try:
            return await engine.start_turn(self._request, EditorSettings(), choices, turn_id=self._turn_id)
        except TurnRefused as refused:
            if engine.find_keyed_providers():
                raise
            raise AcpError(AUTHENTICATION_REQUIRED, f"{refused} {SETUP_HINT}") from None

    async def _run(self, turn: Turn, updates: TurnUpdates) -> PromptStopReason:
        opened = self._opened
        questions = Questions(opened.client, turn.id, lambda: updates.running_tool, self._cancel)
        unapplied = ", ".join(opened.unapplied)
        ask_text = questions.ask_text if opened.client.features.asks_forms else None
        front = FrontEnd(updates.show, questions.ask, questions.ask_budget, opened.files, unapplied, ask_text=ask_text)
        is_settled = False
        try:
            finished = await turn.run(front)
            if not isinstance(self._request, CompactRequest):
                opened.unapplied = []  # The model has read it.
            for problem in questions.problems:
                updates.add_notice(problem)
            self._show_ending(finished, updates)
            await self._finish_edits(turn, finished, updates)
            is_settled = True
        finally:
            files = () if is_settled else turn.overlay.build_edit_set().files
            if files and self._remember_unapplied(files):
                await turn.record_unapplied_edits()
        return _STOP_REASONS[finished.stop_reason]

    def _show_ending(self, finished: TurnFinished, updates: TurnUpdates) -> None:
        if finished.stop_reason == "refusal" or isinstance(self._request, CompactRequest):
            updates.add_text(finished.text)
        elif finished.stop_reason != "end_turn":
            updates.add_notice(f"{ENDINGS[finished.stop_reason].capitalize()}.")
        if finished.test_outcome is not None:
            updates.add_notice(finished.test_outcome.format_sentence())

    async def _finish_edits(self, turn: Turn, finished: TurnFinished, updates: TurnUpdates) -> None:
        files = turn.overlay.build_edit_set().files
        if not files:
            return
        updates.flush()
        if finished.stop_reason == "end_turn":
            origin = EditOrigin(turn.id, turn.session.id)
            await self._opened.writer.write(origin, files, self._build_question_rule(turn), self._statuses)
        else:
            reason = ENDINGS[finished.stop_reason]
            self._statuses += [FileStatus(file.uri, "held", reason) for file in files]
        for file, status in zip(files, self._statuses, strict=True):
            if status.status != "applied":
                updates.add_notice(format_status(file, status))
        if self._remember_unapplied(files):
            await turn.record_unapplied_edits()

    def _build_question_rule(self, turn: Turn) -> Callable[[MergedFile], bool]:
        """Return a function that decides if the user is asked about a file. It reads the mode at each call."""

        def should_ask(item: MergedFile) -> bool:
            if self._opened.mode != "auto":
                return True
            scope = Scope(untrusted=frozenset((item.file.uri,)) if turn.is_untrusted(item.file) else frozenset())
            review = "auto" if turn.setup.review == "never" else turn.setup.review
            return should_review([item], review, scope)

        return should_ask

    def _remember_unapplied(self, files: Sequence[FileEdit]) -> bool:
        """Remember the files that do not have their edit, for the next prompt. Return True if there are any."""
        applied = {status.uri for status in self._statuses if status.status == "applied"}
        self._opened.unapplied = [file.path for file in files if file.uri not in applied]
        return bool(self._opened.unapplied)

    def _send_title(self, turn: Turn) -> None:
        if turn.session.title != self._opened.shown_title:
            self._opened.shown_title = turn.session.title
            now = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
            self._opened.client.send(
                {"sessionUpdate": "session_info_update", "title": turn.session.title, "updatedAt": now}
            )
