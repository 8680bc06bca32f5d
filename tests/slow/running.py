"""The product from outside as a context, and what a suite says about itself with `pytest -s`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.outside import Outside, start

# So much slower may a machine be than one on which the ceilings of the figures hold.
SLACK = 5


@asynccontextmanager
async def running(place: Path, *script: Any, finish: bool = True, **how: Any) -> AsyncIterator[Outside]:
    """Server, editor and provider in `place`, stopped at the end. `finish`: what every test ends with is checked."""
    outside = await start(place, *script, **how)
    try:
        yield outside
        if finish:
            await outside.finish()
    finally:
        await outside.stop()


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def quantile(values: Iterable[float], part: float) -> float:
    """The smallest value that so large a part of them does not exceed."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]


def spread(seconds: Iterable[float]) -> str:
    ordered = sorted(seconds)
    middle, high = quantile(ordered, 0.5), quantile(ordered, 0.99)
    return f"p50 {middle * 1000:.0f} ms, p99 {high * 1000:.0f} ms, longest {ordered[-1] * 1000:.0f} ms"
