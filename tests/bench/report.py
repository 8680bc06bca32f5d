"""The figures as a table, for a terminal and for docs/performance.md."""

from __future__ import annotations

import os
import platform
import statistics
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from tests.bench.measure import ROOT, Figure, spread

BEGIN, END = "<!-- speed: begin -->", "<!-- speed: end -->"
PAGE = ROOT / "docs" / "performance.md"


def table(figures: Sequence[Figure]) -> Iterator[str]:
    yield f"{'row':<7}{'what':<56}{'thinklsp: min / median / max':>31}  {'against':<24}{'there':>10}  value"
    for figure in figures:
        ours, theirs = " / ".join(map(_short, spread(figure.ours) or [])), _median(figure.theirs)
        unit = f" {figure.unit}" if figure.ours else ""
        value = "" if figure.value is None else f"{_short(figure.value)}{figure.value_unit}"
        line = f"{figure.row:<7}{figure.name:<56}{ours + unit:>31}  {figure.against:<24}{theirs:>10}  {value}"
        word = figure.verdict if figure.outcome == "measured" else figure.outcome
        yield f"{line} {_target(figure)} {word.upper()} {figure.note}".rstrip()


def written(figures: Sequence[Figure], page: Path) -> None:
    """Write the table between the marks of the page."""
    text = page.read_text("utf-8")
    head, found, rest = text.partition(BEGIN)
    _, ends, tail = rest.partition(END)
    if not (found and ends):
        raise SystemExit(f"{page} has no {BEGIN} … {END}")
    body = "\n".join(_markdown(figures))
    page.write_text(f"{head}{BEGIN}\n{body}\n{END}{tail}", "utf-8")


def _markdown(figures: Sequence[Figure]) -> Iterator[str]:
    cores = os.cpu_count()
    machine = f"{platform.system()} {platform.machine()}, {cores} cores, Python {platform.python_version()}"
    yield f"Measured {datetime.now(UTC):%Y-%m-%d} on {machine}, in one run. ● within its target, ○ not.\n"
    yield "| | thinklsp | compared with | its value | share (target) |\n|---|---:|---|---:|---|"
    for figure in figures:
        if figure.value is None:
            continue
        ours = f"{_median(figure.ours)} {figure.unit}" if figure.ours else f"{_short(figure.value)}{figure.value_unit}"
        theirs = f"{_median(figure.theirs)} {figure.unit}" if figure.theirs else ""
        mark = {"met": "●", "near": "○", "missed": "○", "": ""}[figure.verdict]
        share = f"{_short(figure.value)}{figure.value_unit.replace('x', ' ×')}" if figure.ours else ""
        verdict = f"{share} {_target(figure)} {mark}".strip()
        yield f"| {figure.name} | {ours} | {figure.against} | {theirs} | {verdict} |"
    if unmeasured := [figure for figure in figures if figure.outcome != "measured"]:
        yield "\nNot measured:\n"
        yield from (f"- {_name(figure)}: {figure.note}" for figure in unmeasured)


def describe_failure(figure: Figure) -> str:
    """Return one line with the row and the reason of its failure."""
    if figure.outcome == "failed":
        return f"row {figure.row}, {figure.name} could not be measured: {figure.note}"
    value = "" if figure.value is None else f"{_short(figure.value)}{figure.value_unit}"
    return f"row {figure.row}, {_name(figure)}: {value} {_target(figure)}"


def _name(figure: Figure) -> str:
    return f"{figure.name}, against {figure.against}" if figure.against else figure.name


def _target(figure: Figure) -> str:
    if figure.most is not None:
        return f"(≤ {figure.most:g})"
    return "" if figure.least is None else f"(≥ {figure.least:g})"


def _median(values: Sequence[float]) -> str:
    return _short(statistics.median(values)) if values else ""


def _short(value: float) -> str:
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.3g}"
