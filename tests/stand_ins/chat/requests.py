"""The kinds of compatible servers, and what a Chat Completions request to one of them may contain."""

from __future__ import annotations

import json
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, assert_never, get_args

from pydantic import Field

from tests.stand_ins.rejections import (
    ErrorTable,
    NonEmptyString,
    OpenShape,
    RequestRejected,
    check_image_url,
    check_supported_value,
    read_openai_shape,
    read_table,
    reject,
    reject_invalid,
    reject_missing,
)
from thinklsp.offline.scenario import TableRow
from thinklsp.offline.script import ConversationState, DialoguePart, read_conversation_state

ErrorEnvelope = Literal["openai", "ollama", "llama.cpp", "vllm", "openrouter"]
ChatMessage = Mapping[str, Any]
_INVALID = "invalid_request_error"
CHAT_ERRORS = ErrorTable("openai-compatible", sends_529=True)
_VLLM_TYPES = {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError", 429: "RateLimitError"}
Knob = Literal["reasoning_effort", "reasoning", "thinking", "chat_template_kwargs"]
_OPENAI_ROLES = ("system", "assistant", "user", "tool", "developer")
# The keys that a strict gateway accepts. Its API version is older than `max_completion_tokens`.
_STRICT_KEYS = frozenset(
    {"model", "messages", "max_tokens", "reasoning_effort", "stream", "stream_options", "tools", "parallel_tool_calls"}
)
# The message keys that it accepts for each role.
_STRICT_MESSAGE_KEYS: Mapping[str, frozenset[str]] = {
    "system": frozenset({"role", "content"}),
    "developer": frozenset({"role", "content"}),
    "user": frozenset({"role", "content"}),
    "assistant": frozenset({"role", "content", "refusal", "tool_calls"}),
    "tool": frozenset({"role", "content", "tool_call_id"}),
}
_PART_TYPES: Mapping[str, tuple[str, ...]] = {"user": ("image_url", "text"), "assistant": ("refusal", "text")}


def check_keys(value: Iterable[str], allowed_keys: Container[str], place: str) -> None:
    """Reject the request if it contains keys that the server does not support."""
    for key in value:
        if key not in allowed_keys:
            path = f"{place}.{key}" if place else key
            reject(f"{path}: Extra inputs are not permitted", path)


def build_error_value(error: RequestRejected, envelope: ErrorEnvelope) -> dict[str, Any]:
    """Return the JSON value of the `error` key in the format of a kind of server."""
    message, kind = str(error), error.kind or _INVALID
    match envelope:
        case "openai":
            return {"message": message, "type": kind, "param": error.param, "code": error.code}
        case "ollama":
            kind = {400: _INVALID, 404: "not_found_error"}.get(error.status, "api_error")
            return {"message": message, "type": kind, "param": None, "code": None}
        case "llama.cpp":
            return {"code": error.status, "message": message, "type": kind, **error.extra_fields}
        case "vllm":
            kind = _VLLM_TYPES.get(error.status, "InternalServerError" if error.status >= 500 else "BadRequestError")
            return {"message": message, "type": kind, "param": error.param, "code": error.status}
        case "openrouter":
            metadata = {"metadata": error.extra_fields} if error.extra_fields else {}
            return {"message": message, "code": error.status, **metadata}
        case _:
            assert_never(envelope)


class Flavour(TableRow):
    """The behavior of a kind of server.

    `reasoning` is the message field for thinking. If `details` is true, signed thinking is also sent in the field
    `reasoning_details`. `knobs` contains the request keys that control thinking. `efforts` contains the accepted
    effort levels, or is None if any level is accepted, and `effort_error` is the refusal of another one. If
    `named_chunks` is true, every chunk has a role and content. If `closed` is true, the server rejects unknown
    keys. If `fits` is true, the prompt and `max_tokens` together must fit into the context window. If `hosted` is
    true, the server requires an API key.

    `calls` specifies how tool calls are streamed. With `opened`, the ID and name come before the other pieces. With
    `whole`, each call is a single chunk. With `repeated`, every delta has the ID, the name and the index 0. With
    `unnumbered`, deltas have no index.
    """

    name: str
    thinks: bool = True
    reasoning: Literal["reasoning", "reasoning_content"] = "reasoning_content"
    details: bool = False
    knobs: frozenset[Knob] = frozenset({"reasoning_effort"})
    efforts: tuple[str, ...] | None = None
    effort_error: str = "{place}: Input should be one of {levels}"
    roles: tuple[str, ...] = _OPENAI_ROLES
    calls: Literal["opened", "whole", "repeated", "unnumbered"] = "opened"
    call_ids: str = "call_{digest:.24}"
    named_chunks: bool = False
    opens_with_null: bool = False
    lies_about_calls: bool = False
    counts_thinking: bool = False
    counts_cached: bool = True
    usage_on: Literal["own_chunk", "finish", "every"] = "own_chunk"
    envelope: ErrorEnvelope = "openai"
    broken: Literal["data", "event", "text", "choices", "silence"] = "data"
    comment: bytes = b": keep-alive\n\n"
    fingerprint: str | None = None
    closed: bool = False
    fits: bool = False
    hosted: bool = False
    window: int = 131_072


_TABLE = read_table("models")["openai-compatible"]
_SERVERS = {key: Flavour(**{"name": key, **row}) for key, row in _TABLE["servers"].items()}
GENERIC = _SERVERS["generic"]
COMPATIBLE_MODELS: tuple[str, ...] = tuple(_TABLE["listed"])


def find_flavour(model: str) -> Flavour:
    """Return the kind of server that serves a model. OpenRouter serves all model IDs that contain a slash."""
    if "/" in model:
        return _SERVERS["openrouter"]
    return next((_SERVERS[key] for prefix, key in _TABLE["prefixes"].items() if model.startswith(prefix)), GENERIC)


def build_model_info(name: str) -> Mapping[str, Any]:
    """Return a model's entry in the list of models. Some kinds of servers include the context window."""
    flavour = find_flavour(name)
    extra: Mapping[str, Mapping[str, Any]] = {
        "vllm": {"max_model_len": flavour.window},
        "llama.cpp": {"meta": {"n_ctx": flavour.window, "n_ctx_train": 4 * flavour.window}},
        "openrouter": {"context_length": flavour.window},
    }
    return {"id": name, "object": "model", "created": 0, "owned_by": flavour.name, **extra.get(flavour.name, {})}


class _Function(OpenShape):
    name: Annotated[str, Field(pattern="^[a-zA-Z0-9_-]+$", max_length=64)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class _Tool(OpenShape):
    type: Literal["function"]
    function: _Function


class _StreamOptions(OpenShape):
    include_usage: bool | None = None


class _Thinking(OpenShape):
    type: Any = None


class _Template(OpenShape):
    enable_thinking: bool | None = None
    thinking: bool | None = None


class _Reasoning(OpenShape):
    effort: str | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    enabled: bool | None = None


class _Request(OpenShape):
    """The request keys that the servers read, including each server's own keys for thinking."""

    reasoning_effort: str | None = None
    reasoning: _Reasoning | None = None
    thinking: _Thinking | None = None
    chat_template_kwargs: _Template | None = None

    stream: Literal[True]
    stream_options: _StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    tools: Annotated[list[_Tool], Field(min_length=1)] | None = None


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """The options in a request."""

    thinks: bool
    include_usage: bool
    max_tokens: int | None
    tools: frozenset[str]


def check_options(body: Mapping[str, Any], flavour: Flavour) -> ChatOptions:
    if flavour.closed:
        check_keys(body, _STRICT_KEYS, "")
    ignored = frozenset(get_args(Knob)) - flavour.knobs
    fields = {key: value for key, value in body.items() if key not in ignored}
    request = read_openai_shape(_Request, fields, ())
    if request.max_tokens is not None and request.max_completion_tokens is not None:
        reject("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
    return ChatOptions(
        _should_think(request, flavour, body["model"]),
        flavour.details or (request.stream_options is not None and bool(request.stream_options.include_usage)),
        request.max_tokens or request.max_completion_tokens,
        frozenset(tool.function.name for tool in request.tools or ()),
    )


def _should_think(request: _Request, flavour: Flavour, model: str) -> bool:
    """Check all thinking options and return True if thinking is enabled.

    The first option in the request takes precedence. By default, thinking is enabled if the server supports it.
    """
    template = request.chat_template_kwargs or _Template()
    settings = [
        _read_thinking_type(request.thinking),
        template.enable_thinking,
        template.thinking,
        _read_reasoning(request.reasoning, flavour),
        _read_effort(request.reasoning_effort, "reasoning_effort", flavour),
    ]
    if not flavour.thinks:
        if any(settings):
            reject(f'"{model}" does not support thinking')
        return False
    return next((setting for setting in settings if setting is not None), True)


def _read_thinking_type(config: _Thinking | None) -> bool | None:
    if config is None:
        return None
    return check_supported_value(config.type, "thinking.type", ("enabled", "disabled")) == "enabled"


def _read_reasoning(config: _Reasoning | None, flavour: Flavour) -> bool | None:
    if config is None:
        return None
    if config.effort is not None and config.max_tokens is not None and flavour.details:
        reject('Only one of "reasoning.effort" and "reasoning.max_tokens" can be specified')
    by_effort = _read_effort(config.effort, "reasoning.effort", flavour)
    if config.enabled is not None:
        return config.enabled
    return True if config.max_tokens else by_effort


def _read_effort(effort: str | None, place: str, flavour: Flavour) -> bool | None:
    if effort is None:
        return None
    if flavour.efforts is not None and effort not in flavour.efforts:
        levels = ", ".join(f"'{level}'" for level in flavour.efforts)
        reject(flavour.effort_error.format(place=place, effort=effort, levels=levels), place)
    return effort != "none"


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
    if not isinstance(messages, list) or not messages:
        reject_invalid("messages", "expected an array with at least one message")
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
    read = read_openai_shape(_MessageShape, message, ("messages", number))
    place, role = f"messages[{number}]", read.role
    if role is None:
        reject_missing(f"{place}.role")
    check_supported_value(role, f"{place}.role", flavour.roles)
    if flavour.closed:
        check_keys(message, _STRICT_MESSAGE_KEYS[role], f"messages.{number}")
    _check_calls(read.tool_calls or (), f"{place}.tool_calls")
    if role == "tool" and read.tool_call_id is None:
        reject_missing(f"{place}.tool_call_id")
    _check_content(message, place)


def _check_content(message: ChatMessage, place: str) -> None:
    content, role = message.get("content"), message["role"]
    if isinstance(content, str):
        return
    if content is None:
        if role != "assistant" or not message.get("tool_calls"):
            reject(f"Invalid value for 'content': expected a string, got null. ({place}.content)", f"{place}.content")
        return
    if not isinstance(content, list) or not content:
        reject_invalid(f"{place}.content", "expected a string or an array with at least one object")
    for index, part in enumerate(content):
        _check_part(part, f"{place}.content[{index}]", _PART_TYPES.get(role, ("text",)))


def _check_part(part: Any, place: str, supported_types: Sequence[str]) -> None:
    kind = part.get("type") if isinstance(part, Mapping) else None
    kind = check_supported_value(kind, f"{place}.type", supported_types)
    payload = part.get(kind)
    if not isinstance(payload, Mapping if kind == "image_url" else str):
        reject_missing(f"{place}.{kind}")
    if kind == "image_url":
        check_image_url(part["image_url"].get("url"), f"{place}.image_url.url")


def _check_calls(calls: Sequence[_Call], place: str) -> None:
    """Check that the arguments are JSON objects, because chat templates parse them, and that no ID is used twice."""
    for index, call in enumerate(calls):
        try:
            is_object = isinstance(json.loads(call.function.arguments), dict)
        except (ValueError, RecursionError):
            is_object = False
        if not is_object:
            reject("Failed to parse tool call arguments as JSON", f"{place}[{index}].function.arguments")
    if len({call.id for call in calls}) < len(calls):
        reject(f"Duplicate value for 'tool_call_id' in '{place}'.", place, "duplicate_value")


def _check_pairs(messages: Sequence[ChatMessage]) -> None:
    """Check that exactly one tool message follows each tool call, and that each tool message belongs to a call."""
    waiting: list[str] = []
    for number, message in enumerate([*messages, {"role": "user"}]):
        if message["role"] == "tool":
            if message["tool_call_id"] not in waiting:
                reject(
                    "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with "
                    "'tool_calls', and there is one for each call.",
                    f"messages.[{number}].role",
                )
            waiting.remove(message["tool_call_id"])
            continue
        if waiting:
            reject(
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)}",
                f"messages.[{number}].role",
            )
        waiting = list_call_ids(message)


def _iter_parts(messages: Sequence[ChatMessage]) -> Iterator[DialoguePart]:
    for number, message in enumerate(messages):
        role = message["role"]
        if role not in ("system", "developer"):
            text = join_text(message)
            yield DialoguePart(
                number, role == "assistant", text if role == "user" else None, text if role == "tool" else None
            )
