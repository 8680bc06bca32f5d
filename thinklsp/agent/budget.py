"""The budgets of a turn and the ledger of its usage, the configuration of the turn loop, and the context meter.

The context meter estimates the size of requests in tokens. The token counts in the provider's answers calibrate it.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache
from typing import assert_never
from weakref import ref

from thinklsp.agent.model_call import AttemptUsage, CallFinished, ModelCaller
from thinklsp.core.choices import BudgetAnswer, CompactionService, ThinkingAfterCompaction, Verify
from thinklsp.core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    ProviderError,
    RateLimited,
    StreamProtocolError,
    TransportFailed,
    TurnRefused,
)
from thinklsp.core.events import Fallback, RetryScheduled, TurnEvent
from thinklsp.core.images import estimate_image_tokens, list_images
from thinklsp.core.messages import (
    ContentBlock,
    Conversation,
    IdentityMemo,
    ImageBlock,
    Message,
    OpaqueBlock,
    RedactedThinkingBlock,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    UserBlock,
    find_compaction_origin,
)
from thinklsp.core.server_context import OTHER, CallOutcome, ModelLabels, TurnObserver
from thinklsp.core.usage import Usage
from thinklsp.providers.base import ModelRequest, Thinking
from thinklsp.providers.catalogue import ModelInfo
from thinklsp.tools.registry import READ_SKILL, TOOLS, Mode, build_tool_specs
from thinklsp.tools.tool import AnyTool

# Code and prose use three to four bytes per token. An estimate that is too high is safer than one that is too low.
_TOKENS_PER_BYTE = 1 / 3
_MIN_RATIO, _MAX_RATIO = 0.1, 1.5
# The estimated size of a block in bytes, without its text.
BLOCK_OVERHEAD_BYTES = 16
# Smaller requests do not calibrate the estimate, because the provider's own instructions are too large a share of their
# tokens.
_MIN_CALIBRATION_BYTES = 2_000
MAX_COMPACTION_FAILURES = 3
# No provider drops an entry of its prompt cache earlier.
_CACHE_LIFETIME = timedelta(minutes=5)

_SIZES: IdentityMemo[int] = IdentityMemo()


class _SentPrefix:
    """The model and the conversation of an earlier request, which most later requests only extend.

    It does not keep the messages in memory: the session may leave the cache before its meter. Conversations only grow
    or begin with a new message, so that the first and the last message identify them.
    """

    def __init__(self, request: ModelRequest) -> None:
        self.model, self.message_count = request.model, len(request.conversation)
        self._ends = tuple(map(ref, self._list_ends(request)))

    def is_prefix_of(self, request: ModelRequest) -> bool:
        is_same_model = (self.model.provider, self.model.id) == (request.model.provider, request.model.id)
        if not is_same_model or len(request.conversation) < self.message_count:
            return False
        return all(end() is message for end, message in zip(self._ends, self._list_ends(request), strict=True))

    def _list_ends(self, request: ModelRequest) -> Conversation:
        messages = request.conversation[: self.message_count]
        return messages[:1] + messages[-1:]


@dataclass(frozen=True, slots=True)
class _CountedRequest:
    """The last request whose tokens the provider counted, with the usage of its answer."""

    prefix: _SentPrefix
    input_tokens: int
    usage: Usage
    counted_at: datetime


@dataclass(frozen=True, slots=True)
class _VisibleSize:
    """The size in bytes of the messages that a model reads, which begin at the index `start`."""

    prefix: _SentPrefix
    start: int
    total: int
    images: int


class ContextMeter:
    """The context meter of a session. The engine shares it between the session's turns but does not store it.

    `failures` is the number of consecutive failed compactions. After three failures, thinklsp compacts the session only
    on command.
    """

    def __init__(self) -> None:
        self.failures = 0
        self._ratio = _TOKENS_PER_BYTE
        self._counted_request: _CountedRequest | None = None
        self._visible_size: _VisibleSize | None = None
        self._rejected_tokens: dict[str, int] = {}

    @property
    def has_given_up(self) -> bool:
        return self.failures >= MAX_COMPACTION_FAILURES

    def record_usage(self, request: ModelRequest, usage: Usage) -> None:
        """Record the usage that the provider reported for a request."""
        visible = self._measure_visible(request)
        tokens, size = usage.input_tokens, _measure_fixed_parts(request) + visible.total - visible.images
        if tokens is None or (size >= _MIN_CALIBRATION_BYTES and tokens < size * _MIN_RATIO):
            # Some servers do not count cached tokens, so counts that are too low are ignored.
            return
        self._counted_request = _CountedRequest(visible.prefix, tokens, usage, datetime.now(UTC))
        # Providers count images very differently, so requests with images do not calibrate the estimate.
        if size >= _MIN_CALIBRATION_BYTES and not visible.images:
            self._ratio = min(_MAX_RATIO, tokens / size)

    def count_cached_tokens(self, model: str) -> int:
        """Return how many tokens of the session the provider certainly keeps in its prompt cache for a model."""
        known = self._counted_request
        if known is None or known.prefix.model.id != model or datetime.now(UTC) - known.counted_at > _CACHE_LIFETIME:
            return 0
        return (known.usage.cache_read_tokens or 0) + (known.usage.cache_write_tokens or 0)

    def record_rejection(self, request: ModelRequest) -> None:
        """Record that a request was rejected as too long."""
        tokens = self.estimate_tokens(request)
        self._rejected_tokens[request.model.id] = min(tokens, self._rejected_tokens.get(request.model.id, tokens))

    def find_window(self, model: ModelInfo) -> int | None:
        """Return the length of the longest prompt in tokens, or None if it is unknown.

        If the catalogue does not know it, the shortest rejected request counts.
        """
        return model.input_window or self._rejected_tokens.get(model.id)

    def estimate_tokens(self, request: ModelRequest) -> int:
        """Estimate the number of tokens in the next request.

        If an earlier request was counted, only the messages after it are estimated.
        """
        known = self._find_counted_prefix(request)
        if known is None:
            return self.convert_to_tokens(_measure_fixed_parts(request) + self._measure_visible(request).total)
        added = request.conversation[known.prefix.message_count :]
        if added and added[0].role == "assistant":
            return known.input_tokens + (known.usage.output_tokens or 0) + self.count_tokens(added[1:])
        return known.input_tokens + self.count_tokens(added)

    def estimate_next_usage(self, request: ModelRequest) -> Usage:
        """Estimate the input usage of the next request, including tokens in the provider's prompt cache."""
        tokens, known = self.estimate_tokens(request), self._find_counted_prefix(request)
        if known is None:
            return Usage(tokens, 0, cache_write_tokens=tokens)
        read, written = known.usage.cache_read_tokens or 0, known.usage.cache_write_tokens
        added = None if written is None else tokens - known.input_tokens
        return Usage(tokens, 0, cache_read_tokens=read + (written or 0), cache_write_tokens=added)

    def _find_counted_prefix(self, request: ModelRequest) -> _CountedRequest | None:
        """Return the last counted request if `request` continues its conversation, or None."""
        known = self._counted_request
        if known is None or not known.prefix.is_prefix_of(request):
            return None
        return known if self._measure_visible(request).start < known.prefix.message_count else None

    def _measure_visible(self, request: ModelRequest) -> _VisibleSize:
        """Measure the messages that the model reads. Messages before a compaction by the provider do not count."""
        known, count = self._visible_size, 0
        start = total = images = 0
        if known is not None and known.prefix.is_prefix_of(request):
            start, total, images, count = known.start, known.total, known.images, known.prefix.message_count
        for index, message in enumerate(request.conversation[count:], count):
            origin = find_compaction_origin(message)
            if origin is not None and (origin.provider, origin.model) == (request.model.provider, request.model.id):
                start, total, images = index, 0, 0
            total += _measure_message(message)
            images += sum(map(_measure_block, list_images((message,))))
        self._visible_size = _VisibleSize(_SentPrefix(request), start, total, images)
        return self._visible_size

    def count_tokens(self, messages: Iterable[Message]) -> int:
        return self.convert_to_tokens(measure_messages(messages))

    def estimate_fixed_tokens(self, request: ModelRequest) -> int:
        """Estimate the number of tokens in the system prompt and the tools."""
        return self.convert_to_tokens(_measure_fixed_parts(request))

    def convert_to_tokens(self, size: int) -> int:
        return round(size * self._ratio)

    def convert_to_bytes(self, tokens: int) -> int:
        return round(tokens / self._ratio)


