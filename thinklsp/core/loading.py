"""Start-up: loading libraries without the garbage collector, and without keeping others waiting."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def uncollected() -> Iterator[None]:
    """For imports. Modules and classes live as long as the process: the collector would walk through them time and
    again while they are made, and at every later collection, and find nothing. So it waits, and then leaves them out.
    """
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        gc.enable()


# A thread that waits for another one to let it run does so for five milliseconds, and an answer takes three of them.
_SHORT_TURN = 0.0005


@contextmanager
def aside() -> Iterator[None]:
    """For imports in a thread beside others that serve somebody meanwhile."""
    usual = sys.getswitchinterval()
    sys.setswitchinterval(_SHORT_TURN)
    try:
        yield
    finally:
        sys.setswitchinterval(usual)
