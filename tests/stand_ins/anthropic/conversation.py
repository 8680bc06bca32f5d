"""The conversation in a Messages API request, which is checked and flattened into a list of blocks."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby, pairwise
from typing import Annotated, Any, Literal

from pydantic import Field

from tests.stand_ins.anthropic.models import AnthropicTraits
from tests.stand_ins.anthropic.requests import AnthropicThinkingMode, OutputConfig, check_effort, reject_extra_key
from tests.stand_ins.image_checks import find_image_fault
from tests.stand_ins.rejections import JsonPath, Shape, read_shape, reject, reject_like_pydantic
from thinklsp.offline.script import ConversationState, DialoguePart, read_conversation_state

# Maps the types of signed blocks to the key that contains the signature.
SIGNATURE_KEYS = {"thinking": "signature", "redacted_thinking": "data"}
# Maps each key that only system messages may have to the beta header that the key requires.
_SYSTEM_KEY_BETAS = {
    "output_config": "mid-conversation-output-config-2026-07-01",
    "clear_at": "mid-conversation-system-clear-at-2026-08-21",
}
_USER_BLOCK_TYPES = frozenset(
    {"text", "image", "document", "search_result", "tool_result", "container_upload", "tool_reference"}
)
# The limit applies to the length in base64.
_MAX_IMAGE_CHARS = 10 << 20
_ASSISTANT_BLOCK_TYPES = frozenset((*SIGNATURE_KEYS, "tool_use", "server_tool_use"))


class _Message(Shape):
    role: Literal["user", "assistant", "system"]
    content: Any
    output_config: OutputConfig | None = None
    clear_at: Any = None


class _Block(Shape):
    type: str


class _Text(_Block):
    text: str
    citations: Any = None
    cache_control: Any = None


class _Thinking(_Block):
    thinking: str
    signature: str


class _Redacted(_Block):
    data: str


class _ToolUse(_Block):
    id: Annotated[str, Field(pattern="^[a-zA-Z0-9_-]+$")]
    name: str
    input: dict[str, Any]
    cache_control: Any = None
    caller: Any = None
    toolset_name: Any = None


class _ToolResult(_Block):
    tool_use_id: str
    content: Any = None
    is_error: bool | None = None
    cache_control: Any = None
    toolset_name: Any = None


class _Image(_Block):
    source: dict[str, Any]
    cache_control: Any = None


class _Base64Source(Shape):
    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: str


_SHAPES: Mapping[str, type[_Block]] = {
    "text": _Text,
    "image": _Image,
    "thinking": _Thinking,
    "redacted_thinking": _Redacted,
    "tool_use": _ToolUse,
    "tool_result": _ToolResult,
}


@dataclass(frozen=True, slots=True)
class AnthropicBlock:
    """A content block and its position in the conversation. Plain text is converted to a text block."""

    message: int
    index: int
    role: str
    value: Mapping[str, Any]

    @property
    def kind(self) -> str:
        return str(self.value["type"])

    @property
    def path(self) -> str:
        return f"messages.{self.message}.content.{self.index}"


@dataclass(frozen=True, slots=True)
class AnthropicConversation:
    blocks: tuple[AnthropicBlock, ...]
    state: ConversationState

    def is_in_tool_loop(self, block: AnthropicBlock) -> bool:
        return block.message >= self.state.start and block.role == "assistant"


def read_conversation(
    messages: list[Any], traits: AnthropicTraits, mode: AnthropicThinkingMode, betas: frozenset[str]
) -> AnthropicConversation:
    """Check the messages in a request and return the conversation. Raises RequestRejected for an invalid message."""
    if not messages:
        reject("messages: at least one message is required")
    effort = mode.effort
    for number, value in enumerate(messages):
        message = read_shape(_Message, value, ("messages", number), reject_like_pydantic)
        _check_message(message, number, traits, betas)
        effort = _check_own_effort(message.output_config, number, effort, mode, traits)
        if message.role == "assistant" and not message.content and number < len(messages) - 1:
            reject(
                f"messages.{number}: all messages must have non-empty content except for the optional final "
                "assistant message"
            )
    if messages[0]["role"] != "user":
        reject('messages: first message must use the "user" role')
    blocks = tuple(block for number, message in enumerate(messages) for block in _iter_blocks(message, number))
    for block in blocks:
        _check_block(block)
    _check_pairs(blocks)
    _check_server_tools(blocks)
    return AnthropicConversation(blocks, read_conversation_state(_iter_parts(blocks)))


def list_content_blocks(content: Any, place: str) -> Sequence[Any]:
    """Return a message's content as a list of blocks. Plain text becomes a single text block."""
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    if not isinstance(content, list):
        reject(f"{place}: Input should be a valid list")
    return content


