"""The program of a worker process: read a call per line, answer it with a line.

The first line is the search path of the parent, since the process starts without one. Every later line is
`[module, function, arguments, seconds]`, every answer `{"result": …}` or `{"error": …}`. A timer of the kernel ends the
process at the time limit, also inside native code, and after a minute without a call.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import resource
import signal
import sys
from typing import Any, BinaryIO

IDLE_SECONDS = 60.0
# A grammar needs 20 MB for ordinary files of 1 MB.
MAX_MEMORY_BYTES = 128 * 1024 * 1024
# The parent decodes an answer in one step, in which nothing else of it runs.
MAX_ANSWER_BYTES = 8 * 1024 * 1024


def serve(source: BinaryIO, target: BinaryIO) -> None:
    sys.path[:] = json.loads(source.readline())
    _wait_for_call()
    for line in source:
        module, function, arguments, seconds = json.loads(line)
        signal.setitimer(signal.ITIMER_REAL, seconds)
        target.write(_answer(module, function, arguments) + b"\n")
        target.flush()
        _wait_for_call()


def _wait_for_call() -> None:
    signal.setitimer(signal.ITIMER_REAL, IDLE_SECONDS)


def _answer(module: str, function: str, arguments: list[Any]) -> bytes:
    try:
        result = getattr(importlib.import_module(module), function)(*arguments)
        answer = json.dumps({"result": result}).encode()
    except Exception as error:  # noqa: BLE001 - whatever it was, the parent reports it to its caller.
        return json.dumps({"error": f"{type(error).__name__}: {error}"[:1_000]}).encode()
    return answer if len(answer) <= MAX_ANSWER_BYTES else b'{"error": "the answer is too large"}'


def _limit_resources() -> None:
    """Bound memory where the system can do that, and write no core file when native code aborts."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


if __name__ == "__main__":
    _limit_resources()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # Native code that prints must not write into an answer.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers)
