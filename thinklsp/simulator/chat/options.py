"""Everything in a chat request but its messages: keys, caps, tools and the many ways to ask for thinking.

The result of the checks is `Options`; everything refused raises `Refused` with the server's own words.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NoReturn

from thinklsp.simulator.chat.flavours import Flavour, empty_list, extra, invalid, missing, wrong_type
from thinklsp.simulator.dialect import parse_json

Shown = Literal["field", "content", "both", "nowhere"]
# The keys of a gateway that knows nothing but the classic API: `max_completion_tokens` came later.
_KNOWN = frozenset(
    {"model", "messages", "frequency_penalty", "logit_bias", "logprobs", "top_logprobs", "max_tokens", "n"}
    | {"parallel_tool_calls", "presence_penalty", "reasoning_effort", "response_format", "seed", "stop", "stream"}
    | {"stream_options", "temperature", "tool_choice", "tools", "top_p", "user"}
)
_FUNCTION = frozenset({"name", "description", "parameters", "strict"})
# llama.cpp: where the reasoning goes.
_FORMATS: Mapping[str, Shown] = {"auto": "field", "deepseek": "field", "none": "content", "deepseek-legacy": "both"}
_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
_RANGES: Mapping[str, tuple[float, float]] = {
    "temperature": (0, 2),
    "top_p": (0, 1),
    "frequency_penalty": (-2, 2),
    "presence_penalty": (-2, 2),
}
_SHAPES: Mapping[type[object], str] = {str: "a string", dict: "an object", list: "an array", bool: "a boolean"}


@dataclass(frozen=True, slots=True)
class Options:
    """`thinks`: the model thinks; `shown`: where that can be read: in the server's field, in the text between tags,
    in both, or nowhere."""

    thinks: bool
    shown: Shown
    stream: bool
    include_usage: bool
    max_tokens: int | None
    tools: frozenset[str]


def parse_body(raw: bytes) -> Mapping[str, Any]:
    try:
        body = parse_json(raw)
    except ValueError as error:
        invalid(f"We could not parse the JSON body of your request: {error}")
    if not isinstance(body, dict):
        invalid("We could not parse the JSON body of your request: it is not a JSON object")
    if not isinstance(body.get("model"), str) or not body["model"]:
        invalid("you must provide a model parameter", "model")
    return body


def check_options(body: Mapping[str, Any], flavour: Flavour) -> Options:
    if flavour.closed:
        for key in body:
            if key not in _KNOWN:
                extra(key)
    stream = _typed(body, "stream", bool) or False
    max_tokens = _cap(body)
    for key, (low, high) in _RANGES.items():
        value = body.get(key)
        if value is not None and (not _is_number(value) or not low <= value <= high):
            invalid(f"Invalid '{key}': expected a number from {low} to {high}.", key)
    tools = _tools(body.get("tools"), flavour)
    _check_choice(body, tools)
    return Options(
        _thinks(body, flavour),
        _shown(body, flavour),
        stream,
        _include_usage(body, flavour, stream=stream),
        max_tokens,
        tools,
    )


def _typed(body: Mapping[str, Any], key: str, expected: type[object]) -> Any:
    value = body.get(key)
    if value is not None and not isinstance(value, expected):
        wrong_type(key, _SHAPES[expected])
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _cap(body: Mapping[str, Any]) -> int | None:
    given = {key: body[key] for key in ("max_tokens", "max_completion_tokens") if body.get(key) is not None}
    if len(given) == 2:
        invalid("Setting 'max_tokens' and 'max_completion_tokens' at the same time is not supported.")
    for key, value in given.items():
        if not isinstance(value, int) or isinstance(value, bool):
            wrong_type(key, "an integer")
        if value < 1:
            invalid(
                f"Invalid '{key}': integer below minimum value. Expected a value >= 1, but got {value} instead.",
                key,
                "integer_below_min_value",
            )
        return value
    return None


def _include_usage(body: Mapping[str, Any], flavour: Flavour, *, stream: bool) -> bool:
    options = _typed(body, "stream_options", dict)
    if options is None:
        return flavour.details
    if not stream:
        invalid("The 'stream_options' parameter is only allowed when 'stream' is enabled.", "stream_options")
    for key in options:
        if flavour.closed and key != "include_usage":
            extra(f"stream_options.{key}")
    return bool(_typed(options, "include_usage", bool)) or flavour.details


def _tools(tools: Any, flavour: Flavour) -> frozenset[str]:
    if tools is None:
        return frozenset()
    if not isinstance(tools, list):
        wrong_type("tools", "an array of objects")
    if not tools:
        empty_list("tools")
    return frozenset(_tool(tool, f"tools[{number}]", flavour) for number, tool in enumerate(tools))


def _tool(tool: Any, place: str, flavour: Flavour) -> str:
    if not isinstance(tool, Mapping):
        wrong_type(place, "an object")
    if tool.get("type") != "function":
        invalid(f"Invalid value for '{place}.type': expected 'function'.", f"{place}.type", "invalid_value")
    function = tool.get("function")
    if not isinstance(function, Mapping):
        missing(f"{place}.function")
    name = function.get("name")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        invalid(
            f"Invalid '{place}.function.name': string does not match pattern. Expected a string that matches the "
            "pattern '^[a-zA-Z0-9_-]+$'.",
            f"{place}.function.name",
            "invalid_value",
        )
    for key, expected in (("description", str), ("parameters", dict), ("strict", bool)):
        if not isinstance(function.get(key), expected | None):
            invalid(f"Invalid type for '{place}.function.{key}'.", f"{place}.function.{key}", "invalid_type")
    for key in (*tool, *function):
        if flavour.closed and key not in {"type", "function"} | _FUNCTION:
            extra(f"{place}.{key}")
    return name


def _check_choice(body: Mapping[str, Any], tools: frozenset[str]) -> None:
    choice = body.get("tool_choice")
    _typed(body, "parallel_tool_calls", bool)
    for key in ("tool_choice", "parallel_tool_calls"):
        if body.get(key) is not None and not tools:
            invalid(f"Invalid value for '{key}': '{key}' is only allowed when 'tools' are specified.", key)
    match choice:
        case None | "none" | "auto" | "required":
            return
        case {"type": "function", "function": {"name": str(name)}}:
            if name not in tools:
                invalid(f"Invalid value for 'tool_choice': no function named {name!r} was specified.", "tool_choice")
        case _:
            invalid(
                "Invalid value for 'tool_choice'. Supported values are: 'none', 'auto', 'required' and a function.",
                "tool_choice",
                "invalid_value",
            )


def _thinks(body: Mapping[str, Any], flavour: Flavour) -> bool:
    """Every knob that the server reads is checked; the first that says yes or no decides, else the model thinks."""
    said = [
        _asked_by_type(body, flavour),
        _asked_by_template(body, flavour),
        *(_typed(body, key, bool) for key in ("enable_thinking", "think") if key in flavour.knobs),
        _asked_by_reasoning(body, flavour),
        _asked_by_effort(body.get("reasoning_effort"), "reasoning_effort", flavour),
    ]
    if flavour.reasoning is None:
        if any(said):
            invalid(f'"{body["model"]}" does not support thinking')
        return False
    return next((answer for answer in said if answer is not None), True)


def _asked_by_type(body: Mapping[str, Any], flavour: Flavour) -> bool | None:
    if "thinking" not in flavour.knobs or (config := _typed(body, "thinking", dict)) is None:
        return None
    if config.get("type") not in ("enabled", "disabled"):
        _undeserialized("thinking.type", config.get("type"), ("enabled", "disabled"))
    return bool(config["type"] == "enabled")


def _asked_by_template(body: Mapping[str, Any], flavour: Flavour) -> bool | None:
    if "chat_template_kwargs" not in flavour.knobs or (config := _typed(body, "chat_template_kwargs", dict)) is None:
        return None
    said = [config[key] for key in ("enable_thinking", "thinking") if isinstance(config.get(key), bool)]
    return said[0] if said else None


def _asked_by_reasoning(body: Mapping[str, Any], flavour: Flavour) -> bool | None:
    if "reasoning" not in flavour.knobs or (config := _typed(body, "reasoning", dict)) is None:
        return None
    effort, budget = config.get("effort"), config.get("max_tokens")
    if effort is not None and budget is not None and flavour.details:
        invalid('Only one of "reasoning.effort" and "reasoning.max_tokens" can be specified')
    if budget is not None and (not isinstance(budget, int) or isinstance(budget, bool) or budget < 0):
        invalid("reasoning.max_tokens: Invalid input: expected a number of tokens", "reasoning.max_tokens")
    for key in ("enabled", "exclude"):
        _typed(config, key, bool)
    asked = _asked_by_effort(effort, "reasoning.effort", flavour)
    if config.get("enabled") is not None:
        return bool(config["enabled"])
    return True if budget else asked


def _asked_by_effort(effort: Any, place: str, flavour: Flavour) -> bool | None:
    if effort is None:
        return None
    if not isinstance(effort, str):
        wrong_type(place, "a string")
    if flavour.efforts is not None and effort not in flavour.efforts:
        _refuse_effort(effort, place, flavour, flavour.efforts)
    return effort != "none"


def _refuse_effort(effort: str, place: str, flavour: Flavour, known: tuple[str, ...]) -> NoReturn:
    match flavour.name:
        case "ollama":
            levels = ", ".join(f'"{level}"' for level in known[:-1])
            invalid(f'invalid reasoning value: "{effort}" (must be {levels}, or "{known[-1]}")')
        case "deepseek":
            _undeserialized(place, effort, known)
        case "openrouter":
            levels = "|".join(f'"{level}"' for level in known)
            invalid(f"{place}: Invalid option: expected one of {levels}")
        case _:
            levels = ", ".join(f"'{level}'" for level in known[:-1])
            invalid(f"{place}: Input should be {levels} or '{known[-1]}'", place)


def _undeserialized(place: str, value: Any, known: tuple[str, ...]) -> NoReturn:
    variants = ", ".join(f"`{name}`" for name in known)
    invalid(
        "Failed to deserialize the JSON body into the target type: "
        f"{place}: unknown variant `{value}`, expected one of {variants}"
    )


def _shown(body: Mapping[str, Any], flavour: Flavour) -> Shown:
    if flavour.details:
        config = body.get("reasoning")
        return "nowhere" if isinstance(config, Mapping) and config.get("exclude") else "field"
    if flavour.name != "llama.cpp":
        return "field"
    asked = body.get("reasoning_format")
    if asked is not None and (not isinstance(asked, str) or asked not in _FORMATS):
        invalid(f"Unknown reasoning format: {asked}", "reasoning_format")
    return _FORMATS[asked or "auto"]
