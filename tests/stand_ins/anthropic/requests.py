"""What a Messages API request may contain: models, options, tools and messages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Annotated, Any, Literal, get_args

from pydantic import Field

from tests.stand_ins.dialect import read_bearer_token
from tests.stand_ins.rejections import (
    JsonPath,
    NonEmptyString,
    RequestRejected,
    Shape,
    find_image_fault,
    read_shape,
    read_table,
    reject,
)
from tests.stand_ins.service_state import estimate_tokens
from thinklsp.offline.scenario import TableRow
from thinklsp.offline.script import ConversationState, DialoguePart, read_conversation_state

AnthropicEffort = Literal["low", "medium", "high", "xhigh", "max"]
ThinkingKind = Literal["adaptive", "between_tools", "disabled", "enabled"]
AnthropicThinkingDisplay = Literal["summarized", "omitted"]
_EFFORTS = get_args(AnthropicEffort)
_VERSIONS = frozenset({"2023-06-01", "2026-10-21"})
_INTERLEAVED_BETA = "interleaved-thinking-2025-05-14"
_BINDING_BETA = "thinking-binding-controls-2026-08-01"
# The betas that thinklsp asks for.
_BETAS = frozenset({_INTERLEAVED_BETA, _BINDING_BETA, "thinking-token-count-2026-05-13", "oauth-2025-04-20"})
_USE_ADAPTIVE = 'Use "thinking.type.adaptive" and "output_config.effort" to control thinking behavior.'
_PROPERTY_KEY = re.compile("[a-zA-Z0-9_.-]{1,64}")
# Maps the types of signed blocks to the key that contains the signature.
SIGNATURE_KEYS = {"thinking": "signature", "redacted_thinking": "data"}
# The limit applies to the length in base64.
_MAX_IMAGE_CHARS = 10 << 20


class AnthropicTraits(TableRow):
    """The behavior of a model and the options that it accepts.

    If `thinks_unasked` is true, thinking is enabled by default. `off` specifies when a request can disable thinking:
    always, only with an effort of at most `high`, or never. If `bound` is true, a signature is valid only if all
    earlier messages are unchanged. If `keeps_thinking` is true, thinking from earlier turns stays in the context.
    `interleaves` specifies when thinking with a manual budget is possible between tool calls: always, only with a beta
    header, or never. `modern` models (4.7 and later) omit thinking by default and count more tokens.
    """

    id: str
    thinks_unasked: bool = True
    adaptive: bool = True
    manual: bool = False
    off: Literal["always", "up_to_high", "never"] = "never"
    between_tools: bool = False
    efforts: tuple[AnthropicEffort, ...] = _EFFORTS
    bound: bool = False
    keeps_thinking: bool = True
    interleaves: Literal["always", "with_header", "never"] = "always"
    modern: bool = True
    cache_minimum: int = 1024
    max_tokens: int = 128_000
    window: int = 1_000_000

    def count_tokens(self, text: str) -> int:
        """Estimate the number of tokens in a text. Tokenizers of `modern` models count 30% more tokens."""
        tokens = estimate_tokens(text)
        return -(-tokens * 13 // 10) if self.modern else tokens


def _read_models() -> dict[str, AnthropicTraits]:
    table = read_table("models")["anthropic"]
    models: dict[str, AnthropicTraits] = {}
    for name, row in table["models"].items():
        own = {key: value for key, value in row.items() if key != "generation"}
        models[name] = AnthropicTraits(id=name, **{**table["generations"].get(row.get("generation"), {}), **own})
    return models | {f"{name}-{date}": models[name] for name, date in table["dated"].items()}


ANTHROPIC_MODELS = _read_models()


def build_model_info(name: str, window: int) -> dict[str, Any]:
    """Return the description of a model, with the given context window."""
    traits = ANTHROPIC_MODELS[name]
    types = {
        "adaptive": traits.adaptive,
        "between_tools": traits.between_tools,
        "disabled": traits.off != "never",
        "enabled": traits.manual,
    }
    efforts = {level: {"supported": level in traits.efforts} for level in _EFFORTS}
    forms = {kind: {"supported": value} for kind, value in types.items()}
    return {
        "type": "model",
        "id": name,
        "display_name": name,
        "created_at": "1970-01-01T00:00:00Z",
        "max_input_tokens": window,
        "max_tokens": traits.max_tokens,
        "capabilities": {
            "effort": {"supported": bool(traits.efforts), **efforts},
            "thinking": {"supported": True, "types": forms},
        },
    }


class _Binding(Shape):
    prefix_mismatch_behavior: Literal["error", "drop_block"] | None = None


class _Adaptive(Shape):
    type: Literal["adaptive"]
    display: AnthropicThinkingDisplay | None = None
    block_binding: _Binding | None = None


class _Manual(Shape):
    type: Literal["enabled"]
    budget_tokens: Annotated[int, Field(ge=1024)]
    display: AnthropicThinkingDisplay | None = None
    block_binding: _Binding | None = None


class _Other(Shape):
    type: Literal["between_tools", "disabled"]


class _OutputConfig(Shape):
    effort: AnthropicEffort | None = None


class CacheControl(Shape):
    type: Literal["ephemeral"]


class SystemText(Shape):
    type: Literal["text"]
    text: NonEmptyString
    cache_control: Any = None


class _Schema(Shape, extra="allow"):
    type: Literal["object"]


class _Tool(Shape):
    """The keys that thinklsp sends, and those that LiteLLM adds."""

    name: Annotated[str, Field(pattern="^[a-zA-Z0-9_-]{1,128}$")]
    input_schema: _Schema
    type: Literal["custom"] | None = None
    description: str | None = None
    cache_control: Any = None
    strict: Any = None
    eager_input_streaming: Any = None


class MessageRequest(Shape):
    """The keys that thinklsp sends, and those that LiteLLM adds."""

    model: str
    messages: list[Any]
    max_tokens: Annotated[int, Field(ge=1)]
    stream: Literal[True]
    system: str | list[Any] | None = None
    thinking: Annotated[_Adaptive | _Manual | _Other, Field(discriminator="type")] | None = None
    output_config: _OutputConfig | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    temperature: float | None = None
    metadata: Any = None


@dataclass(frozen=True, slots=True)
class AnthropicThinkingMode:
    """The thinking settings in a request.

    If `is_interleaved` is true, thinking is also possible between tool calls. If `drop_unbound` is true, thinking after
    changed messages is dropped instead of rejected. If `reports_drops` is true, the answer lists the dropped blocks.
    """

    kind: ThinkingKind
    display: AnthropicThinkingDisplay
    budget: int | None = None
    effort: str | None = None
    is_interleaved: bool = True
    drop_unbound: bool = False
    reports_drops: bool = False

    @property
    def is_on(self) -> bool:
        return self.kind in ("adaptive", "enabled")


def check_headers(headers: Mapping[str, str]) -> frozenset[str]:
    """Check the API key and the version header, and return the beta names. Any API key is accepted."""
    if not headers.get("x-api-key", "").strip() and not read_bearer_token(headers):
        raise RequestRejected(401, "x-api-key header is required")
    if headers.get("anthropic-version") not in _VERSIONS:
        reject(f"anthropic-version: {headers.get('anthropic-version')!r} is not a valid version")
    betas = frozenset(beta.strip() for beta in headers.get("anthropic-beta", "").split(",") if beta.strip())
    if unknown := sorted(betas - _BETAS):
        reject(f"Unexpected value(s) `{unknown[0]}` for the `anthropic-beta` header.")
    return betas


def check_options(request: MessageRequest, traits: AnthropicTraits, betas: frozenset[str]) -> AnthropicThinkingMode:
    """Check a request body, except for the system prompt and the messages."""
    effort = request.output_config.effort if request.output_config is not None else None
    if effort is not None and effort not in traits.efforts:
        levels = ", ".join(traits.efforts) or "none"
        reject(f"output_config.effort: '{effort}' is not supported by this model. Supported levels: {levels}.")
    mode = _read_mode(request, traits, betas, effort)
    limited = traits.off == "up_to_high" or traits.between_tools
    if not mode.is_on and limited and effort in ("xhigh", "max"):
        reject(f"output_config.effort '{effort}' is not supported when thinking is disabled on this model.")
    limit = request.max_tokens
    if limit > traits.max_tokens:
        reject(
            f"max_tokens: {limit} > {traits.max_tokens}, which is the maximum allowed number of output tokens "
            f"for {request.model}"
        )
    spans_the_turn = mode.is_interleaved and _INTERLEAVED_BETA in betas
    if mode.budget is not None and mode.budget >= limit and not spans_the_turn:
        reject("`max_tokens` must be greater than `thinking.budget_tokens`.")
    if request.temperature not in (None, 1) and (traits.modern or mode.is_on):
        reject("`temperature` may only be set to 1 when thinking is enabled.")
    _check_tools(request.tools or ())
    return mode


def _read_mode(
    request: MessageRequest, traits: AnthropicTraits, betas: frozenset[str], effort: str | None
) -> AnthropicThinkingMode:
    config = request.thinking
    default: AnthropicThinkingDisplay = "omitted" if traits.modern else "summarized"
    reports_drops = _BINDING_BETA in betas
    kind: ThinkingKind = "adaptive" if traits.thinks_unasked else "disabled"
    if config is not None:
        kind = config.type
        _check_thinking_kind(kind, traits)
    if not isinstance(config, _Adaptive | _Manual):
        return AnthropicThinkingMode(kind, default, effort=effort, reports_drops=reports_drops)
    binding = config.block_binding
    if binding is not None and not reports_drops:
        reject(f"thinking.{kind}.block_binding: Extra inputs are not permitted")
    interleaves = traits.interleaves == "always" or (traits.interleaves == "with_header" and _INTERLEAVED_BETA in betas)
    return AnthropicThinkingMode(
        kind,
        config.display or default,
        budget=config.budget_tokens if isinstance(config, _Manual) else None,
        effort=effort,
        is_interleaved=kind != "enabled" or interleaves,
        drop_unbound=binding is not None and binding.prefix_mismatch_behavior == "drop_block",
        reports_drops=reports_drops,
    )


def _check_thinking_kind(kind: ThinkingKind, traits: AnthropicTraits) -> None:
    is_rejected = {
        "adaptive": not traits.adaptive,
        "enabled": not traits.manual,
        "between_tools": not traits.between_tools,
        "disabled": traits.off == "never",
    }
    if is_rejected[kind]:
        reject(f'"thinking.type.{kind}" is not supported for this model. {_USE_ADAPTIVE}')


def _check_tools(tools: Sequence[Any]) -> None:
    names: set[str] = set()
    for index, tool in enumerate(tools):
        place = f"tools.{index}.custom.input_schema"
        read = read_shape(_Tool, tool, ("tools", index, "custom"))
        if read.name in names:
            reject("tools: Tool names must be unique.")
        names.add(read.name)
        schema = tool["input_schema"]
        if {"oneOf", "allOf", "anyOf"} & schema.keys():
            reject(f"{place}: input_schema does not support oneOf, allOf, or anyOf at the top level")
        properties = schema.get("properties")
        if isinstance(properties, dict) and not all(map(_PROPERTY_KEY.fullmatch, properties)):
            reject(f"{place}.properties: Property keys should match pattern '^[a-zA-Z0-9_.-]{{1,64}}$'")


class _Message(Shape):
    role: Literal["user", "assistant"]
    content: str | list[Any]


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


class _ToolResult(_Block):
    tool_use_id: str
    content: str | list[Any] | None = None
    is_error: bool | None = None
    cache_control: Any = None


class _Base64Source(Shape):
    type: Literal["base64"]
    media_type: Literal["image/jpeg", "image/png", "image/gif", "image/webp"]
    data: str


class _Image(_Block):
    source: _Base64Source
    cache_control: Any = None


_USER_SHAPES: Mapping[str, type[_Block]] = {"text": _Text, "image": _Image, "tool_result": _ToolResult}
_ANSWER_SHAPES: Mapping[str, type[_Block]] = {
    "text": _Text,
    "thinking": _Thinking,
    "redacted_thinking": _Redacted,
    "tool_use": _ToolUse,
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


def read_conversation(messages: list[Any]) -> AnthropicConversation:
    """Check the messages in a request and return the conversation. Raises RequestRejected for an invalid message."""
    if not messages:
        reject("messages: at least one message is required")
    for number, value in enumerate(messages):
        message = read_shape(_Message, value, ("messages", number))
        if not message.content:
            reject(f"messages.{number}: all messages must have non-empty content")
    if messages[0]["role"] != "user":
        reject('messages: first message must use the "user" role')
    blocks = tuple(block for number, message in enumerate(messages) for block in _iter_blocks(message, number))
    for block in blocks:
        _check_block(block)
    _check_pairs(blocks)
    return AnthropicConversation(blocks, read_conversation_state(_iter_parts(blocks)))


def list_content_blocks(content: str | list[Any]) -> Sequence[Any]:
    """Return a message's content as a list of blocks. Plain text becomes a single text block."""
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def group_by_role(blocks: Iterable[AnthropicBlock]) -> Iterator[tuple[str, list[AnthropicBlock]]]:
    """Group the blocks of consecutive messages with the same role."""
    for role, run in groupby(blocks, key=lambda block: block.role):
        yield role, list(run)


