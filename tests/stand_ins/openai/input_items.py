"""The input items in a Responses API request. This module checks the items and builds the conversation."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field
from pydantic_core import PydanticCustomError

from tests.stand_ins.image_checks import check_image_url
from tests.stand_ins.openai.models import ResponseOptions, check_effort
from tests.stand_ins.openai.tools import FunctionName, check_tools, read_type
from tests.stand_ins.rejections import (
    JsonPath,
    NonEmptyString,
    Shape,
    check_supported_value,
    format_path,
    read_shape,
    reject,
    reject_empty,
    reject_like_openai,
    reject_missing,
    reject_type,
)
from thinklsp.offline.script import ConversationState, DialoguePart, read_conversation_state

InputItem = Mapping[str, Any]
ItemSide = Literal["user", "model", "frame"]
CALL, OUTPUT = "function_call", "function_call_output"
COMPACTION = "compaction"
_ID_PATTERN = re.compile(r"[A-Za-z0-9_-]+")
MAX_ID_LENGTH = 64
_SIDE_OF_ROLE: Mapping[str, ItemSide] = {"developer": "frame", "system": "frame", "user": "user"}
_FRAME_TYPES = frozenset({"additional_tools", "compaction_trigger", "configuration_update"})
_TOOL_OUTPUT_TYPES = frozenset(
    {"apply_patch_call_output", "computer_call_output", "custom_tool_call_output", "local_shell_call_output"}
    | {"mcp_approval_response", "program_output", "shell_call_output"}
)
_INPUT_PART_TYPES = ("input_text", "input_image", "input_file")
_OUTPUT_PART_TYPES = ("output_text", "refusal")
# Types of items from hosted tools or from the service itself. Clients send these items back unchanged.
_HOSTED_TYPES = (
    "apply_patch_call", "apply_patch_call_output", "code_interpreter_call", "compaction_trigger", "computer_call",
    "computer_call_output", "custom_tool_call", "custom_tool_call_output",
    "file_search_call", "image_generation_call", "local_shell_call",
    "local_shell_call_output", "mcp_approval_request", "mcp_approval_response", "mcp_call", "mcp_list_tools",
    "program", "program_output", "shell_call", "shell_call_output", "tool_search_call", "tool_search_output",
    "web_search_call",
)  # fmt: skip


def _check_id(value: str, prefix: str | None = None) -> str:
    if value and prefix is not None and not value.startswith(f"{prefix}_"):
        raise PydanticCustomError("identifier", "Expected an ID that begins with '{prefix}'.", {"prefix": prefix})
    if not _ID_PATTERN.fullmatch(value):
        raise PydanticCustomError(
            "identifier",
            "Expected an ID that contains letters, numbers, underscores, or dashes, but this value contained "
            "additional characters.",
        )
    if len(value) > MAX_ID_LENGTH:
        raise PydanticCustomError("string_too_long", "Too long", {"max_length": MAX_ID_LENGTH})
    return value


_Id = Annotated[str, AfterValidator(_check_id)]
_CallItemId = Annotated[str, AfterValidator(partial(_check_id, prefix="fc"))]
_CompactionId = Annotated[str, AfterValidator(partial(_check_id, prefix="cmp"))]
_MessageId = Annotated[str, AfterValidator(partial(_check_id, prefix="msg"))]
_ReasoningId = Annotated[str, AfterValidator(partial(_check_id, prefix="rs"))]


class _Part(Shape):
    type: str


class _InputText(_Part):
    text: NonEmptyString
    prompt_cache_breakpoint: Any = None


class _InputImage(_Part):
    image_url: Any = None
    file_id: Any = None
    detail: Any = None
    prompt_cache_breakpoint: Any = None


class _InputFile(_Part):
    file_id: Any = None
    file_data: Any = None
    file_url: Any = None
    filename: Any = None
    detail: Any = None
    prompt_cache_breakpoint: Any = None


class _OutputText(_Part):
    text: NonEmptyString
    annotations: Any = None
    logprobs: Any = None


class _Refusal(_Part):
    refusal: NonEmptyString


class _SummaryText(Shape):
    type: Literal["summary_text"]
    text: str


class _ReasoningText(Shape):
    type: Literal["reasoning_text"]
    text: str


class _ItemShape(Shape):
    type: str | None = None


class _ItemWithStatus(_ItemShape):
    status: Literal["in_progress", "completed", "incomplete"] | None = None


class _Message(_ItemWithStatus):
    role: Literal["assistant", "system", "developer", "user"]
    content: Any
    id: _MessageId | None = None


class _AssistantMessage(_Message):
    phase: Literal["commentary", "final_answer"] | None = None


class _Reasoning(_ItemWithStatus):
    id: _ReasoningId | None = None
    summary: list[_SummaryText]
    content: list[_ReasoningText] | None = None
    encrypted_content: str | None = None


class _FunctionCall(_ItemWithStatus):
    call_id: _Id
    name: FunctionName
    arguments: str
    id: _CallItemId | None = None
    asynchronous: Any = Field(None, alias="async")
    caller: Any = None
    namespace: Any = None


class _FunctionCallOutput(_ItemWithStatus):
    call_id: _Id
    output: Any
    id: Any = None
    caller: Any = None
    name: Any = None
    namespace: Any = None


class _Compaction(_ItemShape):
    id: _CompactionId | None = None
    encrypted_content: str


class _Reference(_ItemShape):
    id: _Id


class _AdditionalTools(_ItemShape):
    id: Any = None
    role: Literal["developer"]
    tools: Annotated[list[Any], Field(min_length=1)]


class _Effort(Shape):
    effort: Any = None


class _Configuration(_ItemShape):
    id: Any = None
    reasoning: _Effort | None = None
    text: dict[str, Any] | None = None


_PARTS: Mapping[str, type[_Part]] = {
    "input_text": _InputText,
    "input_image": _InputImage,
    "input_file": _InputFile,
    "output_text": _OutputText,
    "refusal": _Refusal,
}
_ITEMS: Mapping[str, type[_ItemShape]] = {
    "additional_tools": _AdditionalTools,
    COMPACTION: _Compaction,
    "configuration_update": _Configuration,
    CALL: _FunctionCall,
    OUTPUT: _FunctionCallOutput,
    "item_reference": _Reference,
    "message": _Message,
    "reasoning": _Reasoning,
}


@dataclass(frozen=True, slots=True)
class OpenAiConversation:
    """The conversation in a request. `system` contains the texts of developer and system messages.

    `effort` is the effort in the last `configuration_update` item, or None.
    """

    items: tuple[InputItem, ...]
    state: ConversationState
    system: tuple[str, ...]
    effort: str | None


def find_last_compaction(items: Sequence[InputItem]) -> int:
    """Return the index of the last compaction item. The model ignores all earlier items except developer messages."""
    return max((index for index, item in enumerate(items) if find_item_type(item) == COMPACTION), default=0)


def find_item_type(item: InputItem) -> str:
    """Return the type of an item. The type is optional for messages and references."""
    if item.get("type") is None:
        return "item_reference" if item.keys() == {"id"} else "message"
    return str(item["type"])


def find_item_side(item: InputItem) -> ItemSide:
    """Return `user` for user messages and tool outputs, `model` for the model's items, or `frame` for other items."""
    name = find_item_type(item)
    if name == "message":
        return _SIDE_OF_ROLE.get(str(item.get("role")), "model")
    if name in _FRAME_TYPES:
        return "frame"
    return "user" if name == OUTPUT or name in _TOOL_OUTPUT_TYPES else "model"


