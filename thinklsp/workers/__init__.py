"""Worker processes, which run function calls outside the server process.

At most two calls run at once. A call's process is killed at the time limit or on cancellation. Workers are for native
code and for computations whose cost grows faster than the size of their input.

Starting a process takes 40 ms, so each thread in the pool keeps its process for further calls. A worker process exits
when its parent exits, because its input then ends. Killed and idle processes are replaced.
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
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import PurePath
from typing import IO, Any, ParamSpec, TypeVar, cast

from thinklsp.workers import child

_LOG = logging.getLogger(__name__)
_MAX_WORKERS = 2
# Replace an idle worker well before the worker exits because of its own timeout.
_MAX_IDLE_SECONDS = child.IDLE_SECONDS / 2
_ARGV = (sys.executable, "-I", "-S", str(PurePath(child.__file__)))
_ENVIRONMENT = {"PATH": os.defpath, "LANG": "C.UTF-8", "LC_ALL": "C.UTF-8"}

# All clients share this pool, because it stores no client data.
_pool = ThreadPoolExecutor(_MAX_WORKERS, thread_name_prefix="thinklsp-workers")
_thread_state = threading.local()

Params = ParamSpec("Params")
Result = TypeVar("Result")


class WorkFailed(Exception):
    """The error raised when a call exceeds its time or memory limit, or raises an exception."""


async def run_in_worker(
    seconds: float, work: Callable[Params, Result], *args: Params.args, **named: Params.kwargs
) -> Result:
    """Run `work(*args)` in a process that is killed after `seconds` or on cancellation, and return the result.

    `work` must be a module-level function that is called with positional arguments only. Arguments and results are
    transferred as JSON, so tuples become lists. Raises WorkFailed if the call fails.
    """
    if named:
        raise TypeError("run_in_worker takes positional arguments only")
    call = _Call([work.__module__, work.__qualname__, args, seconds])
    try:
        answer: Result = await asyncio.get_running_loop().run_in_executor(_pool, call.run)
        return answer
    finally:
        call.cancel()


class _Call:
    """A call that the event loop passes to a pool thread."""

    def __init__(self, request: list[Any]) -> None:
        self._request = request
        self._lock = threading.Lock()
        self._cancelled = False
        self._worker: _Worker | None = None

    def cancel(self) -> None:
        """Kill the call's process, if it is running."""
        with self._lock:
            self._cancelled = True
            if self._worker is not None:
                self._worker.kill()

    def run(self) -> Any:
        """Run the call in a pool thread and return its result."""
        request = json.dumps(self._request).encode() + b"\n"
        worker = self._acquire_worker()
        try:
            line = worker.send_request(request)
        except OSError:
            line = b""
        finally:
            with self._lock:
                self._worker = None
        if not line:
            worker.close()
            raise WorkFailed("the worker process ended")
        answer = json.loads(line)
        if "error" in answer:
            _LOG.info("%s.%s in a worker: %s", *self._request[:2], answer["error"].partition(":")[0])
            raise WorkFailed(answer["error"])
        return answer["result"]

    def _acquire_worker(self) -> _Worker:
        worker = _ensure_thread_worker()
        with self._lock:
            if self._cancelled:
                raise WorkFailed("the call was cancelled")
            self._worker = worker
        return worker


def _ensure_thread_worker() -> _Worker:
    worker: _Worker | None = getattr(_thread_state, "worker", None)
    if worker is None or not worker.is_usable:
        if worker is not None:
            worker.close()
        worker = _thread_state.worker = _Worker()
    return worker


class _Worker:
    """A worker process. Only one thread uses it, but any thread may call `kill`."""

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
        # Also runs when the pool's thread ends with the program.
        self.close = weakref.finalize(self, _end_process, self._process)
        self._calls = cast("IO[bytes]", self._process.stdin)
        self._answers = cast("IO[bytes]", self._process.stdout)
        self._used_at = time.monotonic()
        # Omit relative paths, which have a different meaning in a worker because the worker runs in `/`.
        self._send(json.dumps([path for path in sys.path if os.path.isabs(path)]).encode() + b"\n")

    @property
    def is_usable(self) -> bool:
        idle = time.monotonic() - self._used_at
        return idle < _MAX_IDLE_SECONDS and self._process.poll() is None

    def send_request(self, request: bytes) -> bytes:
        """Send a request and return the response line. The line is empty if the process has ended. Raises OSError."""
        self._send(request)
        line = self._answers.readline()
        self._used_at = time.monotonic()
        return line

    def kill(self) -> None:
        self._process.kill()

    def _send(self, line: bytes) -> None:
        self._calls.write(line)
        self._calls.flush()


def _end_process(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with suppress(OSError), process:
        pass
