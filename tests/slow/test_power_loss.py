"""What a failure of the power leaves, which no kill shows: commits reach the disk, and a log that is cut opens."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from tests.slow.running import Tally, say
from tests.slow.tracing import why_not
from tests.support.scripted_model import check_sendable
from tests.support.sizes import SEED, tries
from tests.support.stored_sessions import WRITING, check_content, database, gone, opened, told, until_told, writers
from thinklsp.core.errors import SessionError

LAST = 65_536
COMMITS = 60
UNSYNCED = (
    "import tests.support.stored_sessions as writing, thinklsp.sessions.sqlite_store as database;"
    "database._PRAGMAS = ('synchronous = NORMAL', *database._PRAGMAS[1:]);"
    "writing.main()"
)


async def synced(folder: Path, argv: Sequence[str]) -> list[int]:
    """Return for each acknowledged commit how often data was synced since the commit before."""
    trace = folder / "trace"
    options = ["-f", "-qq", "-y", "-e", "trace=fdatasync,fsync,write", "-e", "signal=none", "-o", str(trace)]
    with writers([shutil.which("strace") or "strace", *options, "--", *argv]) as source:
        pid = source.start(folder)
        await until_told(folder, COMMITS + 1, within=120)
        source.kill(pid)
        await gone(pid)
    counts, since = [], 0
    for line in trace.read_text().splitlines():
        if re.search(r"\bf(data)?sync\b.*= 0$", line):
            since += 1
        elif re.search(rf'write\(\d+<{re.escape(str(folder))}/told>, "(?!session)', line):
            counts.append(since)
            since = 0
    return counts


@pytest.mark.kernel
@pytest.mark.skipif(why_not() is not None, reason=f"NO COMMIT WAS WATCHED: {why_not()}")
async def test_every_commit_reaches_the_disk(tmp_path: Path) -> None:
    counts = await synced(tmp_path, WRITING)
    say(f"{len(counts)} commits acknowledged, {sum(counts)} times brought to the disk, {min(counts)} at least")
    assert len(counts) >= COMMITS
    assert min(counts) >= 1


@pytest.mark.kernel
@pytest.mark.skipif(why_not() is not None, reason=f"NO COMMIT WAS WATCHED: {why_not()}")
async def test_a_commit_that_stays_in_memory_is_noticed(tmp_path: Path) -> None:
    assert min(await synced(tmp_path, (sys.executable, "-c", UNSYNCED))) == 0


@dataclass(frozen=True)
class Killed:
    """The files of a killed writer. `sizes`: how many steps it had acknowledged at which size of its log."""

    folder: Path
    session: str
    log: bytes
    sizes: tuple[tuple[int, int], ...]

    def told_at(self, size: int) -> int:
        return max((steps for steps, least in self.sizes if least <= size), default=0)

    def cut_to(self, size: int) -> None:
        path = database(self.folder)
        path.with_name("sessions.db-shm").unlink(missing_ok=True)
        log = path.with_name("sessions.db-wal")
        if log.stat().st_size > size:
            # Faster than to write the log again.
            os.truncate(log, size)
        else:
            log.write_bytes(self.log[:size])


async def killed(folder: Path) -> Killed:
    os.mkdir(folder, mode=0o700)
    with writers() as source:
        pid = source.start(folder)
        await until_told(folder, 8)
        source.kill(pid)
        await gone(pid)
    log = database(folder).with_name("sessions.db-wal").read_bytes()
    assert len(log) > LAST
    lines = [line.split() for line in (folder / "sizes").read_text().splitlines()]
    return Killed(folder, told(folder)[0].split()[1], log, tuple((int(steps), int(size)) for steps, size in lines))


def seen_by_sqlite(left: Killed, size: int) -> tuple[int, int]:
    """Return steps and revision of the session as SQLite reads them after the cut."""
    left.cut_to(size)
    with closing(sqlite3.connect(f"file:{database(left.folder)}?mode=ro", uri=True)) as connection:
        assert connection.execute("PRAGMA quick_check").fetchall() == [("ok",)], size
        [found] = connection.execute("SELECT steps, revision FROM session").fetchall() or [(0, 0)]
    assert found[0] >= left.told_at(size), size
    return int(found[0]), int(found[1])


async def check_store(left: Killed, size: int, place: Path) -> None:
    left.cut_to(size)
    shutil.copytree(left.folder, place)
    os.chmod(place, 0o700)
    async with opened(place) as store:
        session = await store.get(left.session, "w")
        assert session.steps >= left.told_at(size), size
        check_content(session)
        check_sendable((await store.update(left.session, lambda now: now.add_user_message("More."))).conversation)
        assert store.problems == (), size
    shutil.rmtree(place)


async def test_a_log_that_is_cut_anywhere_opens(tmp_path: Path, tally: Tally) -> None:
    """SQLite reads the store at every cut, our store at both ends of each range of equal cuts."""
    left, count = await killed(tmp_path / "left"), tries("A-16")
    last = range(len(left.log) - LAST, len(left.log))
    cuts = sorted(last if count == LAST else Random(SEED).sample(last, count))
    ends: dict[tuple[int, int], list[int]] = {}
    for size in reversed(cuts):
        ends.setdefault(seen_by_sqlite(left, size), []).append(size)
    assert list(ends) == sorted(ends, reverse=True), "a longer log holds less"
    assert len(ends) > 1
    for sizes in ends.values():
        for size in {sizes[0], sizes[-1]}:
            await check_store(left, size, tmp_path / "copy")
    say(f"{len(cuts):,} cuts of {len(left.log):,} bytes, {len(ends)} different stores")
    tally("A-16", len(cuts))


async def test_a_cut_that_loses_something_is_noticed(tmp_path: Path) -> None:
    """The control acknowledges commits before they are in the log."""
    left = await killed(tmp_path / "left")
    early = Killed(left.folder, left.session, left.log, tuple((steps, size - 20_000) for steps, size in left.sizes))
    told = left.sizes[-1][1]
    with pytest.raises(AssertionError):
        [seen_by_sqlite(early, size) for size in range(told - 20_000, told, 1_000)]
    with pytest.raises((AssertionError, SessionError)):
        await check_store(early, early.sizes[-1][1], tmp_path / "copy")
