"""Asks before a model call that would cost more than the user allows: by turn in tokens and dollars, by day in dollars.

What a call will read is projected by the meter. What it will answer cannot be known beforehand.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Literal

from thinklsp.agent.budget import DaySpending
from thinklsp.agent.context_meter import ContextMeter
from thinklsp.agent.model_call import CallEvent, CallFinished, ModelCaller
from thinklsp.agent.turn_state import Limits
from thinklsp.core.errors import TurnRefused
from thinklsp.core.usage import Usage
from thinklsp.providers.base import ModelRequest
from thinklsp.providers.model_info import Price

AskBudget = Callable[[str], Awaitable[Literal["continue", "raise", "stop"]]]


class BudgetStopped(TurnRefused):
    """The user did not let a call go out: it would have passed a budget."""


class BudgetedCaller:
    """A ModelCaller for one turn: every call, a summary's too, is projected, asked for where it would pass a budget,
    and booked. `stream` raises BudgetStopped where the user does not let it go out."""

    def __init__(
        self, caller: ModelCaller, allowed: Limits, spending: DaySpending, meter: ContextMeter, ask: AskBudget
    ) -> None:
        self._caller = caller
        self._spending = spending
        self._meter = meter
        self._gate = BudgetGate(allowed, spending, ask)
        self._used = Usage()

    async def stream(self, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        if not await self._gate.opens(self._used, self._meter.next_input(request), request.model.price):
            raise BudgetStopped("The budget was reached, and the next call of the model was not allowed.")
        async with aclosing(self._caller.stream(request)) as events:
            async for event in events:
                if isinstance(event, CallFinished):
                    self._used += event.usage
                    self._spending.add(event.usage.cost_usd)
                yield event


class BudgetGate:
    """One for a turn. Continuing once allows the same amount again; raising lifts the limit for the turn."""

    def __init__(self, allowed: Limits, spending: DaySpending, ask: AskBudget) -> None:
        self._allowed = self._left = allowed
        self._spending = spending
        self._ask = ask

    async def opens(self, used: Usage, next_call: Usage, price: Price | None) -> bool:
        """Whether the next call may go out: `used` by the turn so far, `next_call` what it will read."""
        usd = 0.0 if price is None else price.cost(next_call) or 0.0
        return await self._turn_allows(used, next_call.input_tokens or 0, usd) and await self._day_allows(usd)

    async def _turn_allows(self, used: Usage, next_tokens: int, next_usd: float) -> bool:
        limit, allowed = self._left, self._allowed
        tokens, usd = (used.input_tokens or 0) + (used.output_tokens or 0), used.cost_usd or 0.0
        if limit.tokens is not None and _is_over(tokens, next_tokens, limit.tokens):
            said = f"This turn has used {tokens:,} tokens{_next(tokens >= limit.tokens, f'{next_tokens:,} tokens')}"
            said = f"{said}; its budget is {limit.tokens:,}."
        elif limit.usd is not None and _is_over(usd, next_usd, limit.usd):
            said = f"This turn has cost ${usd:.2f}{_next(usd >= limit.usd, f'${next_usd:.2f}')}"
            said = f"{said}; its budget is ${limit.usd:.2f}."
        else:
            return True
        match await self._ask(said):
            case "continue":
                more_tokens = limit.tokens and allowed.tokens and max(limit.tokens, tokens) + allowed.tokens
                more_usd = limit.usd and allowed.usd and max(limit.usd, usd) + allowed.usd
                self._left = replace(limit, tokens=more_tokens, usd=more_usd)
            case "raise":
                self._left = replace(limit, tokens=None, usd=None)
            case "stop":
                return False
        return True

    async def _day_allows(self, next_usd: float) -> bool:
        """The same for the budget of the day, which the turn shares with others; an answer counts for this turn."""
        limit, spent = self._left.usd_per_day, self._spending.usd
        if limit is None or not _is_over(spent, next_usd, limit):
            return True
        said = f"Today's turns have cost ${spent:.2f}{_next(spent >= limit, f'${next_usd:.2f}')}"
        match await self._ask(f"{said}; the budget of the day is ${limit:.2f}."):
            case "continue":
                again = self._allowed.usd_per_day
                self._left = replace(self._left, usd_per_day=again and max(limit, spent) + again)
            case "raise":
                self._left = replace(self._left, usd_per_day=None)
            case "stop":
                return False
        return True


def _is_over(used: float, coming: float, limit: float) -> bool:
    return used >= limit or used + coming > limit


def _next(reached: bool, amount: str) -> str:
    return "" if reached else f", and what its next call reads comes to about {amount}"
