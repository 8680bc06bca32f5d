"""What a process takes, read in /proc from outside: memory, descriptors, threads, children, processor, wake-ups.

Shares no code with the product.
"""

from __future__ import annotations

import os
import re
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

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


WITNESS = """
import asyncio, gc, logging, os, runpy, signal, sys, threading
# The server keeps asyncio's own log to itself: it could hold bodies. Here it tells of tasks that nobody looks after.
asyncio.base_events.logger = logging.getLogger("witness")
def count(*_):
    gc.collect()
    kinds = ("thinklsp.lsp.server.ThinkLspServer", "thinklsp.lsp.assistant.Assistant")
    kinds += ("thinklsp.sessions.sqlite_store.SqliteDatabase",)
    names = [f"{type(one).__module__}.{type(one).__name__}" for one in gc.get_objects()]
    kept = sum(name in kinds for name in names)
    figures = len(asyncio.all_tasks()), len(os.listdir("/proc/self/fd")), threading.active_count(), kept, len(names)
    os.write(2, ("counted: %d %d %d %d %d\\n" % figures).encode())
signal.signal(signal.SIGUSR1, count)
sys.argv = ["thinklsp", *sys.argv[1:]]
runpy.run_module("thinklsp", run_name="__main__", alter_sys=True)
"""
WITNESSED = (sys.executable, "-W", "always::ResourceWarning", "-c", WITNESS)
_LINE = re.compile(r"counted: (.*)\n")


@dataclass(frozen=True)
class Count:
    """`kept`: servers and what else there is one of for each client. `objects`: all that the collector knows of."""

    tasks: int
    descriptors: int
    threads: int
    kept: int
    objects: int

    @classmethod
    def all_in(cls, log: str) -> list[Self]:
        """What was said so far, oldest first."""
        size = len(fields(cls))
        return [cls(*map(int, line.split()[:size])) for line in _LINE.findall(log)]


def without_counts(log: str) -> str:
    """What the server itself has said."""
    return _LINE.sub("", log)


async def counted(ask: Callable[[], Any], log: Callable[[], str], wait_for: Callable[..., Any]) -> Count:
    """`ask` sends the signal. `wait_for` waits for what it is given to become true."""
    before = len(Count.all_in(log()))
    ask()
    await wait_for(lambda: len(Count.all_in(log())) > before, what="the figures")
    return Count.all_in(log())[-1]
