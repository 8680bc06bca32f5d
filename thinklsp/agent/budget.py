"""The budgets for model calls, and the ledger that records their usage."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass, field
from datetime import UTC, date, datetime

from thinklsp.agent.context_meter import ContextMeter
from thinklsp.agent.model_call import AttemptUsage, CallFinished, ModelCaller
from thinklsp.core.choices import BudgetAnswer
from thinklsp.core.errors import TurnRefused
from thinklsp.core.events import RetryScheduled, TurnEvent
from thinklsp.core.usage import Usage
from thinklsp.providers.base import ModelRequest
from thinklsp.providers.model_info import Price

AskBudget = Callable[[str], Awaitable[BudgetAnswer]]
AdmitCall = Callable[[float], Awaitable[None]]
"""A check before each model call, with its estimated cost in US dollars."""
Emit = Callable[[TurnEvent], Awaitable[None]]
"""A callback for turn events. The turn waits until the callback returns, so that events can be stored first."""


def _utc_today() -> date:
    return datetime.now(UTC).date()


class DaySpending:
    """The total cost of all model calls on a UTC day.

    The object is mutable. The engine shares it between all turns.
    """

    def __init__(self, today: Callable[[], date] = _utc_today) -> None:
        self._today = today
        self._day = today()
        self._usd = 0.0

    @property
    def usd(self) -> float:
        """Today's total cost in US dollars, including failed calls. Calls with an unknown price are not included."""
        self._reset_on_new_day()
        return self._usd

    @property
    def day(self) -> date:
        return self._today()

    def raise_to(self, usd: float | None) -> None:
        """Raise the total to the stored cost of the day, which includes calls by other processes.

        The total never decreases, because calls that have just ended may not be stored yet.
        """
        self._reset_on_new_day()
        self._usd = max(self._usd, usd or 0.0)

    def add(self, usd: float | None) -> None:
        self._reset_on_new_day()
        self._usd += usd or 0.0

    def _reset_on_new_day(self) -> None:
        if (today := self._today()) != self._day:
            self._day, self._usd = today, 0.0


@dataclass(slots=True)
class UsageLedger:
    """The usage of a turn's model calls. Each attempt counts once, even if it failed or was interrupted.

    `stored_usage` is the usage that is already in the session store.
    """

    spending: DaySpending = field(default_factory=DaySpending)
    stored_usage: Usage = field(default_factory=Usage)
    _ended_usage: Usage = field(default_factory=Usage)
    _running_usage: Usage = field(default_factory=Usage)

    @property
    def total(self) -> Usage:
        return self._ended_usage + self._running_usage

    @property
    def unstored_usage(self) -> Usage:
        """The usage that is not yet in the session store, for example from interrupted answers."""
        return self.total.subtract(self.stored_usage)

    def report(self, attempt: Usage) -> None:
        """Replace the usage figures of the running attempt."""
        self._running_usage = attempt

    def end_attempt(self) -> None:
        """Mark the running attempt as ended, and add its cost to the day's total."""
        attempt, self._running_usage = self._running_usage, Usage()
        self._ended_usage += attempt
        self.spending.add(attempt.cost_usd)

    def add_stored(self, usage: Usage) -> None:
        self.stored_usage += usage


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """The limits at which thinklsp asks the user whether the turn may continue. None means no limit."""

    max_steps: int
    tokens: int | None = None
    usd: float | None = None
    usd_per_day: float | None = None


class BudgetStopped(TurnRefused):
    """Raised if a model call would exceed a budget and the user does not allow the call."""


