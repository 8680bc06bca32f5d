"""The demo's output.

On a terminal, the last lines are updated in place. They show the streamed text and a status line with the server's
progress. In a file or a pipe, each line is written when it is complete.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.text import Text

from thinklsp.cli.terminal import is_live, render_diff, sanitize_text, wrap_paragraph
from thinklsp.core.edits import EditSet, format_diff

Stream = Literal["text", "thinking"]

_INDENT = 4
_STYLES: Mapping[Stream, str] = {"text": "", "thinking": "dim italic"}
_PLAN_MARKS = {"completed": "✓", "in_progress": "▸", "pending": "·"}


class DemoScreen:
    """A context manager for the demo's output. It restores the terminal on exit."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._kind: Stream = "text"
        self._pending = ""
        self._spinner: Spinner | None = None
        self._live = Live(get_renderable=self._render_tail, console=console, transient=True, refresh_per_second=15)

    def __enter__(self) -> Self:
        if is_live(self._console):
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.finish_turn()
        self._live.stop()

    def print_title(self, text: str, *, subtitle: str = "") -> None:
        self.flush()
        self._print(Text(text, style="bold").append(f"   {subtitle}" if subtitle else "", style="not bold dim"))

    def print_blank(self) -> None:
        self.flush()
        self._print(Text())

    def print_heading(self, number: int, text: str) -> None:
        self.flush()
        self._print(Text())
        self._print(Text(f"{number}  ", style="bold cyan").append(text, style="bold default"))

    def print_text(self, text: str, *, style: str = "") -> None:
        self.flush()
        for line in wrap_paragraph(self._console, text, style=style, indent=_INDENT):
            self._print(line)

    def print_note(self, text: str, *, warning: bool = False) -> None:
        self.print_text(f"! {text}" if warning else text, style="yellow" if warning else "dim")

    def print_command(self, words: str, lines: Sequence[str], *, good: bool) -> None:
        """Print a command and its output."""
        self.flush()
        self._print(Text(" " * _INDENT).append(f"$ {words}", style="bold"))
        for line in lines:
            self.print_text(line, style="green" if good else "red")

    def show_tool(self, title: str, status: str) -> None:
        """Print a tool call that has finished. While a call is running, it appears only in the status line."""
        if status == "in_progress":
            self.flush()
            return
        mark, style = ("✗", "red") if status == "failed" else ("✓", "green")
        self.flush()
        self._print(Text(" " * _INDENT).append(f"{mark} ", style=style).append(sanitize_text(title)))

    def show_plan(self, entries: Sequence[Mapping[str, Any]]) -> None:
        for entry in entries:
            self.print_text(f"{_PLAN_MARKS.get(entry['status'], '·')} {entry['text']}", style="dim")

    def show_edit(self, edit_set: EditSet, to_confirm: int, *, applied: bool) -> None:
        """Print the diff of a received edit."""
        self.flush()
        count = len(edit_set.files)
        files = "1 file" if count == 1 else f"{count} files"
        self._print(Text())
        state = "The editor receives one edit" if applied else "The edit is shown but not written"
        self.print_text(f"{state}: {files}", style="bold")
        if to_confirm:
            self.print_note("outside the requested lines, so an editor asks the user to confirm the edit")
        self._print(Text())
        for line in render_diff(format_diff(edit_set), indent=_INDENT):
            self._print(line)

    def stream_text(self, kind: Stream, delta: str) -> None:
        if kind != self._kind:
            self.flush()
            self._kind = kind
        self._pending += delta

    def discard(self) -> None:
        """Discard streamed text that has not been printed yet. This happens if the model call is retried."""
        self._pending = ""

    def show_status(self, message: str) -> None:
        """Show a message in the status line. Only a terminal has a status line."""
        text = Text(" ".join(sanitize_text(message).split()), style="cyan")
        # Leave space for the spinner and for a possible ^C, because a wrapped line cannot be erased.
        text.truncate(max(10, self._console.width - _INDENT - 8), overflow="ellipsis")
        if self._spinner is None:
            self._spinner = Spinner("dots", text=text, style="cyan")
        else:
            self._spinner.update(text=text)

    def finish_turn(self) -> None:
        """Print the remaining text of a finished turn, and remove the status line."""
        self.flush()
        self._spinner = None

    def flush(self) -> None:
        pending, self._pending = self._pending, ""
        if pending.strip():
            for line in wrap_paragraph(self._console, pending, style=_STYLES[self._kind], indent=_INDENT):
                self._print(line)

    def _render_tail(self) -> RenderableType:
        """Return the lines that are updated in place, which are the streamed text and the status line."""
        room = max(1, self._console.height - 3)
        lines: list[RenderableType] = []
        if self._pending.strip():
            lines += wrap_paragraph(self._console, self._pending, style=_STYLES[self._kind], indent=_INDENT)[-room:]
        if self._spinner is not None:
            lines.append(Padding(self._spinner, (0, 0, 0, _INDENT)))
        return Group(*lines)

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)
