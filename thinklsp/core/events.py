"""Turn events, which the turn loop sends to an interface such as the editor or the terminal."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Literal

from thinklsp.core.check_results import VerificationOutcome
from thinklsp.core.messages import AssistantMessage, ContentBlock, Conversation, TextBlock, ThinkingBlock, UserMessage
from thinklsp.core.usage import Usage

TurnStopReason = Literal[
    "end_turn", "cancelled", "refusal", "max_tokens", "max_steps", "budget", "context_window", "error"
]
PlanStatus = Literal["pending", "in_progress", "completed"]
FallbackKind = Literal["form", "effort", "never", "compaction", "cache", "counts", "told", "drop", "bare"]
_MAX_SHOWN_ID_LENGTH = 64

THINKING_ONLY = "(thinking only)"
"""The text that replaces an empty answer in requests, because every provider rejects a message without text.

The model did not write this text, and the user does not see it.
"""


@dataclass(frozen=True, slots=True)
class PlanEntry:
    text: str
    status: PlanStatus


@dataclass(frozen=True, slots=True)
class StepStarted:
    """The start of a model call. `number` is the step's 1-based number in the turn."""

    number: int


@dataclass(frozen=True, slots=True)
class TextStreamed:
    delta: str


@dataclass(frozen=True, slots=True)
class ThinkingStreamed:
    """A piece of the provider's thinking summary. The summary is shown only if the user has enabled summaries."""

    delta: str


@dataclass(frozen=True, slots=True)
class DataReceived:
    """A sign that the provider sent data without anything to show, such as a keep-alive or a part of a tool call.

    It comes at most once a second.
    """


@dataclass(frozen=True, slots=True)
class ThinkingTick:
    """A sign that the model is thinking, sent even if the stream contains no thinking text.

    `tokens` is the number of thinking tokens in this step so far, or None if the provider does not report the number.
    """

    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class CallLocation:
    """The file that a tool call is about, as the model named it, and a line numbered from 1 if the call has one."""

    path: str
    line: int | None = None


def format_call_id(call_id: str) -> str:
    """Return a tool call's id for clients. A digest replaces long ids, because LiteLLM puts signatures into them."""
    if len(call_id) <= _MAX_SHOWN_ID_LENGTH:
        return call_id
    return f"call_{sha256(call_id.encode('utf-8', 'surrogatepass')).hexdigest()[:32]}"


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """The start of a tool call. `title` is a short description for the user, such as ``read src/app.py``.

    `arguments` is the beginning of the arguments as JSON text with masked keys, or None if the call has no arguments.
    """

    call_id: str
    name: str
    title: str
    arguments: str | None = None
    location: CallLocation | None = None


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """The end of a tool call. Only a tool that shows a plan sets `plan`.

    `arguments` is that of ToolStarted. `result` is the beginning of the result with masked keys.
    """

    call_id: str
    name: str
    title: str
    is_error: bool
    plan: tuple[PlanEntry, ...] | None = None
    arguments: str | None = None
    result: str | None = None


@dataclass(frozen=True, slots=True)
class StepCommitted:
    """A complete step: the assistant message and the results of its tool calls, if any."""

    assistant: AssistantMessage
    results: UserMessage | None
    usage: Usage


@dataclass(frozen=True, slots=True)
class ReminderAdded:
    """A user message that thinklsp adds to the conversation after a step."""

    message: UserMessage


_CLAUSE_END = re.compile(r"(?<=[.!?])\s|[:;]\s")


@dataclass(frozen=True, slots=True)
class RetryScheduled:
    """A retry of the model call after `delay` seconds.

    If `restart` is true, the text and thinking received since the last completed step are discarded. `attempt` is the
    number of the next attempt of at most `max_attempts`. Both are 0 if attempts are not counted.
    """

    delay: float
    reason: str
    restart: bool = False
    attempt: int = 0
    max_attempts: int = 0

    def format_phase(self, seconds: float) -> str:
        """Return the phase of a progress line, for example `retrying, 2 of 4, in 8 s`. `seconds` is the time left."""
        count = f", {self.attempt} of {self.max_attempts}," if self.max_attempts else ""
        return f"retrying{count} in {round(seconds)} s"

    @property
    def cause(self) -> str:
        """The first clause of the reason, for a progress line."""
        return _CLAUSE_END.split(self.reason, maxsplit=1)[0].rstrip(".")


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """The start of a compaction, which can still fail."""


