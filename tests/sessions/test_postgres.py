"""The parts that only the PostgreSQL store has: tenants, leases with fences, lost connections and addresses."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tests.support.hosts import cutting
from tests.support.postgres_server import PostgresServer, create_test_key
from tests.support.stored_sessions import EDIT, SPENT, full_session, one_turn, opened
from tests.support.watching import seen
from thinklsp.core.errors import SessionError, StoreUnreachable
from thinklsp.core.events import Fallback
from thinklsp.core.server_context import ClientIdentity
from thinklsp.core.usage import Usage
from thinklsp.sessions.ledger import EditIntent, WrittenTurn
from thinklsp.sessions.postgres import PostgresStore
from thinklsp.sessions.postgres.maintenance import check_store, load_migrations, migrate
from thinklsp.sessions.postgres.store_connections import build_conninfo, describe_address
from thinklsp.sessions.session import Session
from thinklsp.sessions.spending import UsageReport, read_utc_date
from thinklsp.sessions.store import CopyReport, SessionStore, copy_sessions
from thinklsp.sessions.tables import SessionRows

TABLES = (
    "session",
    "message",
    "origin",
    "opaque",
    "archive",
    "usage",
    "ledger",
    "remedy",
    "image",
    "lease",
    "session_key",
)
SINCE = datetime.now(UTC) - timedelta(days=1)


@asynccontextmanager
async def stores(
    server: PostgresServer,
    *identities: ClientIdentity,
    url: str = "",
    load_keys: Callable[[], str] | None = create_test_key,
) -> AsyncIterator[list[PostgresStore]]:
    made = [server.create_store(identity, lambda: url or server.url, load_keys) for identity in identities]
    try:
        yield made
    finally:
        for store in made:
            await store.aclose()


class Known(NamedTuple):
    """Everything that another user could know of a session."""

    id: str
    intent: EditIntent
    turn: WrittenTurn
    rows: SessionRows


async def count_rows(store: SessionStore, known: Known) -> int:
    rows = await store.read_rows(known.id)
    return sum(map(len, (*rows.tables.values(), rows.origins, rows.usage)))


NO_SESSION, DELETED = "This workspace has no such session", "This session was deleted"
FALLBACK = Fallback("effort", "m", "high", "low", ())
# What each method answers to another user: a part of a text, or the result for a session that does not exist.
FOREIGN: dict[str, tuple[Callable[[SessionStore, Known], Coroutine[Any, Any, object]], object]] = {
    "get": (lambda store, known: store.get(known.id, None), NO_SESSION),
    "find_latest": (lambda store, _: store.find_latest("w"), "This workspace has no session yet"),
    "list_sessions": (lambda store, _: store.list_sessions(None), ()),
    "update": (lambda store, known: store.update(known.id, full_session), DELETED),
    "compact": (lambda store, known: store.compact(known.id, lambda old: old, "note"), DELETED),
    "restore_archive": (lambda store, known: store.restore_archive(known.id, "a", lambda old: old), "This session"),
    "fork": (lambda store, known: store.fork(known.id, None), NO_SESSION),
    "list_archives": (lambda store, known: store.list_archives(known.id), ()),
    "read_archive": (lambda store, known: store.read_archive(known.id, "a"), "This session has no such archive"),
    "read_transcript": (lambda store, known: store.read_transcript(known.id, None), NO_SESSION),
    "delete": (lambda store, known: store.delete(known.id, None), NO_SESSION),
    "delete_all": (lambda store, known: store.delete_all([known.id], None), NO_SESSION),
    "find_in_use": (lambda store, known: store.find_in_use([known.id]), frozenset()),
    "keep_fallback": (lambda store, known: store.keep_fallback(known.id, "s", FALLBACK), NO_SESSION),
    "list_fallbacks": (lambda store, known: store.list_fallbacks(known.id, "s"), NO_SESSION),
    "list_unknown_edits": (lambda store, _: store.list_unknown_edits("w"), ()),
    "find_written_turn": (lambda store, _: store.find_written_turn("w"), None),
    "list_written_files": (lambda store, _: store.list_written_files("w", SINCE), ()),
    "list_earlier_edits": (lambda store, _: store.list_earlier_edits("w", ["file:///a"], SINCE, 9), ()),
    "settle_edit": (lambda store, known: store.settle_edit(known.intent, {EDIT.uri: "applied"}), None),
    "mark_undone": (lambda store, known: store.mark_undone(known.turn), None),
    "check_lease": (lambda store, known: store.check_lease(known.id), None),
    "reserve_budget": (lambda store, known: store.reserve_budget(known.id, 0.5, []), None),
    "release": (lambda store, known: store.release(known.id), None),
    "sum_day": (lambda store, _: store.sum_day(read_utc_date()), Usage()),
    "report_usage": (lambda store, known: store.report_usage(known.id), UsageReport(Usage(), {}, {}, {})),
    "read_data_version": (lambda store, _: store.read_data_version(), (0, 0, 0, 0)),
    "read_rows": (count_rows, 0),
    "read_status": (lambda store, _: store.read_status(), "sessions=0, size=0"),
    # Rows of the other user's own, even under the same ids.
    "record_intent": (lambda store, known: store.record_intent(known.id, "w", "t", [EDIT]), "EditIntent"),
    "write_rows": (lambda store, known: store.write_rows(known.rows), True),
    "create": (lambda store, _: store.create("w"), "workspace='w'"),
    "aclose": (lambda store, _: store.aclose(), None),
}


async def fill(store: SessionStore) -> tuple[Session, EditIntent]:
    """Make a session with rows in every table."""
    session = await store.update((await store.create("w")).id, full_session, SPENT)
    session, _ = await store.compact(session.id, lambda old: one_turn(1, old.replace_conversation(())), "note", SPENT)
    applied = await store.record_intent(session.id, "w", "t", [EDIT])
    await store.settle_edit(applied, {EDIT.uri: "applied"})
    await store.keep_fallback(session.id, "s", FALLBACK)
    return session, await store.record_intent(session.id, "w", "t", [EDIT])


def read_everything(server: PostgresServer, identity: ClientIdentity) -> dict[str, list[tuple[object, ...]]]:
    query = "SELECT * FROM {} WHERE tenant = %s AND account = %s"
    return {table: server.execute(query.format(table), identity.tenant, identity.user) for table in TABLES}


@pytest.mark.parametrize("other", ["tenant", "user"])
async def test_no_method_tells_another_user_of_a_session(
    postgres: PostgresServer, somebody: ClientIdentity, other: str
) -> None:
    stranger = replace(somebody, **{other: "stranger"})
    methods = {name for name in dir(SessionStore) if name[0] != "_" and callable(getattr(SessionStore, name))}
    assert methods == {*FOREIGN}
    async with stores(postgres, somebody, stranger) as (mine, theirs):
        session, intent = await fill(mine)
        turn = await mine.find_written_turn("w")
        assert turn is not None
        known = Known(session.id, intent, turn, await mine.read_rows(session.id))
        before = read_everything(postgres, somebody)
        assert [table for table, rows in before.items() if not rows] == ["image"]
        for name, (call, expected) in FOREIGN.items():
            try:
                found = await call(theirs, known)
            except SessionError as error:
                found = error
            assert expected in str(found) if isinstance(expected, str) else found == expected, name
        assert read_everything(postgres, somebody) == before


async def test_the_role_sees_no_row_without_a_tenant(postgres: PostgresServer, somebody: ClientIdentity) -> None:
    async with stores(postgres, somebody) as (store,):
        await fill(store)
    tables = postgres.execute("SELECT tablename FROM pg_tables WHERE schemaname = 'public'")
    assert {name for (name,) in tables} == {*TABLES, "spending", "schema_version"}
    for table in (*TABLES, "spending"):
        assert postgres.execute(f"TABLE {table}") or table == "image"
        assert postgres.execute(f"TABLE {table}", url=postgres.url) == [], table
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            postgres.execute(f"ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY", url=postgres.url)


async def test_a_role_that_sees_everything_is_refused(postgres: PostgresServer, somebody: ClientIdentity) -> None:
    postgres.execute("CREATE ROLE wide LOGIN BYPASSRLS")
    postgres.execute("CREATE ROLE heir LOGIN IN ROLE owner")
    for role, reason in (("owner", "superuser"), ("wide", "bypasses row security"), ("heir", "owns the tables")):
        async with stores(postgres, somebody, url=postgres.owner_url.replace("owner@", f"{role}@")) as (store,):
            with pytest.raises(SessionError, match=rf"{reason}.*would see the sessions of all users"):
                await store.list_sessions(None)


async def test_a_session_in_use_names_its_holder(postgres: PostgresServer, somebody: ClientIdentity) -> None:
    async with stores(postgres, somebody, somebody) as (one, two):
        session = await one.update((await one.create("w")).id, full_session)
        holder = rf"in use by another thinklsp \({socket.gethostname()}/{os.getpid()}\)"
        with pytest.raises(SessionError, match=rf"{holder}\. Fork it, .* or wait (30|2\d) s if it has crashed\."):
            await two.update(session.id, lambda old: old.rename("x"))
        assert await two.find_in_use([session.id, "y"]) == {session.id}
        await one.release(session.id)
        assert await two.find_in_use([session.id]) == frozenset()
        renamed = await two.update(session.id, lambda old: old.rename("x"))
        assert (await one.get(session.id, "w")).title == renamed.title == "x"


async def test_a_holder_that_was_stopped_for_too_long_records_nothing(
    postgres: PostgresServer, somebody: ClientIdentity
) -> None:
    lost: list[str] = []
    async with stores(postgres, somebody, somebody) as (stopped, other):
        session = await stopped.update((await stopped.create("w")).id, full_session)
        stopped.lease_watchers[session.id] = lambda: lost.append(session.id)
        # What the clock does meanwhile.
        postgres.execute("UPDATE lease SET until = now() - interval '1 s' WHERE session = %s", session.id)
        taken = await other.update(session.id, lambda old: one_turn(1, old))
        before = read_everything(postgres, somebody)
        calls: list[Coroutine[Any, Any, object]] = [
            stopped.update(session.id, lambda old: one_turn(2, old), SPENT),
            stopped.record_intent(session.id, "w", "t", [EDIT]),
            stopped.compact(session.id, lambda old: old.replace_conversation(()), "note"),
            stopped.delete(session.id, "w"),
        ]
        for call in calls:
            with pytest.raises(SessionError, match=r"taken over this session|in use by another"):
                await call
        assert read_everything(postgres, somebody) == before
        assert await other.get(session.id, "w") == taken
    assert lost == [session.id]


async def test_an_expired_lease_that_nobody_took_is_still_good(
    postgres: PostgresServer, somebody: ClientIdentity
) -> None:
    async with stores(postgres, somebody) as (store,):
        session = await store.update((await store.create("w")).id, full_session)
        postgres.execute("UPDATE lease SET until = now() - interval '1 s' WHERE session = %s", session.id)
        assert (await store.update(session.id, lambda old: old.rename("x"))).title == "x"
        [(is_valid,)] = postgres.execute("SELECT until > now() FROM lease WHERE session = %s", session.id)
        assert is_valid


async def test_a_connection_lost_while_the_store_opens_is_a_sentence(
    postgres: PostgresServer, somebody: ClientIdentity
) -> None:
    with cutting(postgres.port, b"rolbypassrls") as relay:
        url = postgres.url.replace(str(postgres.port), str(relay.port))
        relay.cuts = ["before"]
        async with stores(postgres, somebody, url=url) as (store,):
            with pytest.raises(StoreUnreachable, match=r"has closed the connection\. Try again\."):
                await store.list_sessions(None)
            assert relay.cuts == []
            assert await store.list_sessions(None) == ()


async def test_a_statement_that_was_cancelled_is_repeated(postgres: PostgresServer, somebody: ClientIdentity) -> None:
    """A busy database cancels statements after ten seconds."""
    waiting = "SELECT pid, xact_start FROM pg_stat_activity WHERE usename = 'thinklsp' AND wait_event_type = 'Lock'"
    async with stores(postgres, somebody) as (store,):
        session = await store.update((await store.create("w")).id, full_session)
        with psycopg.connect(postgres.owner_url) as other:
            other.execute("SELECT 1 FROM lease WHERE session = %s FOR UPDATE", (session.id,))
            writing = asyncio.create_task(store.update(session.id, partial(one_turn, 1), SPENT))
            [first] = await seen(lambda: postgres.execute(waiting))
            postgres.execute("SELECT pg_cancel_backend(%s)", first[0])
            await seen(lambda: postgres.execute(waiting) not in ([], [first]))
        assert await writing == await store.get(session.id, "w")
        assert (await store.report_usage(session.id)).total == SPENT.usage


async def test_all_leases_end_with_the_store(postgres: PostgresServer, somebody: ClientIdentity) -> None:
    async with stores(postgres, somebody) as (store,):
        kept = [(await store.update((await store.create("w")).id, full_session)).id for _ in range(2)]
    query = "SELECT session, holder FROM lease WHERE tenant = %s"
    assert sorted(postgres.execute(query, somebody.tenant)) == sorted((session, None) for session in kept)


async def test_an_unreachable_server_is_a_sentence_or_the_memory(somebody: ClientIdentity) -> None:
    with socket.create_server(("127.0.0.1", 0)) as unused:
        port = unused.getsockname()[1]
        url = f"postgresql://user:canary-password@127.0.0.1:{port}/db"
    store = PostgresStore(lambda: url, somebody)
    failed = rf'reachable: connection to server at "127\.0\.0\.1", port {port} failed: Connection refused\.$'
    with pytest.raises(SessionError, match=rf"postgresql://127.0.0.1:{port}/db is not {failed}") as refused:
        await store.create("w")
    assert "canary" not in str(refused.value)
    await store.aclose()
    fallback = PostgresStore(lambda: url, somebody, falls_back=True)
    session = await fallback.update((await fallback.create("w")).id, full_session)
    assert await fallback.get(session.id, "w") == session
    [problem] = fallback.problems
    assert "Sessions are kept in memory until thinklsp restarts." in problem
    await fallback.aclose()


async def test_text_that_postgresql_cannot_store_is_replaced(
    postgres: PostgresServer, somebody: ClientIdentity
) -> None:
    async with stores(postgres, somebody, somebody) as (one, two):
        session = await one.update((await one.create("w\0")).id, lambda old: full_session(old).rename("a\0b\ud83d"))
        await one.release(session.id)
        found = await two.get(session.id, None)
        assert found.title == "a\N{REPLACEMENT CHARACTER}b?"
        assert found.conversation == session.conversation, "messages are bytes"


async def test_sessions_are_copied_both_ways_and_compared(
    postgres: PostgresServer, somebody: ClientIdentity, tmp_path: Path
) -> None:
    async with opened(tmp_path / "a") as folder, opened(tmp_path / "b") as back:
        session, _ = await fill(folder)
        other = await folder.update((await folder.create("w")).id, partial(one_turn, 1))
        async with stores(postgres, somebody) as (database,):
            assert await copy_sessions(folder, database) == CopyReport(2, 0, {})
            assert await copy_sessions(folder, database) == CopyReport(0, 2, {})
            assert await copy_sessions(database, back) == CopyReport(2, 0, {})
            for store in (database, back):
                assert await store.get(session.id, "w") == session
                assert await store.get(other.id, "w") == other
                assert len(await store.list_archives(session.id)) == 1
                assert (await store.report_usage(session.id)).total == (await folder.report_usage(session.id)).total
            newer = await database.update(other.id, lambda old: old.rename("newer"))
            assert await copy_sessions(database, folder) == CopyReport(1, 1, {})
            assert await folder.get(other.id, "w") == newer


async def test_a_session_in_use_is_not_replaced_by_a_copy(
    postgres: PostgresServer, somebody: ClientIdentity, tmp_path: Path
) -> None:
    async with opened(tmp_path) as folder, stores(postgres, somebody, somebody) as (user, copying):
        session = await folder.update((await folder.create("w")).id, full_session)
        await copy_sessions(folder, user)
        await user.update(session.id, lambda old: old.rename("mine"))
        await folder.update(session.id, partial(one_turn, 1))
        await folder.update(session.id, partial(one_turn, 2))
        report = await copy_sessions(folder, copying)
        assert (report.copied, report.present) == (0, 0)
        assert "in use by another thinklsp" in report.errors[session.id]
        assert (await user.get(session.id, "w")).title == "mine"


def test_check_tells_the_facts_and_the_problems(postgres: PostgresServer) -> None:
    check = check_store(postgres.url)
    assert check.problems == ()
    assert dict(check.facts)["role"] == "thinklsp"
    assert dict(check.facts)["schema"] == f"version {max(load_migrations())} of {max(load_migrations())}"
    [problem] = check_store(postgres.owner_url).problems
    assert "would see the sessions of all users" in problem


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@127.0.0.1:5/db", {"target_session_attrs": "read-write", "connect_timeout": "2"}),
        ("postgresql://u@[::1]/db", {"tcp_user_timeout": "3000"}),
        ("postgresql:///db?host=/run/postgresql", {"target_session_attrs": "read-write"}),
        ("postgresql://u@db.example.com/db", {"sslmode": "verify-full", "sslrootcert": "system"}),
        ("postgresql://u@a:1,b:2/db?sslmode=verify-full&sslrootcert=/ca", {"sslrootcert": "/ca"}),
        ("postgresql://u@localhost/db?connect_timeout=9", {"connect_timeout": "9"}),
        ("postgresql://u@db.example.com/db?sslmode=require", "sslmode=require. Use sslmode=verify-full"),
        ("postgresql://u@127.0.0.1,db.example.com/db?sslmode=disable", "Use sslmode=verify-full"),
        ("postgresql://u@localhost/db?hostaddr=192.0.2.1&sslmode=disable", "Use sslmode=verify-full"),
        ("postgresql://u:canary@h/db?nonsense=1", "is invalid. Use postgresql://USER@HOST:PORT/DATABASE"),
    ],
)
def test_addresses_get_what_they_lack(url: str, expected: dict[str, str] | str) -> None:
    if isinstance(expected, str):
        with pytest.raises(SessionError, match=expected) as refused:
            build_conninfo(url)
        assert "canary" not in str(refused.value)
        return
    assert conninfo_to_dict(build_conninfo(url)).items() >= expected.items()
    assert "u:p" not in describe_address(url)


def test_the_environment_can_name_the_host(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PGHOST", "PGHOSTADDR"):
        with monkeypatch.context() as patch:
            patch.setenv(name, "192.0.2.1")
            assert conninfo_to_dict(build_conninfo("postgresql:///db"))["sslmode"] == "verify-full"


@pytest.mark.parametrize("use", [check_store, partial(migrate, role=None), describe_address])
def test_an_invalid_address_is_a_sentence(use: Callable[[str], object]) -> None:
    with pytest.raises(SessionError, match=r"is invalid\. Use postgresql://USER@HOST:PORT/DATABASE") as refused:
        use("postgresql://u:canary space@h/db")
    assert "canary" not in str(refused.value)


def test_without_the_package_a_sentence_names_the_command() -> None:
    program = """
import asyncio, sys
sys.modules["psycopg"] = None
from thinklsp.sessions.postgres import PostgresStore
from thinklsp.core.errors import SessionError
try:
    asyncio.run(PostgresStore(lambda: "").create("w"))
except SessionError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "Sessions in PostgreSQL need more packages. Run " in done.stdout
    assert "psycopg[binary]" in done.stdout
