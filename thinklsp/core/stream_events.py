"""Stream events, which a provider's decoder produces while a message arrives, and the accumulator of the message.

The `repr` of an event excludes payloads that may contain signatures.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, assert_never

from thinklsp.core.errors import StreamProtocolError
from thinklsp.core.json_codec import is_shallow, read_json
from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    OpaqueBlock,
    OpaqueState,
    Origin,
    RedactedThinkingBlock,
    ServerToolBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
)
from thinklsp.core.usage import Usage, discard_implausible

BlockKind = Literal["text", "thinking", "redacted_thinking", "tool_use", "server_tool", "opaque"]


class TextBuffer:
    """A buffer for text that arrives in many small pieces. Appending to a string would take quadratic time.

    A list or a StringIO would keep each piece as an object, which is several times as large as the text.
    """

    __slots__ = ("_data",)

    def __init__(self, text: str = "") -> None:
        self._data = bytearray(text.encode("utf-8", "surrogatepass"))

    def append(self, text: str) -> None:
        self._data += text.encode("utf-8", "surrogatepass")

    def __bool__(self) -> bool:
        return bool(self._data)

    def __str__(self) -> str:
        return self._data.decode("utf-8", "surrogatepass")


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


_PLACEHOLDERS = ("{}", "null")
_DECODER = json.JSONDecoder()
_ENDLESS_ARGUMENTS = "The model sent tool call arguments longer than a million characters."
# The maximum length of a call's arguments, which are parsed in a single step. Pieces that are replaced do not count.
_MAX_ARGUMENT_CHARS = 1024 * 1024


class ArgumentBuffer(TextBuffer):
    """The pieces of a call's arguments. `str(buffer)` joins them, and repairs the result only if it is not JSON.

    A piece that begins with everything so far replaces it. An equal complete object is a repetition. An empty object or
    null in front of an object is a placeholder. `size` is the number of characters without the replaced pieces.
    Raises StreamProtocolError if the arguments are too long.
    """

    __slots__ = ("_merged", "_plain_size", "size")

    def __init__(self) -> None:
        super().__init__()
        self._merged = TextBuffer()
        self._plain_size = self.size = 0

    def append(self, text: str) -> None:
        self._plain_size += len(text)
        if self._plain_size <= _MAX_ARGUMENT_CHARS:
            super().append(text)
        if self.size <= len(text) and text.lstrip().startswith("{") and self._is_replaced_by(text):
            self._merged, self.size = TextBuffer(text), len(text)
        else:
            self._merged.append(text)
            self.size += len(text)
        if self.size > _MAX_ARGUMENT_CHARS:
            raise StreamProtocolError(_ENDLESS_ARGUMENTS, retryable=False)

    def __str__(self) -> str:
        plain, merged = super().__str__(), str(self._merged)
        if self._plain_size > _MAX_ARGUMENT_CHARS:
            plain = merged
        if not plain.strip() or _is_json(plain):
            return plain
        if _is_json(merged):
            return merged
        return _find_only_object(merged) or plain

    def _is_replaced_by(self, text: str) -> bool:
        merged = str(self._merged)
        return text.startswith(merged) or merged.strip() in _PLACEHOLDERS


def _is_json(text: str) -> bool:
    try:
        read_json(text)
    except ValueError:
        return False
    return True


def _find_only_object(text: str) -> str | None:
    """Return the object that the text consists of, repeated or behind placeholders, or None otherwise."""
    try:
        values = list(_split_values(text))
    except (ValueError, RecursionError):
        return None
    first = next((place for place, (value, _) in enumerate(values) if value), len(values) - 1)
    found, source = values[first]
    is_only = all(value is None or value == {} for value, _ in values[:first]) and all(
        value == found for value, _ in values[first:]
    )
    return source if is_only and isinstance(found, dict) else None


def _split_values(text: str) -> Iterator[tuple[object, str]]:
    """Yield the JSON values of a text, each with its source. Raise ValueError if the text has anything else."""
    start, length = 0, len(text)
    while start < length:
        if text[start].isspace():
            start += 1
            continue
        value, end = _DECODER.raw_decode(text, start)
        yield value, text[start:end]
        start = end


_MAX_ARGUMENT_DEPTH = 64
# The maximum number of kinds in `unmatched`. The limit is needed because a provider can send any number of kinds.
_MAX_UNMATCHED_KINDS = 16
_OTHER_KINDS = UnmatchedEvent("others")
# Maps each delta type to its name in `unmatched` and to the block kinds that accept it.
_ACCEPTED_DELTAS: Mapping[type[Delta], tuple[str, tuple[BlockKind, ...]]] = {
    TextDelta: ("text", ("text",)),
    ThinkingDelta: ("thinking", ("thinking",)),
    SignatureDelta: ("a signature", ("thinking",)),
    InputJsonDelta: ("arguments", ("tool_use", "server_tool")),
    FieldsDelta: ("fields", ("tool_use", "opaque")),
    ItemDelta: ("an item", ("text", "opaque")),
}


class _OpenBlock:
    __slots__ = ("_buffers", "kind", "raw")

    def __init__(self, kind: BlockKind, raw: Mapping[str, Any]) -> None:
        self.kind = kind
        self.raw = dict(raw)
        self._buffers: dict[str, TextBuffer] = {}

    def apply(self, delta: Delta) -> None:
        match delta:
            case TextDelta():
                self._append("text", delta.text)
            case ThinkingDelta():
                self._append("thinking", delta.text)
            case SignatureDelta():
                self.raw["signature"] = delta.signature
            case InputJsonDelta():
                self._append("input", delta.partial_json)
            case FieldsDelta():
                self.raw.update(delta.fields)
            case ItemDelta():
                current = self.raw.get(delta.name)
                self.raw[delta.name] = [*(current if isinstance(current, list) else ()), delta.item]
            case _:
                assert_never(delta)

    def _append(self, field: str, text: str) -> None:
        if (pieces := self._buffers.get(field)) is None:
            pieces = self._buffers[field] = ArgumentBuffer() if field == "input" else TextBuffer()
        pieces.append(text)

    def join_text(self, field: str) -> str:
        start = self.raw.get(field)
        streamed = self.take_streamed_text(field)
        return start + streamed if isinstance(start, str) and start else streamed

    def take_streamed_text(self, field: str) -> str:
        """Return the text streamed into a field, without the field's initial text, and free the buffer."""
        return str(self._buffers.pop(field, ""))


