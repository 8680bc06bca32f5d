"""The screen of a Neovim, as it draws it for an attached interface: text for whoever looks for a failure, and a picture
for the documentation."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from itertools import groupby
from typing import Any

_FONT, _CELL, _LINE, _PADDING, _BAR = 14, 8.4, 19, 16, 30
_STYLE = """\
text { font: 14px ui-monospace, SFMono-Regular, Menlo, Consolas, "DejaVu Sans Mono", monospace; white-space: pre; }
.bold { font-weight: 700; } .italic { font-style: italic; }"""


class Screen:
    """Takes the events of `ext_linegrid`."""

    def __init__(self) -> None:
        self._cells: list[list[tuple[str, int]]] = []
        self._looks: dict[int, dict[str, Any]] = {}
        self._colours = (0, 0)

    def feed(self, events: Sequence[Sequence[Any]]) -> None:
        for name, *calls in events:
            take = getattr(self, f"_take_{name}", None)
            for call in calls if take else ():
                take(*call)

    def text(self) -> str:
        return "\n".join("".join(char for char, _ in row).rstrip() for row in self._cells)

    def draw(self, title: str) -> str:
        """The screen as SVG."""
        columns, rows = len(self._cells[0]), len(self._cells)
        width, height = round(columns * _CELL) + 2 * _PADDING, rows * _LINE + 2 * _PADDING + _BAR
        foreground, background = self._colours
        lines = "\n".join(self._draw_row(number, row) for number, row in enumerate(self._cells))
        return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}">
<title>{escape(title)}</title>
<style>
{_STYLE}
text {{ fill: #{foreground:06x}; }}
</style>
<rect width="{width}" height="{height}" rx="8" fill="#{background:06x}"/>
<circle cx="20" cy="17" r="6" fill="#ff5f57"/><circle cx="40" cy="17" r="6" fill="#febc2e"/>
<circle cx="60" cy="17" r="6" fill="#28c840"/>
{lines}
</svg>
"""

    def _draw_row(self, number: int, row: Sequence[tuple[str, int]]) -> str:
        drawn: list[str] = []
        column, y = 0, _BAR + _PADDING + number * _LINE
        for look, cells in groupby(row, key=lambda cell: cell[1]):
            text = "".join(char for char, _ in cells)
            x, length = _PADDING + column * _CELL, len(text) * _CELL
            column += len(text)
            ink, paper = self._ink_and_paper(look)
            if paper != self._colours[1]:
                place = f'x="{x:.1f}" y="{y}" width="{length:.1f}" height="{_LINE}"'
                drawn.append(f'<rect {place} fill="#{paper:06x}"/>')
            if text.strip():
                lead, shown = len(text) - len(text.lstrip()), text.strip()
                place = f'x="{x + lead * _CELL:.1f}" y="{y + _FONT}" textLength="{len(shown) * _CELL:.1f}"'
                names = [name for name in ("bold", "italic") if self._looks.get(look, {}).get(name)]
                style = f' class="{" ".join(names)}"' if names else ""
                drawn.append(f'<text {place}{style} style="fill: #{ink:06x}">{escape(shown)}</text>')
        return "".join(drawn)

    def _ink_and_paper(self, look: int) -> tuple[int, int]:
        found = self._looks.get(look, {})
        ink, paper = found.get("foreground", self._colours[0]), found.get("background", self._colours[1])
        return (paper, ink) if found.get("reverse") else (ink, paper)

    def _take_grid_resize(self, _grid: int, width: int, height: int) -> None:
        self._cells = [[(" ", 0)] * width for _ in range(height)]

    def _take_grid_clear(self, _grid: int) -> None:
        self._cells = [[(" ", 0)] * len(row) for row in self._cells]

    def _take_default_colors_set(self, ink: int, paper: int, *_: int) -> None:
        self._colours = (ink, paper)

    def _take_hl_attr_define(self, number: int, look: dict[str, Any], *_: Any) -> None:
        self._looks[number] = look

    def _take_grid_line(self, _grid: int, row: int, column: int, cells: Sequence[Sequence[Any]], *_: Any) -> None:
        look = 0
        for char, *more in cells:
            look = more[0] if more else look
            for _repeat in range(more[1] if len(more) > 1 else 1):
                self._cells[row][column] = (char, look)
                column += 1

    def _take_grid_scroll(self, _grid: int, top: int, end: int, left: int, right: int, rows: int, *_: int) -> None:
        numbers = range(top, end - rows) if rows > 0 else range(end - 1, top - rows - 1, -1)
        for row in numbers:
            self._cells[row][left:right] = self._cells[row + rows][left:right]
