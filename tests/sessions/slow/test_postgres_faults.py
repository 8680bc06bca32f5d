"""The PostgreSQL store while its server restarts or is unreachable, and the slowest tests of the store."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from functools import partial

import pytest

from tests.sessions.test_postgres import read_everything, stores
from tests.support.hosts import Cut, cutting
from tests.support.postgres_server import PostgresServer, run_postgres
from tests.support.stored_sessions import EDIT, SPENT, full_session, one_turn
from thinklsp.core.errors import SessionError, StoreUnreachable
from thinklsp.core.server_context import ClientIdentity
from thinklsp.sessions.postgres import PostgresStore
from thinklsp.sessions.postgres.maintenance import check_store, migrate, prune
from thinklsp.sessions.postgres.store_connections import load_migrations
from thinklsp.sessions.spending import read_utc_date


@pytest.mark.parametrize("cut", ["before", "after"])
async def test_step_is_stored_once_if_the_commit_answer_is_lost(
    postgres: PostgresServer, somebody: ClientIdentity, cut: Cut
) -> None:
    with cutting(postgres.port, b"COMMIT") as relay:
        async with stores(postgres, somebody, url=postgres.url.replace(str(postgres.port), str(relay.port))) as (
            store,
        ):
            session = await store.update((await store.create("w")).id, full_session)
            for number in range(3):
                relay.cuts = [cut] * (number + 1)
                session = await store.update(session.id, partial(one_turn, number), SPENT)
                relay.cuts = [cut]
                await store.update(session.id, lambda now: now, SPENT)
                relay.cuts = [cut]
                intent = await store.record_intent(session.id, "w", "t", [EDIT])
                relay.cuts = [cut]
                await store.settle_edit(intent, {EDIT.uri: "applied"})
                assert relay.cuts == []
    async with stores(postgres, somebody) as (reader,):
        assert await reader.get(session.id, "w") == session
        figures = {table: len(rows) for table, rows in read_everything(postgres, somebody).items()}
        assert (figures["usage"], figures["ledger"], figures["message"]) == (6, 3, len(session.conversation))


async def test_a_restart_of_the_server_is_only_a_wait(somebody: ClientIdentity) -> None:
    with run_postgres() as server:
        async with stores(server, somebody) as (store,):
            session = await store.update((await store.create("w")).id, full_session)
            server.stop()
            waiting = asyncio.create_task(store.update(session.id, partial(one_turn, 1), SPENT))
            await asyncio.to_thread(server.start)
            session = await waiting
            assert len(await store.list_sessions(None)) == 1
        async with stores(server, somebody) as (reader,):
            assert await reader.get(session.id, "w") == session


@pytest.mark.timing
async def test_a_store_with_leases_closes_soon_without_its_server(somebody: ClientIdentity) -> None:
    with run_postgres() as server:
        store = server.create_store(somebody)
        for _ in range(4):
            await store.update((await store.create("w")).id, full_session)
        server.stop()
        async with asyncio.timeout(15):
            await store.aclose()
        server.start()


@pytest.mark.timing
async def test_calls_wait_together_for_an_unreachable_server(somebody: ClientIdentity) -> None:
    """Otherwise, a turn would wait for each of its calls. The lease is renewed meanwhile, too."""
    with run_postgres() as server:
        async with stores(server, somebody) as (store,):
            session = await store.update((await store.create("w")).id, full_session)
            server.stop()
            for seconds in (45, 15):
                async with asyncio.timeout(seconds):
                    with pytest.raises(StoreUnreachable, match="is not reachable"):
                        await store.update(session.id, partial(one_turn, 1))
            server.start()
            await store.update(session.id, partial(one_turn, 2))


async def test_old_sessions_are_pruned_unless_they_are_in_use(
    postgres: PostgresServer, somebody: ClientIdentity
) -> None:
    async with stores(postgres, somebody) as (store,):
        kept = [await store.update((await store.create("w")).id, full_session, SPENT) for _ in range(2)]
        old = [await store.update((await store.create("w")).id, full_session, SPENT) for _ in range(205)]
        for session in (kept[0], *old):
            await store.release(session.id)
        postgres.execute("UPDATE session SET updated = 0 WHERE id != %s AND tenant = %s", kept[0].id, somebody.tenant)
        with pytest.raises(SessionError, match="sees only the sessions of one user"):
            prune(postgres.url, timedelta(days=1))
        assert prune(postgres.owner_url, timedelta(days=1)) == 205
        assert {session.id for session in await store.list_sessions(None)} == {session.id for session in kept}
        assert (await store.sum_day(read_utc_date())).input_tokens == 207 * (SPENT.usage.input_tokens or 0)


async def test_tables_are_made_once_and_of_one_version(somebody: ClientIdentity) -> None:
    with run_postgres() as server:
        empty = server.owner_url.removesuffix("/thinklsp") + "/empty"
        server.execute("CREATE DATABASE empty")
        role = server.url.removesuffix("/thinklsp") + "/empty"
        with pytest.raises(SessionError, match=r"has no tables yet. Run `thinklsp store migrate`."):
            await PostgresStore(lambda: role, somebody).create("w")
        with ThreadPoolExecutor(4) as threads:
            done = list(threads.map(lambda _: migrate(empty, "thinklsp"), range(4)))
        assert sorted(before for before, _ in done) == [0, 1, 2, 3]
        with pytest.raises(SessionError, match="The database has no role nobody_here"):
            migrate(empty, "nobody_here")
        server.execute("CREATE DATABASE bare")
        with pytest.raises(SessionError, match=r"cannot be created \(.*\)\. Use a role that owns"):
            migrate(server.url.removesuffix("/thinklsp") + "/bare", None)
        store = PostgresStore(lambda: role, somebody)
        await store.create("w")
        await store.aclose()
        # A later version has migrated meanwhile.
        migrate(
            empty, None, {**load_migrations(), max(load_migrations()) + 1: "ALTER TABLE session ADD COLUMN later TEXT"}
        )
        for refused in (lambda: migrate(empty, None), lambda: check_store(role)):
            try:
                problems = refused().problems  # type: ignore[union-attr]
            except SessionError as error:
                problems = (str(error),)
            assert "belongs to a newer version of thinklsp. Update thinklsp." in problems[0]