def group_by_role(blocks: Iterable[AnthropicBlock]) -> Iterator[tuple[str, list[AnthropicBlock]]]:
    """Group the blocks of consecutive messages with the same role. System messages are ignored."""
    spoken = (block for block in blocks if block.role != "system")
    for role, run in groupby(spoken, key=lambda block: block.role):
        yield role, list(run)


def _iter_parts(blocks: Iterable[AnthropicBlock]) -> Iterator[DialoguePart]:
    for block in blocks:
        value = block.value
        if block.role != "system":
            text = str(value["text"]) if block.kind == "text" else None
            result = _join_result_text(value.get("content") or "") if block.kind == "tool_result" else None
            yield DialoguePart(block.message, block.role == "assistant", text, result)


def _join_result_text(content: str | list[Any]) -> str:
    """Return the text of a tool result. Images and other parts are ignored."""
    if isinstance(content, str):
        return content
    return "\n".join(str(part["text"]) for part in content if part["type"] == "text")


def _check_message(message: _Message, number: int, traits: AnthropicTraits, betas: frozenset[str]) -> None:
    if message.role == "system" and not traits.system_role:
        reject(f"messages.{number}: role 'system' is not supported on this model")
    for key, beta in _SYSTEM_KEY_BETAS.items():
        if key in message.model_fields_set and (message.role != "system" or beta not in betas):
            reject_extra_key(f"messages.{number}.{key}")
    if message.role == "user" and not message.content:
        reject(f"messages.{number}: user messages must have non-empty content")


def _check_own_effort(
    config: OutputConfig | None, number: int, before: str | None, mode: AnthropicThinkingMode, traits: AnthropicTraits
) -> str | None:
    """Check the effort in a system message, and return the effort that applies from this message on."""
    if config is None:
        return before
    if not traits.modern or not traits.bound:
        reject("output_config.effort requires a model that supports per-turn effort; this model does not")
    effort = check_effort(config, traits)
    if not mode.is_on and effort is not None and effort != (before or "high"):
        reject(
            f"messages.{number}: output_config.effort '{effort}' differs from the '{before or 'high'}' in effect "
            "before it; effort cannot change when thinking is disabled on this model."
        )
    return effort or before


def _iter_blocks(message: Mapping[str, Any], number: int) -> Iterator[AnthropicBlock]:
    for index, value in enumerate(list_content_blocks(message["content"], f"messages.{number}.content")):
        if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
            reject(f"messages.{number}.content.{index}: Input should be a dictionary with a type")
        yield AnthropicBlock(number, index, message["role"], value)


def _check_block(block: AnthropicBlock) -> None:
    kind = block.kind
    if block.role == "user" and kind not in _USER_BLOCK_TYPES:
        if kind in _ASSISTANT_BLOCK_TYPES:
            reject(f"messages.{block.message}: `{kind}` blocks can only be in `assistant` messages")
        reject(f"{block.path}: Input tag '{kind}' found using 'type' does not match any of the expected tags")
    if block.role == "assistant" and kind == "tool_result":
        reject(f"messages.{block.message}: `tool_result` blocks can only be in `user` messages")
    _check_shape(block.value, (block.path,))
    if kind == "tool_result":
        place = f"{block.path}.tool_result.content"
        for part in list_content_blocks(block.value.get("content") or [], place):
            if not isinstance(part, Mapping) or str(part.get("type")) not in _USER_BLOCK_TYPES - {"tool_result"}:
                reject(f"{place}: Input should be text, image, document or search_result blocks")
            if part["type"] != "text" or part.get("text") != "":
                _check_shape(part, (place,))


