"""What a shadow of 20,000 files costs: before the first command, before the next one, and on disk."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.support.shadowing import shadowed

_FILES, _IN_EACH, _TEXT = 20_000, 100, "def function(value):\n    return value + 1\n" * 25

Row = Callable[[Path, int], Awaitable[list[float]]]


def _workspace(folder: Path) -> Path:
    workspace = folder / "ws"
    for number in range(_FILES // _IN_EACH):
        below = workspace / f"package{number // 20}" / f"part{number}"
        below.mkdir(parents=True)
        for name in range(_IN_EACH):
            (below / f"module{name}.py").write_text(_TEXT)
    return workspace


def first(overlays: bool) -> Row:
    """From the call to the end of `true`."""

    async def row(folder: Path, rounds: int) -> list[float]:
        workspace = _workspace(folder)
        values = []
        for number in range(min(rounds, 5)):
            async with shadowed(workspace, state=folder / str(number), overlays=overlays) as shadow:
                values.append(await _taken(shadow.run("true")))
        return values

    return row


def second(overlays: bool) -> Row:
    async def row(folder: Path, rounds: int) -> list[float]:
        async with shadowed(_workspace(folder), state=folder / "state", overlays=overlays) as shadow:
            await shadow.run("true")
            return [await _taken(shadow.run("true")) for _ in range(rounds)]

    return row


def disk(overlays: bool) -> Row:
    """What lies in the state folder after a command, in MB."""

    async def row(folder: Path, rounds: int) -> list[float]:
        async with shadowed(_workspace(folder), state=folder / "state", overlays=overlays) as shadow:
            await shadow.run("true")
            paths = (os.path.join(above, name) for above, _, names in os.walk(folder / "state") for name in names)
            return [sum(os.lstat(path).st_blocks * 512 for path in paths) / 1024**2] * rounds

    return row


async def plain(folder: Path, rounds: int) -> list[float]:
    """The same in a workspace of one file: what the sandbox itself costs."""
    (folder / "ws").mkdir()
    async with shadowed(folder / "ws", state=folder / "state") as shadow:
        await shadow.run("true")
        return [await _taken(shadow.run("true")) for _ in range(rounds)]


async def _taken(command: Awaitable[object]) -> float:
    begun = time.perf_counter()
    await command
    return (time.perf_counter() - begun) * 1000


ROWS: dict[str, Row] = {
    "shadow: `true` in the sandbox, one file (ms)": plain,
    "shadow: first command, 20,000 files, overlay (ms)": first(True),
    "shadow: first command, 20,000 files, copy (ms)": first(False),
    "shadow: next command, 20,000 files, overlay (ms)": second(True),
    "shadow: next command, 20,000 files, copy (ms)": second(False),
    "shadow: extra disk, 20,000 files, overlay (MB)": disk(True),
    "shadow: extra disk, 20,000 files, copy (MB)": disk(False),
}
