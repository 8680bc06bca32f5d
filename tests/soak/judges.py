"""The limits of a soak test. Each function gets samples or a log and returns the findings as sentences.

The first part of a run is a warm-up, with which the rest is compared. Growth of memory is measured per chat, so that a
run with more frequent chats takes less time.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from tests.support.epilogue import Count, Gauge

WARM = 1 / 3
MOST_GROWTH = 8.0
CHATS_AN_HOUR = 180
# At most 3 MB in eight hours.
MOST_AN_HOUR = 3 / 8
# With fewer chats there is no reliable slope: the allocator requests and releases whole megabytes.
_TELLING = 600
MOST_OBJECTS = 2.0
# The objects in bounded caches that are filled only after the warm-up of a short run.
_CACHED_OBJECTS = 1_500
SWING = 2
SIGNS = re.compile(
    r"Traceback|was destroyed but it is pending|never retrieved|never awaited|ResourceWarning|Exception ignored"
    r"|unhandled|a background task failed"
)


@dataclass(frozen=True)
class Sample:
    """The resources of the server at one time. `minute`: since the start. `chats`: the number of chats so far."""

    minute: float
    chats: int
    gauge: Gauge
    count: Count


def warm(samples: Sequence[Sample]) -> Sequence[Sample]:
    """Return the samples after the warm-up."""
    return [sample for sample in samples if sample.minute >= WARM * samples[-1].minute]


def slope(points: Sequence[tuple[float, float]]) -> float:
    """Return the slope of the linear regression, or 0 if all x are equal."""
    if len({x for x, _ in points}) < 2:
        return 0.0
    return statistics.linear_regression(*zip(*points, strict=True)).slope


def judge(samples: Sequence[Sample]) -> list[str]:
    """Return a sentence for each value that grows or varies too much."""
    later = warm(samples)
    first, last = later[0], later[-1]
    wrong = []
    growth = last.gauge.private - first.gauge.private
    if growth > MOST_GROWTH:
        wrong.append(f"memory grew by {growth:.1f} MB after the warm-up; {MOST_GROWTH:.0f} are allowed")
    if (chats := last.chats - first.chats) >= _TELLING and (an_hour := hourly(later)) > MOST_AN_HOUR:
        wrong.append(f"memory grows by {an_hour:.2f} MB in {CHATS_AN_HOUR} chats; {MOST_AN_HOUR:.2f} are allowed")
    allowed = MOST_OBJECTS + _CACHED_OBJECTS / max(1, chats)
    if (objects := slope([(s.chats, s.count.objects) for s in later])) > allowed:
        wrong.append(f"each chat leaves {objects:.1f} objects behind; {allowed:.1f} are allowed")
    for name, values in constants(later).items():
        if max(values) - min(values) > 2 * SWING or values[-1] - values[0] > SWING:
            wrong.append(f"{name} went from {values[0]} to {values[-1]} ({min(values)} to {max(values)})")
    return wrong


def hourly(later: Sequence[Sample]) -> float:
    """Return the growth of memory in MB per hour at `CHATS_AN_HOUR`."""
    return CHATS_AN_HOUR * slope([(s.chats, s.gauge.private) for s in later])


def constants(later: Sequence[Sample]) -> dict[str, list[int]]:
    """Return the values that must be constant, because samples are taken while the server has no work."""
    return {
        "descriptors": [sample.gauge.descriptors for sample in later],
        "threads": [sample.gauge.threads for sample in later],
        "children": [sample.gauge.children for sample in later],
        "tasks": [sample.count.tasks for sample in later],
        "servers": [sample.count.kept for sample in later],
    }


def complaints(log: str) -> list[str]:
    """Return the lines of a log that report unhandled errors or leaks, one for each kind."""
    found: dict[str, str] = {}
    for line in log.splitlines():
        if match := SIGNS.search(line):
            found.setdefault(match[0], f"the log says: {line[:200]}")
    return list(found.values())


def table(samples: Sequence[Sample]) -> str:
    head = f"{'minute':>7}{'chats':>7}{'RSS MB':>9}{'own MB':>9}{'objects':>9}{'tasks':>7}{'fds':>5}{'threads':>9}"
    rows = [f"{head}{'children':>10}{'CPU s':>8}{'wake-ups':>10}"]
    for sample in thinned(samples):
        gauge, count = sample.gauge, sample.count
        rows.append(
            f"{sample.minute:>7.1f}{sample.chats:>7}{gauge.resident:>9.1f}{gauge.private:>9.1f}{count.objects:>9}"
            f"{count.tasks:>7}{gauge.descriptors:>5}{gauge.threads:>9}{gauge.children:>10}{gauge.processor:>8.1f}"
            f"{gauge.wakeups:>10}"
        )
    return "\n".join(rows)


def thinned(samples: Sequence[Sample], most: int = 40) -> Sequence[Sample]:
    step = -(-len(samples) // most)
    return [*samples[:-1:step], samples[-1]]