def _check_shape(value: Mapping[str, Any], place: JsonPath) -> None:
    kind = value["type"]
    if kind not in _SHAPES:
        return
    read_shape(_SHAPES[kind], value, (*place, kind), reject_like_pydantic)
    if kind == "image" and value["source"].get("type") == "base64":
        _check_image(value["source"], (*place, kind, "source", "base64"))
    if kind == "text" and not value["text"]:
        reject("messages: text content blocks must be non-empty")
    if kind == "text" and not value["text"].strip():
        reject("messages: text content blocks must contain non-whitespace text")


def _check_image(source: Mapping[str, Any], place: JsonPath) -> None:
    image = read_shape(_Base64Source, source, place, reject_like_pydantic)
    where = ".".join(map(str, place))
    match find_image_fault(image.data, image.media_type, _MAX_IMAGE_CHARS):
        case "size":
            sizes = f"{len(image.data)} bytes > {_MAX_IMAGE_CHARS} bytes"
            reject(f"{where}: image exceeds {_MAX_IMAGE_CHARS >> 20} MB maximum: {sizes}")
        case "base64":
            reject(f"{where}: invalid base64 data")
        case "type":
            reject(f"{where}.data: Image does not match the provided media type {image.media_type}")
        case "content":
            reject(f"{where}.data: Could not process image")
        case None:
            pass


def _check_pairs(blocks: Sequence[AnthropicBlock]) -> None:
    """Check that each tool call and its result match. Results must be at the start of the message after the call."""
    seen: set[str] = set()
    open_calls: dict[str, AnthropicBlock] = {}
    for role, run in group_by_role(blocks):
        if role == "user":
            _check_answers(run, open_calls)
            open_calls = {}
            continue
        for call in run:
            if call.kind == "tool_use":
                if call.value["id"] in seen:
                    reject("messages: `tool_use` ids must be unique")
                seen.add(call.value["id"])
                open_calls[call.value["id"]] = call
    _check_answered(open_calls, ())
    for before, block in pairwise(blocks):
        if block.role == "system" and before.role == "assistant" and before.kind == "tool_use":
            reject(f"messages.{block.message}: role 'system' may not stand between a tool_use and its tool_result")


def _check_answers(run: Sequence[AnthropicBlock], open_calls: Mapping[str, AnthropicBlock]) -> None:
    leading: list[str] = []
    text_seen = False
    for block in run:
        if block.kind != "tool_result":
            text_seen = True
            continue
        call_id = block.value["tool_use_id"]
        if call_id not in open_calls:
            reject(
                f"{block.path}: unexpected `tool_use_id` found in `tool_result` blocks: {call_id}. Each `tool_result` "
                "block must have a corresponding `tool_use` block in the previous message."
            )
        if call_id in leading:
            reject(f"each tool_use must have a single result. Found multiple `tool_result` blocks with id: {call_id}")
        if not text_seen:
            leading.append(call_id)
    _check_answered(open_calls, leading)


def _check_answered(calls: Mapping[str, AnthropicBlock], answered_ids: Sequence[str]) -> None:
    missing = [call_id for call_id in calls if call_id not in answered_ids]
    if missing:
        reject(
            f"messages.{calls[missing[0]].message}: tool_use ids were found without tool_result blocks immediately "
            f"after: {', '.join(missing)}. Each tool_use block must have a corresponding tool_result block at the "
            "beginning of the next message."
        )


def _check_server_tools(blocks: Sequence[AnthropicBlock]) -> None:
    """Check that each call of a server tool has a result before the user's next prompt."""
    finished = {str(block.value.get("tool_use_id")) for block in blocks if block.role == "assistant"}
    pending = [b for b in blocks if b.kind == "server_tool_use" and str(b.value.get("id")) not in finished]
    for role, run in group_by_role(blocks):
        if role != "user" or any(block.kind == "tool_result" for block in run):
            continue
        for call in pending:
            if call.message < run[0].message:
                name = call.value.get("name")
                reject(
                    f"{call.path}: `{name}` tool use with id `{call.value.get('id')}` was found without a "
                    f"corresponding `{name}_tool_result` block"
                )
