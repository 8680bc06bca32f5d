"""The conversation in a Chat Completions request. This module checks messages, tool calls and tool results."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn

from pydantic import Field

from tests.stand_ins.chat.flavours import Flavour, check_keys, reject_unknown_variant
from tests.stand_ins.image_checks import check_image_url
from tests.stand_ins.rejections import (
    NonEmptyString,
    OpenShape,
    format_list,
    read_shape,
    reject,
    reject_empty,
    reject_like_openai,
    reject_missing,
    reject_type,
)
from thinklsp.offline.script import ConversationState, DialoguePart, read_conversation_state

ChatMessage = Mapping[str, Any]
_INLINE_IMAGE_URL = re.compile(r"data:(image/(jpeg|jpg|png|webp))?;base64,")
# The message keys that a strict gateway accepts for each role.
_STRICT_KEYS: Mapping[str, frozenset[str]] = {
    "system": frozenset({"role", "content", "name"}),
    "developer": frozenset({"role", "content", "name"}),
    "user": frozenset({"role", "content", "name"}),
    "assistant": frozenset({"role", "content", "name", "refusal", "tool_calls"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
_PART_TYPES: Mapping[str, frozenset[str]] = {
    "user": frozenset({"text", "image_url", "input_audio", "file"}),
    "assistant": frozenset({"text", "refusal"}),
}
_PAYLOAD_TYPES: Mapping[str, type[object]] = {"text": str, "refusal": str, "image_url": dict}


class _FunctionCall(OpenShape):
    name: NonEmptyString
    arguments: str


class _Call(OpenShape):
    id: NonEmptyString
    type: Literal["function"]
    function: _FunctionCall


class _MessageShape(OpenShape):
    role: Any
    tool_calls: Annotated[list[_Call], Field(min_length=1)] | None = None
    tool_call_id: str | None = None


@dataclass(frozen=True, slots=True)
class ChatConversation:
    messages: tuple[ChatMessage, ...]
    state: ConversationState

    @property
    def system(self) -> str:
        return "\n".join(join_text(m) for m in self.messages if m["role"] in ("system", "developer"))

    def iter_assistant_messages(self) -> Iterator[tuple[int, ChatMessage]]:
        return ((number, m) for number, m in enumerate(self.messages) if m["role"] == "assistant")


def read_conversation(messages: Any, flavour: Flavour) -> ChatConversation:
    """Check the messages in a request and return the conversation. Raises RequestRejected for an invalid message."""
    if not isinstance(messages, list):
        reject_type("messages", "an array of objects", messages)
    if not messages:
        reject_empty("messages", "array")
    for number, message in enumerate(messages):
        _check_message(message, number, flavour)
    _check_pairs(messages)
    return ChatConversation(tuple(messages), read_conversation_state(_iter_parts(messages)))


def join_text(message: ChatMessage) -> str:
    """Return the text of a message. Images and other parts are ignored."""
    content = message.get("content")
    if isinstance(content, list):
        return "\n".join(part["text"] for part in content if part["type"] == "text")
    return content or ""


def list_call_ids(message: ChatMessage) -> list[str]:
    return [str(call["id"]) for call in message.get("tool_calls") or ()]


def _check_message(message: Any, number: int, flavour: Flavour) -> None:
    read = read_shape(_MessageShape, message, ("messages", number), reject_like_openai)
    place, role = f"messages[{number}]", read.role
    if role is None:
        reject_missing(f"{place}.role")
    if role not in flavour.roles:
        _reject_role(role, f"{place}.role", flavour)
    if flavour.closed:
        check_keys(message, _STRICT_KEYS[role], f"messages.{number}")
    _check_calls(read.tool_calls or (), message, f"{place}.tool_calls", flavour)
    if role == "tool" and read.tool_call_id is None:
        reject_missing(f"{place}.tool_call_id")
    _check_content(message, place, flavour)


def _reject_role(role: Any, place: str, flavour: Flavour) -> NoReturn:
    if flavour.name == "deepseek":
        reject_unknown_variant(place, role, flavour.roles)
    reject(f"Invalid value: '{role}'. Supported values are: {format_list(flavour.roles)}.", place, "invalid_value")


def _check_content(message: ChatMessage, place: str, flavour: Flavour) -> None:
    content, role = message.get("content"), message["role"]
    if isinstance(content, str):
        return
    if content is None:
        if role != "assistant" or not message.get("tool_calls"):
            if flavour.name == "ollama":
                reject("invalid message content type: <nil>")
            reject(f"Invalid value for 'content': expected a string, got null. ({place}.content)", f"{place}.content")
        return
    if not isinstance(content, list):
        reject_type(f"{place}.content", "one of a string or array of objects", content)
    if not content:
        reject_empty(f"{place}.content", "array")
    for index, part in enumerate(content):
        _check_part(part, f"{place}.content[{index}]", _PART_TYPES.get(role, frozenset({"text"})), flavour)


def _check_part(part: Any, place: str, supported_types: frozenset[str], flavour: Flavour) -> None:
    kind = part.get("type") if isinstance(part, Mapping) else None
    if not isinstance(kind, str) or kind not in supported_types:
        supported = format_list(sorted(supported_types))
        reject(f"Invalid value: {kind!r}. Supported values are: {supported}.", f"{place}.type", "invalid_value")
    if not isinstance(part.get(kind), _PAYLOAD_TYPES.get(kind, object)) or part.get(kind) is None:
        reject_missing(f"{place}.{kind}")
    if flavour.closed:
        check_keys(part, ("type", kind), place)
    if kind == "image_url":
        url = part["image_url"].get("url")
        if not isinstance(url, str):
            reject_missing(f"{place}.image_url.url")
        if flavour.name == "ollama" and not _INLINE_IMAGE_URL.match(url):
            reject("invalid image input")
        check_image_url(url, f"{place}.image_url.url")


def _check_calls(calls: Sequence[_Call], message: ChatMessage, place: str, flavour: Flavour) -> None:
    seen: set[str] = set()
    for index, call in enumerate(calls):
        if flavour.closed:
            value = message["tool_calls"][index]
            allowed_keys = {**_Call.model_fields, **_FunctionCall.model_fields}
            check_keys({**value, **value["function"]}, allowed_keys, f"{place}[{index}]")
        _check_arguments(call.function.arguments, f"{place}[{index}]", flavour)
        if call.id in seen:
            reject(f"Duplicate value for 'tool_call_id' of '{call.id}' in '{place}'.", place, "duplicate_value")
        seen.add(call.id)


def _check_arguments(arguments: str, place: str, flavour: Flavour) -> None:
    """Check that a tool call's arguments are JSON, because chat templates parse them. Ollama requires a JSON object."""
    try:
        value = json.loads(arguments)
    except (ValueError, RecursionError) as error:
        if flavour.name == "ollama":
            reject("invalid tool call arguments")
        reject(f"Failed to parse tool call arguments as JSON: {error}", f"{place}.function.arguments")
    if flavour.name == "ollama" and not isinstance(value, dict):
        reject("invalid tool call arguments")


