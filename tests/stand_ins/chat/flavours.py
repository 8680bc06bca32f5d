"""The kinds of simulated servers, each with its own options, answers and errors. The model ID selects the kind."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, assert_never, get_args

from pydantic import Field

from tests.stand_ins.dialect import parse_object
from tests.stand_ins.rejections import ErrorTable, OpenShape, RequestRejected, read_shape, reject, reject_like_openai
from tests.stand_ins.tables import read_table
from thinklsp.offline.scenario import TableRow

ErrorEnvelope = Literal["openai", "ollama", "llama.cpp", "vllm", "openrouter"]
_INVALID = "invalid_request_error"
CHAT_ERRORS = ErrorTable("openai-compatible", sends_529=True)
_VLLM_TYPES = {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError", 429: "RateLimitError"}
Knob = Literal["reasoning_effort", "reasoning", "thinking", "chat_template_kwargs", "enable_thinking", "think"]
_OPENAI_ROLES = ("system", "assistant", "user", "tool", "developer")
Placement = Literal["field", "content", "both", "nowhere"]
# The keys that a strict gateway accepts. Its API version is older than `max_completion_tokens`.
_STRICT_KEYS = frozenset(
    {"model", "messages", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "max_tokens", "n"}
    | {"parallel_tool_calls", "presence_penalty", "reasoning_effort", "response_format", "seed", "stop", "stream"}
    | {"stream_options", "temperature", "tool_choice", "tools", "top_p", "user"}
)
# Maps llama.cpp's values for `reasoning_format` to the part of the message that contains the reasoning.
_FORMATS: Mapping[str, Placement] = {"auto": "field", "deepseek": "field", "none": "content", "deepseek-legacy": "both"}


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
    `reasoning_details`. `knobs` contains the request keys that control thinking. `efforts` contains the accepted effort
    levels, or is None if any level is accepted. If `named_chunks` is true, every chunk has a role and content. If
    `closed` is true, the server rejects unknown keys. If `fits` is true, the prompt and `max_tokens` together must fit
    into the context window. If `hosted` is true, the server requires an API key.

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
    broken: Literal["data", "event", "text", "line", "choices", "silence"] = "data"
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
    type: Any = None
    function: _Function


class _StreamOptions(OpenShape):
    include_usage: bool | None = None


class _Thinking(OpenShape):
    type: Any = None


class _Template(OpenShape):
    enable_thinking: Any = None
    thinking: Any = None


class _Reasoning(OpenShape):
    effort: str | None = None
    max_tokens: Any = None
    enabled: bool | None = None
    exclude: bool | None = None


class _Request(OpenShape):
    """The request keys that the simulated servers read, including each server's own keys for thinking."""

    reasoning_effort: str | None = None
    reasoning: _Reasoning | None = None
    thinking: _Thinking | None = None
    chat_template_kwargs: _Template | None = None
    enable_thinking: bool | None = None
    think: bool | None = None

    stream: bool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0.0, le=2.0)] | None = None
    top_p: Annotated[float, Field(ge=0.0, le=1.0)] | None = None
    frequency_penalty: Annotated[float, Field(ge=-2.0, le=2.0)] | None = None
    presence_penalty: Annotated[float, Field(ge=-2.0, le=2.0)] | None = None
    tools: Annotated[list[_Tool], Field(min_length=1)] | None = None
    parallel_tool_calls: bool | None = None


@dataclass(frozen=True, slots=True)
class ChatOptions:
    """The options in a request. `placement` specifies which part of the message contains the thinking, if any."""

    thinks: bool
    placement: Placement
    stream: bool
    include_usage: bool
    max_tokens: int | None
    tools: frozenset[str]


def parse_body(raw: bytes) -> Mapping[str, Any]:
    problem = "We could not parse the JSON body of your request: "
    body = parse_object(raw, problem, f"{problem}it is not a JSON object")
    if not isinstance(body.get("model"), str) or not body["model"]:
        reject("you must provide a model parameter", "model")
    return body


