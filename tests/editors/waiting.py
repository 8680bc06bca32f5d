"""Waiting for what can only be looked at: editors, files and screens tell nobody that they changed."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable
from typing import Any

MAX_WAIT_SECONDS = 60.0
"""It ends a hang, and judges no time."""


async def until(holds: Callable[[], Any], what: Callable[[], str] | str, seconds: float = MAX_WAIT_SECONDS) -> Any:
    """The first true answer of `holds` (which may be a coroutine function), asked 50 times a second.

    Raises AssertionError that says `what` is missing.
    """
    deadline = time.monotonic() + seconds
    while True:
        found = holds()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {what if isinstance(what, str) else what()}")
        await asyncio.sleep(0.02)
