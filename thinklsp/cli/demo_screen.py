"""What the demo shows. On a terminal the last lines live: what is being written, and a status line that the server's
progress feeds. To a file or a pipe go the same lines, each once it is complete."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from types import TracebackType
from typing import Any, Literal, Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.spinner import Spinner
from rich.text import Text

from thinklsp.cli.terminal import diff_lines, harmless, is_live, paragraph
from thinklsp.core.edits import EditSet
from thinklsp.core.unified import diff

Stream = Literal["text", "thinking"]

_INDENT = 4
_STYLES: Mapping[Stream, str] = {"text": "", "thinking": "dim italic"}
_PLAN_MARKS = {"completed": "✓", "in_progress": "▸", "pending": "·"}


class Screen:
    """Entered for the time of the demo; leaving it, however that happens, gives the terminal back as it was."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._kind: Stream = "text"
        self._pending = ""
        self._spinner: Spinner | None = None
        self._live = Live(_Tail(self), console=console, transient=True, refresh_per_second=15)

    def __enter__(self) -> Self:
        if is_live(self._console):
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.quiet()
        self._live.stop()

    def title(self, text: str, *, aside: str = "") -> None:
        self.settle()
        self._print(Text(text, style="bold").append(f"   {aside}" if aside else "", style="not bold dim"))

    def blank(self) -> None:
        self.settle()
        self._print(Text())

    def heading(self, number: int, text: str) -> None:
        self.settle()
        self._print(Text())
        self._print(Text(f"{number}  ", style="bold cyan").append(text, style="bold default"))

    def say(self, text: str, *, style: str = "") -> None:
        self.settle()
        for line in paragraph(self._console, text, style=style, indent=_INDENT):
            self._print(line)

    def note(self, text: str, *, warning: bool = False) -> None:
        self.say(f"! {text}" if warning else text, style="yellow" if warning else "dim")

    def command(self, words: str, lines: Sequence[str], *, good: bool) -> None:
        """A command and what it printed."""
        self.settle()
        self._print(Text(" " * _INDENT).append(f"$ {words}", style="bold"))
        for line in lines:
            self.say(line, style="green" if good else "red")

    def tool(self, title: str, status: str) -> None:
        """A tool call; while it runs the status line names it."""
        if status == "in_progress":
            self.settle()
            return
        mark, style = ("✗", "red") if status == "failed" else ("✓", "green")
        self.settle()
        self._print(Text(" " * _INDENT).append(f"{mark} ", style=style).append(harmless(title)))

    def plan(self, entries: Sequence[Mapping[str, Any]]) -> None:
        for entry in entries:
            self.say(f"{_PLAN_MARKS.get(entry['status'], '·')} {entry['text']}", style="dim")

    def edit(self, edit_set: EditSet, to_confirm: int, *, applied: bool) -> None:
        """The diff of an edit that has arrived."""
        self.settle()
        count = len(edit_set.files)
        files = "1 file" if count == 1 else f"{count} files"
        self._print(Text())
        self.say(f"workspace/applyEdit: {files}" + ("" if applied else ", shown and not written"), style="bold")
        if to_confirm:
            self.note("outside the place that was asked about, so editors show it before it is made")
        self._print(Text())
        for line in diff_lines(diff(edit_set), indent=_INDENT):
            self._print(line)

    def stream(self, kind: Stream, delta: str) -> None:
        if kind != self._kind:
            self.settle()
            self._kind = kind
        self._pending += delta

    def discard(self) -> None:
        """Take back the text that is not printed yet: the model sends it again."""
        self._pending = ""

    def status(self, message: str) -> None:
        """The live line; nothing where nothing can live."""
        text = Text(" ".join(harmless(message).split()), style="cyan")
        # Room for the spinner, and for the ^C that a terminal echoes: a wrapped line could not be taken back.
        text.truncate(max(10, self._console.width - _INDENT - 8), overflow="ellipsis")
        if self._spinner is None:
            self._spinner = Spinner("dots", text=text, style="cyan")
        else:
            self._spinner.update(text=text)

    def quiet(self) -> None:
        """The turn is over: what was being written becomes final, the status line goes."""
        self.settle()
        self._spinner = None

    def settle(self) -> None:
        pending, self._pending = self._pending, ""
        if pending.strip():
            for line in paragraph(self._console, pending, style=_STYLES[self._kind], indent=_INDENT):
                self._print(line)

    def tail(self) -> Iterator[RenderableType]:
        """What lives below the printed lines now."""
        room = max(1, self._console.height - 3)
        if self._pending.strip():
            yield from paragraph(self._console, self._pending, style=_STYLES[self._kind], indent=_INDENT)[-room:]
        if self._spinner is not None:
            yield Padding(self._spinner, (0, 0, 0, _INDENT))

    def _print(self, line: Text) -> None:
        self._console.print(line, soft_wrap=True)


class _Tail:
    """Asked for its content at every refresh."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen

    def __rich__(self) -> RenderableType:
        return Group(*self._screen.tail())
