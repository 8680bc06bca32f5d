"""Stream events in, one assistant message out. Blocks are ordered by their index and may arrive interleaved."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from typing import Any, assert_never

from thinklsp.core.errors import StreamProtocolError
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
from thinklsp.core.pieces import Pieces
from thinklsp.core.stream import (
    BlockDelta,
    BlockKind,
    BlockStarted,
    BlockStopped,
    Delta,
    FieldsDelta,
    InputJsonDelta,
    ItemDelta,
    MessageFinished,
    MessageStarted,
    SignatureDelta,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    Unmatched,
)
from thinklsp.core.strict_json import is_shallow, read_json
from thinklsp.core.usage import Usage, as_reported

_ARGUMENT_DEPTH = 64
# Kinds of pieces that are told apart in `unmatched`; a service can make up as many as it likes.
_MAX_KINDS = 16
_OTHERS = Unmatched("others")
_PIECES: Mapping[type[Delta], str] = {
    TextDelta: "text",
    ThinkingDelta: "thinking",
    SignatureDelta: "a signature",
    InputJsonDelta: "arguments",
    FieldsDelta: "fields",
    ItemDelta: "an item",
}


class _Draft:
    """One block on its way."""

    __slots__ = ("_pieces", "kind", "raw")

    def __init__(self, kind: BlockKind, raw: Mapping[str, Any]) -> None:
        self.kind = kind
        self.raw = dict(raw)
        self._pieces: dict[str, Pieces] = {}

    def append(self, field: str, text: str) -> None:
        if (pieces := self._pieces.get(field)) is None:
            pieces = self._pieces[field] = Pieces()
        pieces.append(text)

    def joined(self, field: str) -> str:
        start = self.raw.get(field)
        came = self.came(field)
        return start + came if isinstance(start, str) and start else came

    def came(self, field: str) -> str:
        """Without what the block began with. The pieces are let go."""
        return str(self._pieces.pop(field, ""))


class MessageAccumulator:
    """Owned by one model call. `apply` takes each event once; `message` and `usage` are valid when `finished`.

    Raises StreamProtocolError if the stream contradicts itself. A delta that fits no open block is left out and counted
    in `unmatched`, and so is the end of a block that was never open; stopping a block twice changes nothing.
    """

    def __init__(self, origin: Origin) -> None:
        self._origin = origin
        self._drafts: dict[int, _Draft] = {}
        self._blocks: dict[int, ContentBlock] = {}
        self._started = False
        self._stop_reason: StopReason | None = None
        self.usage = Usage()
        self.unmatched: Counter[Unmatched] = Counter()

    @property
    def finished(self) -> bool:
        return self._stop_reason is not None

    def apply(self, event: StreamEvent) -> bool:
        """Take the event, or return False if it was left out."""
        unmatched: Unmatched | None = None
        match event:
            case BlockDelta():
                unmatched = self._delta(event)
            case MessageStarted():
                self._started = True
                self.usage = as_reported(event.usage)
            case BlockStarted():
                self._start(event)
            case BlockStopped():
                unmatched = self._stop(event)
            case Unmatched():
                unmatched = event
            case MessageFinished():
                self._finish(event)
            case _:
                assert_never(event)
        if unmatched is None:
            return True
        is_told_apart = unmatched in self.unmatched or len(self.unmatched) < _MAX_KINDS
        self.unmatched[unmatched if is_told_apart else _OTHERS] += 1
        return False

    def message(self) -> AssistantMessage:
        """The whole message. Raises StreamProtocolError when the terminal event has not come."""
        if self._stop_reason is None:
            raise StreamProtocolError("The answer ended before it was complete.")
        blocks = tuple(self._blocks[index] for index in sorted(self._blocks))
        return AssistantMessage(blocks, self._stop_reason)

    def _start(self, event: BlockStarted) -> None:
        if not self._started:
            raise StreamProtocolError("The service sent a block before the message that holds it.")
        if event.index in self._drafts or event.index in self._blocks:
            raise StreamProtocolError(f"The service opened block {event.index} twice.")
        self._drafts[event.index] = _Draft(event.kind, event.raw)

    def _delta(self, event: BlockDelta) -> Unmatched | None:
        draft = self._drafts.get(event.index)
        if draft is None:
            return Unmatched(f"{_PIECES[type(event.delta)]} for a block that is not open")
        if not _apply_delta(draft, event.delta):
            return Unmatched(f"{_PIECES[type(event.delta)]} for a block of kind {draft.kind}")
        return None

    def _stop(self, event: BlockStopped) -> Unmatched | None:
        draft = self._drafts.pop(event.index, None)
        if draft is not None:
            self._blocks[event.index] = _finished(draft, event, self._origin)
        elif event.index not in self._blocks:
            return Unmatched("the end of a block that was never open")
        return None

    def _finish(self, event: MessageFinished) -> None:
        if self._drafts:
            raise StreamProtocolError("The service ended the message while a block of it was still open.")
        self._stop_reason = event.stop_reason
        self.usage = as_reported(event.usage)


def _apply_delta(draft: _Draft, delta: Delta) -> bool:
    """False when the delta does not fit the kind of block that it was sent for."""
    match delta:
        case TextDelta():
            if draft.kind != "text":
                return False
            draft.append("text", delta.text)
        case ThinkingDelta():
            if draft.kind != "thinking":
                return False
            draft.append("thinking", delta.text)
        case SignatureDelta():
            if draft.kind != "thinking":
                return False
            draft.raw["signature"] = delta.signature
        case InputJsonDelta():
            if draft.kind not in ("tool_use", "server_tool"):
                return False
            draft.append("input", delta.partial_json)
        case FieldsDelta():
            if draft.kind not in ("tool_use", "opaque"):
                return False
            draft.raw.update(delta.fields)
        case ItemDelta():
            if draft.kind not in ("text", "opaque"):
                return False
            current = draft.raw.get(delta.name)
            draft.raw[delta.name] = [*(current if isinstance(current, list) else ()), delta.item]
        case _:
            assert_never(delta)
    return True


def _finished(draft: _Draft, stop: BlockStopped, origin: Origin) -> ContentBlock:
    raw = draft.raw
    tool_input: Mapping[str, Any] | None = None
    match draft.kind:
        case "text" | "thinking":
            raw[draft.kind] = draft.joined(draft.kind) if stop.text is None else stop.text
        case "tool_use" | "server_tool":
            tool_input = _parse_input(draft)
            # A call whose arguments did not parse is answered with an error result; for the replay it needs an
            # object, and the empty one says nothing that the model did not say.
            raw["input"] = {} if tool_input is None else tool_input
        case "redacted_thinking" | "opaque":
            pass
        case _:
            assert_never(draft.kind)
    whole = raw if stop.raw is None else stop.raw
    if draft.kind == "text" and whole == {"type": "text", "text": raw["text"]}:
        # Nothing but the text: it would be kept twice, in memory and on disk, and be sent back as the same.
        return TextBlock(raw["text"])
    return _block(draft.kind, raw, tool_input, OpaqueState(json.dumps(whole), origin))


def _block(
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


def _parse_input(draft: _Draft) -> Mapping[str, Any] | None:
    """The arguments of a call: the streamed JSON, else what stood in the opened block. None when not an object."""
    text = draft.came("input")
    if not text.strip():
        start = draft.raw.get("input")
        return start if isinstance(start, dict) else {}
    try:
        value = read_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) and is_shallow(value, _ARGUMENT_DEPTH, text) else None
