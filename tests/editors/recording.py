"""The recording of `thinklsp demo` as an animated SVG, made from what the demo really prints to a terminal."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from html import escape

from rich.segment import Segment
from rich.style import Style
from rich.terminal_theme import SVG_EXPORT_THEME
from rich.text import Text

COLUMNS, ROWS = 116, 30
FRAME_SECONDS = 0.25
SCROLL_ROWS, SCROLL_SECONDS = 14, 1.5  # lines at once, and how long they stay
LONGEST_SECONDS = 12.0  # of a recording: one of a busy machine is played faster
HOLD_SECONDS = 6.0  # of the last frame, before the recording begins again

# What rich sends to rewrite lines: erase a line, go up, hide and show the cursor. Colours stay in the text.
_CONTROL = re.compile(r"\x1b\[(?P<count>\d*)(?P<verb>[AK])|\x1b\[\?25[hl]|\r\n|\n|\r")
_FONT, _CELL, _LINE, _PADDING, _BAR = 14, 8.4, 19, 16, 30
_STYLE = """\
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; }
.bold { font-weight: 700; } .italic { font-style: italic; }"""


@dataclass
class Screen:
    """The lines of a terminal, as far as rich moves on it."""

    rows: list[str] = field(default_factory=lambda: [""])
    at: int = 0

    def feed(self, text: str) -> None:
        """Take a piece of output."""
        end = 0
        for found in _CONTROL.finditer(text):
            self.rows[self.at] += text[end : found.start()]
            end = found.end()
            if found["verb"] == "A":
                self.at = max(0, self.at - int(found["count"] or 1))
            elif found["verb"] == "K":
                self.rows[self.at] = ""
            elif found[0].endswith("\n"):
                self.at += 1
                self.rows += [""] * (self.at + 1 - len(self.rows))
        self.rows[self.at] += text[end:]

    @property
    def end(self) -> int:
        """The number of lines, without empty ones at the end."""
        filled = [number for number, row in enumerate(self.rows) if row]
        return filled[-1] + 1 if filled else 0

    def view(self, end: int | None = None) -> tuple[str, ...]:
        """Return the lines before `end`, by default the last ones, as many as fit."""
        end = self.end if end is None else end
        return tuple(self.rows[max(0, end - ROWS) : end])


@dataclass(frozen=True)
class Frame:
    """What the terminal shows from `seconds` on."""

    seconds: float
    lines: tuple[str, ...]


def record() -> list[Frame]:
    """Run the demo in a terminal. Raises RuntimeError if the demo fails."""
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", ROWS, COLUMNS, 0, 0))
    environment = {**os.environ, "TERM": "xterm-256color", "COLORTERM": "truecolor", "COLUMNS": str(COLUMNS)}
    environment.pop("NO_COLOR", None)
    argv = (sys.executable, "-m", "thinklsp", "demo")
    began = time.monotonic()
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=slave, stderr=slave, env=environment) as process:
        os.close(slave)
        frames = list(_frames(master, began))
    os.close(master)
    if process.returncode != 0:
        raise RuntimeError(f"thinklsp demo ended with code {process.returncode}")
    first, length = frames[0].seconds, frames[-1].seconds - frames[0].seconds
    pace = min(1.0, LONGEST_SECONDS / length)
    return [Frame((each.seconds - first) * pace, each.lines) for each in frames]


def _frames(terminal: int, began: float) -> Iterator[Frame]:
    """Yield what is shown at the end of each slot of time, if it has changed.

    Lines that come faster than anybody could read them, such as a diff, are scrolled through at a reading pace.
    """
    screen, shown, end, slot, paused, rest = Screen(), (), 0, 0, 0.0, b""
    while True:
        try:
            data = os.read(terminal, 65_536)
        except OSError:  # Linux says so at the end.
            data = b""
        now = int((time.monotonic() - began) / FRAME_SECONDS)
        if (now > slot or not data) and screen.view() != shown:
            while screen.end > max(end, ROWS) + SCROLL_ROWS:
                end = max(end, ROWS) + SCROLL_ROWS
                yield Frame(slot * FRAME_SECONDS + paused, screen.view(end))
                paused += SCROLL_SECONDS
            shown, end = screen.view(), screen.end
            yield Frame(slot * FRAME_SECONDS + paused, shown)
        slot = now
        if not data:
            return
        rest += data
        # A character or a control sequence may be cut.
        whole = rest.rpartition(b"\x1b")[0] if b"\x1b" in rest[-8:] else rest
        text = whole.decode("utf-8", "ignore")
        rest = rest[len(text.encode()) :]
        screen.feed(text)


def draw(frames: Sequence[Frame]) -> str:
    """Return the animated SVG. The first frame begins at once, the last one is held; readers who have switched
    animations off see the last one only."""
    width = round(COLUMNS * _CELL) + 2 * _PADDING
    height = ROWS * _LINE + 2 * _PADDING + _BAR
    begin, total = frames[0].seconds, frames[-1].seconds - frames[0].seconds + HOLD_SECONDS
    lines = {line: number for number, line in enumerate(dict.fromkeys(line for each in frames for line in each.lines))}
    steps = "".join(
        f"{(each.seconds - begin) / total:.2%} {{ transform: translateY({-number * height}px); }}\n"
        for number, each in enumerate(frames)
    )
    strip = "\n".join(
        f'<g transform="translate(0 {number * height})">'
        + "".join(f'<use href="#l{lines[line]}" y="{row * _LINE}"/>' for row, line in enumerate(each.lines) if line)
        + "</g>"
        for number, each in enumerate(frames)
    )
    last = f"translateY({-(len(frames) - 1) * height}px)"
    known = "\n".join(f'<g id="l{number}">{_line(line)}</g>' for line, number in lines.items() if line)
    background, foreground = SVG_EXPORT_THEME.background_color.hex, SVG_EXPORT_THEME.foreground_color.hex
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<title>Recording of thinklsp demo</title>
<style>
{_STYLE}
text {{ fill: {foreground}; }}
#strip {{ transform: {last}; animation: play {total:.2f}s step-end infinite; }}
@keyframes play {{
{steps}100% {{ transform: {last}; }}
}}
@media (prefers-reduced-motion) {{ #strip {{ animation: none; }} }}
</style>
<defs>
<clipPath id="screen"><rect y="{_BAR}" width="{width}" height="{height - _BAR}"/></clipPath>
{known}
</defs>
<rect width="{width}" height="{height}" rx="8" fill="{background}"/>
<circle cx="20" cy="17" r="6" fill="#ff5f57"/><circle cx="40" cy="17" r="6" fill="#febc2e"/>
<circle cx="60" cy="17" r="6" fill="#28c840"/>
<g clip-path="url(#screen)"><g id="strip">
{strip}
</g></g>
</svg>
"""


