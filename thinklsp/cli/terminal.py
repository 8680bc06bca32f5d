"""Terminal output and questions, including consoles, paragraphs, colored diffs, usage figures and prompts.

A file or a pipe receives the same text as a terminal, but without colors, cursor movements or additional line breaks.
Questions are possible only if both standard input and standard error are terminals.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import re
import sys
import termios
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Any, TextIO

from rich.console import Console
from rich.text import Text

from thinklsp.core.errors import ThinkLspError
from thinklsp.core.text_safety import escape_invisible


def create_console(stream: TextIO) -> Console:
    """Create a console. Only a terminal gets colors and cursor movements, even if FORCE_COLOR is set."""
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


def parse_age(argument: str) -> timedelta:
    """Parse an age in days or weeks, such as 90d or 12w. Raises ArgumentTypeError."""
    match = re.fullmatch(r"([0-9]{1,4})([dw])", argument)
    if match is None:
        raise argparse.ArgumentTypeError(f"invalid age {argument!r}; use a value such as 90d (days) or 12w (weeks)")
    return timedelta(**{"days" if match[2] == "d" else "weeks": int(match[1])})


def find_current_folder() -> str:
    """Return the current folder. Raises ThinkLspError if the folder has been deleted."""
    try:
        return os.getcwd()
    except OSError as error:
        raise ThinkLspError(f"Cannot use the current folder: {error.strerror}. Change to another folder.") from None


def is_live(console: Console) -> bool:
    """Return True if the console can overwrite lines."""
    return console.is_terminal and not console.is_dumb_terminal


def sanitize_text(text: str) -> str:
    """Escape characters that control a terminal, hide text or reorder text. Tabs and line feeds are kept."""
    return escape_invisible(text.replace("\r\n", "\n"))


def wrap_paragraph(console: Console, text: str, *, style: str = "", indent: int = 0) -> list[Text]:
    """Split text into lines. On a terminal, long lines are wrapped."""
    body = Text(escape_invisible(text).strip("\n"), style=style)
    if console.is_terminal:
        lines = list(body.wrap(console, max(20, console.width - indent - 1)))
    else:
        lines = list(body.split("\n"))
    return [Text(" " * indent).append_text(line) if line.plain else Text() for line in lines]


def print_fact(console: Console, fact: str, details: str, *, label: str = "") -> None:
    """Print a line with a fact in bold between its label and its details."""
    line = Text(label).append(sanitize_text(fact), style="bold")
    console.print(line.append(f"   {sanitize_text(details)}" if details else "", style="not bold dim"), soft_wrap=True)


def print_problem(console: Console, problem: str) -> None:
    text = Text("! ", style="bold yellow").append(sanitize_text(problem), style="not bold yellow")
    console.print(text, soft_wrap=True)


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2))


def render_diff(diff: str, *, indent: int = 0) -> Iterator[Text]:
    """Yield the lines of a unified diff in colors."""
    for line in diff.split("\n")[:-1]:
        visible_line = escape_invisible(line)
        yield Text(" " * indent).append_text(Text(visible_line, style=_select_diff_style(line)))


def _select_diff_style(line: str) -> str:
    if line.startswith(("diff ", "--- ", "+++ ", "rename ", "new file", "deleted file")):
        return "bold"
    if line.startswith("@@"):
        return "cyan"
    return {"+": "green", "-": "red"}.get(line[:1], "")


def render_tool(title: str, *, is_error: bool) -> Text:
    """Return the line of a tool call that has finished."""
    mark, style = ("✗", "red") if is_error else ("✓", "green")
    return Text(f"{mark} ", style=style).append(sanitize_text(title), style="default")


def render_plan(entries: Iterable[tuple[str, str]]) -> list[Text]:
    """Return the lines of a plan, from the text and the status of each entry."""
    marks = {"completed": "✓", "in_progress": "▸", "pending": "·"}
    return [Text(f"{marks.get(status, '·')} {sanitize_text(text)}", style="dim") for text, status in entries]


def format_usage_line(usage: Mapping[str, Any]) -> str:
    """Describe the usage in a TurnResult. Unknown figures are omitted, and so is the cost of a free model."""
    total, cached = usage["inputTokens"], usage["cacheReadTokens"]
    parts = []
    if total is not None:
        share = f" ({round(100 * cached / total)} % from the cache)" if total and cached is not None else ""
        parts.append(f"{total:,} tokens in{share}")
    if usage["outputTokens"] is not None:
        thinking = usage["thinkingTokens"]
        parts.append(f"{usage['outputTokens']:,} out" + (f" ({thinking:,} thinking)" if thinking else ""))
    if parts and usage["costUsd"] != 0:
        parts.append("cost unknown" if usage["costUsd"] is None else f"${usage['costUsd']:.4f}")
    return " · ".join(parts)


def can_ask() -> bool:
    return sys.stdin.isatty() and sys.stderr.isatty()


def confirm(question: str) -> bool:
    """Ask a yes-or-no question. Return True only if the answer is yes."""
    return ask_line(f"{question} [y/N] ").lower() in ("y", "yes")


def is_confirmed(question: str, *, yes: bool, refusal: str) -> bool:
    """Return True with `--yes`, or if the user agrees. Raises ThinkLspError with `refusal` without a terminal."""
    if not yes and not can_ask():
        raise ThinkLspError(refusal)
    sys.stdout.flush()
    return yes or confirm(question)


def ask_line(question: str) -> str:
    """Ask for a line of text. Return an empty string at the end of the input."""
    sys.stderr.write(question)
    sys.stderr.flush()
    return sys.stdin.readline().strip()


def ask_secret(question: str) -> str:
    """Ask for a line of text that the terminal does not show. Return an empty string at the end of the input."""
    descriptor = sys.stdin.fileno()
    before = termios.tcgetattr(descriptor)
    silent = [*before]
    silent[3] = before[3] & ~termios.ECHO
    try:
        # Input that was typed earlier has been shown already, so it is discarded.
        termios.tcsetattr(descriptor, termios.TCSAFLUSH, silent)
        return ask_line(question)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)
        sys.stderr.write("\n")


async def choose(question: str, options: Sequence[str]) -> str | None:
    """Ask the user to choose an option by its number or its text. Return None for any other answer."""
    lines = [
        sanitize_text(question),
        *(f"  {number}  {sanitize_text(option)}" for number, option in enumerate(options, 1)),
    ]
    sys.stderr.write("\n".join(lines) + f"\nYour choice [1-{len(options)}]: ")
    sys.stderr.flush()
    answer = (await _read_line()).strip()
    if answer.isdecimal() and 1 <= int(answer) <= len(options):
        return options[int(answer) - 1]
    return answer if answer in options else None


async def _read_line() -> str:
    """Read a line from standard input in a daemon thread, so that cancellation does not wait for the user."""
    loop = asyncio.get_running_loop()
    lines = asyncio.Queue[str]()

    def read() -> None:
        text = os.read(sys.stdin.fileno(), 4096).decode("utf-8", "replace")
        loop.call_soon_threadsafe(lines.put_nowait, text)

    threading.Thread(target=read, daemon=True, name="terminal").start()
    return await lines.get()
