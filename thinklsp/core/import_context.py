"""Context managers for faster imports that do not block other threads."""

from __future__ import annotations

import gc
import linecache
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_DEFAULT_THRESHOLDS = gc.get_threshold()
_DEFAULT_SWITCH_SECONDS = sys.getswitchinterval()
# The default switch interval of 5 ms is too long, because a complete response to the client takes only 3 ms.
_SHORT_SWITCH_SECONDS = 0.0005


@contextmanager
def reduce_gc() -> Iterator[None]:
    """Reduce garbage collection during imports, and exempt the imported objects from later collections.

    Modules and classes live as long as the process, so scanning them repeatedly wastes time. The youngest generation is
    collected sometimes, because attrs creates each class twice and drops the first copy; each collection keeps one. Of
    several threads in the context, the first one that leaves it ends it for all.
    """
    gc.set_threshold(2500, 1000, 1000)
    gc.enable()
    try:
        yield
    finally:
        linecache.clearcache()  # attrs and cattrs keep the source of each method that they generate.
        gc.freeze()
        gc.set_threshold(*_DEFAULT_THRESHOLDS)


@contextmanager
def switch_threads_often() -> Iterator[None]:
    """Switch threads more often while a background thread imports modules, so that other threads stay responsive.

    Of several threads in the context, the first one that leaves it ends it for all.
    """
    sys.setswitchinterval(_SHORT_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(_DEFAULT_SWITCH_SECONDS)
