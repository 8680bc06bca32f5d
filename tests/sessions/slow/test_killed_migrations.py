"""A migration that is killed leaves the old schema or the new one."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from tests.sessions.migrating_sessions import (
    FIXTURES,
    MIGRATING,
    check_migrated,
    laid_out,
    version,
)
from tests.slow.running import say
from tests.support.sizes import SEED, tries
from tests.support.stored_sessions import Writers, database, gone, told, until_told, writers


async def killed(folder: Path, fixture: Path, source: Writers, after: float | None) -> float:
    """Kill a process `after` seconds of its migration. If `after` is None, wait for its end and return its duration."""
    os.mkdir(folder, mode=0o700)
    laid_out(folder, fixture)
    pid = source.start(folder)
    await until_told(folder, 1 if after is not None else 2)
    if after is not None:
        await asyncio.sleep(after)
    source.kill(pid)
    await gone(pid)
    return float(told(folder)[-1]) if after is None else 0.0


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda path: path.stem)
async def test_killed_migration_leaves_old_or_new_schema(
    fixture: Path, tmp_path: Path, tally: Callable[[str, int], None]
) -> None:
    count, chance, versions = tries("A-17", 1 / len(FIXTURES)) + 1, Random(SEED), Counter[int]()
    with writers(MIGRATING) as source:
        whole = max([await killed(tmp_path / f"whole{n}", fixture, source, None) for n in range(3)])
        for number in range(count):
            folder = tmp_path / str(number)
            await killed(folder, fixture, source, chance.uniform(0, whole))
            versions[version(database(folder))] += 1
            check_migrated(folder)
    say(f"{count} kills in {whole * 1000:.0f} ms, at these versions: {dict(sorted(versions.items()))}")
    tally("A-17", count)
