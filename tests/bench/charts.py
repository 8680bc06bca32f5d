"""Charts of the figures as SVG, without a library, for light and dark pages."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from pathlib import Path

WIDTH, LEFT, RIGHT, BAR, GAP, TOP = 720, 190, 90, 20, 9, 56
_STYLE = """
text { font: 13px system-ui, -apple-system, 'Segoe UI', sans-serif; fill: #1f2328 }
.title { font-size: 15px; font-weight: 600 }
.note { fill: #59636e; font-size: 12px }
.ours { fill: #0969da } .theirs { fill: #afb8c1 }
.line { stroke: #0969da; fill: none; stroke-width: 2.5 } .guide { stroke: #818b98; fill: none; stroke-dasharray: 4 4 }
.axis { stroke: #d1d9e0 }
@media (prefers-color-scheme: dark) {
  text { fill: #f0f6fc } .note { fill: #9198a1 }
  .ours { fill: #4493f8 } .theirs { fill: #656c76 }
  .line { stroke: #4493f8 } .guide { stroke: #9198a1 } .axis { stroke: #3d444d }
}
"""
Bars = Sequence[tuple[str, float]]


def draw(series: Mapping[str, Mapping[str, Sequence[float]]], folder: Path) -> list[str]:
    """Write the charts that have values and return their names."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, picture in _pictures(series):
        (folder / f"{name}.svg").write_text(picture, encoding="utf-8")
        written.append(name)
    return written


def _pictures(series: Mapping[str, Mapping[str, Sequence[float]]]) -> Iterator[tuple[str, str]]:
    if (starts := series.get("start")) is not None:
        title = "From the start to the answer of initialize"
        yield "start", bars(title, "milliseconds, median", [("", _medians(starts))])
    streams = [
        (name.removeprefix("streaming "), _medians(values))
        for name, values in series.items()
        if name.startswith("streaming ") and len(values) > 1 and "at" in name
    ]
    if streams:
        note = "microseconds, median; ours decoded, kept and reported"
        yield "streaming", bars("Processor time of one streamed event", note, streams)
    if (session := series.get("session")) is not None:
        note = "milliseconds so far; dashed: as at its beginning"
        yield "session", curve("Processor time of a session, turn by turn", note, session["thinklsp"])


def _medians(values: Mapping[str, Sequence[float]]) -> Bars:
    return sorted(((name, statistics.median(taken)) for name, taken in values.items()), key=lambda bar: bar[1])


def bars(title: str, note: str, groups: Sequence[tuple[str, Bars]]) -> str:
    """Draw a bar chart. Each group has a scale of its own, because only bars of one group are comparable."""
    y, parts = TOP, []
    for label, group in groups:
        longest = max(value for _, value in group)
        if label:
            parts.append(_text(0, y + 13, label, "note"))
            y += BAR
        for name, value in group:
            width = max(1.5, value / longest * (WIDTH - LEFT - RIGHT))
            kind = "ours" if name == "thinklsp" else "theirs"
            parts.append(_text(LEFT - 10, y + 14, name, anchor="end"))
            parts.append(f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{width:.1f}" height="{BAR}" rx="3"/>')
            parts.append(_text(LEFT + width + 8, y + 14, _figure(value)))
            y += BAR + GAP
        y += GAP
    told = "; ".join(f"{name} {_figure(value)}" for _, group in groups for name, value in group)
    return _picture(title, note, y, parts, told)


def curve(title: str, note: str, values: Sequence[float]) -> str:
    height, count, most = 220, len(values), max(values)
    early = max(1, count // 4)
    expected = values[early - 1] / early * count
    top = max(most, expected)

    def at(turn: float, value: float) -> str:
        return f"{LEFT / 4 + turn / count * (WIDTH - LEFT / 4 - RIGHT):.1f},{TOP + height - value / top * height:.1f}"

    points = " ".join([at(0, 0), *(at(turn, value) for turn, value in enumerate(values, 1))])
    floor = f'<line class="axis" x1="{LEFT / 4}" x2="{WIDTH - RIGHT}" y1="{TOP + height}" y2="{TOP + height}"/>'
    x, y = at(count, most).split(",")
    parts = [
        floor,
        f'<polyline class="guide" points="{at(0, 0)} {at(count, expected)}"/>',
        f'<polyline class="line" points="{points}"/>',
        _text(float(x) + 8, float(y) + 4, f"{_figure(most)} ms"),
        _text(LEFT / 4, TOP + height + 18, "first turn", "note"),
        _text(WIDTH - RIGHT, TOP + height + 18, f"turn {count}", "note", "end"),
    ]
    return _picture(title, note, TOP + height + 30, parts, f"{_figure(most)} ms after {count} turns")


def _figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.2f}"


def _text(x: float, y: float, words: str, kind: str = "", anchor: str = "start") -> str:
    named = f' class="{kind}"' if kind else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{named} text-anchor="{anchor}">{escape(words)}</text>'


def _picture(title: str, note: str, height: float, parts: Sequence[str], told: str) -> str:
    head = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height:.0f}" role="img"',
        f'  width="{WIDTH}" height="{height:.0f}">',
        f"<title>{escape(title)}</title>",
        f"<desc>{escape(note)}: {escape(told)}</desc>",
        f"<style>{_STYLE}</style>",
        _text(0, 18, title, "title"),
        _text(0, 38, note, "note"),
    ]
    return "\n".join([*head, *parts, "</svg>", ""])