class MessageAccumulator:
    """The accumulator for one model call.

    Call `apply` for each event. `build_message()` and `usage` are valid once `is_finished` is true. A contradictory
    stream raises StreamProtocolError. Deltas and stops for blocks that never started are ignored and counted in
    `unmatched`. Stopping a block twice has no effect.
    """

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._open_blocks: dict[int, _OpenBlock] = {}
        self._blocks: dict[int, ContentBlock] = {}
        self._has_started = False
        self._stop_reason: StopReason | None = None
        self.usage = Usage()
        self.unmatched: Counter[UnmatchedEvent] = Counter()

    @property
    def is_finished(self) -> bool:
        return self._stop_reason is not None

    @property
    def is_between_blocks(self) -> bool:
        """Whether a block is complete and no other block has started, which is so shortly before the message ends."""
        return bool(self._blocks) and not self._open_blocks

    def apply(self, event: StreamEvent) -> bool:
        """Apply the event. Return False if the event was ignored because it does not match an open block."""
        unmatched: UnmatchedEvent | None = None
        match event:
            case BlockDelta():
                unmatched = self._apply_delta(event)
            case MessageStarted():
                self._has_started = True
                self.usage = discard_implausible(event.usage)
            case BlockStarted():
                self._start_block(event)
            case BlockStopped():
                unmatched = self._stop_block(event)
            case UnmatchedEvent():
                unmatched = event
            case MessageFinished():
                self._finish_message(event)
            case _:
                assert_never(event)
        if unmatched is None:
            return True
        is_counted_alone = unmatched in self.unmatched or len(self.unmatched) < _MAX_UNMATCHED_KINDS
        self.unmatched[unmatched if is_counted_alone else _OTHER_KINDS] += 1
        return False

    def build_message(self) -> AssistantMessage:
        """Return the complete message. Raise StreamProtocolError if the terminal event has not arrived."""
        if self._stop_reason is None:
            raise StreamProtocolError("The answer ended before it was complete.")
        blocks = tuple(self._blocks[index] for index in sorted(self._blocks))
        return AssistantMessage(blocks, self._stop_reason)

    def _start_block(self, event: BlockStarted) -> None:
        if not self._has_started:
            raise StreamProtocolError("The provider sent a content block before the message started.")
        if event.index in self._open_blocks or event.index in self._blocks:
            raise StreamProtocolError(f"The provider opened block {event.index} twice.")
        self._open_blocks[event.index] = _OpenBlock(event.kind, event.raw)

    def _apply_delta(self, event: BlockDelta) -> UnmatchedEvent | None:
        name, kinds = _ACCEPTED_DELTAS[type(event.delta)]
        draft = self._open_blocks.get(event.index)
        if draft is None:
            return UnmatchedEvent(f"{name} for a block that is not open")
        if draft.kind not in kinds:
            return UnmatchedEvent(f"{name} for a block of kind {draft.kind}")
        draft.apply(event.delta)
        return None

    def _stop_block(self, event: BlockStopped) -> UnmatchedEvent | None:
        draft = self._open_blocks.pop(event.index, None)
        if draft is not None:
            self._blocks[event.index] = _finish_block(draft, event, self._origin)
        elif event.index not in self._blocks:
            return UnmatchedEvent("the end of a block that was never opened")
        return None

    def _finish_message(self, event: MessageFinished) -> None:
        if self._open_blocks:
            raise StreamProtocolError("The provider ended the message before all of its blocks were complete.")
        self._stop_reason = event.stop_reason
        self.usage = discard_implausible(event.usage)


