"""Damaged databases: readable rows and new work are kept, and the damaged file stays."""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random

import pytest

from tests.support.scripted_model import check_sendable
from tests.support.stored_sessions import (
    EDIT,
    LONG,
    SPENT,
    USAGE,
    connection_of,
    database,
    files_of,
    full_session,
    one_turn,
    opened,
    opened_with_session,
    run_sql,
)
from thinklsp.core.errors import SessionError
from thinklsp.sessions.session import Session
from thinklsp.sessions.store_folder import FileLeases


async def filled(folder: Path, count: int = 4) -> list[Session]:
    async with opened(folder) as store:
        sessions = []
        for number in range(count):
            session = await store.update((await store.create("w")).id, full_session, SPENT)
            await store.update(session.id, lambda now: now.add_user_message("At length.").add_step(LONG, None, USAGE))
            sessions.append(await store.update(session.id, lambda now, n=number: one_turn(n, now)))
        await store.record_intent(session.id, "w", "t", (EDIT,))
    return sessions


async def use(folder: Path) -> tuple[str, ...]:
    """Use a damaged store, which raises only SessionError and stores new work. Return its problems."""
    async with opened(folder) as store:
        for summary in await store.list_sessions(None):
            try:
                session = await store.get(summary.id, None)
                check_sendable((await store.update(session.id, lambda now: now.add_user_message("More."))).conversation)
                await store.report_usage(session.id)
                await store.list_archives(session.id)
            except SessionError:
                continue
        await store.list_unknown_edits("w")
        await store.find_written_turn("w")
        new = await store.update((await store.create("w")).id, full_session, SPENT)
        problems = store.problems
    if not any("was written by a newer version of thinklsp" in problem for problem in problems):
        async with opened(folder) as store:
            assert await store.get(new.id, "w") == new
    return problems


async def set_aside(folder: Path) -> bool:
    """Return whether the file was set aside, which the store reports."""
    problems = await use(folder)
    kept = [path for path in files_of(folder) if ".corrupt-" in path.name]
    assert bool(kept) == any("was damaged. It is kept as" in problem for problem in problems)
    return bool(kept)


async def check_flips(folder: Path, random: Random, flips: int) -> int:
    """Return how many damaged files were set aside. A file that causes an error is kept and named with its flips."""
    await filled(folder / "original")
    aside = 0
    for number in range(flips):
        copy = copied(folder / "original", folder / f"flip{number}")
        content = bytearray(database(copy).read_bytes())
        flipped = [(random.randrange(len(content)), random.randrange(1, 256)) for _ in range(random.choice((1, 1, 20)))]
        for offset, bits in flipped:
            content[offset] ^= bits
        database(copy).write_bytes(content)
        damaged = folder / f"flip{number}.db"
        damaged.write_bytes(content)
        try:
            aside += await set_aside(copy)
        except BaseException as error:
            error.add_note(f"The damaged file is kept as {damaged}; offsets and flipped bits: {flipped}")
            raise
        damaged.unlink()
        shutil.rmtree(copy)
    return aside


@pytest.mark.parametrize(
    "damage",
    [
        "PRAGMA user_version = 0",
        "PRAGMA user_version = -3",
        "PRAGMA user_version = 33554434",
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'S session (', 'S sessior (')",
        "PRAGMA writable_schema = ON; UPDATE sqlite_schema SET sql = replace(sql, 'e (session, gen', 'e (origin, gen')",
    ],
)
async def test_a_schema_that_is_not_ours_any_more_costs_no_session(damage: str, tmp_path: Path) -> None:
    sessions = await filled(tmp_path)
    with closing(sqlite3.connect(database(tmp_path))) as connection:
        connection.executescript(damage)
    async with opened(tmp_path) as store:
        assert {summary.id for summary in await store.list_sessions("w")} == {session.id for session in sessions}
        assert "was damaged. It is kept as" in store.problems[0]
        assert [await store.get(session.id, "w") for session in sessions] == sessions
    await use(tmp_path)


async def test_issuer_is_known_despite_damaged_shared_row(tmp_path: Path) -> None:
    await filled(tmp_path)
    run_sql(database(tmp_path), "UPDATE origin SET model = model || 'x'")
    assert any("Parts of the session" in problem for problem in await use(tmp_path))


