"""How a running turn looks: the messages of its reports, and text and tools as partial results."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping
from hashlib import sha256
from itertools import groupby
from typing import Any, assert_never

from thinklsp.core.choices import ThinkingDisplay
from thinklsp.core.events import (
    CompactionStarted,
    ContextCompacted,
    Notice,
    Reminded,
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
from thinklsp.core.usage import usage_json
from thinklsp.lsp.editor.work_done import Token, WorkDone, told_seconds

_SUMMARY_TAIL = 120
_MAX_ID_CHARS = 64

_PHASES = {
    "read_file": "reading",
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


class TurnProgress:
    """The content of one turn's progress: `show` for each event, then `end`.

    `work_done` takes the phases. Partial tokens take our own values, for clients that gave one, and for those that
    attach in mid-turn: they get first all that there was.
    """

    def __init__(self, work_done: WorkDone) -> None:
        self.work_done = work_done
        work_done.content = self
        self._client = work_done.client
        self._partials: list[Token] = []
        self._shown: list[Mapping[str, Any]] = []
        self._display: ThinkingDisplay = "status"
        self._phase = "starting"
        self._tokens_done = self._tokens_now = 0
        self._summary = ""
        self._pending: dict[str, list[str]] = {}
        self._retry_until: float | None = None
        self._asking = self._interrupted = self._phase

    def use(self, partial_token: Token | None, display: ThinkingDisplay) -> None:
        """What is known only when the arguments and settings have been read."""
        self._display = display
        if partial_token is not None:
            self._partials.append(partial_token)

    def uses(self, token: Token) -> bool:
        return token == self.work_done.token or token in self._partials

    def attach(self, token: Token) -> None:
        """Another partial token, not in use yet: what was shown so far goes to it at once."""
        self.flush()
        for value in _joined(self._shown):
            self._client.progress(token, value)
        self._partials.append(token)

    def applying(self) -> None:
        """Show that the editor applies the edit by itself."""
        self._enter("applying")

    def waiting(self) -> None:
        """Show that a person is asked: by a prompt, or by the editor's review of an edit."""
        self._interrupted = self._phase
        self._enter("waiting for you")

    def resumed(self) -> None:
        self._enter(self._interrupted)

    def show(self, event: TurnEvent) -> None:
        match event:
            case StepStarted() | Reminded():
                self._enter("thinking")
            case ThinkingTick():
                self._enter("thinking")
                self._tokens_now = max(self._tokens_now, event.tokens or 0)
            case ThinkingStreamed():
                self._enter("thinking")
                if self._display == "summary":
                    self._summary = (self._summary + event.delta)[-_SUMMARY_TAIL:]
                    self._stream("thinking", event.delta)
            case TextStreamed():
                self._enter("writing")
                self._stream("text", event.delta)
            case ToolStarted():
                self._enter(_doing(event.name, event.title))
                self._tool(event.call_id, event.name, event.title, "in_progress")
            case ToolFinished():
                self._tool(event.call_id, event.name, event.title, "failed" if event.is_error else "completed")
                if event.plan is not None:
                    entries = [{"text": entry.text, "status": entry.status} for entry in event.plan]
                    self._send_partial({"kind": "plan", "entries": entries})
            case StepCommitted():
                self._tokens_done += event.usage.output_tokens or 0
                self._tokens_now = 0
                self._send_partial({"kind": "usage", **usage_json(event.usage)})
            case RetryScheduled():
                self._retry(event)
            case CompactionStarted() | ContextCompacted():
                self._compaction(event)
            case Notice():
                self._notice(event.level, event.text)
            case TurnFinished():
                self._enter("finishing")
            case _:
                assert_never(event)

    def _retry(self, event: RetryScheduled) -> None:
        if event.restart:
            self._void_text()
        self._enter("retrying")
        self._retry_until = asyncio.get_running_loop().time() + event.delay
        self._notice("warning", event.reason)

    def _compaction(self, event: CompactionStarted | ContextCompacted) -> None:
        self._enter("compacting")
        if isinstance(event, ContextCompacted):
            self._tokens_done += event.usage.output_tokens or 0
            self._send_partial({"kind": "usage", **usage_json(event.usage)})
            self._notice("info", event.text)

    def failed(self, result: Mapping[str, Any]) -> None:
        """Send the result of a failed turn, after its sentence as a notice."""
        self._notice("error", result["text"])
        self.finished(result)

    def finished(self, result: Mapping[str, Any]) -> None:
        self._send_partial({"kind": "finished", "result": result})

    def end(self, outcome: str) -> None:
        self.work_done.end(outcome)

    def message(self) -> str:
        phase = self._phase
        if phase == "retrying" and self._retry_until is not None:
            # A summary tells nothing before it is whole: then the waiting is over, and it is being written again.
            left = self._retry_until - asyncio.get_running_loop().time()
            phase = f"retrying in {round(left)} s" if left > 0 else self._asking
        parts = [phase, told_seconds(self.work_done.elapsed)]
        if self._display != "off" and (tokens := self._tokens_done + self._tokens_now):
            parts.append(f"{tokens:,} tokens")
        if self._display == "summary" and self._phase == "thinking" and self._summary.strip():
            parts.append(" ".join(self._summary.split()))
        return " · ".join(parts)

    def _enter(self, phase: str) -> None:
        if phase != self._phase:
            if phase == "retrying":
                self._asking = self._phase
            self._phase = phase
            self._summary = ""
        self.work_done.changed.set()

    def _stream(self, kind: str, delta: str) -> None:
        # Text waits for the next beat, so that a fast model does not flood the editor; kinds keep their order.
        if self._pending and next(reversed(self._pending)) != kind:
            self.flush()
        self._pending.setdefault(kind, []).append(delta)

    def flush(self) -> None:
        """Send the text that has gathered since the last report."""
        pending, self._pending = self._pending, {}
        for kind, pieces in pending.items():
            self._tell({"kind": kind, "delta": "".join(pieces)})

    def _void_text(self) -> None:
        """Take back the text and the thinking since the last completed step, whose `usage` was sent last.

        A client that attaches later gets neither the void text nor the `restart`.
        """
        self._pending.clear()
        steps = (place for place in reversed(range(len(self._shown))) if self._shown[place]["kind"] == "usage")
        start = next(steps, 0)
        self._shown[start:] = [value for value in self._shown[start:] if "delta" not in value]
        for token in self._partials:
            self._client.progress(token, {"kind": "restart"})

    def _tool(self, call_id: str, name: str, title: str, status: str) -> None:
        shown = {"kind": "tool", "toolCallId": _shown_id(call_id), "name": name, "title": title, "status": status}
        self._send_partial(shown)

    def _notice(self, level: str, text: str) -> None:
        self._send_partial({"kind": "notice", "level": level, "text": text})

    def _send_partial(self, value: Mapping[str, Any]) -> None:
        self.flush()
        self._tell(value)

    def _tell(self, value: Mapping[str, Any]) -> None:
        self._shown.append(value)
        for token in self._partials:
            self._client.progress(token, value)


def _joined(values: Iterable[Mapping[str, Any]]) -> Iterator[Mapping[str, Any]]:
    """The same with neighbouring pieces of one text in one."""
    for (kind, streamed), group in groupby(values, lambda value: (value["kind"], "delta" in value)):
        if streamed:
            yield {"kind": kind, "delta": "".join(value["delta"] for value in group)}
        else:
            yield from group


def _doing(tool: str, title: str) -> str:
    """``read src/app.py`` as what is going on: ``reading src/app.py``."""
    verb, _, rest = title.partition(" ")
    return f"{_PHASES.get(tool, verb)} {rest}".rstrip()


def _shown_id(call_id: str) -> str:
    """Return the id that editors see: a digest if the id is long. LiteLLM writes Gemini's signature into ids."""
    if len(call_id) <= _MAX_ID_CHARS:
        return call_id
    return f"call_{sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"
