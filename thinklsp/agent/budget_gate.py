"""Asks before a model call that would cost more than the user allows: by turn in tokens and dollars, by day in dollars.

What the next call will read is estimated from the last one. What it will answer cannot be known beforehand.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal

from thinklsp.agent.budget import DaySpending
from thinklsp.core.messages import Conversation, Message
from thinklsp.core.usage import Usage
from thinklsp.providers.model_info import Price

_LETTERS = 4

AskBudget = Callable[[str], Awaitable[Literal["continue", "raise", "stop"]]]


@dataclass(frozen=True, slots=True)
class Allowance:
    """None: no limit."""

    tokens: int | None = None
    usd: float | None = None
    usd_per_day: float | None = None


def next_input(conversation: Conversation, last: Usage | None) -> Usage:
    """What the call after `last` will read: what a service caches, it has cached by then. Before the first call of a
    turn it is the least that can be: nobody knows what the service still has in its cache."""
    if last is None or last.input_tokens is None:
        tokens = sum(_estimated(message) for message in conversation)
        return Usage(tokens, 0, cache_read_tokens=tokens)
    added = (last.output_tokens or 0) + (_estimated(conversation[-1]) if conversation[-1].role == "user" else 0)
    cached = (last.cache_read_tokens or 0) + (last.cache_write_tokens or 0)
    written = None if last.cache_write_tokens is None else added
    return Usage(last.input_tokens + added, 0, cache_read_tokens=cached, cache_write_tokens=written)


def _estimated(message: Message) -> int:
    """Tokens of what can be read in it: text runs to about four letters a token."""
    return sum(len(getattr(block, "text", "")) for block in message.blocks) // _LETTERS


class BudgetGate:
    """One for a turn. Continuing once allows the same amount again; raising lifts the limit for the turn."""

    def __init__(self, allowed: Allowance, price: Price | None, spending: DaySpending, ask: AskBudget) -> None:
        self._allowed = self._left = allowed
        self._price = price
        self._spending = spending
        self._ask = ask

    async def opens(self, used: Usage, next_call: Usage) -> bool:
        """Whether the next call may go out: `used` by the turn so far, `next_call` as `next_input` gives it."""
        usd = 0.0 if self._price is None else self._price.cost(next_call) or 0.0
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
