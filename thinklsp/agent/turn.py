"""The thinking loop: model call, tools, model call … until the model has answered. An async generator of turn events.

It knows neither editors nor stores: what it wants kept it says with StepCommitted, what it wants changed lies in the
overlay of its tool context.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import replace

from thinklsp.agent.bounded_call import asked, budgeted
from thinklsp.agent.budget import DaySpending
from thinklsp.agent.budget_gate import AskBudget, BudgetStopped
from thinklsp.agent.checks import Checks
from thinklsp.agent.context_meter import ContextMeter
from thinklsp.agent.model_call import CallFinished, ModelCaller
from thinklsp.agent.prompts import NUDGE
from thinklsp.agent.tool_runner import ToolResults, refer_to_earlier_reads, run_tool_calls
from thinklsp.agent.turn_state import Progress, TurnConfig
from thinklsp.agent.usage_tally import UsageTally
from thinklsp.agent.verify import Verification
from thinklsp.core.calls import with_unique_calls
from thinklsp.core.events import (
    Notice,
    StepCommitted,
    TurnEvent,
    TurnFinished,
)
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.core.said import THINKING_ONLY
from thinklsp.core.usage import Usage
from thinklsp.tools.base import ToolContext

# The share of a limit at which an answer counts as cut there: servers stop a little before the limit, and count tokens
# that they add themselves.
_NEARLY = 0.98


async def run_turn(
    conversation: Conversation,
    config: TurnConfig,
    *,
    caller: ModelCaller,
    context: ToolContext,
    ask_budget: AskBudget,
    spending: DaySpending | None = None,
    meter: ContextMeter | None = None,
    tally: UsageTally | None = None,
) -> AsyncGenerator[TurnEvent, None]:
    """One turn. `conversation` ends with the user's message. The last event is TurnFinished unless an error is raised.

    `spending` is what the day has cost so far; the turn adds its own model calls to it. `meter` is the session's.
    `tally` counts what the turn uses, whatever becomes of it. After
    a ContextCompacted the turn goes on with its `after`, which has to be stored before the next event is asked for.

    Raises ProviderError when the model cannot be reached or refuses the request; steps committed by then stand.
    """
    turn = Progress(conversation, config, tally or UsageTally(), meter or ContextMeter())
    caller = budgeted(caller, config, spending or DaySpending(), turn.tally, turn.meter, ask_budget)
    verification = None
    if context.commands is not None:
        checks = Checks(context.commands, context.overlay)
        context = replace(context, commands=checks)
        verification = Verification(turn, checks, context.overlay)
    for number in range(1, config.limits.max_steps + 1):
        turn.steps_left = config.limits.max_steps - number
        answer: CallFinished | None = None
        try:
            async with aclosing(asked(turn, caller, number)) as events:
                async for streamed in events:
                    if isinstance(streamed, CallFinished):
                        answer = streamed
                    else:
                        yield streamed
        except BudgetStopped:
            yield turn.finished("budget")
            return
        if answer is None:
            yield turn.finished("context_window")
            return
        async with aclosing(_verified(answer, turn, context, verification)) as outcome:
            async for event in outcome:
                yield event
                if isinstance(event, TurnFinished):
                    return
    yield turn.finished("max_steps")


async def _verified(
    answer: CallFinished, turn: Progress, context: ToolContext, verification: Verification | None
) -> AsyncGenerator[TurnEvent, None]:
    """As `_after_answer`, with the tests of its edits where the model has ended the turn."""
    async with aclosing(_after_answer(answer, turn, turn.config, context)) as events:
        async for event in events:
            if verification is None or not isinstance(event, TurnFinished) or event.stop_reason != "end_turn":
                yield event
                continue
            async with aclosing(verification.end()) as ending:
                async for last in ending:
                    yield last


async def _after_answer(
    answer: CallFinished, turn: Progress, config: TurnConfig, context: ToolContext
) -> AsyncGenerator[TurnEvent, None]:
    """Commits the step, runs its tools, ends the turn where the model has ended it."""
    message = with_unique_calls(answer.message, turn.conversation)
    answer = replace(answer, message=message)
    turn.said = turn.said.then(message)
    turn.text, turn.thinking = turn.said.text, turn.said.thinking
    match message.stop_reason:
        case "refusal":
            # The partial answer is not kept: sending it again would be refused again.
            turn.text = answer.explanation or "The service declined to answer this request."
            yield turn.finished("refusal")
        case "max_tokens" | "context_window":
            if (kept := _without_unfinished(message)) is not None:
                yield _commit(turn, kept, None, answer.usage)
            if message.stop_reason == "context_window" or is_window_full(config, answer.usage):
                yield turn.finished("context_window")
            else:
                yield Notice("warning", explain_cut(config, answer.usage))
                yield turn.finished("max_tokens")
        case "pause_turn" if message.is_paused:
            yield _commit(turn, message, None, answer.usage)
        case "end_turn" | "tool_use" | "stop_sequence" | "pause_turn" | "other":
            if message.tool_uses:
                async with aclosing(_run_tools(answer, turn, config, context)) as events:
                    async for event in events:
                        yield event
            elif message.text.strip():
                yield _commit(turn, message, None, answer.usage)
                yield turn.finished("end_turn")
            else:
                for event in _after_silence(answer, turn):
                    yield event


async def _run_tools(
    answer: CallFinished, turn: Progress, config: TurnConfig, context: ToolContext
) -> AsyncGenerator[TurnEvent, None]:
    async with aclosing(run_tool_calls(answer.message.tool_uses, config.tools, config.mode, context)) as events:
        async for event in events:
            if isinstance(event, ToolResults):
                results = refer_to_earlier_reads(answer.message, event.message, turn.conversation)
                yield _commit(turn, answer.message, results, answer.usage)
            else:
                yield event


def _after_silence(answer: CallFinished, turn: Progress) -> list[TurnEvent]:
    """An answer without text: stored sendable, asked to go on once, then said."""
    message = replace(answer.message, blocks=(*answer.message.blocks, TextBlock(THINKING_ONLY)))
    committed = _commit(turn, message, None, answer.usage)
    if not turn.nudged:
        turn.nudged = True
        nudge = UserMessage.of(NUDGE)
        turn.conversation = (*turn.conversation, nudge)
        return [replace(committed, results=nudge)]
    turn.text = turn.text or "The model ended its turn without an answer."
    return [committed, Notice("warning", "The model answered with thinking only, twice."), turn.finished("end_turn")]


def _commit(turn: Progress, message: AssistantMessage, results: UserMessage | None, usage: Usage) -> StepCommitted:
    turn.conversation += (message,) if results is None else (message, results)
    return StepCommitted(message, results, usage)


def _without_unfinished(message: AssistantMessage) -> AssistantMessage | None:
    """A cut answer as it may be kept: without calls, which might be incomplete, and without thinking at its end."""
    blocks = [block for block in message.blocks if not isinstance(block, ToolUseBlock)]
    while blocks and isinstance(blocks[-1], ThinkingBlock | RedactedThinkingBlock):
        blocks.pop()
    if not any(isinstance(block, TextBlock) and block.text.strip() for block in blocks):
        return None
    return replace(message, blocks=tuple(blocks))


def is_window_full(config: TurnConfig, usage: Usage) -> bool:
    """Return whether the input and the output of a model call fill the model's context window."""
    window, read, written = config.model.context_window, usage.input_tokens, usage.output_tokens
    return window is not None and read is not None and written is not None and read + written >= _NEARLY * window


def explain_cut(config: TurnConfig, usage: Usage) -> str:
    """Explain to the user why an answer ended at a length limit, and what helps.

    Services report several causes by one stop reason.
    """
    asked, cap, written = config.max_tokens, config.model.output_cap, usage.output_tokens
    ended_itself = asked is None or (written is not None and written < _NEARLY * asked)
    if ended_itself and config.model.provider != "openai-compatible":
        return "The service ended the answer at a limit of its own, not at maxTokens. Ask for the rest, or for less."
    if ended_itself or asked is None:
        return (
            "The server ended the answer at a limit of its own, not at maxTokens: most often the context that it was "
            "started with is full. Compact the conversation, or raise the context length on the server."
        )
    if cap is not None and asked >= cap:
        return f"The answer was cut: {asked:,} tokens are the most that {config.model.id} writes at once. Ask for less."
    return f"The answer was cut at maxTokens, {asked:,} tokens. Raise it or ask for less."