@dataclass(frozen=True, slots=True)
class ContextCompacted:
    """A completed compaction. `after` replaces `before`, which goes to the archive. Token counts are estimates.

    `text` is a message for the user. If `thinking_off` is true, thinking is off for the rest of the turn and session,
    as requested in the user's settings.
    """

    before: Conversation
    after: Conversation
    tokens_before: int
    tokens_after: int
    usage: Usage
    text: str
    thinking_off: bool = False


@dataclass(frozen=True, slots=True)
class Fallback:
    """A change that thinklsp makes to later requests after a provider's model rejected a field.

    These kinds apply to every conversation:
    - `form`: send thinking in the form `replacement` instead of `rejected_value`.
    - `effort`: send a lower effort than `rejected_value`, which has the format `FORM:LEVEL`. A provider may reject a
      level for only one form of thinking.
    - `never`: never send earlier thinking.
    - `compaction`: let thinklsp compact the conversation instead of the provider.
    - `cache`: send no prompt cache hints.
    - `counts`: do not request token counts while the model is thinking.

    These kinds apply only to conversations that begin with `conversation_prefix`:
    - `drop`: ask the provider to ignore earlier thinking that does not match the conversation.
    - `bare`: send no earlier thinking.
    - `told`: change nothing. The user already knows that the earlier thinking was lost because of `rejected_value`.
    """

    model: str
    kind: FallbackKind
    rejected_value: str = ""
    replacement: str = ""
    conversation_prefix: Conversation = ()


@dataclass(frozen=True, slots=True)
class Notice:
    """A notice for the user. `fallback` is set if the notice reports a fallback."""

    level: Literal["info", "warning"]
    text: str
    fallback: Fallback | None = None


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The last event of a turn.

    `text` is the text of the last assistant message, or the explanation of a refusal. `test_outcome` is None if no test
    ran after the turn's last edit.
    """

    stop_reason: TurnStopReason
    text: str
    thinking: str
    usage: Usage
    test_outcome: VerificationOutcome | None = None


TurnEvent = (
    StepStarted
    | TextStreamed
    | ThinkingStreamed
    | ThinkingTick
    | DataReceived
    | ToolStarted
    | ToolFinished
    | StepCommitted
    | ReminderAdded
    | RetryScheduled
    | CompactionStarted
    | ContextCompacted
    | Notice
    | TurnFinished
)


@dataclass(frozen=True, slots=True)
class TurnAnswer:
    """The assistant messages in a turn, for display.

    If the provider paused an answer, its parts are joined without a separator, because a part may end within a word. If
    `continues` is true, the next message continues the last message.
    """

    messages: tuple[AssistantMessage, ...] = ()
    continues: bool = False

    def append(self, message: AssistantMessage) -> TurnAnswer:
        piece = replace(message, blocks=tuple(block for block in message.blocks if not _is_placeholder(block)))
        if not self.continues:
            return TurnAnswer((*self.messages, piece), piece.is_paused)
        *before, last = self.messages
        return TurnAnswer((*before, replace(piece, blocks=_join_blocks(last.blocks, piece.blocks))), piece.is_paused)

    @property
    def text(self) -> str:
        """Return the text of the last message that contains text."""
        return next((message.text for message in reversed(self.messages) if message.text), "")

    @property
    def thinking(self) -> str:
        return "\n\n".join(filter(None, (message.thinking for message in self.messages)))


def _join_blocks(first: tuple[ContentBlock, ...], second: tuple[ContentBlock, ...]) -> tuple[ContentBlock, ...]:
    """Join two lists of blocks. A thinking block that the provider split in two becomes a single block."""
    match first, second:
        case (*before, ThinkingBlock() as paused), (ThinkingBlock() as rest, *after):
            return (*before, ThinkingBlock(paused.text + rest.text), *after)
        case _:
            return (*first, *second)


def _is_placeholder(block: ContentBlock) -> bool:
    return isinstance(block, TextBlock) and block.raw is None and block.text == THINKING_ONLY
