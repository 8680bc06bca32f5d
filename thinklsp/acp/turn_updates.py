"""The updates that show a running turn: thinking, text, tool calls, the plan and the usage.

Text is collected for a twentieth of a second, because a fast model would otherwise send thousands of updates a second.
"""

from __future__ import annotations

import asyncio
from typing import assert_never

from thinklsp.acp.session_client import SessionClient
from thinklsp.acp.session_folders import find_absolute_path
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
from thinklsp.core.errors import PathRefused
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
)
from thinklsp.core.text_safety import format_call_id, sanitize_message
from thinklsp.engine import Turn

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