def check_options(body: Mapping[str, Any], flavour: Flavour) -> ChatOptions:
    if flavour.closed:
        check_keys(body, _STRICT_KEYS, "")
    ignored = frozenset(get_args(Knob)) - flavour.knobs
    fields = {key: value for key, value in body.items() if key not in ignored}
    request = read_shape(_Request, fields, (), reject_like_openai)
    if request.max_tokens is not None and request.max_completion_tokens is not None:
        reject("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
    tools = _read_tools(request, body, flavour)
    _check_choice(body, tools)
    return ChatOptions(
        _should_think(request, flavour, body["model"]),
        _read_placement(request, body, flavour),
        bool(request.stream),
        _include_usage(request, body, flavour),
        request.max_tokens or request.max_completion_tokens,
        tools,
    )


def _include_usage(request: _Request, body: Mapping[str, Any], flavour: Flavour) -> bool:
    options = request.stream_options
    if options is None:
        return flavour.details
    if not request.stream:
        reject("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    if flavour.closed:
        check_keys(body["stream_options"], _StreamOptions.model_fields, "stream_options")
    return bool(options.include_usage) or flavour.details


def _read_tools(request: _Request, body: Mapping[str, Any], flavour: Flavour) -> frozenset[str]:
    for number, tool in enumerate(request.tools or ()):
        place, value = f"tools[{number}]", body["tools"][number]
        if tool.type != "function":
            reject(f"Invalid value for '{place}.type': expected 'function'.", f"{place}.type", "invalid_value")
        if flavour.closed:
            check_keys({**value, **value["function"]}, _Tool.model_fields | _Function.model_fields, place)
    return frozenset(tool.function.name for tool in request.tools or ())


def _check_choice(body: Mapping[str, Any], tools: frozenset[str]) -> None:
    choice = body.get("tool_choice")
    for key in ("tool_choice", "parallel_tool_calls"):
        if body.get(key) is not None and not tools:
            reject(f"Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified.", key)
    match choice:
        case None | "none" | "auto" | "required":
            return
        case {"type": "function", "function": {"name": str(name)}}:
            if name not in tools:
                reject(f"Invalid value for 'tool_choice': no function named {name!r} was specified.", "tool_choice")
        case _:
            reject(
                "Invalid value for 'tool_choice'. Supported values are: 'none', 'auto', 'required' and a function.",
                "tool_choice",
                "invalid_value",
            )


def _should_think(request: _Request, flavour: Flavour, model: str) -> bool:
    """Check all thinking options and return True if thinking is enabled.

    The first option in the request takes precedence. By default, thinking is enabled if the server supports it.
    """
    settings = [
        _read_thinking_type(request.thinking),
        _read_template(request.chat_template_kwargs),
        request.enable_thinking,
        request.think,
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
    if config.type not in ("enabled", "disabled"):
        reject_unknown_variant("thinking.type", config.type, ("enabled", "disabled"))
    return bool(config.type == "enabled")


def _read_template(config: _Template | None) -> bool | None:
    settings = [] if config is None else [config.enable_thinking, config.thinking]
    return next((setting for setting in settings if isinstance(setting, bool)), None)


def _read_reasoning(config: _Reasoning | None, flavour: Flavour) -> bool | None:
    if config is None:
        return None
    budget = config.max_tokens
    if config.effort is not None and budget is not None and flavour.details:
        reject('Only one of "reasoning.effort" and "reasoning.max_tokens" can be specified')
    if budget is not None and (not isinstance(budget, int) or isinstance(budget, bool) or budget < 0):
        reject("reasoning.max_tokens: Invalid input: expected a number of tokens", "reasoning.max_tokens")
    by_effort = _read_effort(config.effort, "reasoning.effort", flavour)
    if config.enabled is not None:
        return config.enabled
    return True if budget else by_effort


def _read_effort(effort: str | None, place: str, flavour: Flavour) -> bool | None:
    if effort is None:
        return None
    if flavour.efforts is not None and effort not in flavour.efforts:
        _reject_effort(effort, place, flavour, flavour.efforts)
    return effort != "none"


def _reject_effort(effort: str, place: str, flavour: Flavour, supported: tuple[str, ...]) -> NoReturn:
    match flavour.name:
        case "ollama":
            levels = ", ".join(f'"{level}"' for level in supported[:-1])
            reject(f'invalid reasoning value: "{effort}" (must be {levels}, or "{supported[-1]}")')
        case "deepseek":
            reject_unknown_variant(place, effort, supported)
        case "openrouter":
            levels = "|".join(f'"{level}"' for level in supported)
            reject(f"{place}: Invalid option: expected one of {levels}")
        case _:
            levels = ", ".join(f"'{level}'" for level in supported[:-1])
            reject(f"{place}: Input should be {levels} or '{supported[-1]}'", place)


def reject_unknown_variant(place: str, value: Any, supported: tuple[str, ...]) -> NoReturn:
    variants = ", ".join(f"`{name}`" for name in supported)
    reject(
        "Failed to deserialize the JSON body into the target type: "
        f"{place}: unknown variant `{value}`, expected one of {variants}"
    )


def _read_placement(request: _Request, body: Mapping[str, Any], flavour: Flavour) -> Placement:
    if flavour.details:
        return "nowhere" if request.reasoning is not None and request.reasoning.exclude else "field"
    if flavour.name != "llama.cpp":
        return "field"
    form = body.get("reasoning_format")
    if form is not None and (not isinstance(form, str) or form not in _FORMATS):
        reject(f"Unknown reasoning format: {form}", "reasoning_format")
    return _FORMATS[form or "auto"]
