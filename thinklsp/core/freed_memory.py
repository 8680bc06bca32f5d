"""Memory of large texts that nothing needs any more."""

from __future__ import annotations

import sys
from contextlib import suppress


def return_freed_memory() -> None:
    """Have the C library return free memory to the system: glibc keeps 60 MB after a document of 20 MB was closed."""
    if sys.platform != "linux":
        return
    import ctypes  # noqa: PLC0415 - few servers see a document as large as that.

    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
