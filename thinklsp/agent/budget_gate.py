"""Asks before a model call that would cost more than the user allows: by turn in tokens and dollars, by day in dollars.

What a call will read is projected by the meter. What it will answer cannot be known beforehand.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from thinklsp.agent.budget import DaySpending
from thinklsp.agent.context_meter import ContextMeter
from thinklsp.agent.model_call import AttemptUsage, CallEvent, CallFinished, ModelCaller
from thinklsp.agent.turn_state import Limits
from thinklsp.agent.usage_tally import UsageTally
from thinklsp.core.choices import BudgetAnswer
from thinklsp.core.errors import TurnRefused
from thinklsp.core.events import RetryScheduled
from thinklsp.core.usage import Usage
from thinklsp.providers.base import ModelRequest
from thinklsp.providers.model_info import Price

AskBudget = Callable[[str], Awaitable[BudgetAnswer]]


class BudgetStopped(TurnRefused):
    """The user did not let a call go out: it would have passed a budget."""


class BudgetedCaller:
    """A ModelCaller for one turn: every call, a summary's too, is projected, asked for where it would pass a budget,
    and its attempts are counted. `stream` raises BudgetStopped where the user does not let it go out."""

    def __init__(
        self,
        caller: ModelCaller,
        allowed: Limits,
        *,
        spending: DaySpending,
        tally: UsageTally,
        meter: ContextMeter,
        ask: AskBudget,
    ) -> None:
        self._caller = caller
        self._spending = spending
        self._tally = tally
        self._meter = meter
        self._gate = BudgetGate(allowed, spending, ask)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        if not await self._gate.opens(self._tally.used, self._meter.next_input(request), request.model.price):
            raise BudgetStopped("The budget was reached, and the next call of the model was not allowed.")
        try:
            async with aclosing(self._caller.stream(request)) as events:
                async for event in events:
                    if isinstance(event, AttemptUsage | CallFinished):
                        self._tally.running = event.usage
                    if isinstance(event, RetryScheduled | CallFinished):
                        self._end_attempt()
                    yield event
        finally:
            self._end_attempt()

    def _end_attempt(self) -> None:
        self._spending.add(self._tally.end_attempt().cost_usd)


class BudgetGate:
    """One for a turn. Each budget that is reached is asked about by itself, and the answer counts for it alone."""

    def __init__(self, allowed: Limits, spending: DaySpending, ask: AskBudget) -> None:
        self._tokens = _Budget(allowed.tokens, "This turn has used", "its budget", "{:,}", " tokens")
        self._usd = _Budget(allowed.usd, "This turn has cost", "its budget", "${:.2f}")
        self._usd_of_day = _Budget(allowed.usd_per_day, "Today's turns have cost", "the budget of the day", "${:.2f}")
        self._spending = spending
        self._ask = ask

    async def opens(self, used: Usage, next_call: Usage, price: Price | None) -> bool:
        """Whether the next call may go out: `used` by the turn so far, `next_call` what it will read."""
        tokens = (used.input_tokens or 0) + (used.output_tokens or 0)
        usd = 0.0 if price is None else price.cost(next_call) or 0.0
        return (
            await self._tokens.allows(tokens, next_call.input_tokens or 0, self._ask)
            and await self._usd.allows(used.cost_usd or 0.0, usd, self._ask)
            # The turn shares it with others; an answer counts for this turn.
            and await self._usd_of_day.allows(self._spending.usd, usd, self._ask)
        )


class _Budget:
    """Continuing once allows the same amount again; raising lifts the limit for the turn. None: no limit.

    `shown` is how an amount is written, `unit` what follows it where the sentence has not yet named it.
    """

    def __init__(self, allowed: float | None, begins: str, name: str, shown: str, unit: str = "") -> None:
        self._allowed = self._limit = allowed
        self._begins, self._name, self._shown, self._unit = begins, name, shown, unit

    async def allows(self, used: float, coming: float, ask: AskBudget) -> bool:
        limit, allowed = self._limit, self._allowed
        if limit is None or allowed is None or (used < limit and used + coming <= limit):
            return True
        match await ask(self._question(used, coming, limit)):
            case "continue":
                self._limit = max(limit, used) + allowed
            case "raise":
                self._limit = None
            case "stop":
                return False
        return True

    def _question(self, used: float, coming: float, limit: float) -> str:
        so_far, more = (self._shown.format(amount) + self._unit for amount in (used, coming))
        following = "" if used >= limit else f", and what its next call reads comes to about {more}"
        return f"{self._begins} {so_far}{following}; {self._name} is {self._shown.format(limit)}."
