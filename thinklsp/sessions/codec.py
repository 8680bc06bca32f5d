"""The conversion between messages and database rows.

Most fields are stored as JSON, and opaque state has its own column. Escaping long texts in JSON is slow, so a long text
follows the JSON after a line feed, and the JSON contains only the text's length in bytes. Older rows, which contain all
text in the JSON, can still be read. UTF-8 with surrogates preserves the model's text exactly.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import sqlite3
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, NamedTuple, assert_never, get_args

from pydantic import TypeAdapter

from thinklsp.core.images import IMAGE_TYPES
from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    FileSight,
    ImageBlock,
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
    UserBlock,
    UserMessage,
    UserPrompt,
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
# The minimum number of characters in a long text.
_MIN_LONG_CHARS = 100
_USER_BLOCKS = (TextBlock, ToolResultBlock, ImageBlock)
_MODEL_BLOCKS = get_args(ContentBlock)
_STOP_REASONS = {reason: reason for reason in get_args(StopReason)}
FindImage = Callable[[str], bytes | None]
"""A function that returns the bytes of a stored image with this digest, or None if the image is missing or damaged."""


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message as a database row. `opaque_states` contains the position and the opaque state of each signed block.

    `blocks` contains only the digests of `images`.
    """

    role: str
    stop_reason: str | None
    blocks: bytes
    opaque_states: tuple[tuple[int, OpaqueState], ...]
    images: tuple[ImageBlock, ...]


class DecodedMessage(NamedTuple):
    """A decoded message, or None if the row is not readable.

    `is_complete` is true if no part of the message is missing.
    """

    message: Message | None
    is_complete: bool


def to_bytes(text: str) -> bytes:
    """Encode text as UTF-8. Surrogates are allowed."""
    return text.encode("utf-8", "surrogatepass")


def to_text(data: bytes) -> str:
    """Decode UTF-8 text. Surrogates are allowed."""
    return data.decode("utf-8", "surrogatepass")


def replace_surrogates(text: str) -> str:
    """Replace each lone surrogate with a question mark, because text columns do not allow surrogates."""
    return text.encode("utf-8", "replace").decode()


