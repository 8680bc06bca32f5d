"""Budgets ask before the call that would overshoot them, by an estimate of what it reads."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.scripted_model import ORIGIN, SCRIPTED
from thinklsp.agent.budget import BudgetLimits, BudgetStopped, ContextMeter, DaySpending, MeteredCaller, UsageLedger
from thinklsp.agent.model_call import CallEvent, CallFinished
from thinklsp.core.events import TurnEvent
from thinklsp.core.messages import (
    COMPACTION_TYPE,
    AssistantMessage,
    Conversation,
    OpaqueBlock,
    OpaqueState,
    TextBlock,
    ToolResultBlock,
    ToolSpec,
    UserMessage,
)
from thinklsp.core.usage import Usage
from thinklsp.providers.base import ModelRequest, Thinking
from thinklsp.providers.catalogue import Price

PRICE = Price(input=10.0, output=50.0, cache_read=1.0, cache_write=12.5)
MILLION = 1_000_000
# Reading it all anew costs 10 dollars, from the cache one.
PLAIN, CACHED = Usage(MILLION, 0), Usage(MILLION, 0, cache_read_tokens=MILLION)


class FixedMeter(ContextMeter):
    def __init__(self, usage: Usage) -> None:
        super().__init__()
        self._usage = usage

    def estimate_next_usage(self, request: ModelRequest) -> Usage:
        return self._usage


class Gate:
    """The budgets of a turn, whose model answers at once and costs nothing."""

    def __init__(self, price: Price | None = PRICE, *, spent: float = 0.0, **allowed: Any) -> None:
        self.questions: list[str] = []
        self.answers: list[Any] = []
        spending = DaySpending()
        spending.add(spent)
        self._request = replace(request(CONVERSATION), model=replace(SCRIPTED, price=price))
        self._ledger = UsageLedger(spending)
        self._caller = MeteredCaller(
            self, BudgetLimits(1, **allowed), usage=self._ledger, meter=ContextMeter(), ask=self._ask
        )

    async def _ask(self, said: str) -> Any:
        self.questions.append(said)
        return self.answers.pop(0)

    async def stream(self, request: ModelRequest) -> AsyncGenerator[CallEvent, None]:
        yield CallFinished(AssistantMessage(()), Usage())

    async def opens(self, used: Usage, next_call: Usage, *answers: str) -> bool:
        self.answers = list(answers)
        self._ledger.report(used)
        self._caller.meter = FixedMeter(next_call)
        opened = True
        try:
            await self._caller.call(self._request, _ignore)
        except BudgetStopped:
            opened = False
        assert self.answers == []
        return opened


async def _ignore(event: TurnEvent) -> None:
    pass


async def test_a_projected_overshoot_of_dollars_asks_with_the_amount() -> None:
    gate = Gate(usd=5.0)
    assert await gate.opens(Usage(cost_usd=3.9), CACHED)
    assert gate.questions == []
    assert not await gate.opens(Usage(cost_usd=3.9), PLAIN, "stop")
    assert gate.questions == [
        "This turn has cost $3.90, and the input of its next model call is about $10.00; its budget is $5.00."
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
        "This turn has used 50 tokens, and the input of its next model call is about 51 tokens; its budget is 100."
    ]
    day = Gate(usd_per_day=5.0, spent=4.5)
    assert not await day.opens(Usage(), CACHED, "stop")
    said = "Today's turns have cost $4.50, and the input of its next model call is about $1.00"
    assert day.questions == [f"{said}; the daily budget is $5.00."]


TOKENS_AND_DOLLARS: list[tuple[str, list[str]]] = [
    # Each call reads 100,000 tokens for $0.40.
    ("continue", ["tokens", "tokens cost", "tokens cost"]),
    ("raise", ["tokens", "cost", ""]),
]


@pytest.mark.parametrize(("answer", "named"), TOKENS_AND_DOLLARS)
async def test_an_answer_counts_for_the_budget_that_was_named(answer: str, named: list[str]) -> None:
    gate = Gate(Price(input=4.0, output=0.0), tokens=4_000, usd=0.5)
    for calls, names in enumerate(named):
        gate.questions.clear()
        expected = names.split()
        used = Usage(100_000 * calls, 0, cost_usd=0.4 * calls)
        assert await gate.opens(used, Usage(100_000, 0), *[answer] * len(expected))
        assert [word for said in gate.questions for word in ("tokens", "cost") if f" {word}" in said] == expected
    stopping = Gate(tokens=1, usd=0.5)
    assert not await stopping.opens(Usage(1, 0, cost_usd=0.5), PLAIN, "raise", "stop")
    assert not await stopping.opens(Usage(1, 0, cost_usd=0.5), PLAIN, "stop")
    assert "cost" in stopping.questions[-1]


async def test_without_a_price_only_what_was_spent_counts() -> None:
    gate = Gate(None, usd=5.0, usd_per_day=5.0)
    assert await gate.opens(Usage(cost_usd=4.9), PLAIN)
    assert not await gate.opens(Usage(cost_usd=5.0), PLAIN, "stop")
    assert gate.questions == ["This turn has cost $5.00; its budget is $5.00."]


TEXT = "x" * 3_000
CONVERSATION: Conversation = (
    UserMessage.from_text(TEXT),
    AssistantMessage((TextBlock(TEXT),)),
    UserMessage((ToolResultBlock("a", TEXT),)),
)


def request(conversation: Conversation, system: str = TEXT, tools: tuple[ToolSpec, ...] = ()) -> ModelRequest:
    return ModelRequest(SCRIPTED, system, tools, conversation, Thinking(), None)


def test_first_request_is_estimated_as_uncached_input() -> None:
    counted = ContextMeter().estimate_next_usage(request(CONVERSATION))
    # A third of a token for each byte, system prompt included.
    assert 4_000 <= (counted.input_tokens or 0) <= 4_100
    assert counted == Usage(counted.input_tokens, 0, cache_write_tokens=counted.input_tokens)
    tools = (ToolSpec("read", TEXT, {"properties": {"path": {"description": TEXT}}}),)
    more = ContextMeter().estimate_next_usage(request(CONVERSATION, tools=tools))
    assert 2_000 <= (more.input_tokens or 0) - (counted.input_tokens or 0) <= 2_100


# The answer's 50 tokens, and 3,016 bytes of results at the rate that the first request has shown: two bytes a token.
@pytest.mark.parametrize(
    ("last", "expected"),
    [
        (Usage(3016, 50), Usage(4574, 0, cache_read_tokens=0)),
        (
            Usage(3016, 50, cache_read_tokens=700, cache_write_tokens=200),
            Usage(4574, 0, cache_read_tokens=900, cache_write_tokens=1558),
        ),
    ],
)
def test_what_the_next_call_reads_is_told_from_the_last(last: Usage, expected: Usage) -> None:
    meter = ContextMeter()
    meter.record_usage(request(CONVERSATION[:1], "y" * 3_016), last)
    assert meter.estimate_next_usage(request(CONVERSATION, "y" * 3_016)) == expected


def test_what_the_service_no_longer_reads_is_not_counted() -> None:
    note = OpaqueBlock(COMPACTION_TYPE, OpaqueState("{}", ORIGIN))
    shortened = (*CONVERSATION, AssistantMessage((note, TextBlock("So."))), UserMessage.from_text("Next?"))
    meter = ContextMeter()
    meter.record_usage(request(CONVERSATION), Usage(9_000, 50))
    left = meter.estimate_next_usage(request(shortened, system="x"))
    assert (left.input_tokens or 0) < 100
    assert not left.cache_read_tokens
    # Another model reads it all.
    other = meter.estimate_next_usage(replace(request(shortened, system="x"), model=replace(SCRIPTED, id="n")))
    assert (other.input_tokens or 0) > 3_000


_TEXTS = st.text("xé", max_size=40)
_MESSAGES = st.one_of(
    _TEXTS.map(UserMessage.from_text),
    _TEXTS.map(lambda text: AssistantMessage((TextBlock(text),))),
    st.builds(lambda: AssistantMessage((OpaqueBlock(COMPACTION_TYPE, OpaqueState("{}", ORIGIN)),))),
)
_CHANGES = st.one_of(
    st.builds(lambda more: lambda kept: (*kept, *more), st.lists(_MESSAGES, max_size=3)),
    st.builds(lambda count, first: lambda kept: (first, *kept[count:]), st.integers(0, 3), _MESSAGES),
    st.just(lambda kept: kept[:-1]),
)


@given(st.lists(st.tuples(_CHANGES, st.sampled_from([SCRIPTED.id, "n"])), max_size=8))
def test_an_old_meter_estimates_like_a_new_one(
    changes: list[tuple[Callable[[Conversation], Conversation], str]],
) -> None:
    meter, conversation = ContextMeter(), CONVERSATION
    for change, model in changes:
        conversation = change(conversation)
        asked = replace(request(conversation), model=replace(SCRIPTED, id=model))
        assert meter.estimate_tokens(asked) == ContextMeter().estimate_tokens(asked)


def test_figures_of_another_conversation_are_not_reused() -> None:
    meter = ContextMeter()
    meter.record_usage(request(CONVERSATION[:1]), Usage(2_000, 50, cache_read_tokens=2_000))
    for other in (
        request((UserMessage.from_text("z"),)),
        replace(request(CONVERSATION), model=replace(SCRIPTED, id="n")),
    ):
        assert not meter.estimate_next_usage(other).cache_read_tokens