def join_item_text(content: Any) -> str:
    """Return the text of a message or a tool output. Images and other parts are ignored."""
    if not isinstance(content, list):
        return content if isinstance(content, str) else ""
    texts = [part.get("text") for part in content if isinstance(part, dict)]
    return "\n".join(text for text in texts if isinstance(text, str))


def read_conversation(items: Sequence[InputItem]) -> OpenAiConversation:
    efforts = [effort for item in items if (effort := _read_effort(item)) is not None]
    frame = [item for item in items if find_item_type(item) == "message" and find_item_side(item) == "frame"]
    system = tuple(join_item_text(item.get("content")) for item in frame)
    return OpenAiConversation(
        tuple(items), read_conversation_state(_iter_parts(items)), system, efforts[-1] if efforts else None
    )


def _iter_parts(items: Sequence[InputItem]) -> Iterator[DialoguePart]:
    run: int | None = None
    for index, item in enumerate(items):
        item_side, name = find_item_side(item), find_item_type(item)
        if item_side == "user":
            text = join_item_text(item.get("content")) if name == "message" else None
            result = join_item_text(item.get("output")) if name != "message" else None
            yield DialoguePart(index, False, text, result)
            run = None
        elif item_side == "model":
            # Consecutive items from the model belong to the same answer.
            run = index if run is None else run
            yield DialoguePart(run, True)