def _iter_parts(blocks: Iterable[AnthropicBlock]) -> Iterator[DialoguePart]:
    for block in blocks:
        text = str(block.value["text"]) if block.kind == "text" else None
        result = None
        if block.kind == "tool_result":
            parts = list_content_blocks(block.value.get("content") or [])
            result = "\n".join(str(part["text"]) for part in parts if part["type"] == "text")
        yield DialoguePart(block.message, block.role == "assistant", text, result)


def _iter_blocks(message: Mapping[str, Any], number: int) -> Iterator[AnthropicBlock]:
    for index, value in enumerate(list_content_blocks(message["content"])):
        if not isinstance(value, Mapping) or not isinstance(value.get("type"), str):
            reject(f"messages.{number}.content.{index}: Input should be a dictionary with a type")
        yield AnthropicBlock(number, index, message["role"], value)


def _check_block(block: AnthropicBlock) -> None:
    # Blocks of other types are those of the scenario, which come back as they were.
    shape = (_USER_SHAPES if block.role == "user" else _ANSWER_SHAPES).get(block.kind)
    if shape is not None:
        _check_shape(shape, block.value, (block.path, block.kind))
    elif block.role == "user" or block.kind in _USER_SHAPES:
        reject(f"messages.{block.message}: `{block.kind}` blocks cannot be in `{block.role}` messages")
    if block.kind == "tool_result":
        place = f"{block.path}.tool_result.content"
        for part in list_content_blocks(block.value.get("content") or []):
            if not isinstance(part, Mapping) or part.get("type") not in ("text", "image"):
                reject(f"{place}: Input should be text, image, document or search_result blocks")
            if part["type"] != "text" or part.get("text") != "":
                _check_shape(_USER_SHAPES[part["type"]], part, (place, part["type"]))


