"""One turn of a session: its updates, its questions, and its edits at the end.

Text is collected for a twentieth of a second, because a fast model would otherwise send thousands of updates a second.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, assert_never

from thinklsp.acp.edit_writer import EditOrigin, format_status
from thinklsp.acp.initialization import SETUP_HINT
from thinklsp.acp.open_session import OpenSession
from thinklsp.acp.peer import AUTHENTICATION_REQUIRED, AcpError
from thinklsp.acp.session_client import (
    NoAnswer,
    Option,
    OptionKind,
    PermissionCancelled,
    SessionClient,
    find_absolute_path,
)
from thinklsp.acp.updates import (
    ChunkKind,
    ToolStatus,
    Update,
    build_chunks,
    build_locations,
    build_plan,
    build_text_content,
    build_tool_call,
    build_tool_update,
    find_tool_kind,
    parse_shown_json,
)
from thinklsp.core.choices import ALLOW_FOR_SESSION, BUDGET_ANSWERS, DO_NOT_RUN, NOT_NOW, RUN_ONCE, BudgetAnswer
from thinklsp.core.edits import FileEdit
from thinklsp.core.errors import PathRefused, TurnRefused
from thinklsp.core.events import (
    CompactionStarted,
    ContextCompacted,
    DataReceived,
    Notice,
    ReminderAdded,
    RetryScheduled,
    StepCommitted,
    StepStarted,
    TextStreamed,
    ThinkingStreamed,
    ThinkingTick,
    ToolFinished,
    ToolStarted,
    TurnEvent,
    TurnFinished,
    TurnStopReason,
)
from thinklsp.core.text_safety import format_call_id, sanitize_message
from thinklsp.engine import Choices, CompactRequest, FrontEnd, Turn, TurnRequest
from thinklsp.engine.instructions import FOLLOW
from thinklsp.engine.merge_plan import MergedFile, Scope
from thinklsp.engine.results import ENDINGS, FileStatus
from thinklsp.engine.review_policy import should_review
from thinklsp.settings.sources import EditorSettings

_FLUSH_SECONDS = 0.05
_PLAN_TOOL = "plan"
_INTERRUPTED = "\n\n*The answer was interrupted and starts again:*\n\n"


class TurnUpdates:
    """The updates of one turn. Call `show` for each event, then `finish`."""

    def __init__(self, client: SessionClient, turn: Turn) -> None:
        self._client = client
        self._turn = turn
        self._shows_thinking = turn.setup.display == "summary"
        self._step = 0
        self._message = 0
        self._has_text = False
        self._pending: list[tuple[ChunkKind, str]] = []
        self._timer: asyncio.TimerHandle | None = None
        self._running: dict[str, ToolStarted] = {}
        self._notices: list[str] = []

    @property
    def running_tool(self) -> ToolStarted | None:
        """The tool call that runs, or the newest of several."""
        return next(reversed(self._running.values()), None)

    def show(self, event: TurnEvent) -> None:
        match event:
            case TextStreamed():
                self._has_text = True
                self._add_text("agent_message_chunk", event.delta)
            case ThinkingStreamed():
                if self._shows_thinking:
                    self._add_text("agent_thought_chunk", event.delta)
            case StepStarted():
                self._begin_message()
            case ToolStarted():
                self._start_tool(event)
            case ToolFinished():
                self._finish_tool(event)
            case StepCommitted() | ContextCompacted():
                if isinstance(event, ContextCompacted):
                    self.add_notice(event.text)
                self._send_usage(event)
            case RetryScheduled():
                self._restart(event)
            case Notice():
                self.add_notice(event.text)
            case ThinkingTick() | DataReceived() | ReminderAdded() | CompactionStarted() | TurnFinished():
                pass
            case _:
                assert_never(event)

    def add_notice(self, text: str) -> None:
        """Show a notice now if the client shows notices, and at the end of the turn otherwise."""
        text = sanitize_message(text)
        if self._client.features.shows_notices:
            self._send({"sessionUpdate": "notice", "severity": "info", "title": text})
        else:
            self._notices.append(text)

    def add_text(self, text: str) -> None:
        """Add a paragraph to the answer. Some clients join a message with the one before it."""
        gap = "\n\n" if self._has_text else ""
        self._begin_message()
        self._has_text = True
        self._add_text("agent_message_chunk", f"{gap}{text}")

    def finish(self) -> None:
        """Send everything that waits. Tool calls that have not ended are marked as failed."""
        for started in self._running.values():
            self._send(build_tool_update(format_call_id(started.call_id), "failed"))
        self._running.clear()
        notices, self._notices = self._notices, []
        for text in dict.fromkeys(notices):
            self.add_text(f"Note: {text}")
        self.flush()

    def flush(self) -> None:
        """Send the text collected so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        pending, self._pending = self._pending, []
        pieces: list[tuple[ChunkKind, list[str]]] = []
        for kind, text in pending:
            if not pieces or pieces[-1][0] != kind:
                pieces.append((kind, []))
            pieces[-1][1].append(text)
        for kind, texts in pieces:
            suffix = "-thought" if kind == "agent_thought_chunk" else ""
            message_id = f"{self._turn.id}-{self._message}{suffix}"
            for update in build_chunks(kind, "".join(texts), message_id):
                self._client.send(update)

    def _begin_message(self) -> None:
        self.flush()
        self._message += 1
        self._has_text = False

    def _add_text(self, kind: ChunkKind, text: str) -> None:
        self._pending.append((kind, text))
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_FLUSH_SECONDS, self.flush)

    def _restart(self, event: RetryScheduled) -> None:
        """Tell the user that the text so far does not count, because a client cannot take back a text."""
        if event.restart and self._has_text:
            self._begin_message()
            self._add_text("agent_message_chunk", _INTERRUPTED)

    def _start_tool(self, event: ToolStarted) -> None:
        if event.name == _PLAN_TOOL:
            return
        self._running[event.call_id] = event
        call_id = format_call_id(event.call_id)
        fields = {"locations": self._find_locations(event), "rawInput": parse_shown_json(event.arguments)}
        self._send(build_tool_call(call_id, event.title, find_tool_kind(event.name), "pending", **fields))
        self._send(build_tool_update(call_id, "in_progress"))

    def _finish_tool(self, event: ToolFinished) -> None:
        if event.plan is not None:
            self._send(build_plan(event.plan))
        if self._running.pop(event.call_id, None) is None:
            return
        content = [] if event.result is None else [build_text_content(event.result)]
        status: ToolStatus = "failed" if event.is_error else "completed"
        self._send(build_tool_update(format_call_id(event.call_id), status, content=content, rawOutput=event.result))

    def _find_locations(self, event: ToolStarted) -> list[Update]:
        if event.location is None:
            return []
        try:
            path = find_absolute_path(self._turn.request.view.resolve(event.location.path))
        except PathRefused:
            return []
        return build_locations(path, event.location.line)

    def _send_usage(self, event: StepCommitted | ContextCompacted) -> None:
        """Send the tokens of the conversation, the longest prompt of the model and the cost of the session."""
        window = self._turn.config.model.input_window
        if window is None:
            return
        usage = event.usage
        used = (
            (usage.input_tokens or 0) + (usage.output_tokens or 0)
            if isinstance(event, StepCommitted)
            else event.tokens_after
        )
        update: dict[str, object] = {"sessionUpdate": "usage_update", "used": used, "size": window}
        cost = self._turn.session.usage.cost_usd
        if cost is not None:
            update["cost"] = {"amount": round(cost, 6), "currency": "USD"}
        self._send(update)

    def _send(self, update: Update) -> None:
        self.flush()
        self._client.send(update)


