"""What a shadow of 20,000 files costs: before the first command, before the next one, and on disk."""

from __future__ import annotations

import os
import time
from collections.abc import Awaitable
from pathlib import Path

from tests.bench.measure import Bench, Figure, Unavailable
from tests.support.shadowing import PROBLEM, shadowed

_FILES, _IN_EACH, _TEXT = 20_000, 100, "def function(value):\n    return value + 1\n" * 25


def _workspace(folder: Path) -> Path:
    workspace = folder / "ws"
    for number in range(_FILES // _IN_EACH):
        below = workspace / f"package{number // 20}" / f"part{number}"
        below.mkdir(parents=True)
        for name in range(_IN_EACH):
            (below / f"module{name}.py").write_text(_TEXT)
    return workspace


async def costs(bench: Bench) -> list[Figure]:
    if PROBLEM is not None:
        raise Unavailable(PROBLEM)
    figures = [Figure("shadow", "`true` in the sandbox, one file", "ms", await _plain(bench))]
    workspace = _workspace(bench.folder)
    for kind, overlays in (("overlay", True), ("copy", False)):
        first, state = [], bench.folder / kind
        for number in range(bench.some(3)):
            async with shadowed(workspace, state=state / str(number), overlays=overlays) as shadow:
                first.append(await _taken(shadow.run("true")))
        async with shadowed(workspace, state=state / "state", overlays=overlays) as shadow:
            await shadow.run("true")
            paths = (os.path.join(above, name) for above, _, names in os.walk(state / "state") for name in names)
            disk = sum(os.lstat(path).st_blocks * 512 for path in paths) / 1024**2
            following = [await _taken(shadow.run("true")) for _ in range(bench.rounds)]
        figures += [
            Figure("shadow", f"first command, {_FILES:,} files, {kind}", "ms", first),
            Figure("shadow", f"next command, {_FILES:,} files, {kind}", "ms", following),
            Figure("shadow", f"extra disk, {_FILES:,} files, {kind}", "MB", [disk]),
        ]
    return figures


async def _plain(bench: Bench) -> list[float]:
    """What the sandbox itself costs."""
    (bench.folder / "plain").mkdir()
    async with shadowed(bench.folder / "plain", state=bench.folder / "plain-state") as shadow:
        await shadow.run("true")
        return [await _taken(shadow.run("true")) for _ in range(bench.rounds)]


async def _taken(command: Awaitable[object]) -> float:
    begun = time.perf_counter()
    await command
    return (time.perf_counter() - begun) * 1000
