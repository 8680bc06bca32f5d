"""The session store over many crashes, flipped bytes and cut logs; `sizes` says how to choose how many."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from random import Random

import pytest

from tests.sessions.test_store_damage import check_flips
from tests.slow.running import say
from tests.support.sizes import SEED, lots, sized
from tests.support.writing_sessions import check_survival, killed_at, writers

KILLS = lots(sized(commit=100, nightly=2000), 100)
FLIPS = lots(sized(commit=200, nightly=5000), 100)


@pytest.mark.parametrize(("seed", "points"), [(SEED + number, points) for number, points in enumerate(KILLS)])
async def test_killed_processes_lose_nothing_that_was_acknowledged(seed: int, points: int, tmp_path: Path) -> None:
    random = Random(seed)
    counts, slowest = set(), 0.0
    with writers() as source:
        for point in range(points):
            folder = tmp_path / str(point)
            await asyncio.to_thread(folder.mkdir, 0o700)
            counts.add(await killed_at(folder, source, random))
            slowest = max(slowest, await check_survival(folder))
            shutil.rmtree(folder)
    say(f"{points} kills, {len(counts)} different places, slowest reopening {slowest * 1000:.0f} ms")
    assert slowest < 1.0
    assert len(counts) > points // 4


@pytest.mark.parametrize(("seed", "flips"), [(SEED + number, flips) for number, flips in enumerate(FLIPS)])
async def test_flipped_bytes_are_survived(seed: int, flips: int, tmp_path: Path) -> None:
    aside = await check_flips(tmp_path, Random(seed), flips)
    say(f"{flips} damaged files, {aside} set aside")
    assert 0 < aside < flips