_BUDGET_KINDS: Mapping[BudgetAnswer, OptionKind] = {
    "continue": "allow_once",
    "raise": "allow_always",
    "stop": "reject_once",
}
_KINDS: Mapping[str, OptionKind] = {
    RUN_ONCE: "allow_once",
    ALLOW_FOR_SESSION: "allow_always",
    DO_NOT_RUN: "reject_once",
    FOLLOW: "allow_always",
    NOT_NOW: "reject_once",
    **{text: _BUDGET_KINDS[answer] for text, answer in BUDGET_ANSWERS.items()},
}
_NO_ANSWER = Option("none", "Do not answer", "reject_once")
_ALWAYS = "Always allow"
_MAX_TITLE_LENGTH = 100
_QUESTION_TOOL = "ask_user"


class Questions:
    """The questions of one turn. `find_running` returns the tool call that is waiting for the answer, if any.

    `cancel` cancels the turn, if the client answers a question so. `problems` contains a sentence for each question
    that had no valid answer.
    """

    def __init__(
        self,
        client: SessionClient,
        turn_id: str,
        find_running: Callable[[], ToolStarted | None],
        cancel: Callable[[], None],
    ) -> None:
        self._client = client
        self._turn_id = turn_id
        self._find_running = find_running
        self._cancel = cancel
        self._numbers = itertools.count(1)
        self.problems: list[str] = []

    async def ask(self, question: str, options: Sequence[str]) -> str | None:
        """Ask the user to choose an option, and return it, or None without an answer."""
        try:
            return await self._ask(question, options)
        except PermissionCancelled:
            self._cancel()
        except NoAnswer as reason:
            self.problems.append(f"A question counts as rejected: {reason}.")
        return None

    async def ask_text(self, question: str) -> str | None:
        """Ask the user for a text in a form, and return the text, or None without an answer."""
        try:
            return await self._client.ask_text(sanitize_message(question))
        except NoAnswer as reason:
            self.problems.append(f"A question counts as rejected: {reason}.")
        return None

    async def _ask(self, question: str, options: Sequence[str]) -> str | None:
        question = sanitize_message(question)
        running = self._find_running()
        if running is not None and running.name == _QUESTION_TOOL and self._client.features.asks_forms:
            return await self._client.ask_form(question, options)
        rows = [Option(str(number), name, _find_kind(name)) for number, name in enumerate(options)]
        if all(row.kind.startswith("allow") for row in rows):
            rows.append(_NO_ANSWER)
        content = [build_text_content(question)]
        if running is not None:
            call_id = format_call_id(running.call_id)
            call = build_tool_update(call_id, "in_progress", title=running.title, content=content)
            chosen = await self._client.request_permission(_extract_tool_call(call), rows)
        else:
            chosen = await self._ask_apart(question, content, rows)
        return None if chosen is _NO_ANSWER else options[int(chosen.id)]

    async def ask_budget(self, text: str) -> BudgetAnswer:
        answer = await self.ask(text, tuple(BUDGET_ANSWERS))
        return "stop" if answer is None else BUDGET_ANSWERS[answer]

    async def _ask_apart(self, question: str, content: Sequence[Mapping[str, Any]], rows: Sequence[Option]) -> Option:
        """Ask a question that belongs to no tool call. Clients show a question only at a tool call."""
        call_id = f"{self._turn_id}-question-{next(self._numbers)}"
        title = question.partition("\n")[0][:_MAX_TITLE_LENGTH]
        call = build_tool_call(call_id, title, "other", "pending", content=list(content))
        self._client.send(call)
        chosen = None
        try:
            chosen = await self._client.request_permission(_extract_tool_call(call), rows)
        finally:
            self._client.send(build_tool_update(call_id, "failed" if chosen is None else "completed"))
        return chosen


def _find_kind(option: str) -> OptionKind:
    return "allow_always" if option.startswith(_ALWAYS) else _KINDS.get(option, "allow_once")


def _extract_tool_call(update: Mapping[str, Any]) -> dict[str, Any]:
    """Return the tool call of an update, as a permission request repeats it."""
    return {name: value for name, value in update.items() if name != "sessionUpdate"}


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
