"""What all rows share: variants measured in turn, their ratios, growth exponents, and figures with their verdict.

In every round each variant runs once, one after the other, and a ratio is the median of the ratios of the rounds: what
else runs on the machine is then in both of its sides.
"""

from __future__ import annotations

import inspect
import math
import os
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from tests.bench.peers import Peers

ROOT = Path(__file__).parents[2]
# The checkout whose server and clients are measured, if that is not this one: see `before`.
TREE = Path(os.environ.get("BENCH_TREE", ROOT))
# A ratio of times is only told of as missed where it is this much over its target: machines differ.
WIDE = 1.5

Measured = float | Awaitable[float]
Verdict = Literal["met", "near", "missed", ""]
Outcome = Literal["measured", "skipped", "failed"]


class Unavailable(Exception):
    """A tool or peer that is missing here; `str` says which one and how to get it."""


@dataclass(frozen=True)
class Figure:
    """One line of the table. `ours` and `theirs`: what was measured round by round, in `unit`. `value` is what is held
    against `most` (or `least`); without either the line is for information. `is_gate`: a miss fails the run. That holds
    for counts and exponents, which are the same on every machine, and for the ratios in `gates`. A line whose `outcome`
    is not "measured" has the reason in `note`."""

    row: str
    name: str
    unit: str = "ms"
    ours: Sequence[float] = ()
    theirs: Sequence[float] = ()
    against: str = ""
    value: float | None = None
    value_unit: str = "x"
    most: float | None = None
    least: float | None = None
    is_gate: bool = False
    note: str = ""
    outcome: Outcome = "measured"

    @property
    def verdict(self) -> Verdict:
        if self.value is None or (self.most is None and self.least is None):
            return ""
        if self._holds(1.0):
            return "met"
        return "missed" if self.is_gate or not self._holds(WIDE) else "near"

    @property
    def failed(self) -> bool:
        return self.outcome == "failed" or (self.is_gate and self.verdict == "missed")

    def _holds(self, leeway: float) -> bool:
        assert self.value is not None
        under = self.most is None or self.value <= self.most * leeway
        return under and (self.least is None or self.value >= self.least / leeway)

    def json(self) -> dict[str, object]:
        return {
            "row": self.row,
            "name": self.name,
            "unit": self.unit,
            "ours": spread(self.ours),
            "against": self.against,
            "theirs": spread(self.theirs),
            "value": self.value,
            "valueUnit": self.value_unit,
            "most": self.most,
            "least": self.least,
            "isGate": self.is_gate,
            "outcome": self.outcome,
            "verdict": self.verdict,
            "note": self.note,
        }


@dataclass
class Bench:
    """What a row is given: a folder of its own, how often to measure, and where the others are. `series` is what the
    charts are drawn from."""

    folder: Path
    rounds: int
    quick: bool
    peers: Peers
    series: dict[str, dict[str, list[float]]] = field(default_factory=dict)

    def some(self, most: int) -> int:
        """Rounds of what takes long."""
        return max(1, min(self.rounds, most))


Row = Callable[[Bench], Awaitable[list[Figure]]]


def spread(values: Sequence[float]) -> list[float] | None:
    """Least, median and most."""
    return [min(values), statistics.median(values), max(values)] if values else None


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(ours, theirs, strict=True) if other > 0)


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """By how much costs grow with sizes: 1 where twice as much costs twice as much, 2 where it costs four times."""
    points = [(math.log(size), math.log(max(cost, 1e-9))) for size, cost in zip(sizes, costs, strict=True)]
    slope, _ = statistics.linear_regression(*zip(*points, strict=True))
    return slope


async def in_turn(
    variants: Mapping[str, Callable[[], Measured]], rounds: int, *, warm: bool = True
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """What each variant took, round by round, and why others are missing. `warm`: a first round does not count: in it
    code is compiled and files are read."""
    values: dict[str, list[float]] = {name: [] for name in variants}
    missing: dict[str, str] = {}
    for number in range(-1 if warm else 0, rounds):
        for name, measure in variants.items():
            if name in missing:
                continue
            try:
                value = measure()
                taken = await value if inspect.isawaitable(value) else value
            except Unavailable as problem:
                missing[name] = str(problem)
                continue
            except (OSError, EOFError, subprocess.SubprocessError) as problem:
                missing[name] = f"{name} could not be run: {describe(problem)}"
                continue
            if number >= 0:
                values[name].append(taken)
    return {name: taken for name, taken in values.items() if name not in missing}, missing


def compared(
    row: str,
    what: str,
    values: Mapping[str, Sequence[float]],
    missing: Mapping[str, str],
    targets: Mapping[str, float | None],
    *,
    unit: str = "ms",
    ours: str = "thinklsp",
) -> list[Figure]:
    """A line for each peer: our ratio to it. A peer that is missing is a line that says so; without our own side
    RuntimeError."""
    if ours in missing:
        raise RuntimeError(f"{what}: {ours} could not be measured: {missing[ours]}")
    figures = []
    for peer, most in targets.items():
        if peer in missing:
            figures.append(Figure(row, what, unit, values[ours], against=peer, note=missing[peer], outcome="skipped"))
        elif peer in values:
            found = ratio(values[ours], values[peer])
            figures.append(Figure(row, what, unit, values[ours], values[peer], peer, found, most=most))
    return figures


def describe(problem: BaseException) -> str:
    """Return the kind of an exception and the first line of its message."""
    lines = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0]}"[:200] if lines else type(problem).__name__


def find_reason(errors: str) -> str:
    """Return the last line of what a failed process has written to its standard error."""
    return errors.strip().rpartition("\n")[2][:160]


def clean_environment(**more: str) -> dict[str, str]:
    """Of a child: nothing that tells Python or a server of ours how to behave."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "THINKLSP_", "NODE_"))}
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "COVERAGE_PROCESS_START"):
        kept.pop(name, None)
    return kept | more


def cpu_seconds(process_id: int) -> float:
    """Of a process so far, by the kernel's clock of it: `/proc` counts in hundredths of a second."""
    return time.clock_gettime(~process_id << 3 | 2)


def resident_megabytes(process_id: int) -> float:
    """Of a process and all below it."""
    total = 0.0
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            total = int(line.split()[1]) / 1024
    for task in Path(f"/proc/{process_id}/task").iterdir():
        for child in (task / "children").read_text().split():
            total += resident_megabytes(int(child))
    return total
