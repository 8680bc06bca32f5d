"""A watch on the event loop of a server: what keeps it from its input for longer than anything may.

A thread of the server looks 40 times a second at what its main thread runs. What it finds it appends to the file that
`LOOP_WATCH` names, with the stack; the test reads that file at its end. The same thread notices native code that keeps
the interpreter lock, since it cannot run then itself. On a busy machine both happen without anybody's fault, hence the
two limits.
"""

from __future__ import annotations

import os
import selectors
import sys
import threading
import time
import traceback
from contextlib import suppress
from pathlib import Path
from types import FrameType

MAX_COMPUTING_SECONDS = 0.25
"""Of the processor, by all threads of the process."""
MAX_SECONDS = 1.0
"""Time in which no processor was free is not counted."""
_PAUSE_SECONDS = 0.025
_STACK_LINES = 12


def watch() -> None:
    """Begin, if this process was asked to and does not measure its coverage, which slows it down. Linux only."""
    path = os.environ.get("LOOP_WATCH")
    if path and sys.platform == "linux" and "coverage" not in sys.modules:
        args = (Path(path), threading.get_native_id(), _Rounds())
        threading.Thread(target=_watch, args=args, daemon=True).start()


class _Rounds:
    """Count the rounds of the main thread's loop: each selects what is ready, and then runs the callbacks of that."""

    def __init__(self) -> None:
        self.count = 0
        self.is_waiting = False
        select, main = selectors.EpollSelector.select, threading.get_ident()

        def counted(selector: selectors.EpollSelector, timeout: float | None = None) -> object:
            if threading.get_ident() != main:
                return select(selector, timeout)
            self.is_waiting = True
            try:
                return select(selector, timeout)
            finally:
                self.count += 1
                self.is_waiting = False

        selectors.EpollSelector.select = counted  # type: ignore[method-assign, assignment]


def _watch(path: Path, thread: int, rounds: _Rounds) -> None:
    main, own = _Stopwatch(thread), _Stopwatch(threading.get_native_id())
    is_told = False
    count = 0
    while True:
        own.start()
        time.sleep(_PAUSE_SECONDS)
        stack = _main_stack()
        before, count = count, rounds.count
        # Rounds shorter than the switch interval may starve this thread: nothing keeps the interpreter then.
        if own.is_long() and (count - before) * sys.getswitchinterval() < own.seconds:
            _tell(path, f"the interpreter was kept for {own}, seen in", stack)
        if not count or rounds.is_waiting or count != before:  # Before the first round there is no loop to keep.
            is_told = False
            main.start()
        elif main.is_long() and not is_told:
            is_told = True
            _tell(path, f"the event loop was kept for {main}, seen in", stack)


def _main_stack() -> list[traceback.FrameSummary]:
    """Summarized at once: while a clock is read the main thread runs on, and its frames change."""
    frame: FrameType = sys._current_frames()[threading.main_thread().ident or 0]
    return traceback.StackSummary.extract(traceback.walk_stack(frame), limit=_STACK_LINES, lookup_lines=False)


def _tell(path: Path, what: str, stack: list[traceback.FrameSummary]) -> None:
    lines = traceback.format_list(reversed(stack))
    # Some servers are given a disk that takes nothing.
    with suppress(OSError), path.open("a", encoding="utf-8") as file:
        file.write(f"{what}\n{''.join(lines)}\n")


class _Stopwatch:
    """Time that passes for a thread, and the processor time of the whole process."""

    def __init__(self, thread: int) -> None:
        self._path = f"/proc/self/task/{thread}/schedstat"
        self.start()

    def start(self) -> None:
        self._begun = self._now()

    @property
    def seconds(self) -> float:
        return self._passed()[0]

    def is_long(self) -> bool:
        passed, computed = self._passed()
        return passed > MAX_SECONDS or min(passed, computed) > MAX_COMPUTING_SECONDS

    def __str__(self) -> str:
        passed, computed = self._passed()
        return f"{passed:.2f} s ({computed:.2f} s of the processor)"

    def _passed(self) -> tuple[float, float]:
        passed, computed = (now - begun for now, begun in zip(self._now(), self._begun, strict=True))
        return passed, computed

    def _now(self) -> tuple[float, float]:
        at = time.monotonic()
        with open(self._path, "rb") as file:
            waited = int(file.read().split()[1]) / 1e9
        return at - waited, time.process_time()
