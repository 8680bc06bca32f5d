"""The program that runs in a worker process. It reads one call per line and writes one response per line.

The first line is the parent's module search path, because the process starts with an empty path. Each further line is
`[module, function, arguments, seconds]`, and each response is `{"result": …}` or `{"error": …}`. A kernel timer ends
the process at the time limit, even in native code, and after a minute without a call.
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
# Parsing a 1 MB file with tree-sitter usually takes less than 20 MB.
MAX_MEMORY_BYTES = 128 * 1024 * 1024
# Responses must be small, because decoding a response blocks the parent's event loop.
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
    except Exception as error:  # noqa: BLE001 - the parent reports any error to its caller.
        return json.dumps({"error": f"{type(error).__name__}: {error}"[:1_000]}).encode()
    return answer if len(answer) <= MAX_ANSWER_BYTES else b'{"error": "the answer is too large"}'


def _limit_resources() -> None:
    """Limit memory use if the system supports limits, and disable core dumps when native code crashes."""
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        resource.setrlimit(resource.RLIMIT_DATA, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))


if __name__ == "__main__":
    _limit_resources()
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    # Redirect standard output, so that output from native code does not corrupt the responses.
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    serve(sys.stdin.buffer, answers)
