"""Budgets ask before the call that would overshoot them, by an estimate of what it reads."""

from __future__ import annotations

from typing import Any

import pytest

from thinklsp.agent.budget import DaySpending
from thinklsp.agent.budget_gate import Allowance, BudgetGate, next_input
from thinklsp.core.messages import AssistantMessage, TextBlock, ToolResultBlock, UserMessage
from thinklsp.core.usage import Usage
from thinklsp.providers.model_info import Price

PRICE = Price(input=10.0, output=50.0, cache_read=1.0, cache_write=12.5)
MILLION = 1_000_000
# Reading it all anew costs 10 dollars, from the cache one.
PLAIN, CACHED = Usage(MILLION, 0), Usage(MILLION, 0, cache_read_tokens=MILLION)


class Gate:
    def __init__(self, price: Price | None = PRICE, *, spent: float = 0.0, **allowed: Any) -> None:
        self.questions: list[str] = []
        self.answers: list[Any] = []
        spending = DaySpending()
        spending.add(spent)
        self._gate = BudgetGate(Allowance(**allowed), price, spending, self._ask)

    async def _ask(self, said: str) -> Any:
        self.questions.append(said)
        return self.answers.pop(0)

    async def opens(self, used: Usage, next_call: Usage, *answers: str) -> bool:
        self.answers = list(answers)
        opened = await self._gate.opens(used, next_call)
        assert self.answers == []
        return opened


async def test_a_projected_overshoot_of_dollars_asks_with_the_amount() -> None:
    gate = Gate(usd=5.0)
    assert await gate.opens(Usage(cost_usd=3.9), CACHED)
    assert gate.questions == []
    assert not await gate.opens(Usage(cost_usd=3.9), PLAIN, "stop")
    assert gate.questions == [
        "This turn has cost $3.90, and what its next call reads comes to about $10.00; its budget is $5.00."
    ]
    # Continuing once allows the same amount again.
    assert await gate.opens(Usage(cost_usd=3.9), PLAIN, "continue")
    assert await gate.opens(Usage(cost_usd=8.9), CACHED)
    assert await gate.opens(Usage(cost_usd=9.1), CACHED, "raise")
    assert await gate.opens(Usage(cost_usd=900.0), PLAIN)


async def test_a_projected_overshoot_of_tokens_and_of_the_day() -> None:
    gate = Gate(tokens=100)
    assert await gate.opens(Usage(40, 10), Usage(50, 0))
    assert not await gate.opens(Usage(40, 10), Usage(51, 0), "stop")
    assert gate.questions == [
        "This turn has used 50 tokens, and what its next call reads comes to about 51 tokens; its budget is 100."
    ]
    day = Gate(usd_per_day=5.0, spent=4.5)
    assert not await day.opens(Usage(), CACHED, "stop")
    said = "Today's turns have cost $4.50, and what its next call reads comes to about $1.00"
    assert day.questions == [f"{said}; the budget of the day is $5.00."]


async def test_without_a_price_only_what_was_spent_counts() -> None:
    gate = Gate(None, usd=5.0, usd_per_day=5.0)
    assert await gate.opens(Usage(cost_usd=4.9), PLAIN)
    assert not await gate.opens(Usage(cost_usd=5.0), PLAIN, "stop")
    assert gate.questions == ["This turn has cost $5.00; its budget is $5.00."]


TEXT = "x" * 400
CONVERSATION = (
    UserMessage.of(TEXT),
    AssistantMessage((TextBlock(TEXT),)),
    UserMessage((ToolResultBlock("a", TEXT),)),
)


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (None, Usage(300, 0, cache_read_tokens=300)),
        (Usage(), Usage(300, 0, cache_read_tokens=300)),
        (Usage(1000, 50), Usage(1150, 0, cache_read_tokens=0)),
        (
            Usage(1000, 50, cache_read_tokens=700, cache_write_tokens=200),
            Usage(1150, 0, cache_read_tokens=900, cache_write_tokens=150),
        ),
    ],
)
def test_what_the_next_call_reads_is_told_from_the_last(last: Usage | None, expected: Usage) -> None:
    assert next_input(CONVERSATION, last) == expected