@pytest.mark.parametrize("content", [b"", b"no database" * 500, b"SQLite format 3\0" + b"x" * 5000])
async def test_what_is_no_database_is_set_aside(content: bytes, tmp_path: Path) -> None:
    await filled(tmp_path, 1)
    database(tmp_path).write_bytes(content)
    problems = await use(tmp_path)
    kept = [path for path in files_of(tmp_path) if ".corrupt-" in path.name]
    assert [path.read_bytes() for path in kept] == ([content] if content else [])
    assert [str(path) in problems[0] for path in kept] == [True] * len(kept)
    assert {path.stat().st_mode & 0o777 for path in kept} <= {0o600}


@pytest.mark.parametrize("reads_first", [True, False])
async def test_damage_at_work_costs_no_session_that_is_in_use(tmp_path: Path, reads_first: bool) -> None:
    async with opened_with_session(tmp_path, retry_seconds=0.0) as (store, session):
        other = await store.update((await store.create("w")).id, full_session)
        connection_of(store).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        content = bytearray(database(tmp_path).read_bytes())
        content[100:] = os.urandom(len(content) - 100)
        database(tmp_path).write_bytes(content)
        connection_of(store).execute("PRAGMA shrink_memory")
        if reads_first:
            assert await store.get(session.id, "w") == session
        grown = await store.update(session.id, lambda now: one_turn(0, now))
        assert (grown.steps, await store.get(session.id, "w")) == (4, grown)
        assert await store.get(other.id, "w") == other
        await store.update(other.id, lambda now: one_turn(1, now))
    assert [path for path in files_of(tmp_path) if ".corrupt-" in path.name]
    async with opened(tmp_path) as store:
        assert await store.get(session.id, "w") == grown
        assert (await store.get(other.id, "w")).steps == 4


async def test_a_disk_that_damages_each_file_leaves_one_and_the_memory(tmp_path: Path) -> None:
    async with opened_with_session(tmp_path) as (store, session):
        for number in range(3):
            connection_of(store).execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            content = bytearray(database(tmp_path).read_bytes())
            content[100:] = os.urandom(len(content) - 100)
            database(tmp_path).write_bytes(content)
            connection_of(store).execute("PRAGMA shrink_memory")
            session = await store.update(session.id, lambda now, n=number: one_turn(n, now))
            assert await store.get(session.id, "w") == session
        kept = [path.name for path in files_of(tmp_path) if ".corrupt-" in path.name]
        assert len([name for name in kept if not name.endswith(("-wal", "-shm"))]) == 1
        assert any("damaged again" in problem for problem in store.problems)


async def test_damaged_state_is_left_out_and_the_rows_are_kept(tmp_path: Path) -> None:
    """A changed signature is never sent to a provider."""
    async with opened(tmp_path) as store:
        session = await store.update((await store.create("w")).id, full_session)
    damage = "UPDATE opaque SET content = replace(content, 'canary', 'canarx') WHERE position = 0"
    run_sql(database(tmp_path), damage)
    async with opened(tmp_path) as store:
        found = await store.get(session.id, "w")
        kinds = [block.kind for block in found.conversation[1].blocks]
        assert kinds == [block.kind for block in session.conversation[1].blocks[1:]]
        assert "continues without these parts" in store.problems[0]
        changed = await store.update(session.id, lambda now: now.add_user_message("More."))
        assert changed.conversation[:-1] == found.conversation
        assert len(await store.list_archives(session.id)) == 1
    async with opened(tmp_path) as store:
        assert (await store.get(session.id, "w"), store.problems) == (changed, ())


def copied(folder: Path, copy: Path) -> Path:
    shutil.copytree(folder, copy)
    copy.chmod(0o700)
    return copy


@pytest.mark.parametrize("session_id", ["a\0b", "../a", "a/b", "..", "", "ü", "a" * 65, "a" * 5_000])
def test_a_damaged_id_is_locked_inside_the_folder(tmp_path: Path, session_id: str) -> None:
    locks = tmp_path / "locks"
    locks.mkdir()
    leases = FileLeases(str(locks))
    leases.take(session_id)
    assert len(os.listdir(locks)) == 1
    assert os.listdir(tmp_path) == ["locks"]
    leases.release(session_id)
    assert leases.is_free(session_id)
    assert os.listdir(locks) == []