class MeteredCaller:
    """The caller for a turn's model calls, including calls for summaries.

    It asks the user before a call that would exceed a budget, and adds each attempt's usage to the ledger. `meter`
    belongs to the session. `admit_call` may raise an error, which ends the turn.
    """

    def __init__(
        self,
        caller: ModelCaller,
        limits: BudgetLimits,
        *,
        usage: UsageLedger,
        meter: ContextMeter,
        ask: AskBudget,
        admit_call: AdmitCall | None = None,
    ) -> None:
        self.usage = usage
        self.meter = meter
        self._caller = caller
        self._admit_call = admit_call
        self._budgets = TurnBudgets(limits, usage.spending, ask)

    async def call(self, request: ModelRequest, emit: Emit) -> CallFinished:
        """Call the model. Raises ProviderError if the call fails, and BudgetStopped if the user rejects the call."""
        # The meter estimates only the input, because the output's length is not known before the call.
        next_usage = self.meter.estimate_next_usage(request)
        if not await self._budgets.allow_call(self.usage.total, next_usage, request.model.price):
            raise BudgetStopped("The budget was reached, and you did not allow the next model call.")
        if self._admit_call is not None:
            price = request.model.price
            await self._admit_call(0.0 if price is None else price.compute_cost(next_usage) or 0.0)
        finished: CallFinished | None = None
        try:
            async with aclosing(self._caller.stream(request)) as events:
                async for event in events:
                    if isinstance(event, AttemptUsage | CallFinished):
                        self.usage.report(event.usage)
                    elif isinstance(event, RetryScheduled):
                        self.usage.end_attempt()
                    if isinstance(event, CallFinished):
                        finished = event
                    elif not isinstance(event, AttemptUsage):
                        await emit(event)
        finally:
            self.usage.end_attempt()
        if finished is None:
            raise AssertionError("a model call ends with CallFinished or an error")
        return finished


class TurnBudgets:
    """The budgets of a turn.

    thinklsp asks the user about each budget separately, so an answer applies to only one budget.
    """

    def __init__(self, limits: BudgetLimits, spending: DaySpending, ask: AskBudget) -> None:
        self._tokens = _Budget(limits.tokens, "This turn has used", "its budget", "{:,}", " tokens")
        self._usd = _Budget(limits.usd, "This turn has cost", "its budget", "${:.2f}")
        self._usd_per_day = _Budget(limits.usd_per_day, "Today's turns have cost", "the daily budget", "${:.2f}")
        self._spending = spending
        self._ask = ask

    async def allow_call(self, used: Usage, next_call: Usage, price: Price | None) -> bool:
        """Return True if the next model call is allowed.

        `used` is the turn's usage so far. `next_call` is the estimated input of the next call.
        """
        tokens = (used.input_tokens or 0) + (used.output_tokens or 0)
        usd = 0.0 if price is None else price.compute_cost(next_call) or 0.0
        return (
            await self._tokens.allow(tokens, next_call.input_tokens or 0, self._ask)
            and await self._usd.allow(used.cost_usd or 0.0, usd, self._ask)
            # All turns of a day share this budget, but the user's answer applies only to the current turn.
            and await self._usd_per_day.allow(self._spending.usd, usd, self._ask)
        )


class _Budget:
    """A limit on the usage of a turn. An allowance of None means no limit.

    The answer "continue" raises the limit by the original amount. The answer "raise" removes the limit for the turn.
    `unit` follows every amount except the limit.
    """

    def __init__(self, allowance: float | None, intro: str, name: str, amount_format: str, unit: str = "") -> None:
        self._allowance = self._limit = allowance
        self._intro, self._name, self._amount_format, self._unit = intro, name, amount_format, unit

    async def allow(self, used: float, upcoming: float, ask: AskBudget) -> bool:
        limit, allowed = self._limit, self._allowance
        if limit is None or allowed is None or (used < limit and used + upcoming <= limit):
            return True
        match await ask(self._format_question(used, upcoming, limit)):
            case "continue":
                self._limit = max(limit, used) + allowed
            case "raise":
                self._limit = None
            case "stop":
                return False
        return True

    def _format_question(self, used: float, upcoming: float, limit: float) -> str:
        so_far, more = (self._amount_format.format(amount) + self._unit for amount in (used, upcoming))
        following = "" if used >= limit else f", and the input of its next model call is about {more}"
        return f"{self._intro} {so_far}{following}; {self._name} is {self._amount_format.format(limit)}."
