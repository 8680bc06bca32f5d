"""Messages as rows: neutral fields as JSON, what is sealed apart from it. Pure; knows no database.

A long text stands behind the JSON, after a line feed, and in its place there the number of its bytes: to escape it and
to read it back would take most of the time that a step or a session takes. JSON that holds all of its texts is read as
well.

Text goes through UTF-8 with halves of character pairs let pass, so that whatever a model said comes back as it was.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, assert_never, get_args

from pydantic import TypeAdapter

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
from thinklsp.sessions.session import UnansweredPrompt

USAGE_COLUMNS = (
    "input_tokens",
    "output_tokens",
    "thinking_tokens",
    "cache_read_tokens",
    "cache_write_tokens",
    "cost_usd",
)
_PROMPTS = TypeAdapter(tuple[UnansweredPrompt, ...])
# In characters.
_LONG = 100
_OURS = (TextBlock, ToolResultBlock)
_THEIRS = get_args(ContentBlock)
_STOP_REASONS = {reason: reason for reason in get_args(StopReason)}


@dataclass(frozen=True, slots=True)
class MessageRow:
    """`sealed` holds the opaque state of the block at each position."""

    role: str
    stop_reason: str | None
    blocks: bytes
    sealed: tuple[tuple[int, OpaqueState], ...]


class DecodedMessage(NamedTuple):
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


@lru_cache(maxsize=64)
def origin_id(origin: Origin) -> str:
    fields = json.dumps([origin.provider, origin.model, origin.host, origin.key])
    return hashlib.sha256(fields.encode()).hexdigest()[:32]


def encode(message: Message) -> MessageRow:
    long: list[bytes] = []
    blocks = [_fields(block, long) for block in message.blocks]
    sealed = tuple(
        (at, raw) for at, block in enumerate(message.blocks) if (raw := getattr(block, "raw", None)) is not None
    )
    for at, _ in sealed:
        blocks[at]["raw"] = True
    stop_reason = message.stop_reason if isinstance(message, AssistantMessage) else None
    fields = to_bytes(json.dumps(blocks, ensure_ascii=False, separators=(",", ":")))
    return MessageRow(message.role, stop_reason, b"\n".join((fields, b"".join(long))) if long else fields, sealed)


def _fields(block: ContentBlock | ToolResultBlock, long: list[bytes]) -> dict[str, Any]:
    """Texts that are to stand behind it are added to `long`."""
    match block:
        case TextBlock() | ThinkingBlock():
            return {"kind": block.kind, "text": _placed(block.text, long)}
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
            text = _placed(block.text, long)
            return {"kind": block.kind, "id": block.tool_use_id, "text": text, "error": block.is_error}
        case _:
            assert_never(block)


def _placed(text: str, long: list[bytes]) -> str | int:
    if len(text) < _LONG:
        return text
    long.append(to_bytes(text))
    return len(long[-1])


def decode(role: str, stop_reason: str | None, blocks: bytes, sealed: Mapping[int, OpaqueState]) -> DecodedMessage:
    """The message as far as it can be read. A block that is nothing without its opaque state is left out with it."""
    try:
        fields, whole = _fields_of(blocks)
        decoded = []
        for at, entry in enumerate(fields):
            raw = sealed.get(at)
            decoded.append(_block(entry, raw))
            whole = whole and (raw is not None or not entry.get("raw"))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return DecodedMessage(None, whole=False)
    if role not in ("user", "assistant"):
        ours, theirs = ([block for block in decoded if isinstance(block, kinds)] for kinds in (_OURS, _THEIRS))
        role = "user" if len(ours) > len(theirs) else "assistant"
    kinds = _OURS if role == "user" else _THEIRS
    present: Any = tuple([block for block in decoded if isinstance(block, kinds)])
    if fields and not present:
        return DecodedMessage(None, whole=False)
    whole = whole and len(present) == len(fields)
    if role == "user":
        return DecodedMessage(UserMessage(present), whole)
    return DecodedMessage(AssistantMessage(present, _STOP_REASONS.get(stop_reason, "other")), whole)


def _fields_of(blocks: bytes) -> tuple[list[dict[str, Any]], bool]:
    """The fields of the blocks, long texts put back in their places; and whether those are as long as they say."""
    end = blocks.find(b"\n")
    if end < 0:
        return json.loads(to_text(blocks)), True
    fields = json.loads(to_text(blocks[:end]))
    at = end + 1
    for entry in fields:
        if isinstance(length := entry.get("text"), int):
            entry["text"] = to_text(blocks[at : at + length])
            at += length
    return fields, at == len(blocks)


def _block(entry: Mapping[str, Any], raw: OpaqueState | None) -> ContentBlock | ToolResultBlock | None:
    match entry["kind"]:
        case "text":
            return TextBlock(_text(entry["text"]), raw)
        case "thinking":
            lost = raw is None and entry.get("raw") is True
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


def encode_prompts(prompts: tuple[UnansweredPrompt, ...]) -> str:
    return storable(json.dumps([dataclasses.asdict(prompt) for prompt in prompts], ensure_ascii=False))


def decode_prompts(text: object) -> tuple[UnansweredPrompt, ...]:
    """Return the prompts of a column; none if the column is damaged."""
    try:
        return _PROMPTS.validate_json(str(text))
    except ValueError:
        return ()


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
