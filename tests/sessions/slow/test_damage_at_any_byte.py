"""A store whose log is cut at any byte."""

from __future__ import annotations

from pathlib import Path
from random import Random

from tests.sessions.test_store_damage import copied
from tests.support.scripted_model import check_sendable
from tests.support.stored_sessions import check_survival, gone, opened, until_told, writers

CUTS = 25


async def test_a_log_that_was_cut_keeps_the_commits_before_the_cut(tmp_path: Path) -> None:
    """As a power failure would leave it: db and log of a killed process, the log cut anywhere in its second half."""
    random = Random(11)
    folder = tmp_path / "original"
    folder.mkdir(mode=0o700)
    with writers() as source:
        pid = source.start(folder)
        await until_told(folder, 60)
        source.kill(pid)
        await gone(pid)
    await check_survival(copied(folder, tmp_path / "whole"))
    log = (folder / "sessions" / "sessions.db-wal").read_bytes()
    session_id = (folder / "told").read_text().split()[1]
    steps = []
    for number in range(CUTS):
        copy = copied(folder, tmp_path / f"cut{number}")
        part = len(log) // 2 // CUTS
        cut = len(log) - number * part - random.randrange(part)
        (copy / "sessions" / "sessions.db-wal").write_bytes(log[:cut])
        (copy / "sessions" / "sessions.db-shm").unlink(missing_ok=True)
        async with opened(copy) as store:
            session = await store.update(session_id, lambda now: now.add_user_message("More."))
            check_sendable(session.conversation)
            assert store.problems == ()
            steps.append((cut, session.steps))
    assert [count for _, count in sorted(steps)] == sorted(count for _, count in steps)
    assert len({count for _, count in steps}) > 1
