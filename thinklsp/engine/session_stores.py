"""The session store of a user, and the budgets that a store of several processes enforces."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial

from thinklsp.core.errors import SessionError, SettingsError, TurnRefused
from thinklsp.core.server_context import LOCAL_IDENTITY, TENANT_VARIABLE, ClientIdentity
from thinklsp.sessions.postgres import PostgresStore
from thinklsp.sessions.spending import BudgetCap, CapReached, read_utc_date
from thinklsp.sessions.sqlite_store import SqliteStore
from thinklsp.sessions.state_folder import resolve_state_folder
from thinklsp.sessions.store import SessionStore
from thinklsp.settings.access import run_secret_command
from thinklsp.settings.admin_file import BudgetsSection, load_budgets_section, load_store_section
from thinklsp.settings.user_file import StoreSection


@dataclass(frozen=True, slots=True)
class TenantKeyCommand:
    """The command in `[store] key_command`, for one tenant. A call runs it."""

    argv: tuple[str, ...]
    tenant: str

    def __call__(self) -> str:
        """Return what the command prints. It may take a few seconds. Raises SessionError."""
        subject = f"The command in [store] key_command for the tenant {self.tenant}"
        return _run_command(subject, self.argv, {TENANT_VARIABLE: self.tenant})


def open_session_store(environment: Mapping[str, str], identity: ClientIdentity = LOCAL_IDENTITY) -> SessionStore:
    """Return the session store of a user. It performs no I/O before its first call.

    Raises SettingsError if the section `[store]` is invalid.
    """
    section = load_store_section(environment)
    if not section.is_shared:
        return SqliteStore(resolve_state_folder(environment))
    # Only teams with a budget are booked, because all calls of a team wait for the row with its spending.
    teams = load_budgets_section(environment).teams
    booked = replace(identity, groups=tuple(team for team in identity.groups if team in teams))
    command = section.key_command
    load_keys = None if command is None else TenantKeyCommand(command, identity.tenant)
    return PostgresStore(
        partial(load_store_url, section), booked, load_keys=load_keys, falls_back=section.fallback == "memory"
    )


def load_store_url(section: StoreSection) -> str:
    """Return the address of the database. Its command may take a few seconds. Raises SessionError."""
    if section.url_command is None:
        return section.url or ""
    return _run_command("The command in [store] url_command", section.url_command, {})


def _run_command(subject: str, argv: tuple[str, ...], environment: Mapping[str, str]) -> str:
    try:
        return asyncio.run(run_secret_command(subject, argv, environment))
    except SettingsError as error:
        raise SessionError(str(error)) from None


class TeamBudgets:
    """The budgets that concern one user. Only a store that several processes share enforces them."""

    def __init__(self, section: BudgetsSection, identity: ClientIdentity, store: SessionStore) -> None:
        self._section, self._identity, self._store = section, identity, store

    async def admit_call(self, session_id: str, usd: float) -> None:
        """Reserve the estimated cost of a model call.

        Raises SessionError if another process has taken over the session, and TurnRefused if a budget is used up.
        """
        caps = tuple(self._list_caps())
        if not caps:
            await self._store.check_lease(session_id)
        elif (reached := await self._store.reserve_budget(session_id, usd, caps)) is not None:
            raise TurnRefused(_describe(reached, usd))

    def _list_caps(self) -> Iterator[BudgetCap]:
        day = read_utc_date().isoformat()
        section, user = self._section, self._identity.user
        amounts = [("user", user, section.usd_per_user_day, section.usd_per_user_month)]
        amounts += [
            ("team", team, budget.usd_per_day, budget.usd_per_month)
            for team in self._identity.groups
            if (budget := section.teams.get(team)) is not None
        ]
        for scope, name, per_day, per_month in amounts:
            for period, usd in ((day, per_day), (day[:7], per_month)):
                if usd is not None:
                    yield BudgetCap("user" if scope == "user" else "team", name, period, usd)


def _describe(reached: CapReached, usd: float) -> str:
    cap = reached.cap
    is_day = len(cap.period) > len("2026-11")
    owner = "Your budget" if cap.scope == "user" else f"The budget of the team {cap.name}"
    reserved = f", ${reached.reserved_usd:.2f} reserved by running turns" if reached.reserved_usd else ""
    reset = "at 00:00 UTC" if is_day else "on the first of the next month"
    return (
        f"{owner} of ${cap.usd:.2f} for this {'day' if is_day else 'month'} does not allow the next model call: "
        f"${reached.spent_usd:.2f} spent{reserved}, and the call needs about ${usd:.2f}. It resets {reset}."
    )
