"""Stream events, which the provider's decoder produces while a message arrives.

The `repr` of an event excludes payloads that may contain signatures.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from thinklsp.core.messages import StopReason
from thinklsp.core.usage import Usage

BlockKind = Literal["text", "thinking", "redacted_thinking", "tool_use", "server_tool", "opaque"]


_JOIN_BATCH = 500


class TextBuffer:
    """A buffer for text that arrives in many small pieces. `str(buffer)` returns the text in linear time.

    Appending to a string takes quadratic time, and each separate piece costs 80 bytes in addition to its characters.
    The buffer therefore joins pieces in batches.
    """

    __slots__ = ("_chunks", "_pending")

    def __init__(self, text: str = "") -> None:
        self._chunks = [text] if text else []
        self._pending: list[str] = []

    def append(self, text: str) -> None:
        self._pending.append(text)
        if len(self._pending) == _JOIN_BATCH:
            self._chunks.append("".join(self._pending))
            self._pending.clear()

    def __bool__(self) -> bool:
        return bool(self._chunks or self._pending)

    def __str__(self) -> str:
        if self._pending or len(self._chunks) > 1:
            self._chunks = ["".join([*self._chunks, *self._pending])]
            self._pending.clear()
        return self._chunks[0] if self._chunks else ""


@dataclass(frozen=True, slots=True)
class TextDelta:
    """Text to append to the block's `text`."""

    text: str


@dataclass(frozen=True, slots=True)
class ThinkingDelta:
    """Text to append to the block's `thinking`. `tokens` is the provider's estimated token count, or None."""

    text: str
    tokens: int | None = None


@dataclass(frozen=True, slots=True)
class SignatureDelta:
    """The block's `signature`, which replaces any earlier signature."""

    signature: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class InputJsonDelta:
    """Text to append to the JSON of the tool arguments. The JSON is parsed when the block stops."""

    partial_json: str


@dataclass(frozen=True, slots=True)
class FieldsDelta:
    """New values for top-level fields of the raw block."""

    fields: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ItemDelta:
    """An item to append to the raw block's list field `name`. The list is created if it is missing or null."""

    name: str
    item: Any = field(repr=False)


Delta = TextDelta | ThinkingDelta | SignatureDelta | InputJsonDelta | FieldsDelta | ItemDelta


@dataclass(frozen=True, slots=True)
class MessageStarted:
    model: str
    usage: Usage


@dataclass(frozen=True, slots=True)
class BlockStarted:
    """The start of a block. `raw` is the block's initial JSON, to which deltas are added."""

    index: int
    kind: BlockKind
    raw: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class BlockDelta:
    index: int
    delta: Delta


@dataclass(frozen=True, slots=True)
class UnmatchedEvent:
    """A stream event that is ignored, because it does not match an open block.

    `description` is the event's kind without its content, because it appears in the log. If `is_unknown_kind` is true,
    thinklsp does not support the kind, and the event does not count as a provider error.
    """

    description: str
    is_unknown_kind: bool = False


@dataclass(frozen=True, slots=True)
class BlockStopped:
    """The end of a block.

    If the provider sends the complete block at the end, `raw` replaces the accumulated block. If the final text of a
    text or thinking block differs from the accumulated text, `text` replaces the accumulated text.
    """

    index: int
    raw: Mapping[str, Any] | None = field(default=None, repr=False)
    text: str | None = None


@dataclass(frozen=True, slots=True)
class MessageFinished:
    """The terminal event. Tool calls must not run and edits are not valid before this event.

    `explanation` is the provider's explanation of a refusal, if any. `notices` are messages for the user about changes
    to the request. If `is_thinking_unsigned` is true, the thinking has no signature and cannot be sent back later.
    """

    stop_reason: StopReason
    usage: Usage
    explanation: str | None = None
    notices: tuple[str, ...] = ()
    is_thinking_unsigned: bool = False


StreamEvent = MessageStarted | BlockStarted | BlockDelta | UnmatchedEvent | BlockStopped | MessageFinished
