"""What `ask` shows while a turn runs: the answer on standard output as it comes, everything else on standard error."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import IO, Self, TextIO, assert_never

from rich.console import Console
from rich.status import Status
from rich.text import Text

from thinklsp.cli.terminal import HarmlessStream, harmless, is_live
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

_PLAN_MARKS = {"completed": "✓", "in_progress": "▸", "pending": "·"}
_BEAT = 0.5


class AskScreen:
    """Entered for the time of the turn. `answer` None: nothing goes to standard output.

    The status line lives only while nothing is being written: standard output may be the same terminal. A terminal gets
    the text as it comes; a file or a pipe, where nothing can be taken back, gets the text of each step when it is
    complete.
    """

    def __init__(self, answer: TextIO | None, aside: Console, *, thinking: bool, tools: bool) -> None:
        self._answer = answer
        self._held: list[str] | None = [] if answer is not None and not answer.isatty() else None
        self._aside = aside
        self._show_thinking = thinking
        self._show_tools = tools
        self._status: Status | None = None
        self._phase = "starting"
        self._begun = time.monotonic()
        self._tokens_done = self._tokens_now = 0
        self._open_line: IO[str] | None = None
        self._stream = HarmlessStream()
        self._answered = self._new_paragraph = self._goes_on = False
        self._pulse: asyncio.Task[None] | None = None

    def __enter__(self) -> Self:
        if is_live(self._aside):
            self._pulse = asyncio.get_running_loop().create_task(self._beat())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._pulse is not None:
            self._pulse.cancel()
        self._write_held()
        self.pause()

    def show(self, event: TurnEvent) -> None:
        match event:
            case StepStarted() | Reminded():
                self._step_begun()
            case ThinkingTick():
                self._tokens_now = max(self._tokens_now, event.tokens or 0)
            case ThinkingStreamed():
                if self._show_thinking:
                    self._stream_thinking(event.delta)
            case TextStreamed():
                self._take_text(event.delta)
            case ToolStarted():
                self._enter(event.title)
            case ToolFinished():
                self._tool(event)
            case StepCommitted():
                self._step_done(event)
            case RetryScheduled():
                self._retry(event)
            case CompactionStarted():
                self._enter("compacting")
            case ContextCompacted():
                self._tokens_done += event.usage.output_tokens or 0
                self.note(event.text)
            case Notice():
                self.note(event.text, warning=event.level == "warning")
            case TurnFinished():
                self._write_held()
                self.pause()
            case _:
                assert_never(event)

    def _step_begun(self) -> None:
        # The rest of a paused answer is written behind what there is of it.
        if not self._goes_on:
            self._enter("thinking")

    def _step_done(self, step: StepCommitted) -> None:
        self._tokens_done += step.usage.output_tokens or 0
        self._tokens_now = 0
        self._write_held()
        self._goes_on = step.assistant.is_paused
        if not self._goes_on:
            self.pause()
            self._new_paragraph = self._answered

    def _retry(self, event: RetryScheduled) -> None:
        said = ""
        if event.restart and self._held is not None:
            self._held.clear()
        elif event.restart:
            said = " What was written above is discarded."
        when = f"in {event.delay:.0f} s" if event.delay >= 0.5 else "at once"
        self.note(f"{event.reason} Asking again {when}.{said}", warning=True)
        self._enter("retrying")

    def note(self, text: str, *, warning: bool = False) -> None:
        self.pause()
        self._aside.print(Text(harmless(text), style="yellow" if warning else "dim"), soft_wrap=True)

    def pause(self) -> None:
        """The status line goes and an open line is closed: somebody else may write."""
        if self._status is not None:
            self._status.stop()
            self._status = None
        if self._open_line is not None:
            self._open_line.write(self._stream.end() + "\n")
            self._open_line.flush()
            self._open_line = None

    def resume(self, phase: str) -> None:
        self._enter(phase)

    def _enter(self, phase: str) -> None:
        self.pause()
        self._phase = phase
        self._refresh()

    def _refresh(self) -> None:
        if not is_live(self._aside) or self._open_line is not None:
            return
        text = Text(harmless(self._line()), style="cyan")
        text.truncate(max(10, self._aside.width - 4), overflow="ellipsis")
        if self._status is None:
            self._status = self._aside.status(text)
            self._status.start()
        else:
            self._status.update(text)

    def _line(self) -> str:
        parts = [self._phase, f"{time.monotonic() - self._begun:.0f} s"]
        if tokens := self._tokens_done + self._tokens_now:
            parts.append(f"{tokens:,} tokens")
        return " · ".join(parts)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(_BEAT)
            if self._status is not None:
                self._refresh()

    def _take_text(self, delta: str) -> None:
        if self._held is None:
            self._stream_text(delta)
            return
        self._held.append(delta)
        if self._phase != "writing":
            self._enter("writing")

    def _write_held(self) -> None:
        if self._held:
            self._stream_text("".join(self._held))
            self._held.clear()

    def _stream_text(self, delta: str) -> None:
        if self._answer is None or not delta:
            return
        if self._open_line is not self._answer:
            self.pause()
            if self._new_paragraph:
                self._answer.write("\n")
            self._answered, self._new_paragraph = True, False
            self._open_line = self._answer
        self._answer.write(self._stream.take(delta))
        self._answer.flush()

    def _stream_thinking(self, delta: str) -> None:
        if self._open_line is not self._aside.file:
            self.pause()
            self._open_line = self._aside.file
        self._aside.print(Text(self._stream.take(delta), style="dim italic"), end="", soft_wrap=True)
        self._aside.file.flush()

    def _tool(self, event: ToolFinished) -> None:
        if self._show_tools:
            self.pause()
            mark, style = ("✗", "red") if event.is_error else ("✓", "green")
            self._aside.print(Text(f"{mark} ", style=style).append(harmless(event.title)), soft_wrap=True)
            for entry in event.plan or ():
                self._aside.print(Text(f"  {_PLAN_MARKS[entry.status]} {harmless(entry.text)}", style="dim"))
        self._enter("working")
