"""The checks before each model call: whether the turn still has its session, and whether the budgets allow the call."""

from __future__ import annotations

from collections.abc import Iterator

from thinklsp.core.client_identity import ClientIdentity
from thinklsp.core.errors import TurnRefused
from thinklsp.sessions.spending import BudgetCap, CapReached, read_utc_date
from thinklsp.sessions.store import SessionStore
from thinklsp.settings.budgets_section import BudgetsSection


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
