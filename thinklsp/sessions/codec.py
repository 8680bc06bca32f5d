"""Messages as rows: neutral fields as JSON, what is sealed apart from it. Pure; knows no database.

Text goes through UTF-8 with halves of character pairs let pass, so that whatever a model said comes back as it was.
"""

from __future__ import annotations

import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, assert_never, get_args

from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    Message,
    OpaqueBlock,
    OpaqueState,
    Origin,
    RedactedThinkingBlock,
    ServerToolBlock,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.core.usage import Usage

USAGE_COLUMNS = (
    "input_tokens",
    "output_tokens",
    "thinking_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cost_usd",
)
_STOP_REASONS = {reason: reason for reason in get_args(StopReason)}


@dataclass(frozen=True, slots=True)
class MessageRow:
    """`sealed` holds the opaque state of the block at each position."""

    role: str
    stop_reason: str | None
    blocks: bytes
    sealed: tuple[tuple[int, OpaqueState], ...]


@dataclass(frozen=True, slots=True)
class DecodedMessage:
    """`message` None: nothing of it could be read. `whole`: nothing is missing."""

    message: Message | None
    whole: bool


def to_bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def to_text(data: bytes) -> str:
    return data.decode("utf-8", "surrogatepass")


def storable(text: str) -> str:
    """For columns of text: half of a character pair becomes a question mark."""
    return text.encode("utf-8", "replace").decode()


def crc(data: bytes) -> int:
    return zlib.crc32(data)


def message_crc(role: object, stop_reason: object, blocks: bytes) -> int:
    return zlib.crc32(blocks, crc(f"{role} {stop_reason} ".encode("utf-8", "replace")))


def contents(state: OpaqueState) -> bytes:
    """For keeping it, or for a fingerprint of it; never for showing it."""
    return to_bytes(state.open_for(state.origin))


def origin_id(origin: Origin) -> str:
    fields = json.dumps([origin.provider, origin.model, origin.host, origin.key])
    return hashlib.sha256(fields.encode()).hexdigest()[:32]


def encode(message: Message) -> MessageRow:
    blocks = [_fields(block) for block in message.blocks]
    sealed = tuple(
        (at, raw) for at, block in enumerate(message.blocks) if (raw := getattr(block, "raw", None)) is not None
    )
    for at, _ in sealed:
        blocks[at]["raw"] = True
    stop_reason = message.stop_reason if isinstance(message, AssistantMessage) else None
    text = json.dumps(blocks, ensure_ascii=False, separators=(",", ":"))
    return MessageRow(message.role, stop_reason, to_bytes(text), sealed)


def _fields(block: ContentBlock | ToolResultBlock) -> dict[str, Any]:
    match block:
        case TextBlock() | ThinkingBlock():
            return {"kind": block.kind, "text": block.text}
        case RedactedThinkingBlock():
            return {"kind": block.kind}
        case ToolUseBlock():
            arguments = None if block.input is None else dict(block.input)
            return {"kind": block.kind, "id": block.id, "name": block.name, "input": arguments}
        case ServerToolBlock():
            return {"kind": block.kind, "name": block.name}
        case OpaqueBlock():
            return {"kind": block.kind, "type": block.type}
        case ToolResultBlock():
            return {"kind": block.kind, "id": block.tool_use_id, "text": block.text, "error": block.is_error}
        case _:
            assert_never(block)


def decode(role: str, stop_reason: str | None, blocks: bytes, sealed: Mapping[int, OpaqueState]) -> DecodedMessage:
    """The message as far as it can be read. A block that is nothing without its opaque state is left out with it."""
    try:
        fields = json.loads(to_text(blocks))
        decoded = [_block(entry, sealed.get(at)) for at, entry in enumerate(fields)]
        whole = all(not entry.get("raw") or at in sealed for at, entry in enumerate(fields))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return DecodedMessage(None, whole=False)
    ours = [block for block in decoded if isinstance(block, TextBlock | ToolResultBlock)]
    theirs = [block for block in decoded if block is not None and not isinstance(block, ToolResultBlock)]
    if role not in ("user", "assistant"):
        role = "user" if len(ours) > len(theirs) else "assistant"
    present: list[Any] = ours if role == "user" else theirs
    if len(fields) and not present:
        return DecodedMessage(None, whole=False)
    whole = whole and len(present) == len(fields)
    if role == "user":
        return DecodedMessage(UserMessage(tuple(present)), whole)
    return DecodedMessage(AssistantMessage(tuple(present), _STOP_REASONS.get(stop_reason, "other")), whole)


def _block(entry: Mapping[str, Any], raw: OpaqueState | None) -> ContentBlock | ToolResultBlock | None:
    lost = raw is None and entry.get("raw") is True
    match entry["kind"]:
        case "text":
            return TextBlock(_text(entry["text"]), raw)
        case "thinking":
            return None if lost else ThinkingBlock(_text(entry["text"]), raw)
        case "tool_use":
            arguments = entry["input"]
            if arguments is not None and not isinstance(arguments, dict):
                raise ValueError("the arguments of a call are an object")
            return ToolUseBlock(_text(entry["id"]), _text(entry["name"]), arguments, raw)
        case "tool_result":
            return ToolResultBlock(_text(entry["id"]), _text(entry["text"]), bool(entry["error"]))
        case "redacted_thinking":
            return None if raw is None else RedactedThinkingBlock(raw)
        case "server_tool":
            return None if raw is None else ServerToolBlock(_text(entry["name"]), raw)
        case "opaque":
            return None if raw is None else OpaqueBlock(_text(entry["type"]), raw)
        case _:
            raise ValueError("a block of no known kind")


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def usage_values(usage: Usage) -> tuple[int | float | None, ...]:
    return tuple(getattr(usage, name) for name in USAGE_COLUMNS)


def usage_of(values: tuple[object, ...]) -> Usage:
    """From the six columns in their order; what is no number counts as unknown."""
    numbers: Any = [value if isinstance(value, int | float) else None for value in values]
    return Usage(*numbers)


def number(value: object) -> int:
    """What a damaged column holds instead counts as nothing."""
    return value if isinstance(value, int) else 0


def as_time(nanoseconds: object) -> datetime:
    try:
        return datetime.fromtimestamp(number(nanoseconds) / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)
