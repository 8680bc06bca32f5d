"""What services have refused stands with the session as long as it begins as it did; that of a model for a month."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path

from tests.sessions.test_migrations import FIXTURES, database, laid_out
from tests.support.stored_sessions import full_session, holding, one_turn, opened
from thinklsp.core.remedies import Remedy
from thinklsp.sessions.session import Session
from thinklsp.sessions.sqlite_store import SqliteStore

FORM = Remedy("m", "form", "adaptive", "manual")


async def begun(store: SqliteStore) -> tuple[Session, Remedy]:
    """A session of four messages, and a remedy for its first three."""
    session = await store.update((await store.create("w")).id, full_session)
    remedy = Remedy("m", "bare", beginning=session.conversation[:3])
    await store.keep_remedy(session.id, "here", remedy)
    return session, remedy


async def test_they_are_found_again_in_their_order_at_their_service_alone(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        session, bare = await begun(store)
        other, _ = await begun(store)
        drop = replace(bare, kind="drop", beginning=session.conversation)
        changed = replace(FORM, instead="off")
        for remedy in (FORM, drop, Remedy("m", "effort", "max"), changed, drop):
            await store.keep_remedy(session.id, "here", remedy)
        await store.keep_remedy(session.id, "there", Remedy("m", "never"))
        # A summary's conversation is not the session's.
        await store.keep_remedy(session.id, "here", replace(bare, beginning=session.conversation[1:]))
    async with opened(tmp_path) as store:
        assert await store.remedies(session.id, "here") == (bare, Remedy("m", "effort", "max"), changed, drop)
        assert [remedy.kind for remedy in await store.remedies(other.id, "here")] == ["bare", "effort", "form"]
        assert await store.remedies(session.id, "there") == (Remedy("m", "never"),)


async def test_they_go_with_the_beginning_that_they_are_about(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        session, bare = await begun(store)
        await store.update(session.id, lambda now: one_turn(1, now))
        assert await store.remedies(session.id, "here") == (bare,)
        fork = await store.fork(session.id, "w", 2)
        assert await store.remedies(fork.id, "here") == (bare,)
        early = await store.fork(session.id, "w", 0)
        assert await store.remedies(early.id, "here") == ()
        await store.compact(session.id, lambda now: now.compacted(now.conversation[-2:]), "short")
        assert await store.remedies(session.id, "here") == ()
        prompted = await store.update(fork.id, lambda now: now.with_user("Is this heard?"))
        await store.keep_remedy(fork.id, "here", Remedy("m", "drop", beginning=prompted.conversation))
        await store.update(fork.id, lambda now: now.cut_short())
        await store.update(fork.id, lambda now: now.with_user("Another."))
        assert await store.remedies(fork.id, "here") == (bare,)


async def test_they_are_deleted_with_the_session_and_forgotten_with_time(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        session, _ = await begun(store)
        await store.keep_remedy(session.id, "here", FORM)
        kept, _ = await begun(store)
        await store.delete(session.id, "w")
        assert holding(tmp_path, session.id) == []
        assert FORM in await store.remedies(kept.id, "here")
    month = 31 * 86_400 * 10**9
    with closing(sqlite3.connect(database(tmp_path), isolation_level=None)) as connection:
        connection.execute("UPDATE remedy SET made = made - ?", (month,))
    async with opened(tmp_path) as store:
        assert [remedy.kind for remedy in await store.remedies(kept.id, "here")] == ["bare"]
    with closing(sqlite3.connect(database(tmp_path))) as connection:
        assert connection.execute("SELECT count(*) FROM remedy").fetchone() == (1,)


async def test_an_old_store_that_is_damaged_gives_its_sessions_to_the_new_one(tmp_path: Path) -> None:
    """It has no table of remedies yet."""
    laid_out(tmp_path, FIXTURES[0])
    with closing(sqlite3.connect(database(tmp_path))) as connection:
        [(size,)] = connection.execute("PRAGMA page_size")
        [(page,)] = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'usage_by_day'")
    content = bytearray(database(tmp_path).read_bytes())
    content[(page - 1) * size : page * size] = b"x" * size
    database(tmp_path).write_bytes(content)
    async with opened(tmp_path) as store:
        [summary] = await store.list(None)
        assert await store.get(summary.id, "w") == full_session(Session(summary.id, "w"))
        assert "with the session that could be read" in store.problems[0]
