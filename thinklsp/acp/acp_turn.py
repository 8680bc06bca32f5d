"""One turn of a session: its updates, its questions, and its edits at the end.

Text is collected for a twentieth of a second, because a fast model would otherwise send thousands of updates a second.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal, assert_never

from thinklsp.acp.acp_session import AcpSession
from thinklsp.acp.edit_writer import format_status
from thinklsp.acp.initialization import SETUP_HINT
from thinklsp.acp.peer import AUTHENTICATION_REQUIRED, AcpError
from thinklsp.acp.session_client import NoAnswer, Option, OptionKind, PermissionCancelled, SessionClient
from thinklsp.acp.updates import (
    ChunkKind,
    ToolStatus,
    Update,
    build_chunks,
    build_locations,
    build_text_content,
    build_tool_call,
    build_tool_update,
    find_tool_kind,
    parse_shown_json,
)
from thinklsp.core.choices import ALLOW_FOR_SESSION, BUDGET_ANSWERS, DO_NOT_RUN, NOT_NOW, RUN_ONCE, BudgetAnswer
from thinklsp.core.errors import PathRefused, SettingsError
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
    format_call_id,
)
from thinklsp.core.text_safety import sanitize_message
from thinklsp.engine import Choices, CompactRequest, FrontEnd, Turn, TurnRequest
from thinklsp.engine.instructions import FOLLOW
from thinklsp.engine.merge_plan import MergedFile, Scope
from thinklsp.engine.results import ENDINGS, FileStatus
from thinklsp.engine.review_policy import should_review
from thinklsp.engine.session_commands import format_time
from thinklsp.engine.session_folders import find_absolute_path
from thinklsp.settings.sources import EditorSettings

_FLUSH_SECONDS = 0.05
_PLAN_TOOL = "plan"
_INTERRUPTED = "\n\n*The answer was interrupted and starts again:*\n\n"
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


class TurnUpdates:
    """The updates and the questions of one turn. Call `show` for each event, then `finish`.

    `cancel` cancels the turn, if the client answers a question so.
    """

    def __init__(self, client: SessionClient, turn: Turn, cancel: Callable[[], None]) -> None:
        self._client = client
        self._turn = turn
        self._cancel = cancel
        self._message = 0
        self._has_text = False
        self._pending_kind: ChunkKind = "agent_message_chunk"
        self._pending: list[str] = []
        self._timer: asyncio.TimerHandle | None = None
        self._running: dict[str, ToolStarted] = {}
        self._notices: list[str] = []
        self._question_numbers = itertools.count(1)

    def show(self, event: TurnEvent) -> None:
        match event:
            case TextStreamed():
                self._has_text = True
                self._add_text("agent_message_chunk", event.delta)
            case ThinkingStreamed():
                if self._turn.display == "summary":
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
        text, self._pending = "".join(self._pending), []
        suffix = "-thought" if self._pending_kind == "agent_thought_chunk" else ""
        for update in build_chunks(self._pending_kind, text, f"{self._turn.id}-{self._message}{suffix}"):
            self._client.send(update)

    def _begin_message(self) -> None:
        self.flush()
        self._message += 1
        self._has_text = False

    def _add_text(self, kind: ChunkKind, text: str) -> None:
        if kind != self._pending_kind:
            self.flush()
            self._pending_kind = kind
        self._pending.append(text)
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
            rows = [{"content": row.text, "priority": "medium", "status": row.status} for row in event.plan]
            self._send({"sessionUpdate": "plan", "entries": rows})
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
        if isinstance(event, StepCommitted):
            used = (event.usage.input_tokens or 0) + (event.usage.output_tokens or 0)
        else:
            used = event.tokens_after
        update: dict[str, object] = {"sessionUpdate": "usage_update", "used": used, "size": window}
        cost = self._turn.session.usage.cost_usd
        if cost is not None:
            update["cost"] = {"amount": round(cost, 6), "currency": "USD"}
        self._send(update)

    def _send(self, update: Update) -> None:
        self.flush()
        self._client.send(update)

    async def ask(self, question: str, options: Sequence[str]) -> str | None:
        """Ask the user to choose an option, and return it, or None without an answer."""
        try:
            return await self._ask(question, options)
        except PermissionCancelled:
            self._cancel()
        except NoAnswer as reason:
            self.add_notice(f"A question counts as rejected: {reason}.")
        return None

    async def ask_text(self, question: str) -> str | None:
        """Ask the user for a text in a form, and return the text, or None without an answer."""
        try:
            return await self._client.ask_text(sanitize_message(question))
        except NoAnswer as reason:
            self.add_notice(f"A question counts as rejected: {reason}.")
        return None

    async def _ask(self, question: str, options: Sequence[str]) -> str | None:
        question = sanitize_message(question)
        # The tool call that runs, or the newest of several.
        running = next(reversed(self._running.values()), None)
        if running is not None and running.name == _QUESTION_TOOL and self._client.features.asks_forms:
            return await self._client.ask_form(question, options)
        rows = _build_options(options)
        content = [build_text_content(question)]
        if running is not None:
            call_id = format_call_id(running.call_id)
            call = build_tool_update(call_id, "in_progress", title=running.title, content=content)
            chosen = await self._client.request_permission(call, rows)
        else:
            chosen = await self._ask_apart(question, content, rows)
        return None if chosen is _NO_ANSWER else options[rows.index(chosen)]

    async def _ask_apart(self, question: str, content: Sequence[Mapping[str, Any]], rows: Sequence[Option]) -> Option:
        """Ask a question that belongs to no tool call. Clients show a question only at a tool call."""
        call_id = f"{self._turn.id}-question-{next(self._question_numbers)}"
        title = question.partition("\n")[0][:_MAX_TITLE_LENGTH]
        call = build_tool_call(call_id, title, "other", "pending", content=list(content))
        self._client.send(call)
        chosen = None
        try:
            chosen = await self._client.request_permission(call, rows)
        finally:
            self._client.send(build_tool_update(call_id, "failed" if chosen is None else "completed"))
        return chosen


def _build_options(names: Sequence[str]) -> list[Option]:
    """Return the answers to a question. avante.nvim takes a click for a yes only if the id is the kind of the option.

    It then sends the last option of that kind, so an id is a kind only if no other option has this kind.
    """
    kinds = ["allow_always" if name.startswith(_ALWAYS) else _KINDS.get(name, "allow_once") for name in names]
    ids = [kind if kinds.count(kind) == 1 else str(number) for number, kind in enumerate(kinds)]
    rows = [Option(*row) for row in zip(ids, names, kinds, strict=True)]
    return rows if "reject_once" in kinds else [*rows, _NO_ANSWER]


class AcpTurn:
    """A turn of a session. `cancel` cancels the prompt that the turn belongs to."""

    def __init__(self, session: AcpSession, request: TurnRequest, turn_id: str, cancel: Callable[[], None]) -> None:
        self._session = session
        self._request = request
        self._turn_id = turn_id
        self._cancel = cancel
        self._statuses: list[FileStatus] = []

    async def run(self) -> PromptStopReason:
        """Run the turn and return why it ended. Raises ThinkLspError with a message for the user if it fails."""
        with await self._start() as turn:
            updates = TurnUpdates(self._session.client, turn, self._cancel)
            for text in self._session.take_notices():
                updates.add_notice(text)
            try:
                return await self._run(turn, updates)
            finally:
                for text in self._session.take_notices():
                    updates.add_notice(text)
                updates.finish()
                self._send_title(turn)

    async def _start(self) -> Turn:
        engine = self._session.engine
        # The client shows thinking by itself, so its summary is sent unless the user has chosen another display.
        thinking = engine.resolve_settings(EditorSettings()).settings.thinking
        choices: Choices = {} if "display" in thinking.model_fields_set else {"thinking.display": "summary"}
        try:
            return await engine.start_turn(self._request, EditorSettings(), choices, turn_id=self._turn_id)
        except SettingsError as error:
            if error.key not in ("key", "base_url"):
                raise
            raise AcpError(AUTHENTICATION_REQUIRED, f"{error} {SETUP_HINT}") from None

    async def _run(self, turn: Turn, updates: TurnUpdates) -> PromptStopReason:
        session = self._session
        unapplied = ", ".join(session.unapplied)
        ask_text = updates.ask_text if session.client.features.asks_forms else None
        front = FrontEnd(updates.show, updates.ask, session.files, unapplied, ask_text=ask_text)
        try:
            finished = await turn.run(front)
            if not isinstance(self._request, CompactRequest):
                session.unapplied = []  # The model has read it.
            self._show_ending(finished, updates)
            await self._finish_edits(turn, finished, updates)
        finally:
            # Remember the files that do not have their edit, for the next prompt.
            applied = {status.uri for status in self._statuses if status.status == "applied"}
            if files := turn.overlay.build_edit_set().files:
                session.unapplied = [file.path for file in files if file.uri not in applied]
                if session.unapplied:
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
            await self._session.writer.write(turn.id, files, self._build_question_rule(turn), self._statuses)
        else:
            reason = ENDINGS[finished.stop_reason]
            self._statuses += [FileStatus(file.uri, "held", reason) for file in files]
        for file, status in zip(files, self._statuses, strict=True):
            if status.status != "applied":
                updates.add_notice(format_status(file, status))

    def _build_question_rule(self, turn: Turn) -> Callable[[MergedFile], bool]:
        """Return a function that decides if the user is asked about a file. It reads the mode at each call."""

        def should_ask(item: MergedFile) -> bool:
            if self._session.mode != "auto":
                return True
            scope = Scope(untrusted=frozenset((item.file.uri,)) if turn.is_untrusted(item.file) else frozenset())
            review = "auto" if turn.review == "never" else turn.review
            return should_review([item], review, scope)

        return should_ask

    def _send_title(self, turn: Turn) -> None:
        if turn.session.title != self._session.shown_title:
            self._session.shown_title = turn.session.title
            now = format_time(datetime.now(UTC))
            self._session.client.send(
                {"sessionUpdate": "session_info_update", "title": turn.session.title, "updatedAt": now}
            )
