"""Waiting on observed state: whoever changes calls `changed`, whoever waits gives a predicate and a deadline.

`seen` is for what nobody tells of. Shares no code with the product.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")
HANG_SECONDS = 60.0
"""How long a test waits before it takes something for hanging. No test needs that long, even on a busy machine."""


class Watched:
    """Base of things that are watched from a test. Lives on one event loop."""

    def __init__(self) -> None:
        self._watchers: set[asyncio.Event] = set()

    def changed(self) -> None:
        for watcher in self._watchers:
            watcher.set()

    async def wait_for(self, predicate: Callable[[], T], *, within: float = HANG_SECONDS, what: str = "") -> T:
        """Return the first truthy value of `predicate`. Raises TimeoutError with `what` and what `describe` gives."""
        watcher = asyncio.Event()
        self._watchers.add(watcher)
        try:
            async with asyncio.timeout(within):
                while not (value := predicate()):
                    await watcher.wait()
                    watcher.clear()
                return value
        except TimeoutError:
            raise TimeoutError(f"not seen within {within} s: {what or predicate}\n{self.describe()}") from None
        finally:
            self._watchers.discard(watcher)

    def describe(self) -> str:
        """What a person needs to see when a wait has failed."""
        return ""


async def seen(predicate: Callable[[], T], *, within: float = HANG_SECONDS, what: str = "") -> T:
    """As `wait_for`, for what nobody tells of, such as the end of a process: looks again and again."""
    async with asyncio.timeout(within):
        while not (value := predicate()):  # noqa: ASYNC110 - nothing tells
            await asyncio.sleep(0.02)
        return value
