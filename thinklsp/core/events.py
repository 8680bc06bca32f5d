"""What the outside may learn about a turn while it runs. The only thing that a face (editor, terminal) sees."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from thinklsp.core.messages import AssistantMessage, Conversation, UserMessage
from thinklsp.core.problems import Verified
from thinklsp.core.remedies import Remedy
from thinklsp.core.usage import Usage

TurnStopReason = Literal[
    "end_turn", "cancelled", "refusal", "max_tokens", "max_steps", "budget", "context_window", "error"
]
PlanStatus = Literal["pending", "in_progress", "completed"]


@dataclass(frozen=True, slots=True)
class PlanEntry:
    text: str
    status: PlanStatus


@dataclass(frozen=True, slots=True)
class StepStarted:
    """A model call goes out. `number` counts from 1."""

    number: int


@dataclass(frozen=True, slots=True)
class TextStreamed:
    delta: str


@dataclass(frozen=True, slots=True)
class ThinkingStreamed:
    """A piece of the provider's readable summary. Shown only where the user asked for summaries."""

    delta: str


@dataclass(frozen=True, slots=True)
class ThinkingTick:
    """The model thinks, whether or not the stream shows text. `tokens`: spent on it so far in this step, if told."""

    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """`title` is a short line for people, e.g. ``read src/app.py``."""

    call_id: str
    name: str
    title: str


@dataclass(frozen=True, slots=True)
class ToolFinished:
    """`plan` is set by the tool that shows one."""

    call_id: str
    name: str
    title: str
    is_error: bool
    plan: tuple[PlanEntry, ...] | None = None


@dataclass(frozen=True, slots=True)
class StepCommitted:
    """The step is whole: the assistant message and, where it called tools, all their results."""

    assistant: AssistantMessage
    results: UserMessage | None
    usage: Usage


@dataclass(frozen=True, slots=True)
class Reminded:
    """The program says something to the model in the user's place, behind a step: part of the conversation."""

    message: UserMessage


@dataclass(frozen=True, slots=True)
class RetryScheduled:
    """The model is asked again after `delay` seconds. `restart`: the text and the thinking since the last
    completed step are void."""

    delay: float
    reason: str
    restart: bool = False


@dataclass(frozen=True, slots=True)
class CompactionStarted:
    """The conversation is being shortened: a model call writes its summary. It may come to nothing."""


@dataclass(frozen=True, slots=True)
class ContextCompacted:
    """`after` stands in place of `before` from now on; `before` belongs into the archive. Tokens are estimates.

    `text` tells the user. `thinking_off`: the rest of the turn and the session go on without thinking, by the setting.
    """

    before: Conversation
    after: Conversation
    tokens_before: int
    tokens_after: int
    usage: Usage
    text: str
    thinking_off: bool = False


@dataclass(frozen=True, slots=True)
class Notice:
    """`remedy`: what the sentence is about, to be kept for the next time."""

    level: Literal["info", "warning"]
    text: str
    remedy: Remedy | None = None


@dataclass(frozen=True, slots=True)
class TurnFinished:
    """The last event. `text` is the text of the turn's last message; `verified` is None where no test was run on the
    turn's edits as they are at its end."""

    stop_reason: TurnStopReason
    text: str
    thinking: str
    usage: Usage
    verified: Verified | None = None


TurnEvent = (
    StepStarted
    | TextStreamed
    | ThinkingStreamed
    | ThinkingTick
    | ToolStarted
    | ToolFinished
    | StepCommitted
    | Reminded
    | RetryScheduled
    | CompactionStarted
    | ContextCompacted
    | Notice
    | TurnFinished
)
