"""How terminal commands print: consoles, paragraphs, diffs in colour, figures. What goes to a file or a pipe is the
same text without colour, without cursor movements and without line breaks of ours."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from thinklsp.core.errors import ThinkLspError
from thinklsp.tools.shown import visible

# What they mean depends on the next character.
_UNDECIDED = ("\r", "\u200d")
# Characters before a joiner that decide whether it belongs to a picture.
_CONTEXT = 2


def console_for(stream: TextIO) -> Console:
    """Colour and movement only where `stream` is a terminal, whatever FORCE_COLOR says."""
    terminal = stream.isatty()
    return Console(
        file=stream,
        force_terminal=terminal,
        color_system="auto" if terminal else None,
        soft_wrap=not terminal,
        highlight=False,
        markup=False,
        emoji=False,
    )


def current_folder() -> str:
    """Raises ThinkLspError where it has been deleted."""
    try:
        return os.getcwd()
    except OSError as error:
        said = f"The folder that this was started in cannot be used: {error.strerror}. Go to another one."
        raise ThinkLspError(said) from None


def is_live(console: Console) -> bool:
    """Whether a line can be rewritten in place."""
    return console.is_terminal and not console.is_dumb_terminal


def harmless(text: str) -> str:
    """Text without anything that steers a terminal, hides or reorders; tabs and line feeds stay."""
    return visible(text.replace("\r\n", "\n"))


class HarmlessStream:
    """`harmless` for a text that comes in pieces."""

    def __init__(self) -> None:
        self._before = self._held = ""

    def take(self, piece: str) -> str:
        """Return what can be shown now."""
        text = self._held + piece
        self._held = text[-1:] if text.endswith(_UNDECIDED) else ""
        return self._shown(text.removesuffix(self._held))

    def end(self) -> str:
        """Return what was held back."""
        text, self._held = self._held, ""
        return self._shown(text)

    def _shown(self, text: str) -> str:
        before, self._before = self._before, (self._before + text)[-_CONTEXT:]
        return harmless(before + text)[len(harmless(before)) :]


def paragraph(console: Console, text: str, *, style: str = "", indent: int = 0) -> list[Text]:
    """The lines of a text, wrapped to the terminal; to a file as they are."""
    body = Text(visible(text).strip("\n"), style=style)
    if console.is_terminal:
        lines = list(body.wrap(console, max(20, console.width - indent - 1)))
    else:
        lines = list(body.split("\n"))
    return [Text(" " * indent).append_text(line) if line.plain else Text() for line in lines]


def diff_lines(diff: str, *, indent: int = 0) -> Iterator[Text]:
    """A unified diff as styled lines."""
    for line in diff.split("\n")[:-1]:
        shown = visible(line)
        yield Text(" " * indent).append_text(Text(shown, style=_diff_style(line)))


def _diff_style(line: str) -> str:
    if line.startswith(("diff ", "--- ", "+++ ", "rename ", "new file", "deleted file")):
        return "bold"
    if line.startswith("@@"):
        return "cyan"
    return {"+": "green", "-": "red"}.get(line[:1], "")


def size_told(count: int) -> str:
    for least, unit in ((100_000_000, "GB"), (100_000, "MB")):
        if count >= least:
            return f"{count / least / 10:.1f} {unit}"
    return f"{count / 1e3:.1f} kB"


def usage_line(usage: Mapping[str, Any]) -> str:
    """A TurnResult's usage in words; figures that are not known are left out."""
    total, cached = usage["inputTokens"], usage["cacheReadTokens"]
    parts = []
    if total is not None:
        share = f" ({round(100 * cached / total)} % from the cache)" if total and cached is not None else ""
        parts.append(f"{total:,} tokens in{share}")
    if usage["outputTokens"] is not None:
        thinking = usage["thinkingTokens"]
        parts.append(f"{usage['outputTokens']:,} out" + (f" ({thinking:,} thinking)" if thinking else ""))
    if parts:
        parts.append("cost unknown" if usage["costUsd"] is None else f"${usage['costUsd']:.4f}")
    return " · ".join(parts)