def _check_pairs(messages: Sequence[ChatMessage]) -> None:
    """Check that exactly one tool message follows each tool call, and that each tool message belongs to a call."""
    open_calls: list[str] = []
    answered: set[str] = set()
    for number, message in enumerate(messages):
        if message["role"] != "tool":
            _check_answered(open_calls, answered, number)
            open_calls, answered = list_call_ids(message), set()
            continue
        call_id = message["tool_call_id"]
        if call_id not in open_calls:
            reject(
                "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                "'tool_calls'.",
                f"messages.[{number}].role",
            )
        if call_id in answered:
            reject(f"Duplicate value for 'tool_call_id' of '{call_id}'.", f"messages.[{number}].tool_call_id")
        answered.add(call_id)
    _check_answered(open_calls, answered, len(messages))


def _check_answered(calls: Sequence[str], answered_ids: set[str], number: int) -> None:
    open_calls = [call_id for call_id in calls if call_id not in answered_ids]
    if open_calls:
        reject(
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            "'tool_call_id'. The following tool_call_ids did not have response messages: " + ", ".join(open_calls),
            f"messages.[{number}].role",
        )


def _iter_parts(messages: Sequence[ChatMessage]) -> Iterator[DialoguePart]:
    for number, message in enumerate(messages):
        role = message["role"]
        if role not in ("system", "developer"):
            text = join_text(message)
            yield DialoguePart(
                number, role == "assistant", text if role == "user" else None, text if role == "tool" else None
            )
