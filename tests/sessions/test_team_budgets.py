"""Spending caps in PostgreSQL: parallel calls never exceed them, and every reservation ends."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack, aclosing
from dataclasses import replace
from pathlib import Path

import pytest

from tests.support.postgres_server import PostgresServer
from tests.support.stored_sessions import full_session
from thinklsp.core.errors import SettingsError, TurnRefused
from thinklsp.core.server_context import ClientIdentity
from thinklsp.core.usage import Usage
from thinklsp.engine.session_stores import TeamBudgets, open_session_store
from thinklsp.sessions.postgres import PostgresStore
from thinklsp.sessions.session import Session
from thinklsp.sessions.spending import BudgetCap, CallUsage, CapReached, read_utc_date
from thinklsp.settings.admin_file import BudgetsSection, TeamBudget, load_budgets_section

DAY = read_utc_date().isoformat()
# A binary fraction, so that sums are exact.
CALL_USD = 1 / 32


def spent(usd: float) -> CallUsage:
    return CallUsage("t", "p", "m", Usage(input_tokens=1, cost_usd=usd))


async def begin(store: PostgresStore) -> Session:
    return await store.update((await store.create("w")).id, full_session)


async def test_fifty_parallel_turns_never_exceed_the_cap(postgres: PostgresServer, somebody: ClientIdentity) -> None:
    cap = BudgetCap("user", somebody.user, DAY, 1.0)
    async with AsyncExitStack() as stack:
        stores = [await stack.enter_async_context(aclosing(postgres.create_store(somebody))) for _ in range(5)]

        async def run_turn(store: PostgresStore) -> int:
            session = await begin(store)
            calls = 0
            for _ in range(4):
                if await store.reserve_budget(session.id, CALL_USD, [cap]) is None:
                    calls += 1
                    await store.update(session.id, lambda now: now, spent(CALL_USD))
            await store.release(session.id)
            return calls

        calls = sum(await asyncio.gather(*(run_turn(stores[number % 5]) for number in range(50))))
        total = (await stores[0].sum_day(read_utc_date())).cost_usd
    # The four calls of a turn want more than the cap in all, so it is used up to the last call and no further.
    assert (calls, total) == (32, 1.0)


async def test_a_reservation_ends_with_its_lease(postgres: PostgresServer, somebody: ClientIdentity) -> None:
    cap = BudgetCap("user", somebody.user, DAY, 1.0)
    async with aclosing(postgres.create_store(somebody)) as dead, aclosing(postgres.create_store(somebody)) as store:
        left = await begin(dead)
        session = await begin(store)
        assert await dead.reserve_budget(left.id, 0.75, [cap]) is None
        assert await store.reserve_budget(session.id, 0.5, [cap]) == CapReached(cap, 0.0, 0.75)
        # The clock of the database when nothing has renewed the lease.
        postgres.execute("UPDATE lease SET until = now() - interval '1 s' WHERE session = %s", left.id)
        assert await store.reserve_budget(session.id, 0.5, [cap]) is None
        # The own reservation is replaced by the next one, and ends with the turn.
        assert await store.reserve_budget(session.id, 1.0, [cap]) is None
        await store.release(session.id)
        assert await store.reserve_budget((await begin(store)).id, 1.0, [cap]) is None


async def test_caps_count_what_they_are_about(postgres: PostgresServer, somebody: ClientIdentity) -> None:
    payments = replace(somebody, groups=("payments", "all"))
    colleague = replace(somebody, user="colleague", groups=("payments",))
    outsider = replace(somebody, user="outsider")
    stranger = replace(payments, tenant="another")
    async with AsyncExitStack() as stack:
        mine, theirs, outside, other = [
            await stack.enter_async_context(aclosing(postgres.create_store(identity)))
            for identity in (payments, colleague, outsider, stranger)
        ]
        for store in (mine, outside, other):
            session = await begin(store)
            await store.update(session.id, lambda now: now, spent(0.5))
        session = await begin(theirs)
        for name, cap, reached in (
            ("my colleague's call", BudgetCap("team", "payments", DAY, 1.0), 0.5),
            ("the month of the team", BudgetCap("team", "payments", DAY[:7], 1.0), 0.5),
            ("my own day", BudgetCap("user", "colleague", DAY, 0.5), 0.0),
            ("another day", BudgetCap("team", "payments", "2001-01-01", 0.5), 0.0),
            ("a team without me", BudgetCap("team", "all", DAY, 1.0), 0.5),
        ):
            found = await theirs.reserve_budget(session.id, 0.75, [cap])
            assert found == CapReached(cap, reached, 0.0), name
        enough = [BudgetCap("team", "payments", DAY, 1.25), BudgetCap("user", "colleague", DAY, 0.75)]
        assert await theirs.reserve_budget(session.id, 0.75, enough) is None
        mine_again = await begin(mine)
        found = await mine.reserve_budget(mine_again.id, 0.25, [enough[0]])
        assert found == CapReached(enough[0], 0.5, 0.75), "the colleague's running call is reserved"


async def test_a_copied_session_does_not_cost_again(postgres: PostgresServer, somebody: ClientIdentity) -> None:
    async with aclosing(postgres.create_store(somebody)) as store:
        session = await begin(store)
        await store.update(session.id, lambda now: now, spent(0.5))
        postgres.execute("UPDATE usage SET made = made - 7200 * 1000000000::bigint WHERE tenant = %s", somebody.tenant)
        rows = await store.read_rows(session.id)
        await store.delete(session.id, None)
        assert await store.write_rows(rows)
    assert postgres.execute(
        "SELECT sum(spent_usd) FROM spending WHERE tenant = %s AND period = %s", somebody.tenant, DAY
    ) == [(0.5,)]


async def test_only_teams_with_a_budget_are_booked(
    postgres: PostgresServer, somebody: ClientIdentity, tmp_path: Path
) -> None:
    """Otherwise, all calls of a company would wait for the row of the group `everybody`."""
    (tmp_path / "admin.toml").write_text("[budgets.teams.payments]\nusd_per_day = 1\n")
    environment = {"THINKLSP_ADMIN_CONFIG": str(tmp_path / "admin.toml"), "THINKLSP_STORE_URL": postgres.url}
    environment |= {"THINKLSP_CONFIG": str(tmp_path / "config.toml")}
    async with aclosing(open_session_store(environment, replace(somebody, groups=("everybody", "payments")))) as store:
        session = await store.update((await store.create("w")).id, full_session)
        await store.update(session.id, lambda now: now, spent(0.5))
    query = "SELECT scope, name FROM spending WHERE tenant = %s AND period = %s ORDER BY scope"
    assert postgres.execute(query, somebody.tenant, DAY) == [("team", "payments"), ("user", somebody.user)]


async def test_the_user_is_told_which_budget_is_used_up(postgres: PostgresServer, somebody: ClientIdentity) -> None:
    identity = replace(somebody, groups=("payments", "uncapped"))
    section = BudgetsSection(usd_per_user_month=2, teams={"payments": TeamBudget(usd_per_day=1)})
    async with aclosing(postgres.create_store(identity)) as store:
        budgets = TeamBudgets(section, identity, store)
        session = await begin(store)
        await budgets.admit_call(session.id, 0.5)
        await store.update(session.id, lambda now: now, spent(0.9))
        with pytest.raises(TurnRefused) as refused:
            await budgets.admit_call(session.id, 0.5)
        assert str(refused.value) == (
            "The budget of the team payments of $1.00 for this day does not allow the next model call: $0.90 spent, "
            "and the call needs about $0.50. It resets at 00:00 UTC."
        )
        await store.update(session.id, lambda now: now, spent(1.0))
        lonely = TeamBudgets(section, somebody, store)
        with pytest.raises(
            TurnRefused, match=r"^Your budget of \$2.00 for this month .* on the first of the next month"
        ):
            await lonely.admit_call(session.id, 0.5)


def test_the_section_is_the_administrators_alone(tmp_path: Path) -> None:
    admin, own = tmp_path / "admin.toml", tmp_path / "config.toml"
    own.write_text("[budgets]\nusd_per_user_day = 1\n")
    environment = {"THINKLSP_ADMIN_CONFIG": str(admin), "THINKLSP_CONFIG": str(own)}
    assert load_budgets_section(environment) == BudgetsSection()
    admin.write_text("[budgets]\nusd_per_user_day = 5\n[budgets.teams.payments]\nusd_per_month = 800\n")
    assert load_budgets_section(environment) == BudgetsSection(
        usd_per_user_day=5, teams={"payments": TeamBudget(usd_per_month=800)}
    )
    admin.write_text("[budgets.teams.payments]\nusd_per_week = 5\n")
    with pytest.raises(SettingsError, match=r"`budgets.teams.payments.usd_per_week` in .*admin.toml. Did you mean"):
        load_budgets_section(environment)
