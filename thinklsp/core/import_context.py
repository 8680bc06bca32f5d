"""Context managers for faster imports that do not block other threads."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Lock

_DEFAULT_THRESHOLDS = gc.get_threshold()
_DEFAULT_SWITCH_SECONDS = sys.getswitchinterval()


class _SharedContext:
    """A context that several threads can enter at once. The default state is restored when the last thread leaves."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._thread_count = 0

    @contextmanager
    def enter(self, restore: Callable[[], None]) -> Iterator[None]:
        with self._lock:
            self._thread_count += 1
        try:
            yield
        finally:
            with self._lock:
                self._thread_count -= 1
                if not self._thread_count:
                    restore()


_gc_context, _switch_context = _SharedContext(), _SharedContext()


@contextmanager
def reduce_gc() -> Iterator[None]:
    """Reduce garbage collection during imports, and exempt the imported objects from later collections.

    Modules and classes live as long as the process, so scanning them repeatedly wastes time. The youngest generation is
    still collected, because attrs creates each class twice and drops the first copy. Several threads may enter the
    context at once.
    """
    with _gc_context.enter(_restore_gc):
        gc.set_threshold(700, 1000, 1000)
        gc.enable()
        yield


def _restore_gc() -> None:
    gc.freeze()
    gc.set_threshold(*_DEFAULT_THRESHOLDS)


# The default switch interval of 5 ms is too long, because a complete response to the client takes only 3 ms.
_SHORT_SWITCH_SECONDS = 0.0005


@contextmanager
def switch_threads_often() -> Iterator[None]:
    """Switch threads more often while a background thread imports modules, so that other threads stay responsive.

    Several threads may enter the context at once.
    """
    with _switch_context.enter(lambda: sys.setswitchinterval(_DEFAULT_SWITCH_SECONDS)):
        sys.setswitchinterval(_SHORT_SWITCH_SECONDS)
        yield
