"""Stored fallbacks: for a conversation until its beginning changes, and for a model for a month."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from tests.support.stored_sessions import database, full_session, holding, one_turn, opened, run_sql
from thinklsp.core.events import Fallback
from thinklsp.sessions.session import Session
from thinklsp.sessions.sqlite_store import SqliteStore

FORM = Fallback("m", "form", "adaptive", "manual")


async def begun(store: SqliteStore) -> tuple[Session, Fallback]:
    """Store a session with four messages and a fallback for its first three."""
    session = await store.update((await store.create("w")).id, full_session)
    fallback = Fallback("m", "bare", conversation_prefix=session.conversation[:3])
    await store.keep_fallback(session.id, "here", fallback)
    return session, fallback


async def test_stored_fallbacks_apply_in_order_to_their_provider(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        session, bare = await begun(store)
        other, _ = await begun(store)
        drop = replace(bare, kind="drop", conversation_prefix=session.conversation)
        changed = replace(FORM, replacement="off")
        for fallback in (FORM, drop, Fallback("m", "effort", "max"), changed, drop):
            await store.keep_fallback(session.id, "here", fallback)
        await store.keep_fallback(session.id, "there", Fallback("m", "never"))
        # A summary's conversation is not the session's.
        await store.keep_fallback(session.id, "here", replace(bare, conversation_prefix=session.conversation[1:]))
    async with opened(tmp_path) as store:
        assert await store.list_fallbacks(session.id, "here") == (bare, Fallback("m", "effort", "max"), changed, drop)
        assert [fallback.kind for fallback in await store.list_fallbacks(other.id, "here")] == [
            "bare",
            "effort",
            "form",
        ]
        assert await store.list_fallbacks(session.id, "there") == (Fallback("m", "never"),)


async def test_they_go_with_the_beginning_that_they_are_about(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        session, bare = await begun(store)
        await store.update(session.id, lambda now: one_turn(1, now))
        assert await store.list_fallbacks(session.id, "here") == (bare,)
        fork = await store.fork(session.id, "w", 2)
        assert await store.list_fallbacks(fork.id, "here") == (bare,)
        early = await store.fork(session.id, "w", 0)
        assert await store.list_fallbacks(early.id, "here") == ()
        await store.compact(session.id, lambda now: now.replace_conversation(now.conversation[-2:]), "short")
        assert await store.list_fallbacks(session.id, "here") == ()
        prompted = await store.update(fork.id, lambda now: now.add_user_message("Is this heard?"))
        await store.keep_fallback(fork.id, "here", Fallback("m", "drop", conversation_prefix=prompted.conversation))
        await store.update(fork.id, lambda now: now.cut_short())
        await store.update(fork.id, lambda now: now.add_user_message("Another."))
        assert await store.list_fallbacks(fork.id, "here") == (bare,)


async def test_stored_fallbacks_are_deleted_and_expire(tmp_path: Path) -> None:
    async with opened(tmp_path) as store:
        session, _ = await begun(store)
        await store.keep_fallback(session.id, "here", FORM)
        kept, _ = await begun(store)
        await store.delete(session.id, "w")
        assert holding(tmp_path, session.id) == []
        assert FORM in await store.list_fallbacks(kept.id, "here")
    run_sql(database(tmp_path), "UPDATE remedy SET made = made - ?", 31 * 86_400 * 10**9)
    async with opened(tmp_path) as store:
        assert [fallback.kind for fallback in await store.list_fallbacks(kept.id, "here")] == ["bare"]
    assert run_sql(database(tmp_path), "SELECT count(*) FROM remedy") == [(1,)]
