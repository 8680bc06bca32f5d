"""The real server with a witness beside it: on SIGUSR1 it says on stderr what no file in /proc tells.

The witness comes with the command line, so that nothing in the product knows of it.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Self

WITNESS = """
import asyncio, gc, logging, os, runpy, signal, sys, threading
# The server keeps asyncio's own log to itself: it could hold bodies. Here it tells of tasks that nobody looks after.
asyncio.base_events.logger = logging.getLogger("witness")
def count(*_):
    gc.collect()
    kinds = ("thinklsp.lsp.server.Server", "thinklsp.lsp.face.Face", "thinklsp.sessions.failover.Failover")
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
    await wait_for(lambda: len(Count.all_in(log())) > before, within=60.0, what="the figures")
    return Count.all_in(log())[-1]
