"""Shared parts of all rows: measurement of variants in turn, ratios, growth exponents, figures and their verdicts.

Each round runs each variant once, one after the other. A ratio is the median of the ratios of the rounds, so that other
load on the machine affects both sides of a ratio.
"""

from __future__ import annotations

import inspect
import math
import os
import statistics
import subprocess
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from tests.bench.peers import Peers

ROOT = Path(__file__).parents[2]
# The checkout whose server and clients are measured. `before` sets it to compare two checkouts.
TREE = Path(os.environ.get("BENCH_TREE", ROOT))
# A ratio of times counts as missed only above this multiple of its target, because machines differ.
WIDE = 1.5

Measured = float | Awaitable[float]
Verdict = Literal["met", "near", "missed", ""]
Outcome = Literal["measured", "skipped", "failed"]


class Unavailable(Exception):
    """Raised if a tool or peer is missing. The message names it and how to install it."""


@dataclass(frozen=True)
class Figure:
    """One line of the table.

    `ours`, `theirs`: the values of each round, in `unit`. `value` is compared with `most` or `least`; without either,
    the line is for information. `is_gate`: exceeding the limit fails the run. That applies to counts and exponents,
    which are the same on every machine, and to the ratios in `gates`. `note` contains the reason if `outcome` is not
    "measured".
    """

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
            "row": self.row, "name": self.name, "unit": self.unit, "ours": spread(self.ours), "against": self.against,
            "theirs": spread(self.theirs), "value": self.value, "valueUnit": self.value_unit, "most": self.most,
            "least": self.least, "isGate": self.is_gate, "outcome": self.outcome, "verdict": self.verdict,
            "note": self.note,
        }  # fmt: skip


@dataclass
class Bench:
    """The parameters of a row: a folder of its own, the number of rounds, and the peers."""

    folder: Path
    rounds: int
    quick: bool
    peers: Peers

    def some(self, most: int) -> int:
        """Return the number of rounds for a slow measurement: at most `most`."""
        return max(1, min(self.rounds, most))


Row = Callable[[Bench], Awaitable[list[Figure]]]


def spread(values: Sequence[float]) -> list[float] | None:
    """Return minimum, median and maximum."""
    return [min(values), statistics.median(values), max(values)] if values else None


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    return statistics.median(one / other for one, other in zip(ours, theirs, strict=True) if other > 0)


def exponent(sizes: Sequence[float], costs: Sequence[float]) -> float:
    """Return the growth exponent: 1 if the costs are proportional to the sizes, 2 if they are quadratic."""
    points = [(math.log(size), math.log(max(cost, 1e-9))) for size, cost in zip(sizes, costs, strict=True)]
    slope, _ = statistics.linear_regression(*zip(*points, strict=True))
    return slope


async def in_turn(
    variants: Mapping[str, Callable[[], Measured]], rounds: int, *, warm: bool = True
) -> tuple[dict[str, list[float]], dict[str, str]]:
    """Return the values of each variant by round, and the reasons of missing variants. `warm`: add a first round that
    does not count, because code is compiled and files are read in it."""
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
    """Return a figure for each peer with the ratio of thinklsp to it. A missing peer gives a skipped figure.

    Raises RuntimeError if thinklsp itself could not be measured.
    """
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


def compared_memory(
    row: str, name: str, memory: Mapping[str, Sequence[float]], peer: str, *, own: str = "thinklsp", **more: Any
) -> Figure:
    """Return a figure for the memory of thinklsp and a peer, without the first run of each, which is a warm-up."""
    ours, theirs = memory[own][1:], memory[peer][1:]
    return Figure(row, name, "MB", ours, theirs, peer, ratio(ours, theirs), **more)


async def elapsed(work: Awaitable[object]) -> float:
    """Wait for `work` and return the milliseconds that it took."""
    begun = time.perf_counter()
    await work
    return (time.perf_counter() - begun) * 1000


def cpu_elapsed(work: Callable[[], object]) -> float:
    """Run `work` and return its processor time in milliseconds."""
    begun = time.process_time()
    work()
    return (time.process_time() - begun) * 1000


def describe(problem: BaseException) -> str:
    """Return the kind of an exception and the first line of its message."""
    lines = str(problem).strip().splitlines()
    return f"{type(problem).__name__}: {lines[0]}"[:200] if lines else type(problem).__name__


def find_reason(errors: str) -> str:
    """Return the last line of the standard error of a failed process."""
    return errors.strip().rpartition("\n")[2][:160]


def clean_environment(**more: str) -> dict[str, str]:
    """Return the environment of a child process, without variables that configure Python or thinklsp."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "THINKLSP_", "NODE_"))}
    for name in ("ANTHROPIC_API_KEY", "OPENAI_API_KEY", "GEMINI_API_KEY", "COVERAGE_PROCESS_START"):
        kept.pop(name, None)
    return kept | more


def cpu_seconds(process_id: int) -> float:
    """Return the processor time of a process, from its kernel clock. `/proc` has a resolution of only 10 ms."""
    return time.clock_gettime(~process_id << 3 | 2)


def resident_megabytes(process_id: int) -> float:
    """Return the resident memory of a process and its descendants, in MB."""
    total = 0.0
    for line in Path(f"/proc/{process_id}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            total = int(line.split()[1]) / 1024
    for task in Path(f"/proc/{process_id}/task").iterdir():
        for child in (task / "children").read_text().split():
            total += resident_megabytes(int(child))
    return total
