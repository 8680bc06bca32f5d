"""A running turn's progress reports and partial results."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import groupby
from typing import Any, assert_never

from lsprotocol import types

from thinklsp.core.choices import ThinkingDisplay
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
    format_call_id,
)
from thinklsp.core.text_safety import sanitize_message
from thinklsp.core.usage import serialize_usage
from thinklsp.lsp.editor.client import Client, Token

_HEARTBEAT_SECONDS = 1.8
_MIN_INTERVAL_SECONDS = 0.11
# The silence of the provider is shown from this length on, while a model call runs.
_MIN_SILENCE_SECONDS = 10.0
_PHASES_OF_CALLS = ("thinking", "writing")
_SUMMARY_TAIL, _MAX_CAUSE_LENGTH = 120, 80

_PHASES = {
    "read_file": "reading",
    "read_skill": "reading",
    "list_files": "listing",
    "search_text": "searching",
    "outline": "outlining",
    "definition": "looking up",
    "references": "looking up",
    "diagnostics": "checking",
    "edit_file": "editing",
    "write_file": "writing",
    "rename_file": "renaming",
    "delete_file": "deleting",
    "plan": "planning",
    "ask_user": "asking",
    "run_command": "running",
}


PartialResult = Mapping[str, Any]
"""One value for a partial-result token: `kind` and its other fields."""


class TurnProgress:
    """A turn's progress in the editor: reports of its phases, and partial results for the tokens that ask for them.

    Call `begin` or `offer`, then `show` for each event, then `end`. Repeated calls have no effect. The progress may
    begin before the turn is created and the engine is loaded.

    `token` is the caller's token, or `thinklsp-<turnId>` by default. `turn_id` is the id for the new turn. `is_watched`
    is True if the caller sent the token and waits for the end of the turn. `is_cancelled` is True if the user pressed
    Cancel, which may happen before the turn is created. `is_launched` is True if the turn runs and will call `end`.
    """

    def __init__(self, client: Client, title: str, token: Token | None = None) -> None:
        self.client = client
        self.turn_id = os.urandom(8).hex()
        self.token = f"thinklsp-{self.turn_id}" if token is None else token
        self.is_watched = token is not None
        self.is_cancelled = self.is_launched = False
        self._title = title
        self._started = 0.0
        self._has_begun = False
        self._outcome: str | None = None
        self._heartbeat: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()
        # The progress of the turn that took this prompt. Its reports are then also shown here.
        self._leader: TurnProgress | None = None
        self._partial_tokens: list[Token] = []
        self._sent_values: list[PartialResult] = []
        self._display: ThinkingDisplay = "status"
        self._phase = "starting"
        self._tokens_done = self._tokens_now = 0
        self._summary = ""
        self._pending: dict[str, list[str]] = {}
        self._retry: RetryScheduled | None = None
        self._retry_until = self._heard_at = 0.0
        self._retried_phase = self._interrupted_phase = self._phase

    def begin(self) -> None:
        """Send `begin` on the caller's token."""
        self._start()
        self._send_begin()

    async def offer(self) -> None:
        """Create the token, and send `begin` if the client accepts it.

        If the turn has already ended, also send `end`. If the client rejects the token, send nothing.
        """
        if self._heartbeat is None:
            self._start()
            if await self.client.create_progress(self.token):
                self._send_begin()

    def end(self, outcome: str) -> None:
        """Send exactly one `end`, and nothing after it.

        The method does not await, so a cancellation cannot interrupt it.
        """
        if self._outcome is not None:
            return
        self._outcome = outcome
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        self._source.flush()
        self._send_end()

    @property
    def _source(self) -> TurnProgress:
        """The progress whose content is reported."""
        return self._leader or self

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._started = loop.time()
        self._heartbeat = loop.create_task(self._run_heartbeat())

    def _send_begin(self) -> None:
        self._has_begun = True
        begin = types.WorkDoneProgressBegin("thinklsp", cancellable=True, message=self._title)
        self.client.send_progress(self.token, begin)
        self._send_end()

    def _send_end(self) -> None:
        if self._has_begun and self._outcome is not None:
            self.client.send_progress(self.token, types.WorkDoneProgressEnd(message=self._outcome))

    async def _run_heartbeat(self) -> None:
        """Send a report after a change, at most ten times a second, and at least every two seconds."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_HEARTBEAT_SECONDS):
                    await self._changed.wait()
            self._changed.clear()
            self._source.flush()
            if self._has_begun:
                report = types.WorkDoneProgressReport(cancellable=True, message=self._source.build_message())
                self.client.send_progress(self.token, report)
            await asyncio.sleep(_MIN_INTERVAL_SECONDS)

    def use(self, partial_token: Token | None, display: ThinkingDisplay) -> None:
        """Set the options that come from the arguments and the settings."""
        self._display = display
        if partial_token is not None:
            self._partial_tokens.append(partial_token)

    @property
    def has_partial_tokens(self) -> bool:
        return bool(self._partial_tokens)

    def has_token(self, token: Token) -> bool:
        return token == self.token or token in self._partial_tokens

    def attach(self, token: Token) -> None:
        """Add an unused partial-result token and send all previous values to it."""
        self.flush()
        for value in _join_deltas(self._sent_values):
            self.client.send_progress(token, value)
        self._partial_tokens.append(token)

    def adopt(self, other: TurnProgress) -> None:
        """Report this turn to the tokens of a prompt that has joined the turn, from now on."""
        self.flush()
        notice = {"kind": "notice", "level": "info", "text": "Your prompt joined the running turn."}
        for token in other._partial_tokens:
            self.client.send_progress(token, notice)
        self._partial_tokens += other._partial_tokens
        other._partial_tokens, other._leader = [], self

    def show_queued(self) -> None:
        """Report that the prompt waits for the running turn of its session."""
        self._set_phase("queued")

    def show_sent(self, *, is_reviewed: bool) -> None:
        """Report that the editor is applying the edit, or that it asks the user to review the edit."""
        if is_reviewed:
            self.show_waiting()
        else:
            self._set_phase("applying")

    def show_waiting(self) -> None:
        """Report that the turn is waiting for the user to answer a prompt or review an edit."""
        self._interrupted_phase = self._phase
        self._set_phase("waiting for you")

    def show_resumed(self) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        self._set_phase(self._interrupted_phase)

    def show(self, event: TurnEvent) -> None:
        self._heard_at = asyncio.get_running_loop().time()
        match event:
            case StepStarted() | ReminderAdded():
                self._set_phase("thinking")
            case DataReceived():
                pass
            case ThinkingTick():
                self._set_phase("thinking")
                self._tokens_now = max(self._tokens_now, event.tokens or 0)
            case ThinkingStreamed():
                self._set_phase("thinking")
                self._show_thinking(event.delta)
            case TextStreamed():
                self._set_phase("writing")
                self._stream("text", event.delta)
            case ToolStarted():
                self._set_phase(_format_phase(event.name, event.title))
                self._send_tool(event, "in_progress", None)
            case ToolFinished():
                self._send_tool(event, "failed" if event.is_error else "completed", event.result)
                if event.plan is not None:
                    entries = [{"text": entry.text, "status": entry.status} for entry in event.plan]
                    self._send_partial({"kind": "plan", "entries": entries})
            case StepCommitted():
                self._tokens_done += event.usage.output_tokens or 0
                self._tokens_now = 0
                self._send_partial({"kind": "usage", **serialize_usage(event.usage)})
            case RetryScheduled():
                self._show_retry(event)
            case CompactionStarted() | ContextCompacted():
                self._show_compaction(event)
            case Notice():
                self._send_notice(event.level, event.text)
            case TurnFinished():
                self._set_phase("finishing")
            case _:
                assert_never(event)

    def _show_thinking(self, delta: str) -> None:
        if self._display == "summary":
            summary = self._summary + delta
            # The end of a long summary begins with a whole word, if it has more than one.
            _, _, end = summary[-_SUMMARY_TAIL:].partition(" ")
            self._summary = summary if len(summary) <= _SUMMARY_TAIL else f"… {end or summary[-_SUMMARY_TAIL:]}"
            self._stream("thinking", delta)

    def _show_retry(self, event: RetryScheduled) -> None:
        if event.restart:
            self._discard_text()
        self._set_phase("retrying")
        self._retry, self._retry_until = event, asyncio.get_running_loop().time() + event.delay

    def _show_compaction(self, event: CompactionStarted | ContextCompacted) -> None:
        self._set_phase("compacting")
        if isinstance(event, ContextCompacted):
            self._tokens_done += event.usage.output_tokens or 0
            self._send_partial({"kind": "usage", **serialize_usage(event.usage)})
            self._send_notice("info", event.text)

    def send_result(self, result: PartialResult) -> None:
        self._send_partial({"kind": "finished", "result": result})

    def build_message(self) -> str:
        phase, cause = self._phase, ""
        if phase == "retrying" and self._retry is not None:
            # Once the delay is over, show the previous phase, because a compaction sends no event until it is complete.
            seconds = self._retry_until - asyncio.get_running_loop().time()
            phase, cause = (
                (self._retry.format_phase(seconds), self._retry.cause) if seconds > 0 else (self._retried_phase, "")
            )
        parts = [phase, format_seconds(asyncio.get_running_loop().time() - self._started)]
        silence = asyncio.get_running_loop().time() - max(self._heard_at, self._retry_until)
        if phase in _PHASES_OF_CALLS and silence >= _MIN_SILENCE_SECONDS:
            parts.append(f"no data for {format_seconds(silence)}")
        if cause:
            parts.append(cause[:_MAX_CAUSE_LENGTH])
        if self._display != "off" and (tokens := self._tokens_done + self._tokens_now):
            parts.append(f"{tokens:,} tokens")
        if self._display == "summary" and self._phase == "thinking" and self._summary.strip():
            parts.append(" ".join(self._summary.split()))
        return " · ".join(parts)

    def _set_phase(self, phase: str) -> None:
        if phase != self._phase:
            if phase == "retrying":
                self._retried_phase = self._phase
            self._phase = phase
            self._summary = ""
        self._changed.set()

    def _stream(self, kind: str, delta: str) -> None:
        # Text is sent with the next report, so that a fast model does not flood the editor. Text and thinking stay in
        # order.
        if self._pending and next(reversed(self._pending)) != kind:
            self.flush()
        self._pending.setdefault(kind, []).append(delta)

    def flush(self) -> None:
        """Send the text collected since the last report."""
        pending, self._pending = self._pending, {}
        for kind, pieces in pending.items():
            self._record_partial({"kind": kind, "delta": "".join(pieces)})

    def _discard_text(self) -> None:
        """Discard the text and thinking since the last completed step, which ended with a `usage` value.

        A client that attaches later receives neither the discarded text nor the `restart` value.
        """
        self._pending.clear()
        steps = (
            index for index in reversed(range(len(self._sent_values))) if self._sent_values[index]["kind"] == "usage"
        )
        start = next(steps, 0)
        self._sent_values[start:] = [value for value in self._sent_values[start:] if "delta" not in value]
        for token in self._partial_tokens:
            self.client.send_progress(token, {"kind": "restart"})

    def _send_tool(self, event: ToolStarted | ToolFinished, status: str, result: str | None) -> None:
        names = {"kind": "tool", "toolCallId": format_call_id(event.call_id), "name": event.name, "title": event.title}
        self._send_partial(names | {"status": status, "arguments": event.arguments, "result": result})

    def _send_notice(self, level: str, text: str) -> None:
        self._send_partial({"kind": "notice", "level": level, "text": sanitize_message(text)})

    def _send_partial(self, value: PartialResult) -> None:
        self.flush()
        self._record_partial(value)

    def _record_partial(self, value: PartialResult) -> None:
        self._sent_values.append(value)
        for token in self._partial_tokens:
            self.client.send_progress(token, value)


def _join_deltas(values: Iterable[PartialResult]) -> Iterator[PartialResult]:
    """Join adjacent deltas of the same kind."""
    for (kind, is_delta), group in groupby(values, lambda value: (value["kind"], "delta" in value)):
        if is_delta:
            yield {"kind": kind, "delta": "".join(value["delta"] for value in group)}
        else:
            yield from group


def format_seconds(seconds: float) -> str:
    """Format a duration for users: `12 s`, `3 min 4 s`."""
    total = int(seconds)
    return f"{total} s" if total < 60 else f"{total // 60} min {total % 60} s"


def _format_phase(tool: str, title: str) -> str:
    """Return the phase for a tool call. For example, the title ``read src/app.py`` becomes ``reading src/app.py``."""
    verb, _, rest = title.partition(" ")
    return f"{_PHASES.get(tool, verb)} {rest}".rstrip()