def replace_null_characters(text: str) -> str:
    """Return the text as a text column of PostgreSQL can contain it."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


def compute_message_crc(role: object, stop_reason: object, blocks: bytes) -> int:
    """Return the checksum of a message row."""
    return zlib.crc32(blocks, zlib.crc32(f"{role} {stop_reason} ".encode("utf-8", "replace")))


def reveal_content(state: OpaqueState) -> bytes:
    """Return the content of an opaque state, for storage or for a digest. Never display the content."""
    return to_bytes(state.reveal_for(state.origin))


@lru_cache(maxsize=64)
def compute_origin_id(origin: Origin) -> str:
    """Return the database id of an origin, which is a digest of its fields."""
    fields = json.dumps([origin.provider, origin.model, origin.host, origin.key])
    return hashlib.sha256(fields.encode()).hexdigest()[:32]


def encode_message(message: Message) -> MessageRow:
    """Encode a message as a row."""
    long: list[bytes] = []
    blocks = [_encode_block(block, long) for block in message.blocks]
    sealed = tuple(
        (at, raw) for at, block in enumerate(message.blocks) if (raw := getattr(block, "raw", None)) is not None
    )
    for at, _ in sealed:
        blocks[at]["raw"] = True
    for at, block in enumerate(message.blocks):
        if sight := getattr(block, "sight", ()):
            blocks[at]["sight"] = [dataclasses.astuple(entry) for entry in sight]
    stop_reason = message.stop_reason if isinstance(message, AssistantMessage) else None
    fields = to_bytes(json.dumps(blocks, ensure_ascii=False, separators=(",", ":")))
    images = message.images if isinstance(message, UserMessage) else ()
    content = b"\n".join((fields, b"".join(long))) if long else fields
    return MessageRow(message.role, stop_reason, content, sealed, images)


def _encode_block(block: ContentBlock | UserBlock, long: list[bytes]) -> dict[str, Any]:
    """Return the fields of a block. Long texts are appended to `long`."""
    match block:
        case TextBlock(prompt=UserPrompt() as prompt):
            # Most prompts begin with the user's words, so the number of characters is enough.
            words = len(prompt.words) if block.text.startswith(prompt.words) else prompt.words
            fields = {"kind": block.kind, "text": _place_text(block.text, long), "words": words}
            return fields | {"turn": prompt.turn_id}
        case TextBlock() | ThinkingBlock():
            return {"kind": block.kind, "text": _place_text(block.text, long)}
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
            text = _place_text(block.text, long)
            return {"kind": block.kind, "id": block.tool_use_id, "text": text, "error": block.is_error}
        case ImageBlock():
            fields = {"kind": block.kind, "type": block.media_type, "sha256": block.digest, "name": block.name}
            return fields | {"width": block.width, "height": block.height}
        case _:
            assert_never(block)


def _place_text(text: str, long: list[bytes]) -> str | int:
    if len(text) < _MIN_LONG_CHARS:
        return text
    long.append(to_bytes(text))
    return len(long[-1])


def decode_message(
    role: str,
    stop_reason: str | None,
    blocks: bytes,
    opaque_states: Mapping[int, OpaqueState],
    find_image: FindImage | None = None,
) -> DecodedMessage:
    """Decode the readable parts of a message row.

    Blocks that are useless without their opaque state are omitted if the state is missing. A note replaces a missing
    image.
    """
    try:
        fields, is_complete = _parse_fields(blocks)
        decoded = []
        for at, entry in enumerate(fields):
            raw = opaque_states.get(at)
            block = _decode_image(entry, find_image) if entry["kind"] == "image" else _decode_block(entry, raw)
            decoded.append(block)
            is_complete = is_complete and (raw is not None or not entry.get("raw"))
            is_complete = is_complete and (isinstance(block, ImageBlock) or entry["kind"] != "image")
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return DecodedMessage(None, is_complete=False)
    if role not in ("user", "assistant"):
        return DecodedMessage(None, is_complete=False)
    kinds = _USER_BLOCKS if role == "user" else _MODEL_BLOCKS
    present: Any = tuple([block for block in decoded if isinstance(block, kinds)])
    if fields and not present:
        return DecodedMessage(None, is_complete=False)
    is_complete = is_complete and len(present) == len(fields)
    if role == "user":
        return DecodedMessage(UserMessage(present), is_complete)
    return DecodedMessage(AssistantMessage(present, _STOP_REASONS.get(stop_reason, "other")), is_complete)


def _parse_fields(blocks: bytes) -> tuple[list[dict[str, Any]], bool]:
    """Return the fields of all blocks with their long texts, and True if the texts have the stored lengths."""
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


def _decode_block(entry: Mapping[str, Any], raw: OpaqueState | None) -> ContentBlock | ToolResultBlock | None:
    match entry["kind"]:
        case "text":
            text = _check_text(entry["text"])
            return TextBlock(text, raw, prompt=_decode_prompt(entry, text), sight=_decode_sight(entry))
        case "thinking":
            lost = raw is None and entry.get("raw") is True
            return None if lost else ThinkingBlock(_check_text(entry["text"]), raw)
        case "tool_use":
            arguments = entry["input"]
            if arguments is not None and not isinstance(arguments, dict):
                raise ValueError("the arguments of a tool call must be an object")
            return ToolUseBlock(_check_text(entry["id"]), _check_text(entry["name"]), arguments, raw)
        case "tool_result":
            text, is_error = _check_text(entry["text"]), bool(entry["error"])
            return ToolResultBlock(_check_text(entry["id"]), text, is_error, sight=_decode_sight(entry))
        case "redacted_thinking":
            return None if raw is None else RedactedThinkingBlock(raw)
        case "server_tool":
            return None if raw is None else ServerToolBlock(_check_text(entry["name"]), raw)
        case "opaque":
            return None if raw is None else OpaqueBlock(_check_text(entry["type"]), raw)
        case _:
            raise ValueError("unknown kind of block")


def _decode_image(entry: Mapping[str, Any], find_image: FindImage | None) -> ImageBlock | TextBlock:
    name, digest = _check_text(entry["name"]), _check_text(entry["sha256"])
    width, height = entry["width"], entry["height"]
    media_type = next((known for known in IMAGE_TYPES if known == entry["type"]), None)
    if media_type is None or not (isinstance(width, int) and isinstance(height, int)):
        raise ValueError("an image must have a known type and a size")
    data = None if find_image is None else find_image(digest)
    if data is None:
        return TextBlock(f"<note>{name}, an image, is missing from the session store.</note>")
    return ImageBlock(media_type, data, digest, name, width, height)


def _decode_prompt(entry: Mapping[str, Any], text: str) -> UserPrompt | None:
    words = entry.get("words")
    if words is None:
        return None
    return UserPrompt(text[:words] if isinstance(words, int) else _check_text(words), _check_text(entry["turn"]))


def _decode_sight(entry: Mapping[str, Any]) -> tuple[FileSight, ...]:
    return tuple(
        FileSight(_check_text(key), None if digest is None else _check_text(digest), bool(is_whole), bool(is_own))
        for key, digest, is_whole, is_own in entry.get("sight", ())
    )


def _check_text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError("not a text")
    return value


def encode_prompts(prompts: tuple[UnansweredPrompt, ...]) -> str:
    """Encode unanswered prompts as JSON for a text column."""
    return replace_surrogates(json.dumps([dataclasses.asdict(prompt) for prompt in prompts], ensure_ascii=False))


def decode_prompts(text: object) -> tuple[UnansweredPrompt, ...]:
    """Decode unanswered prompts from a text column. The result is empty if the column is damaged."""
    try:
        return _PROMPTS.validate_json(str(text))
    except ValueError:
        return ()


def list_usage_values(usage: Usage) -> tuple[int | float | None, ...]:
    """Return the usage values in the order of `USAGE_COLUMNS`."""
    return tuple(getattr(usage, name) for name in USAGE_COLUMNS)


def build_usage(values: tuple[object, ...]) -> Usage:
    """Build a usage value from the columns in `USAGE_COLUMNS`. Values other than numbers are treated as unknown."""
    numbers: Any = [value if isinstance(value, int | float) else None for value in values]
    return Usage(*numbers)


def read_number(value: object) -> int:
    """Return the integer in a column, or 0 if the column is damaged."""
    return value if isinstance(value, int) else 0


def parse_time(nanoseconds: object) -> datetime:
    """Convert nanoseconds in a column to a UTC time. The result is the epoch if the column is damaged."""
    try:
        return datetime.fromtimestamp(read_number(nanoseconds) / 1e9, UTC)
    except (OverflowError, ValueError, OSError):
        return datetime.fromtimestamp(0, UTC)


def build_corruption_error(message: str) -> sqlite3.DatabaseError:
    """Return an error like the one that SQLite raises for a damaged file."""
    error = sqlite3.DatabaseError(message)
    error.sqlite_errorcode = sqlite3.SQLITE_CORRUPT
    return error
