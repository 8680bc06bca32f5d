"""Start-up: loading libraries without the garbage collector."""

from __future__ import annotations

import gc
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
