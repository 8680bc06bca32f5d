"""A model call that fits into the model's window: the conversation is shortened where it would not.

The same by the user's word, between turns.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from thinklsp.agent.budget import DaySpending
from thinklsp.agent.budget_gate import AskBudget, BudgetedCaller, BudgetStopped
from thinklsp.agent.compacting import Compaction, CompactionEvent, keep_in_bounds, without_thinking
from thinklsp.agent.compaction import Cause
from thinklsp.agent.context_meter import ContextMeter
from thinklsp.agent.model_call import AttemptUsage, CallFinished, ModelCaller, Streamed
from thinklsp.agent.turn_state import Progress, TurnConfig, request_of
from thinklsp.agent.usage_tally import UsageTally
from thinklsp.core.errors import ContextWindowExceeded, TurnRefused
from thinklsp.core.events import (
    ContextCompacted,
    Notice,
    RetryScheduled,
    StepStarted,
    TextStreamed,
    ThinkingStreamed,
)
from thinklsp.core.messages import Conversation


async def compact_now(
    conversation: Conversation,
    config: TurnConfig,
    *,
    caller: ModelCaller,
    ask_budget: AskBudget,
    instructions: str = "",
    spending: DaySpending | None = None,
    meter: ContextMeter | None = None,
    tally: UsageTally | None = None,
) -> AsyncGenerator[CompactionEvent, None]:
    """Shortens a conversation between turns, by the user's word. The last event is ContextCompacted.

    Raises TurnRefused where there is nothing to shorten or the budget forbids it, ProviderError where no summary could
    be had.
    """
    meter = meter or ContextMeter()
    caller = budgeted(caller, config, spending or DaySpending(), tally or UsageTally(), meter, ask_budget)
    request = request_of(conversation, config)
    attempt = Compaction(request, config.compaction, caller, meter, "command", running=False, instructions=instructions)
    plan = attempt.plan()
    if plan is None:
        raise TurnRefused("There is nothing to shorten in this session yet.")
    try:
        async with aclosing(attempt.carried_out(plan)) as events:
            async for event in events:
                if isinstance(event, ContextCompacted):
                    meter.failures = 0
                yield event
    except BudgetStopped:
        raise TurnRefused(
            "The conversation was not shortened, because the summary would pass the budget. Raise the budget, or run "
            "it again and let it continue."
        ) from None


def budgeted(
    caller: ModelCaller,
    config: TurnConfig,
    spending: DaySpending,
    tally: UsageTally,
    meter: ContextMeter,
    ask: AskBudget,
) -> BudgetedCaller:
    return BudgetedCaller(caller, config.limits, spending=spending, tally=tally, meter=meter, ask=ask)


async def asked(
    turn: Progress, caller: ModelCaller, number: int
) -> AsyncGenerator[StepStarted | Streamed | CallFinished | CompactionEvent, None]:
    """A model call, ending with CallFinished; without it where the conversation does not fit into the model's window,
    though it has been shortened as far as that goes: before the call where it nears the limit, and once after it.

    Whether it fits is the service's word alone: our figures are estimates, and a refusal costs nothing.

    Raises BudgetStopped where the user does not let a call go out."""
    due = _compaction(turn, caller, "threshold")
    if due.is_due():
        async with aclosing(_shortened(turn, due)) as events:
            async for event in events:
                yield event
    yield StepStarted(number)
    for may_shorten in (turn.config.compaction.auto and not turn.meter.gave_up, False):
        before = turn.conversation
        request = request_of(turn.conversation, turn.config)
        wrote = False
        try:
            async with aclosing(caller.stream(request)) as streamed:
                async for piece in streamed:
                    wrote |= isinstance(piece, TextStreamed | ThinkingStreamed)
                    if isinstance(piece, AttemptUsage):
                        continue
                    if isinstance(piece, CallFinished):
                        turn.meter.learn(request, piece.usage)
                    elif isinstance(piece, Notice) and piece.remedy is not None:
                        turn.config = turn.config.knowing([piece.remedy])
                    yield piece
            return
        except ContextWindowExceeded as error:
            refusal = Notice("warning", str(error))
        if may_shorten:
            if wrote:
                yield RetryScheduled(0.0, refusal.text, restart=True)
            async with aclosing(_shortened(turn, _compaction(turn, caller, "overflow"))) as events:
                async for event in events:
                    yield event
        if turn.conversation is before:
            yield refusal
            return


def _compaction(turn: Progress, caller: ModelCaller, cause: Cause) -> Compaction:
    request = request_of(turn.conversation, turn.config)
    return Compaction(request, turn.config.compaction, caller, turn.meter, cause, running=True)


async def _shortened(turn: Progress, attempt: Compaction) -> AsyncGenerator[CompactionEvent, None]:
    """The turn goes on with the shorter conversation, if there is one in the end."""
    async with aclosing(keep_in_bounds(attempt)) as events:
        async for event in events:
            if isinstance(event, ContextCompacted):
                turn.conversation = event.after
                if event.thinking_off:
                    turn.config = replace(turn.config, thinking=without_thinking(attempt.request))
            yield event
