"""The terminal output of `thinklsp ask`. Only the answer goes to standard output."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import IO, Self, TextIO, assert_never

from rich.console import Console
from rich.status import Status
from rich.text import Text

from thinklsp.cli.terminal import SanitizingStream, is_live, sanitize_text
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

_PLAN_MARKS = {"completed": "✓", "in_progress": "▸", "pending": "·"}
_REFRESH_SECONDS = 0.5


class AskScreen:
    """A context manager for the terminal output of a turn. If `answer` is None, nothing goes to standard output.

    The status line is hidden while text is written, because standard output may be the same terminal. A terminal
    receives the text as it streams. A file or a pipe receives the text of a step only when the step is complete,
    because text in a file cannot be removed if the step is retried.
    """

    def __init__(self, answer: TextIO | None, console: Console, *, thinking: bool, tools: bool) -> None:
        self._answer = answer
        self._buffer: list[str] | None = [] if answer is not None and not answer.isatty() else None
        self._console = console
        self._show_thinking = thinking
        self._show_tools = tools
        self._status: Status | None = None
        self._phase = "starting"
        self._started_at = time.monotonic()
        self._tokens_done = self._tokens_now = 0
        self._open_line: IO[str] | None = None
        self._stream = SanitizingStream()
        self._has_output = self._new_paragraph = self._continues = False
        self._refresh_task: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        if is_live(self._console):
            self._refresh_task = asyncio.get_running_loop().create_task(self._refresh_periodically())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._refresh_task is not None:
            self._refresh_task.cancel()
        self._flush_buffer()
        self.pause()

    def show(self, event: TurnEvent) -> None:
        match event:
            case StepStarted() | ReminderAdded():
                self._start_step()
            case ThinkingTick():
                self._tokens_now = max(self._tokens_now, event.tokens or 0)
            case ThinkingStreamed():
                self._stream_thinking(event.delta)
            case TextStreamed():
                self._add_text(event.delta)
            case ToolStarted():
                self.enter_phase(event.title)
            case ToolFinished():
                self._show_tool(event)
            case StepCommitted():
                self._finish_step(event)
            case RetryScheduled():
                self._show_retry(event)
            case DataReceived():
                pass
            case CompactionStarted():
                self.enter_phase("compacting")
            case ContextCompacted():
                self._tokens_done += event.usage.output_tokens or 0
                self.note(event.text)
            case Notice():
                self.note(event.text, warning=event.level == "warning")
            case TurnFinished():
                self._flush_buffer()
                self.pause()
            case _:
                assert_never(event)

    def _start_step(self) -> None:
        # If the provider paused the answer, the next step continues the same text.
        if not self._continues:
            self.enter_phase("thinking")

    def _finish_step(self, step: StepCommitted) -> None:
        self._tokens_done += step.usage.output_tokens or 0
        self._tokens_now = 0
        self._flush_buffer()
        self._continues = step.assistant.is_paused
        if not self._continues:
            self.pause()
            self._new_paragraph = self._has_output

    def _show_retry(self, event: RetryScheduled) -> None:
        if event.restart and self._buffer is not None:
            self._buffer.clear()
        elif event.restart:
            self.note("Ignore the text above: the answer is starting over.", warning=True)
        self.enter_phase(f"{event.format_phase(event.delay)} · {event.cause}")

    def note(self, text: str, *, warning: bool = False) -> None:
        self.pause()
        self._console.print(Text(sanitize_text(text), style="yellow" if warning else "dim"), soft_wrap=True)

    def pause(self) -> None:
        """Hide the status line and end the current line, so that other output can follow."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._open_line is not None:
            self._open_line.write(self._stream.finish() + "\n")
            self._open_line.flush()
            self._open_line = None

    def enter_phase(self, phase: str) -> None:
        self.pause()
        self._phase = phase
        self._refresh()

    def _refresh(self) -> None:
        if not is_live(self._console) or self._open_line is not None:
            return
        text = Text(sanitize_text(self._format_status()), style="cyan")
        text.truncate(max(10, self._console.width - 4), overflow="ellipsis")
        if self._status is None:
            self._status = self._console.status(text)
            self._status.start()
        else:
            self._status.update(text)

    def _format_status(self) -> str:
        parts = [self._phase, f"{time.monotonic() - self._started_at:.0f} s"]
        if tokens := self._tokens_done + self._tokens_now:
            parts.append(f"{tokens:,} tokens")
        return " · ".join(parts)

    async def _refresh_periodically(self) -> None:
        while True:
            await asyncio.sleep(_REFRESH_SECONDS)
            if self._status is not None:
                self._refresh()

    def _add_text(self, delta: str) -> None:
        if self._buffer is None:
            self._stream_text(delta)
            return
        self._buffer.append(delta)
        if self._phase != "writing":
            self.enter_phase("writing")

    def _flush_buffer(self) -> None:
        if self._buffer:
            self._stream_text("".join(self._buffer))
            self._buffer.clear()

    def _stream_text(self, delta: str) -> None:
        if self._answer is None or not delta:
            return
        if self._open_line is not self._answer:
            self.pause()
            if self._new_paragraph:
                self._answer.write("\n")
            self._has_output, self._new_paragraph = True, False
            self._open_line = self._answer
        self._answer.write(self._stream.sanitize(delta))
        self._answer.flush()

    def _stream_thinking(self, delta: str) -> None:
        if not self._show_thinking:
            return
        if self._open_line is not self._console.file:
            self.pause()
            self._open_line = self._console.file
        self._console.print(Text(self._stream.sanitize(delta), style="dim italic"), end="", soft_wrap=True)
        self._console.file.flush()

    def _show_tool(self, event: ToolFinished) -> None:
        if self._show_tools:
            self.pause()
            mark, style = ("✗", "red") if event.is_error else ("✓", "green")
            self._console.print(Text(f"{mark} ", style=style).append(sanitize_text(event.title)), soft_wrap=True)
            for entry in event.plan or ():
                self._console.print(Text(f"  {_PLAN_MARKS[entry.status]} {sanitize_text(entry.text)}", style="dim"))
        self.enter_phase("working")