def _line(line: str) -> str:
    """Draw one line: a text for each run of one style, fitted to the grid of the terminal."""
    drawn, column = [], 0
    for segment in Segment.simplify(_segments(line)):
        width = segment.cell_length
        if segment.text.strip():
            lead = len(segment.text) - len(segment.text.lstrip())
            text = segment.text.strip()
            x = _PADDING + (column + lead) * _CELL
            length = f' textLength="{len(text) * _CELL:.1f}"'
            place = f'x="{x:.1f}" y="{_BAR + _PADDING + _FONT}"{length}'
            drawn.append(f"<text {place}{_look(segment.style or Style())}>{escape(text)}</text>")
        column += width
    return "".join(drawn)


def _segments(line: str) -> list[Segment]:
    from rich.console import Console

    console = Console(width=COLUMNS * 2, color_system="truecolor", force_terminal=True)
    return [part for part in Text.from_ansi(line, no_wrap=True).render(console) if part.text != "\n"]


def _look(style: Style) -> str:
    names = [name for name in ("bold", "italic") if getattr(style, name)]
    look = f' class="{" ".join(names)}"' if names else ""
    if style.color is not None and not style.color.is_default:
        look += f' style="fill: {style.color.get_truecolor(SVG_EXPORT_THEME).hex}"'
    return look + (' opacity="0.6"' if style.dim else "")