def _read_effort(item: InputItem) -> str | None:
    reasoning = item.get("reasoning") if find_item_type(item) == "configuration_update" else None
    effort = reasoning.get("effort") if isinstance(reasoning, dict) else None
    return effort if isinstance(effort, str) else None


def check_item(item: Any, place: JsonPath, options: ResponseOptions) -> None:
    """Check an input item. Raises RequestRejected for an invalid item. `place` is the item's path in error messages."""
    if not isinstance(item, dict):
        reject_type(format_path(place), "an object", item)
    if item.get("type") is None and "role" not in item and item.keys() != {"id"}:
        reject_missing(f"{format_path(place)}.type")
    name = check_supported_value(find_item_type(item), f"{format_path(place)}.type", sorted((*_ITEMS, *_HOSTED_TYPES)))
    if name in _HOSTED_TYPES:
        return
    is_answer = name == "message" and item.get("role") == "assistant"
    match read_shape(_AssistantMessage if is_answer else _ITEMS[name], item, place, reject_like_openai):
        case _Message() as message:
            if message.content == "":
                reject_empty(f"{format_path(place)}.content", "string")
            _check_parts(message.content, (*place, "content"), _OUTPUT_PART_TYPES if is_answer else _INPUT_PART_TYPES)
        case _FunctionCallOutput() as output:
            _check_parts(output.output, (*place, "output"), _INPUT_PART_TYPES)
        case _AdditionalTools() as added:
            check_tools(added.tools, (*place, "tools"))
        case _Configuration() as configuration:
            if options.pro:
                reject(
                    "The 'configuration_update' item type is not supported with pro or tournament models.",
                    format_path(place),
                )
            if configuration.reasoning is not None:
                check_effort(configuration.reasoning.effort, options.traits, f"{format_path(place)}.reasoning.effort")
        case _:
            pass


def _check_parts(content: Any, place: JsonPath, kinds: tuple[str, ...]) -> None:
    if isinstance(content, str):
        return
    if not isinstance(content, list):
        reject_type(format_path(place), "one of an array of objects or string", content)
    if not content:
        reject_empty(format_path(place), "array")
    for index, part in enumerate(content):
        here = (*place, index)
        read = read_shape(_PARTS[read_type(part, format_path(here), kinds)], part, here, reject_like_openai)
        if isinstance(read, _InputImage) and read.image_url is None and read.file_id is None:
            reject_missing(f"{format_path(here)}.image_url")
        if isinstance(read, _InputImage) and read.image_url is not None:
            check_image_url(read.image_url, f"{format_path(here)}.image_url")
        if isinstance(read, _InputFile) and (read.file_data, read.file_id, read.file_url) == (None, None, None):
            reject_missing(f"{format_path(here)}.file_id")
