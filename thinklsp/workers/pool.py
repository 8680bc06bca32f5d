"""Calls of functions in worker processes: at most two at once, killed at their time limit and when they are cancelled.

Each thread of the pool keeps one process for its next call, since starting one takes 40 ms. A process ends with ours,
because its input ends, and is replaced when it was killed or has been idle.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import PurePath
from typing import IO, Any, ParamSpec, TypeVar, cast

from thinklsp.workers import child

_LOG = logging.getLogger(__name__)
_AT_ONCE = 2
# Well before the process ends itself.
_MAX_IDLE_SECONDS = child.IDLE_SECONDS / 2
_ARGV = (sys.executable, "-I", "-S", str(PurePath(child.__file__)))
_ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}

# One for the process: it keeps nothing of any client. Threads and processes start with the first call.
_pool = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="thinklsp-workers")
_own = threading.local()

Given = ParamSpec("Given")
Answer = TypeVar("Answer")


class WorkFailed(Exception):
    """The call took too long or too much memory, or raised an exception."""


async def run_in_worker(
    seconds: float, work: Callable[Given, Answer], *args: Given.args, **named: Given.kwargs
) -> Answer:
    """Return `work(*args)`, computed in a process that is killed after `seconds` or when this call is cancelled.

    `work` is a function of a module, by position only. Arguments and result travel as JSON, so tuples arrive as lists.
    Raises WorkFailed.
    """
    if named:
        raise TypeError("a worker takes arguments by position")
    call = _Call([work.__module__, work.__qualname__, args, seconds])
    try:
        answer: Answer = await asyncio.get_running_loop().run_in_executor(_pool, call.run)
        return answer
    finally:
        call.cancel()


class _Call:
    """One call, from the event loop to a thread of the pool."""

    def __init__(self, request: list[Any]) -> None:
        self._request = request
        self._lock = threading.Lock()
        self._cancelled = False
        self._worker: _Worker | None = None

    def cancel(self) -> None:
        """Kill the process of a call that still runs."""
        with self._lock:
            self._cancelled = True
            if self._worker is not None:
                self._worker.kill()

    def run(self) -> Any:
        """Runs in a thread of the pool."""
        request = json.dumps(self._request).encode() + b"\n"
        worker = self._begin()
        try:
            line = worker.ask(request)
        except OSError:
            line = b""
        finally:
            with self._lock:
                self._worker = None
        if not line:
            worker.close()
            raise WorkFailed("its process ended")
        answer = json.loads(line)
        if "error" in answer:
            _LOG.info("%s.%s in a worker: %s", *self._request[:2], answer["error"].partition(":")[0])
            raise WorkFailed(answer["error"])
        return answer["result"]

    def _begin(self) -> _Worker:
        worker = _worker_of_thread()
        with self._lock:
            if self._cancelled:
                raise WorkFailed("it was cancelled")
            self._worker = worker
        return worker


def _worker_of_thread() -> _Worker:
    worker: _Worker | None = getattr(_own, "worker", None)
    if worker is None or not worker.usable:
        if worker is not None:
            worker.close()
        worker = _own.worker = _Worker()
    return worker


class _Worker:
    """One process. Used by one thread; `kill` is for any."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            _ARGV,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            cwd="/",
            env=_ENVIRONMENT,
            start_new_session=True,
        )
        self._calls = cast("IO[bytes]", self._process.stdin)
        self._answers = cast("IO[bytes]", self._process.stdout)
        self._used_at = time.monotonic()
        # Its folder is `/`, so only absolute paths mean the same there.
        self._send(json.dumps([path for path in sys.path if os.path.isabs(path)]).encode() + b"\n")

    @property
    def usable(self) -> bool:
        idle = time.monotonic() - self._used_at
        return idle < _MAX_IDLE_SECONDS and self._process.poll() is None

    def ask(self, request: bytes) -> bytes:
        """Return the line that it answers; empty if it ended. Raises OSError."""
        self._send(request)
        line = self._answers.readline()
        self._used_at = time.monotonic()
        return line

    def kill(self) -> None:
        self._process.kill()

    def close(self) -> None:
        self.kill()
        with suppress(OSError), self._process:
            pass

    def _send(self, line: bytes) -> None:
        self._calls.write(line)
        self._calls.flush()
