"""The session store over many crashes, flipped bytes and cut logs; `sizes` says how to choose how many."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from tests.sessions.test_store_damage import check_flips
from tests.slow.running import Tally, say, spread
from tests.support.sizes import SEED, lots, sized, tries
from tests.support.stored_sessions import check_survival, database, gone, killed_at, until_told, writers
from thinklsp.core.errors import SessionError

# Several for each kill of a whole server, because they take little time.
KILLS = lots(2 * tries("A-15"), 100)
FLIPS = lots(sized(commit=200, nightly=5000), 100)


@pytest.mark.timing
@pytest.mark.parametrize(("seed", "points"), [(SEED + number, points) for number, points in enumerate(KILLS)])
async def test_killed_processes_lose_nothing_that_was_acknowledged(
    seed: int, points: int, tmp_path: Path, tally: Tally
) -> None:
    random = Random(seed)
    counts, took = set(), []
    with writers() as source:
        for point in range(points):
            folder = tmp_path / str(point)
            await asyncio.to_thread(folder.mkdir, 0o700)
            counts.add(await killed_at(folder, source, random))
            took.append(await check_survival(folder))
            shutil.rmtree(folder)
    say(f"{points} kills, {len(counts)} different places, opened again: {spread(took)}")
    assert max(took) < 1.0
    assert len(counts) > points // 4
    tally("A-15", points)


DAMAGES = {
    "UPDATE session SET steps = steps - 2": "a step was lost",
    "DELETE FROM message WHERE rowid = (SELECT max(rowid) - 1 FROM message)": "a turn is torn",
    "DELETE FROM archive": "an archive is lost",
    "UPDATE ledger SET outcome = NULL": "settled is in doubt",
    # The last edit may not have been acknowledged.
    "DELETE FROM ledger WHERE rowid IN (SELECT rowid FROM ledger ORDER BY made DESC LIMIT 2)": "an edit is forgotten",
}


@pytest.mark.parametrize(("damage", "said"), DAMAGES.items(), ids=list(DAMAGES.values()))
async def test_a_store_that_loses_something_is_noticed(damage: str, said: str, tmp_path: Path) -> None:
    with writers() as source:
        pid = source.start(tmp_path)
        await until_told(tmp_path, 60)
        source.kill(pid)
        await gone(pid)
    await check_survival(shutil.copytree(tmp_path, tmp_path / "sound"))
    with closing(sqlite3.connect(database(tmp_path))) as connection, connection:
        connection.execute(damage)
    with pytest.raises((AssertionError, SessionError), match=said):
        await check_survival(tmp_path)


@pytest.mark.parametrize(("seed", "flips"), [(SEED + number, flips) for number, flips in enumerate(FLIPS)])
async def test_flipped_bytes_are_survived(seed: int, flips: int, tmp_path: Path) -> None:
    aside = await check_flips(tmp_path, Random(seed), flips)
    say(f"{flips} damaged files, {aside} set aside")
    assert 0 < aside < flips
