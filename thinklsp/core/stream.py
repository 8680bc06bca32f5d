"""One vocabulary of stream events for all providers: what a decoder says while a message arrives.

Payloads that may carry signatures are kept out of `repr`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from thinklsp.core.messages import StopReason
from thinklsp.core.usage import Usage

BlockKind = Literal["text", "thinking", "redacted_thinking", "tool_use", "server_tool", "opaque"]


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Appended to the block's `text`."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """Appended to the block's `thinking`. `tokens`: the stream's own estimate of what this piece cost, or None."""

    text: str
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class SignatureDelta:
    """Sets the block's `signature`; a later one replaces an earlier one."""

    signature: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class InputJsonDelta:
    """Appended to the text of the tool arguments, which is parsed once, when the block stops."""

    partial_json: str


@dataclass(frozen=True, slots=True)
class FieldsDelta:
    """Sets top-level fields of the raw block."""

    fields: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ItemDelta:
    """Appends to the list field `name` of the raw block, creating it where it is absent or null."""

    name: str
    item: Any = field(repr=False)


Delta = TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta | FieldsDelta | ItemDelta


@dataclass(frozen=True, slots=True)
class MessageStarted:
    model: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class BlockStarted:
    """`raw` is the block as the provider opened it; deltas complete it."""

    index: int
    kind: BlockKind
    raw: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class BlockDelta:
    index: int
    delta: Delta


@dataclass(frozen=True, slots=True)
class Unmatched:
    """A piece of the stream that is left out, because it fits no open block.

    `what` names the kind of the piece and holds nothing of its content, since it is logged. `is_new`: this version does
    not know the kind, so the service made no mistake.
    """

    what: str
    is_new: bool = False


@dataclass(frozen=True, slots=True)
class BlockStopped:
    """`raw` replaces the accumulated block where the provider sends the finished one whole, `text` the readable text
    of a text or thinking block where its pieces came to something else."""

    index: int
    raw: Mapping[str, Any] | None = field(default=None, repr=False)
    text: str | None = None


@dataclass(frozen=True, slots=True)
class MessageFinished:
    """The terminal event. Only now may tools of the message run and edits be believed.

    `explanation` is the provider's sentence about a refusal, if it gave one; `notices` are sentences for the user about
    what became of the request. `unsealed`: the thinking came without what the service needs to take it back.
    """

    stop_reason: StopReason
    usage: Usage
    explanation: str | None = None
    notices: tuple[str, ...] = ()
    unsealed: bool = False


StreamEvent = MessageStarted | BlockStarted | BlockDelta | Unmatched | BlockStopped | MessageFinished
