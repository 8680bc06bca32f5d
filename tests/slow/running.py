"""The product from outside as a context, and what a suite says about itself with `pytest -s`."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.support.outside import Outside, start


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