def _check_shape(shape: type[_Block], value: Mapping[str, Any], place: JsonPath) -> None:
    read = read_shape(shape, value, place)
    if isinstance(read, _Image):
        _check_image(read.source, f"{'.'.join(map(str, place))}.source.base64")
    if isinstance(read, _Text) and not read.text.strip():
        reject(f"messages: text content blocks must {'contain non-whitespace text' if read.text else 'be non-empty'}")


def _check_image(image: _Base64Source, where: str) -> None:
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
    """Check that each tool call has one result, at the start of the message after the call."""
    seen: set[str] = set()
    waiting: list[str] = []
    for role, run in group_by_role(blocks):
        if role == "user":
            _check_results(run, waiting)
        waiting = [block.value["id"] for block in run if block.kind == "tool_use"]
        if len({*seen, *waiting}) < len(seen) + len(waiting):
            reject("messages: `tool_use` ids must be unique")
        seen.update(waiting)
    _check_results((), waiting)


def _check_results(run: Sequence[AnthropicBlock], waiting: Sequence[str]) -> None:
    results = [block.value["tool_use_id"] for block in run if block.kind == "tool_result"]
    leading = [block.value.get("tool_use_id") for block in run[: len(results)]]
    if unexpected := [call_id for call_id in results if call_id not in waiting]:
        reject(
            f"messages: unexpected `tool_use_id` found in `tool_result` blocks: {unexpected[0]}. Each `tool_result` "
            "block must have a corresponding `tool_use` block in the previous message."
        )
    if len(set(results)) < len(results):
        reject(f"each tool_use must have a single result. Found multiple `tool_result` blocks with ids: {results}")
    if missing := [call_id for call_id in waiting if call_id not in leading]:
        reject(
            f"messages: tool_use ids were found without tool_result blocks immediately after: {', '.join(missing)}. "
            "Each tool_use block must have a corresponding tool_result block at the beginning of the next message."
        )
