"""Checks at the end of each fault: the server answers, nothing is left behind or leaked, and the store is sound.

`faulty` is a server for one row of the table. Shares no code with the product.
"""

from __future__ import annotations

import os
import re
import sqlite3
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Self

import pytest

from tests.support.client.actions import ResponseError
from tests.support.outside import ROOT, Outside, start
from tests.support.watching import seen

CLOCK = ROOT / "tests" / "faults" / "clock"


def clock(speed: float = 1, **jump: float) -> dict[str, str]:
    """Return the variables of a server whose clock runs faster or jumps."""
    named = {f"CLOCK_{name.upper()}": str(value) for name, value in jump.items()}
    return {"PYTHONPATH": f"{CLOCK}{os.pathsep}{ROOT}", "CLOCK_SPEED": str(speed), **named}


@asynccontextmanager
async def faulty(place: Path, *script: Any, code: int | None = None, **how: Any) -> AsyncIterator[Outside]:
    """Start a server, and check its end. `code`: the exit code of a server that the test itself ends."""
    outside = await start(place, *script, **how)
    try:
        yield outside
        if code is None:
            await check_answers(outside)
            await check_no_children(outside.client.process.pid)
            await outside.finish()
        else:
            assert await outside.client.gone() == code
            assert [str(leak) for leak in outside.leaks()] == []
        await check_left_behind(outside)
    finally:
        await outside.stop()


async def check_answers(outside: Outside) -> None:
    """Check that the server answers a request and reads its store."""
    with pytest.raises(ResponseError) as unknown:
        await outside.client.request("thinklsp/echo", {})
    assert unknown.value.code == -32601
    assert isinstance(await outside.client.command("thinklsp.sessions", {"op": "list"}), list)


async def check_no_children(process: int) -> None:
    await seen(lambda: not children(process), what="the end of all children")


async def check_left_behind(outside: Outside) -> None:
    """Check that no process is left and that the database is sound."""
    place = str(outside.home.parent)
    await seen(lambda: not living_in(place), what=f"the end of what lived in {place}")
    assert check_store(outside.home) in ("ok", "none")


def check_store(home: Path) -> str:
    """Return SQLite's verdict on the store, or `none` if there is no store."""
    path = home / "state" / "sessions" / "sessions.db"
    if not path.is_file() or not path.stat().st_size:
        return "none"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        [[verdict]] = connection.execute("PRAGMA integrity_check").fetchall()
        connection.execute("SELECT count(*) FROM session").fetchone()
    return str(verdict)


def children(process: int) -> list[int]:
    """Return the running children of a process."""
    found = []
    for task in _listed(Path(f"/proc/{process}/task")):
        try:
            found += [int(child) for child in (task / "children").read_text().split()]
        except OSError:
            continue  # It has just ended.
    return found


def living_in(place: str) -> list[int]:
    """Return the processes that work below `place`, or have it in their arguments or environment, except this one."""
    found = []
    for process in _listed(Path("/proc")):
        if not process.name.isdigit() or int(process.name) == os.getpid():
            continue
        try:
            inside = os.readlink(process / "cwd").startswith(place)
            given = any(place.encode() in (process / name).read_bytes() for name in ("cmdline", "environ"))
        except OSError:
            continue  # It has ended, or belongs to somebody else.
        if inside or given:
            found.append(int(process.name))
    return found


def _listed(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []


def descendants(process: int) -> list[int]:
    """Return the children of a process, their children, and so on."""
    found = children(process)
    return found + [below for child in found for below in descendants(child)]


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
    """Measure a process. Raises OSError if it has ended."""
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
    """Return the smallest value that at least this share of the values does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


WITNESS = """
import asyncio, gc, logging, os, runpy, signal, sys, threading
# The server keeps asyncio's own log to itself: it could hold bodies. Here it tells of tasks that nobody looks after.
asyncio.base_events.logger = logging.getLogger("witness")
def count(*_):
    gc.collect()
    kinds = ("thinklsp.lsp.server.ThinkLspServer", "thinklsp.lsp.assistant.Assistant")
    kinds += ("thinklsp.sessions.failover.Failover",)
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
        """Return the counts in a log, the oldest first."""
        size = len(fields(cls))
        return [cls(*map(int, line.split()[:size])) for line in _LINE.findall(log)]


def without_counts(log: str) -> str:
    """Return the server's own lines of a log."""
    return _LINE.sub("", log)


async def counted(ask: Callable[[], Any], log: Callable[[], str], wait_for: Callable[..., Any]) -> Count:
    """Send the signal by `ask`, wait by `wait_for` for the answer in the log, and return it."""
    before = len(Count.all_in(log()))
    ask()
    await wait_for(lambda: len(Count.all_in(log())) > before, what="the figures")
    return Count.all_in(log())[-1]
