"""What a process takes, read in /proc from outside: memory, descriptors, threads, children, processor, wake-ups.

Shares no code with the product.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from tests.support.epilogue import children

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Gauge:
    """One look. `at` is monotonic, `processor` the seconds of it used so far, `wakeups` how often a thread of it has
    been given one. `resident` and `private` are megabytes; files that are mapped do not count as private."""

    at: float
    resident: float
    private: float
    descriptors: int
    threads: int
    children: int
    processor: float
    wakeups: int


def gauge(process: int) -> Gauge:
    """Raises OSError where there is no such process, or only its exit code is left."""
    folder = Path(f"/proc/{process}")
    status = _numbers((folder / "status").read_text())
    if "VmRSS" not in status:
        raise ProcessLookupError(f"process {process} has ended")
    used = (folder / "stat").read_text().rpartition(")")[2].split()
    return Gauge(
        at=time.monotonic(),
        resident=status["VmRSS"] / 1024,
        private=status["RssAnon"] / 1024,
        descriptors=len(os.listdir(folder / "fd")),
        threads=status["Threads"],
        children=len(children(process)),
        processor=(int(used[11]) + int(used[12])) / _TICKS,
        wakeups=sum(_switches(task) for task in (folder / "task").iterdir()),
    )


def _switches(task: Path) -> int:
    """A thread may have ended since it was listed."""
    try:
        return _numbers((task / "status").read_text())["voluntary_ctxt_switches"]
    except OSError:
        return 0


def _numbers(text: str) -> dict[str, int]:
    lines = (line.partition(":") for line in text.splitlines())
    return {name: int(rest.split()[0]) for name, _, rest in lines if rest.split()[:1] and rest.split()[0].isdecimal()}


def percentile(values: list[float], share: float) -> float:
    """`share` of the values are no greater."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
