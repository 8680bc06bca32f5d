"""The product from outside as a context, and what a suite says about itself with `pytest -s`."""

from __future__ import annotations

import os
import sys
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.epilogue import percentile
from tests.support.outside import ROOT, Outside, start

Tally = Callable[[str, int], None]
needs_proc = pytest.mark.skipif(sys.platform != "linux", reason="processes are measured in /proc")
# The factor by which a machine may be slower than the limits of the figures.
SLACK = 5


@asynccontextmanager
async def running(place: Path, *script: Any, finish: bool = True, **how: Any) -> AsyncIterator[Outside]:
    """Run server, editor and provider in `place`. `finish`: check everything that must hold at the end."""
    outside = await start(place, *script, **how)
    try:
        yield outside
        if finish:
            await outside.finish()
    finally:
        await outside.stop()


def planted(*faults: str) -> dict[str, str | None]:
    """Return the variables of a server with these faults of `planted/sitecustomize.py`."""
    if not any(faults):
        return {}
    return {"PLANT": ", ".join(faults), "PYTHONPATH": f"{ROOT / 'tests/slow/planted'}{os.pathsep}{ROOT}"}


async def refuse_question(_question: str, _options: tuple[str, ...]) -> str | None:
    """Fail, because nothing may be asked."""
    raise AssertionError


def say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


def spread(seconds: Iterable[float]) -> str:
    ordered = sorted(seconds)
    middle, high = percentile(ordered, 0.5), percentile(ordered, 0.99)
    return f"p50 {middle * 1000:.0f} ms, p99 {high * 1000:.0f} ms, longest {ordered[-1] * 1000:.0f} ms"
