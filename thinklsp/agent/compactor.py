"""The compactor, which replaces earlier messages with a summary that the model writes.

A compaction starts on command, near the limit of the context window, or after the provider rejects a request as too
long. The receiver of the ContextCompacted event stores the compacted conversation.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from thinklsp.agent.budget import BudgetStopped, Emit, MeteredCaller
from thinklsp.agent.compaction_plan import (
    CompactionCause,
    CompactionPlan,
    TokenLimits,
    is_summary_message,
    plan_compaction,
)
from thinklsp.agent.context_meter import MAX_COMPACTION_FAILURES, ContextMeter
from thinklsp.agent.loop_config import CompactionRules, TurnConfig
from thinklsp.agent.model_call import CallFinished
from thinklsp.agent.summary import (
    ModelSummary,
    Summary,
    build_summary,
    parse_model_summary,
    parse_summary,
    render_summary,
    truncate_summary,
)
from thinklsp.agent.summary_request import (
    SUMMARY_FORMAT,
    build_summary_request,
    is_different_thinking,
    plan_least_effort,
    reduce_thinking,
)
from thinklsp.agent.thinking_losses import count_lost_answers
from thinklsp.agent.transcript import format_transcript
from thinklsp.core.errors import BadRequest, ContextWindowExceeded, ProviderError, TurnRefused
from thinklsp.core.events import CompactionStarted, ContextCompacted, Notice, RetryScheduled, TurnEvent
from thinklsp.core.messages import Conversation, TextBlock, collect_held_sight, count_held_messages
from thinklsp.core.usage import Usage
from thinklsp.providers.base import ModelRequest, Thinking

_TAIL_SHARE = 0.2
_SUMMARY_SHARE = 0.1
_MIN_SUMMARY_BYTES, _MAX_SUMMARY_BYTES = 4_000, 32_000
_TRANSCRIPT_SHARE = 0.5
_MIN_TRANSCRIPT_BYTES = 4_000
_MAX_ATTEMPTS = 4


@dataclass(frozen=True, slots=True)
class CompactionAttempt:
    """An attempt to compact a conversation. `request` is the next model call and contains the conversation."""

    request: ModelRequest
    rules: CompactionRules
    caller: MeteredCaller
    cause: CompactionCause
    is_turn_running: bool
    instructions: str = ""

    @property
    def meter(self) -> ContextMeter:
        return self.caller.meter

    @property
    def window(self) -> int | None:
        """The length of the longest prompt in tokens, or None if it is unknown."""
        return self.meter.find_window(self.request.model)

    @property
    def may_start(self) -> bool:
        """True if thinklsp may compact the conversation without a command."""
        return self.rules.auto and not self.meter.has_given_up and self.request.compact_at is None

    def is_due(self) -> bool:
        """Return True if the next request exceeds the compaction threshold.

        The result is False if the context window is unknown or the provider compacts the conversation itself.
        """
        window = self.window
        if window is None or not self.may_start:
            return False
        last = self.request.conversation[-1]
        # A paused answer must be continued before the conversation can be compacted.
        return last.role == "user" and self.meter.estimate_tokens(self.request) >= self.rules.threshold * window

    def plan(self) -> CompactionPlan | None:
        return plan_compaction(
            self.request.conversation,
            model=self.request.model,
            is_turn_running=self.is_turn_running,
            limits=self.compute_limits(),
            cause=self.cause,
            count_tokens=self.meter.count_tokens,
        )

    async def compact(self, plan: CompactionPlan, emit: Emit) -> ContextCompacted:
        """Ask the model for a summary and return the compacted conversation.

        Raises ProviderError if the model call fails. After an overflow, thinklsp writes the summary itself if the call
        fails, because the conversation could not continue otherwise.
        """
        await emit(CompactionStarted())
        answer: CallFinished | None = None
        try:
            if any(message.role == "assistant" for message in plan.earlier):
                answer = await self._request_summary(plan, emit)
        except ProviderError as error:
            if self.cause != "overflow" and not isinstance(error, ContextWindowExceeded):
                raise
            await emit(Notice("warning", f"The model could not write a summary: {error}"))
        return self._build_event(plan, answer)

    def compute_limits(self) -> TokenLimits:
        window, present = self.window, self.meter.estimate_tokens(self.request)
        limit = present // 2 if window is None else round(self.rules.threshold * window)
        tail = round(_TAIL_SHARE * (limit if window is None else window))
        if self.cause == "overflow":
            # An overflow shows that the token estimate is too low or the context window is smaller than expected.
            limit = min(limit, present // 2)
            tail = min(tail, round(_TAIL_SHARE * limit))
        elif self.cause == "command":
            tail = min(tail, present // 4)
        fixed = self.meter.estimate_fixed_tokens(self.request) + self.meter.convert_to_tokens(
            self._limit_summary_bytes()
        )
        return TokenLimits(limit, tail, fixed, present)

    def _estimate_window(self) -> int:
        present = self.meter.estimate_tokens(self.request)
        window = self.window or present
        return min(window, present) if self.cause == "overflow" else window

    def _limit_summary_bytes(self) -> int:
        size = self.meter.convert_to_bytes(round(self._estimate_window() * _SUMMARY_SHARE))
        return max(_MIN_SUMMARY_BYTES, min(_MAX_SUMMARY_BYTES, size))

    async def _request_summary(self, plan: CompactionPlan, emit: Emit) -> CallFinished:
        """Ask the model for a summary.

        If the provider rejects the transcript as too long, retry with half of it. If the provider rejects minimal
        thinking, retry without thinking parameters.
        """

        async def emit_notices(event: TurnEvent) -> None:
            # The text of the summary is not part of the turn's answer.
            if isinstance(event, RetryScheduled):
                await emit(replace(event, restart=False))
            elif isinstance(event, Notice):
                await emit(event)

        size = max(
            _MIN_TRANSCRIPT_BYTES, self.meter.convert_to_bytes(round(self._estimate_window() * _TRANSCRIPT_SHARE))
        )
        thinking = plan_least_effort(self.request.model)
        tries_left = _MAX_ATTEMPTS
        while True:
            tries_left -= 1
            request = build_summary_request(self.request.model, thinking, self._build_prompt(plan, size))
            try:
                return await self.caller.call(request, emit_notices)
            except ContextWindowExceeded:
                if not tries_left:
                    raise
                size = size // 2
            except BadRequest:
                if thinking == Thinking() or not tries_left:
                    raise
                thinking = Thinking()

    def _build_prompt(self, plan: CompactionPlan, size: int) -> str:
        earlier_summary, messages = _split_summary(plan.earlier)
        text = format_transcript(messages, size, without_old_results=self.cause == "overflow")
        parts = [f"<summary_so_far>\n{earlier_summary}\n</summary_so_far>"] if earlier_summary else []
        parts += [f"<transcript>\n{text}\n</transcript>", SUMMARY_FORMAT]
        if self.instructions.strip():
            parts.append(f"The user's instructions for this summary: {self.instructions.strip()}")
        return "\n\n".join(parts)

    def saves_tokens(self, plan: CompactionPlan) -> bool:
        """Return True if a summary without any words of the model is shorter than the messages that it replaces."""
        shortest = replace(self.request, conversation=self._build_conversation(plan, ModelSummary(), ""))
        return self.meter.estimate_tokens(shortest) < self.meter.estimate_tokens(self.request)

    def _build_conversation(self, plan: CompactionPlan, model_summary: ModelSummary | None, notes: str) -> Conversation:
        earlier_summary, messages = _split_summary(plan.earlier)
        conversation, size = self.request.conversation, self._limit_summary_bytes()
        summary = build_summary(
            messages,
            parse_summary(earlier_summary) if earlier_summary else Summary(),
            model_summary,
            notes,
            unseen=conversation[count_held_messages(conversation) :],
        )
        if plan.latest_step:
            summary = replace(summary, latest_step=format_transcript(plan.latest_step, size // 4))
        sight = collect_held_sight(conversation, len(plan.earlier))
        return plan.build_conversation(render_summary(truncate_summary(summary, size)), sight.files)

    def _build_event(self, plan: CompactionPlan, answer: CallFinished | None) -> ContextCompacted:
        answer_text = "" if answer is None or answer.message.stop_reason == "refusal" else answer.message.text.strip()
        model_summary = parse_model_summary(answer_text)
        is_blank = model_summary is None and not any(char.isalnum() for char in answer_text)
        after = self._build_conversation(plan, model_summary, "" if is_blank else answer_text)
        request = replace(self.request, conversation=after)
        tokens = self.meter.estimate_tokens(self.request), self.meter.estimate_tokens(request)
        thinking_off = self.rules.thinking_after == "off" and is_different_thinking(
            reduce_thinking(request), request.thinking
        )
        lost_count = count_lost_answers(self.request.conversation, after)
        return ContextCompacted(
            before=self.request.conversation,
            after=after,
            tokens_before=tokens[0],
            tokens_after=tokens[1],
            usage=Usage() if answer is None else answer.usage,
            text=_format_notice(
                len(self.request.conversation),
                len(after),
                tokens,
                lost_count,
                is_own_summary=is_blank,
                thinking_off=thinking_off,
            ),
            thinking_off=thinking_off,
        )


async def compact_now(
    conversation: Conversation,
    config: TurnConfig,
    *,
    caller: MeteredCaller,
    emit: Emit,
    instructions: str = "",
) -> None:
    """Compact a conversation between turns at the user's request. The last event is ContextCompacted.

    Raises TurnRefused if a summary saves no tokens or the user does not allow the call. Raises ProviderError if the
    model does not return a summary.
    """
    request, rules = config.build_request(conversation), config.compaction
    attempt = CompactionAttempt(request, rules, caller, "command", is_turn_running=False, instructions=instructions)
    plan = attempt.plan()
    if plan is None or not attempt.saves_tokens(plan):
        raise TurnRefused("Nothing to compact in this session yet.")
    try:
        compacted = await attempt.compact(plan, emit)
    except BudgetStopped:
        raise TurnRefused(
            "The conversation was not compacted, because the summary would exceed the budget. Raise the budget, or "
            "compact again and choose to continue."
        ) from None
    caller.meter.failures = 0
    if compacted.tokens_after >= compacted.tokens_before:
        raise TurnRefused(
            "The conversation was not compacted, because its summary is not shorter: about "
            f"{compacted.tokens_after:,} instead of {compacted.tokens_before:,} tokens."
        )
    await emit(compacted)


async def compact_automatically(attempt: CompactionAttempt, emit: Emit) -> ContextCompacted | None:
    """Compact the conversation during a turn, and count consecutive failures.

    Returns None if the conversation is unchanged. Provider errors become notices, so that the turn can continue.
    """
    meter = attempt.meter
    plan = attempt.plan()
    if plan is None:
        return None
    compacted: ContextCompacted | None = None
    try:
        compacted = await attempt.compact(plan, emit)
    except ProviderError as error:
        meter.failures += 1
        await emit(Notice("warning", f"Compaction failed: {error} The conversation continues unchanged."))
    if compacted is not None:
        limit = attempt.rules.threshold * (attempt.window or compacted.tokens_before)
        meter.failures = 0 if compacted.tokens_after <= limit else meter.failures + 1
        await emit(compacted)
    if meter.failures == MAX_COMPACTION_FAILURES:
        text = (
            f"Compaction failed {MAX_COMPACTION_FAILURES} times in a row; automatic compaction is off for this session."
        )
        await emit(Notice("warning", f"{text} Run `thinklsp.compact` to try again."))
    return compacted


def _split_summary(earlier: Conversation) -> tuple[str, Conversation]:
    """Return the text of an earlier summary and the messages after it. Without a summary, the text is empty."""
    if earlier and is_summary_message(earlier[0]):
        block = earlier[0].blocks[0]
        return (block.text if isinstance(block, TextBlock) else ""), earlier[1:]
    return "", earlier


def _format_notice(
    before: int, after: int, tokens: tuple[int, int], lost_count: int, *, is_own_summary: bool, thinking_off: bool
) -> str:
    """Return the notice about a compaction for the user. `lost_count` is the number of answers whose thinking is no
    longer sent to the model."""
    text = (
        f"The conversation was compacted from {before:,} to {after:,} messages, about {tokens[0]:,} to "
        f"{tokens[1]:,} tokens."
    )
    if lost_count:
        text += f" Thinking from {lost_count:,} {'answer' if lost_count == 1 else 'answers'} is no longer sent."
    if is_own_summary:
        text += " The model wrote no summary, so thinklsp recorded the goal, decisions, files and last answers itself."
    if thinking_off:
        text += " Thinking is now off because of `compaction.thinkingAfter`; `thinklsp.thinking` turns it on."
    return text