def measure_messages(messages: Iterable[Message]) -> int:
    """Return the size of the readable parts of messages. Only the provider can measure hidden thinking."""
    return sum(_measure_message(message) for message in messages)


def _measure_message(message: Message) -> int:
    """Return the size of a message. The size is cached, because compactions measure the whole conversation."""
    size = _SIZES.find(message)
    if size is None:
        size = _SIZES.store(message, sum(BLOCK_OVERHEAD_BYTES + _measure_block(block) for block in message.blocks))
    return size


def measure_text(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _measure_block(block: ContentBlock | UserBlock) -> int:
    match block:
        case TextBlock() | ThinkingBlock() | ToolResultBlock():
            return measure_text(block.text)
        case ImageBlock():
            return round(estimate_image_tokens(block) / _TOKENS_PER_BYTE)
        case ToolUseBlock():
            return len(block.name) + measure_text(json.dumps(block.input or {}, ensure_ascii=False, default=str))
        case RedactedThinkingBlock() | ServerToolBlock() | OpaqueBlock():
            return 0
        case _:
            assert_never(block)


def _measure_fixed_parts(request: ModelRequest) -> int:
    return measure_text(request.system) + sum(map(_measure_tool, request.tools))


@lru_cache(maxsize=256)
def _measure_tool(tool: ToolSpec) -> int:
    return measure_text(tool.description) + len(json.dumps(tool.input_schema, default=str)) + BLOCK_OVERHEAD_BYTES


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


@dataclass(frozen=True, slots=True)
class BudgetLimits:
    """The limits at which thinklsp asks the user whether the turn may continue. None means no limit."""

    max_steps: int
    tokens: int | None = None
    usd: float | None = None
    usd_per_day: float | None = None


class BudgetStopped(TurnRefused):
    """Raised if a model call would exceed a budget and the user does not allow the call."""


_OUTCOMES: Mapping[type[ProviderError], CallOutcome] = {
    AuthenticationFailed: "authentication",
    BadRequest: "bad_request",
    ContextWindowExceeded: "context_window",
    RateLimited: "rate_limited",
    Overloaded: "overloaded",
    TransportFailed: "transport",
    StreamProtocolError: "protocol",
}


class MeteredCaller:
    """The caller for a turn's model calls, including calls for summaries.

    It asks the user before a call that would exceed a budget, and adds each attempt's usage to the ledger. `meter`
    belongs to the session. `admit_call` may raise an error, which ends the turn. `observer` measures the calls.
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
        observer: TurnObserver | None = None,
    ) -> None:
        self.usage = usage
        self.meter = meter
        self._caller = caller
        self._admit_call = admit_call
        self._observer = observer or TurnObserver()
        self._ask = ask
        # The user is asked about each budget separately, so an answer applies to only one budget.
        self._tokens = _Budget(limits.tokens, "This turn has used", "its budget", "{:,}", " tokens")
        self._usd = _Budget(limits.usd, "This turn has cost", "its budget", "${:.2f}")
        self._usd_per_day = _Budget(limits.usd_per_day, "Today's turns have cost", "the daily budget", "${:.2f}")

    async def call(self, request: ModelRequest, emit: Emit) -> CallFinished:
        """Call the model. Raises ProviderError if the call fails, and BudgetStopped if the user rejects the call."""
        # The meter estimates only the input, because the output's length is not known before the call.
        next_usage, price = self.meter.estimate_next_usage(request), request.model.price
        cost = 0.0 if price is None else price.compute_cost(next_usage) or 0.0
        await self._check_budgets(next_usage.input_tokens or 0, cost)
        if self._admit_call is not None:
            await self._admit_call(cost)
        finished: CallFinished | None = None
        # Models that are not listed have one label, because users can invent names.
        labels = ModelLabels(request.model.provider, request.model.id if request.model.known else OTHER)
        observed, before = self._observer.begin_call(labels), self.usage.total
        outcome: CallOutcome = "cancelled"
        try:
            async with aclosing(self._caller.stream(request)) as events:
                async for event in events:
                    if isinstance(event, AttemptUsage | CallFinished):
                        self.usage.report(event.usage)
                    elif isinstance(event, RetryScheduled):
                        self.usage.end_attempt()
                        observed.count_retry()
                    if isinstance(event, CallFinished):
                        finished, outcome = event, "ok"
                    elif not isinstance(event, AttemptUsage):
                        await emit(event)
        except ProviderError as error:
            outcome = next((name for kind, name in _OUTCOMES.items() if isinstance(error, kind)), "error")
            raise
        finally:
            self.usage.end_attempt()
            stop_reason = None if finished is None else finished.message.stop_reason
            observed.end(outcome, self.usage.total.subtract(before), stop_reason)
        if finished is None:
            raise AssertionError("a model call ends with CallFinished or an error")
        return finished

    async def _check_budgets(self, tokens: int, usd: float) -> None:
        """Ask the user about each budget that a call with so many input tokens and this cost would exceed."""
        used = self.usage.total
        used_tokens = (used.input_tokens or 0) + (used.output_tokens or 0)
        is_allowed = (
            await self._tokens.allow(used_tokens, tokens, self._ask)
            and await self._usd.allow(used.cost_usd or 0.0, usd, self._ask)
            # All turns of a day share this budget, but the user's answer applies only to the current turn.
            and await self._usd_per_day.allow(self.usage.spending.usd, usd, self._ask)
        )
        if not is_allowed:
            raise BudgetStopped("The budget was reached, and you did not allow the next model call.")


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


@dataclass(frozen=True, slots=True)
class CompactionRules:
    """The rules for automatic compaction.

    `threshold` is the share of the context window at which a compaction starts. `compactor` determines whether thinklsp
    or the provider compacts the conversation.
    """

    auto: bool = True
    threshold: float = 0.75
    thinking_after: ThinkingAfterCompaction = "keep"
    compactor: CompactionService = "thinklsp"

    def resolve_provider_limit(self, model: ModelInfo) -> int | None:
        """Return the token count at which the provider compacts the conversation, or None if thinklsp compacts it."""
        if self.compactor != "provider" or not self.auto or not model.compacts or model.input_window is None:
            return None
        return round(self.threshold * model.input_window)


@dataclass(frozen=True, slots=True)
class TurnConfig:
    """The model and the rules for a turn. Thinking and tools stay the same for the whole turn.

    `verify` determines whether the turn runs the tests before it offers its edits.
    """

    model: ModelInfo
    system: str
    thinking: Thinking
    max_tokens: int | None
    limits: BudgetLimits
    mode: Mode = "agent"
    compaction: CompactionRules = field(default_factory=CompactionRules)
    tools: tuple[AnyTool, ...] = TOOLS
    verify: Verify = "off"

    def apply_fallbacks(self, fallbacks: Iterable[Fallback]) -> TurnConfig:
        """Return the configuration adjusted for the provider's fallbacks.

        If the provider refuses to compact conversations, thinklsp compacts them instead.
        """
        if not any((fallback.kind, fallback.model) == ("compaction", self.model.id) for fallback in fallbacks):
            return self
        return replace(self, model=replace(self.model, compacts=False))

    def offer_skills(self) -> TurnConfig:
        """Return the configuration with the tool that reads skills."""
        return self if READ_SKILL in self.tools else replace(self, tools=(*self.tools, READ_SKILL))

    def build_request(self, conversation: Conversation) -> ModelRequest:
        # Every mode offers the same tools, because a change of tools would invalidate signatures and the prompt cache.
        return ModelRequest(
            self.model,
            self.system,
            build_tool_specs(self.tools),
            conversation,
            self.thinking,
            self.max_tokens,
            self.compaction.resolve_provider_limit(self.model),
        )