def _finish_block(open_block: _OpenBlock, stop: BlockStopped, origin: Origin) -> ContentBlock:
    raw = open_block.raw
    tool_input: Mapping[str, Any] | None = None
    match open_block.kind:
        case "text" | "thinking":
            raw[open_block.kind] = open_block.join_text(open_block.kind) if stop.text is None else stop.text
        case "tool_use" | "server_tool":
            tool_input = _parse_input(open_block)
            # The provider requires an object as input. For arguments that cannot be parsed, use an empty object.
            raw["input"] = {} if tool_input is None else tool_input
        case "redacted_thinking" | "opaque":
            pass
        case _:
            assert_never(open_block.kind)
    final_raw = raw if stop.raw is None else stop.raw
    if open_block.kind == "text" and final_raw == {"type": "text", "text": raw["text"]}:
        # The raw JSON contains nothing except the text. Storing both doubles memory and disk use.
        return TextBlock(raw["text"])
    return _build_block(open_block.kind, raw, tool_input, OpaqueState(json.dumps(final_raw), origin))


def _build_block(
    kind: BlockKind, raw: Mapping[str, Any], tool_input: Mapping[str, Any] | None, state: OpaqueState
) -> ContentBlock:
    match kind:
        case "text":
            return TextBlock(raw["text"], state)
        case "thinking":
            return ThinkingBlock(raw["thinking"], state)
        case "redacted_thinking":
            return RedactedThinkingBlock(state)
        case "tool_use":
            return ToolUseBlock(str(raw.get("id") or ""), str(raw.get("name") or ""), tool_input, state)
        case "server_tool":
            return ServerToolBlock(str(raw.get("name", "")), state)
        case "opaque":
            return OpaqueBlock(str(raw.get("type", "")), state)
        case _:
            assert_never(kind)


def _parse_input(open_block: _OpenBlock) -> Mapping[str, Any] | None:
    """Return the call's arguments from the streamed JSON or, if there is none, from the start event.

    Return None if the arguments are not an object.
    """
    text = open_block.take_streamed_text("input")
    if not text.strip():
        start = open_block.raw.get("input")
        return start if isinstance(start, dict) else {}
    try:
        value = read_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) and is_shallow(value, _MAX_ARGUMENT_DEPTH, text) else None
