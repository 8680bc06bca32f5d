"""The turn loop, which alternates model calls and tool calls until the model gives its final answer.

The loop does not depend on editors or on the session store. Its events contain all data to store, and tools write their
edits to the overlay.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace

from thinklsp.agent.budget import BudgetStopped, Emit, MeteredCaller, TurnConfig
from thinklsp.agent.compaction import CompactionAttempt, CompactionCause, compact_automatically
from thinklsp.agent.model_call import CallFinished
from thinklsp.agent.prompts import NUDGE
from thinklsp.agent.summary import reduce_thinking
from thinklsp.agent.tool_runner import ResultImages, fit_results, run_tool_calls
from thinklsp.agent.verify import EditVerification
from thinklsp.core.check_results import VerificationOutcome
from thinklsp.core.errors import ContextWindowExceeded
from thinklsp.core.events import (
    THINKING_ONLY,
    Notice,
    ReminderAdded,
    RetryScheduled,
    StepCommitted,
    StepStarted,
    TextStreamed,
    ThinkingStreamed,
    TurnAnswer,
    TurnEvent,
    TurnFinished,
    TurnStopReason,
)
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    ImageBlock,
    Message,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    UserMessage,
    collect_sight,
    ensure_unique_call_ids,
)
from thinklsp.core.usage import Usage
from thinklsp.tools.tool import ToolContext, resolve_tool_names

# An answer counts as truncated at this share of a limit, because servers stop slightly early and add tokens of their
# own.
_FULL_SHARE = 0.98


TakePrompts = Callable[[], Awaitable[tuple[TextBlock | ImageBlock, ...]]]
"""A function that returns the prompts which the user has sent since the last model call, and which join the turn."""


class TurnLoop:
    """The loop for a single turn. `run` can be called only once. `conversation` ends with the user's message.

    `emit` receives the events. After a ContextCompacted event, the loop continues with the compacted conversation.
    `take_prompts` is called before each further model call. Its prompts follow the tool results in one user message. It
    is None if prompts cannot join the turn.
    """

    def __init__(
        self,
        conversation: Conversation,
        config: TurnConfig,
        *,
        caller: MeteredCaller,
        context: ToolContext,
        emit: Emit,
        take_prompts: TakePrompts | None = None,
    ) -> None:
        self._conversation = conversation
        self._config = config
        self._context = context
        context.overlay.sight = collect_sight(conversation)
        self._emit = emit
        self._take_prompts = take_prompts
        self._caller = caller
        self._verification: EditVerification | None = None
        if context.commands is not None:
            self._verification = EditVerification(context.commands, context.overlay, config.verify, emit)
            self._context = replace(context, commands=self._verification)
        self._answer = TurnAnswer()
        self._has_streamed = self._has_nudged = False
        self._steps_left = config.limits.max_steps

    async def run(self) -> TurnFinished:
        """Run the turn until it ends.

        Raises ProviderError if the provider is unreachable or rejects the request. Steps before the error remain valid.
        """
        for number in range(1, self._config.limits.max_steps + 1):
            self._steps_left -= 1
            try:
                answer = await self._call_model(number)
            except BudgetStopped:
                return self._build_final_event("budget")
            finished = self._build_final_event("context_window") if answer is None else await self._commit_step(answer)
            if finished is not None:
                return finished
        return self._build_final_event("max_steps")

    async def _call_model(self, number: int) -> CallFinished | None:
        """Call the model. If the context window is almost full, compact the conversation first.

        If the provider rejects the conversation as too long, compact it and call the model once more. Returns None if
        that call is also rejected.
        """
        due = self._build_compaction("threshold")
        if due.is_due():
            await self._compact(due)
        await self._emit(StepStarted(number))
        for may_compact in (self._config.compaction.auto and not self._caller.meter.has_given_up, False):
            before, request = self._conversation, self._config.build_request(self._conversation)
            self._has_streamed = False
            try:
                answer = await self._caller.call(request, self._forward_piece)
            except ContextWindowExceeded as error:
                self._caller.meter.record_rejection(request)
                rejection = Notice("warning", str(error))
            else:
                self._caller.meter.record_usage(request, answer.usage)
                return answer
            if may_compact:
                if self._has_streamed:
                    await self._emit(RetryScheduled(0.0, rejection.text, restart=True))
                await self._compact(self._build_compaction("overflow"))
            if self._conversation is before:
                await self._emit(rejection)
                break
        return None

    async def _forward_piece(self, piece: TurnEvent) -> None:
        if isinstance(piece, TextStreamed | ThinkingStreamed):
            self._has_streamed = True
        elif isinstance(piece, Notice) and piece.fallback is not None:
            self._config = self._config.apply_fallbacks([piece.fallback])
        await self._emit(piece)

    def _build_compaction(self, cause: CompactionCause, conversation: Conversation | None = None) -> CompactionAttempt:
        request = self._config.build_request(self._conversation if conversation is None else conversation)
        return CompactionAttempt(request, self._config.compaction, self._caller, cause, is_turn_running=True)

    async def _compact(self, attempt: CompactionAttempt) -> None:
        """Compact the conversation if possible."""
        compacted = await compact_automatically(attempt, self._emit)
        if compacted is None:
            return
        self._conversation = compacted.after
        self._context.overlay.sight = collect_sight(compacted.after)
        if compacted.thinking_off:
            self._config = replace(self._config, thinking=reduce_thinking(attempt.request))

    async def _commit_step(self, answer: CallFinished) -> TurnFinished | None:
        """Commit the step and run its tool calls. Return the final event if the turn has ended, or None."""
        message = resolve_tool_names(answer.message, self._config.tools)
        message = ensure_unique_call_ids(message, self._conversation)
        self._answer = self._answer.append(message)
        match message.stop_reason:
            case "refusal":
                # The partial answer is not stored, because the provider would refuse to continue it.
                return self._build_final_event(
                    "refusal", answer.explanation or "The provider declined to answer this request."
                )
            case "max_tokens" | "context_window":
                return await self._commit_truncated(message, answer.usage)
            case "pause_turn" if message.is_paused:
                await self._commit(message, None, answer.usage)
                return None
            case "end_turn" | "tool_use" | "stop_sequence" | "pause_turn" | "other":
                if message.tool_uses:
                    await self._commit(message, await self._run_tools(message), answer.usage)
                    return None
                if not message.text.strip():
                    return await self._commit_textless(message, answer.usage)
                await self._commit(message, None, answer.usage)
                return await self._end_turn()

    async def _commit_truncated(self, message: AssistantMessage, usage: Usage) -> TurnFinished:
        if (stripped := _strip_incomplete(message)) is not None:
            await self._commit(stripped, None, usage)
        if message.stop_reason == "context_window" or is_window_full(self._config, usage):
            return self._build_final_event("context_window")
        await self._emit(Notice("warning", explain_truncation(self._config, usage)))
        return self._build_final_event("max_tokens")

    async def _commit_textless(self, message: AssistantMessage, usage: Usage) -> TurnFinished | None:
        """Commit an answer that contains thinking but no text.

        After the first such answer, the loop asks the model to continue. After the second, it ends the turn.
        """
        sendable = replace(message, blocks=(*message.blocks, TextBlock(THINKING_ONLY)))
        nudge = None if self._has_nudged else await self._join_prompts(UserMessage.from_text(NUDGE))
        await self._commit(sendable, nudge, usage)
        if nudge is not None:
            self._has_nudged = True
            return None
        await self._emit(Notice("warning", "The model answered twice with thinking but no text."))
        return await self._end_turn(self._answer.text or "The model ended the turn without an answer.")

    async def _run_tools(self, message: AssistantMessage) -> UserMessage:
        config = self._config
        images = ResultImages(self._conversation, config.model.accepted_images)
        results = await run_tool_calls(message.tool_uses, config.tools, config.mode, self._context, self._emit, images)
        attempt = self._build_compaction("threshold", (*self._conversation, message))
        return await fit_results(attempt, await self._join_prompts(results), self._context.texts)

    async def _join_prompts(self, message: UserMessage) -> UserMessage:
        """Add the prompts that join the turn to the message that the next model call sends, if there is such a call."""
        if self._take_prompts is None or self._steps_left <= 0:
            return message
        prompts = await self._take_prompts()
        return replace(message, blocks=(*message.blocks, *prompts)) if prompts else message

    async def _commit(self, message: AssistantMessage, results: UserMessage | None, usage: Usage) -> None:
        self._append(*((message,) if results is None else (message, results)))
        await self._emit(StepCommitted(message, results, usage))

    def _append(self, *messages: Message) -> None:
        self._conversation += messages
        self._context.overlay.sight.learn(collect_sight(messages).files)

    async def _end_turn(self, text: str | None = None) -> TurnFinished | None:
        """End the turn, unless tests have failed and the model can still correct its edits."""
        outcome = (
            None if self._verification is None else await self._verification.verify(can_continue=self._steps_left > 0)
        )
        if not isinstance(outcome, UserMessage):
            return self._build_final_event("end_turn", text, outcome)
        reminder = await self._join_prompts(outcome)
        self._append(reminder)
        await self._emit(ReminderAdded(reminder))
        return None

    def _build_final_event(
        self, reason: TurnStopReason, text: str | None = None, test_outcome: VerificationOutcome | None = None
    ) -> TurnFinished:
        final_text = self._answer.text if text is None else text
        return TurnFinished(reason, final_text, self._answer.thinking, self._caller.usage.total, test_outcome)


def _strip_incomplete(message: AssistantMessage) -> AssistantMessage | None:
    """Remove tool calls and trailing thinking from a truncated answer, because both may be incomplete."""
    blocks = [block for block in message.blocks if not isinstance(block, ToolUseBlock)]
    while blocks and isinstance(blocks[-1], ThinkingBlock | RedactedThinkingBlock):
        blocks.pop()
    if not any(isinstance(block, TextBlock) and block.text.strip() for block in blocks):
        return None
    return replace(message, blocks=tuple(blocks))


def is_window_full(config: TurnConfig, usage: Usage) -> bool:
    """Return True if the input and output of a model call fill the context window."""
    window, input_tokens, output_tokens = config.model.context_window, usage.input_tokens, usage.output_tokens
    if window is None or input_tokens is None or output_tokens is None:
        return False
    return input_tokens + output_tokens >= _FULL_SHARE * window


def explain_truncation(config: TurnConfig, usage: Usage) -> str:
    """Return a message for the user that explains a truncated answer and suggests a solution.

    Providers use one stop reason for several causes, so the cause is inferred from the token counts.
    """
    limit, cap, output_tokens = config.max_tokens, config.model.output_cap, usage.output_tokens
    is_provider_limit = limit is None or (output_tokens is not None and output_tokens < _FULL_SHARE * limit)
    if is_provider_limit and config.model.provider != "openai-compatible":
        return "The provider ended the answer at its own limit, not at `maxTokens`. Ask for the rest, or for less."
    if is_provider_limit or limit is None:
        return (
            "The server ended the answer at its own limit, not at `maxTokens`; usually its context is full. Compact "
            "the conversation, or raise the server's context length."
        )
    if cap is not None and limit >= cap:
        return f"The answer was truncated: {config.model.id} writes at most {limit:,} tokens at once. Ask for less."
    return f"The answer was truncated at `maxTokens`, {limit:,} tokens. Raise `maxTokens` or ask for less."
