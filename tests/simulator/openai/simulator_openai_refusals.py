"""Requests that the service refuses, and the words in which it does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.simulator_openai_talk import SCHEMA, TOOLS, user

CALL = {"type": "function_call", "call_id": "call_1", "name": "read_file", "arguments": "{}"}
OUTPUT = {"type": "function_call_output", "call_id": "call_1", "output": "ok"}
SAID = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hi."}]}
USER = user("plain")
TOOL = TOOLS[0]
EFFORTS = "'none', 'minimal', 'low', 'medium', 'high', 'xhigh', and 'max'"


@dataclass(frozen=True)
class Refusal:
    """A request that is refused with exactly this message; with `whole` False, one that begins so."""

    id: str
    message: str
    param: str | None
    code: str | None
    model: str = "gpt-6-sol"
    changes: dict[str, Any] = field(default_factory=dict)
    whole: bool = True


def unknown(id_: str, place: str, **changes: Any) -> Refusal:
    return Refusal(id_, f"Unknown parameter: '{place}'.", place, "unknown_parameter", changes=changes)


def effort(model: str, level: str, supported: str) -> Refusal:
    message = (
        f"Unsupported value: '{level}' is not supported with the '{model}' model. Supported values are: {supported}."
    )
    changes = {"reasoning": {"effort": level}}
    return Refusal(f"effort-{model}-{level}", message, "reasoning.effort", "unsupported_value", model, changes)


def sampling(key: str, value: Any, model: str = "gpt-6-sol", **changes: Any) -> Refusal:
    message = f"Unsupported parameter: '{key}' is not supported with this model."
    return Refusal(f"sampling-{model}-{key}", message, key, "unsupported_parameter", model, {key: value, **changes})


def schema(id_: str, problem: str, parameters: Any, *, strict: bool = True) -> Refusal:
    tool = {**TOOL, "strict": strict, "parameters": parameters}
    message = f"Invalid schema for function 'read_file': {problem}"
    return Refusal(id_, message, "tools[0].parameters", "invalid_function_parameters", changes={"tools": [tool]})


def wrong_type(id_: str, place: str, expected: str, got: str, **changes: Any) -> Refusal:
    message = f"Invalid type for '{place}': expected {expected}, but got {got} instead."
    return Refusal(id_, message, place, "invalid_type", changes=changes)


def missing(id_: str, place: str, **changes: Any) -> Refusal:
    return Refusal(id_, f"Missing required parameter: '{place}'.", place, "missing_required_parameter", changes=changes)


def without(value: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name != key}


REFUSALS = [
    unknown("top-level", "mood", mood="good"),
    unknown("chat-sampling", "frequency_penalty", frequency_penalty=0.5),
    unknown("reasoning-key", "reasoning.budget", reasoning={"budget": 1}),
    unknown("tool-key", "tools[0].mood", tools=[{**TOOL, "mood": 1}]),
    Refusal(
        "moved",
        "Unsupported parameter: 'max_tokens'. In the Responses API, this parameter has moved to 'max_output_tokens'.",
        None,
        "unsupported_parameter",
        changes={"max_tokens": 100},
        whole=False,
    ),
    wrong_type("input-number", "input", "one of a string or an array", "an integer", input=5),
    wrong_type("stream", "stream", "a boolean", "a string", stream="yes"),
    wrong_type("store", "store", "a boolean", "an integer", store=0),
    wrong_type("tools", "tools", "an array", "an object", tools={}),
    wrong_type("max-output-true", "max_output_tokens", "an integer", "a boolean", max_output_tokens=True),
    Refusal(
        "max-output-15",
        "Invalid 'max_output_tokens': integer below minimum value. Expected a value >= 16, but got 15 instead.",
        "max_output_tokens",
        "integer_below_min_value",
        changes={"max_output_tokens": 15},
    ),
    Refusal(
        "no-effort",
        f"Invalid value: 'huge'. Supported values are: {EFFORTS}.",
        "reasoning.effort",
        "invalid_value",
        changes={"reasoning": {"effort": "huge"}},
    ),
    effort("gpt-6-astra", "none", "'low', 'medium', 'high', 'xhigh', and 'max'"),
    effort("gpt-6.2-terra", "minimal", "'low', 'medium', 'high', 'xhigh', and 'max'"),
    effort("gpt-5.5", "max", "'none', 'low', 'medium', 'high', and 'xhigh'"),
    effort("gpt-5.1", "xhigh", "'none', 'low', 'medium', and 'high'"),
    effort("gpt-5", "none", "'minimal', 'low', 'medium', and 'high'"),
    effort("o3", "minimal", "'low', 'medium', and 'high'"),
    effort("gpt-5-pro", "low", "'high'"),
    effort("gpt-5.2-chat-latest", "low", "'medium'"),
    Refusal(
        "reasoning-elsewhere",
        "Unsupported parameter: 'reasoning.effort' is not supported with this model.",
        "reasoning.effort",
        "unsupported_parameter",
        "gpt-4.1",
        {"include": []},
    ),
    Refusal(
        "encrypted-elsewhere",
        "Encrypted content is not supported with this model.",
        "include",
        None,
        "gpt-4.1",
        {"reasoning": None},
    ),
    Refusal(
        "summary-value",
        "Invalid value: 'none'. Supported values are: 'auto', 'concise', and 'detailed'.",
        "reasoning.summary",
        "invalid_value",
        changes={"reasoning": {"summary": "none"}},
    ),
    Refusal(
        "concise-on-5",
        "Unsupported value: 'concise' is not supported with the 'gpt-5' model. Supported values are: 'auto' and "
        "'detailed'.",
        "reasoning.summary",
        "unsupported_value",
        "gpt-5",
        {"reasoning": {"summary": "concise"}},
    ),
    Refusal(
        "all-turns-on-5",
        "Unsupported value: 'all_turns' is not supported with the 'gpt-5' model. Supported values are: 'auto' and "
        "'current_turn'.",
        "reasoning.context",
        "unsupported_value",
        "gpt-5",
        {"reasoning": {"context": "all_turns"}},
    ),
    Refusal(
        "pro-on-5-5",
        "Unsupported value: 'pro' is not supported with the 'gpt-5.5' model. Supported values are: 'standard'.",
        "reasoning.mode",
        "unsupported_value",
        "gpt-5.5",
        {"reasoning": {"mode": "pro"}},
    ),
    sampling("temperature", 0.2),
    sampling("top_p", 0.9),
    sampling("top_logprobs", 3),
    sampling("temperature", 0.2, "gpt-5.5", reasoning=None),
    sampling("temperature", 1, "gpt-5.1", reasoning={"effort": "low"}),
    Refusal(
        "include-unknown",
        "Invalid value: 'thoughts'. Supported values are: 'code_interpreter_call.outputs'",
        "include[0]",
        "invalid_value",
        changes={"include": ["thoughts"]},
        whole=False,
    ),
    Refusal(
        "stream-options",
        "The 'stream_options' parameter is only allowed when 'stream' is enabled.",
        "stream_options",
        None,
        changes={"stream_options": {"include_obfuscation": False}},
    ),
    missing("no-input", "input", input=None),
    missing("tool-without-type", "tools[0].type", tools=[{"name": "x"}]),
    missing("chat-tool", "tools[0].name", tools=[{"type": "function", "function": {"name": "x", "parameters": {}}}]),
    Refusal(
        "tool-type",
        "Invalid value: 'song'. ",
        "tools[0].type",
        "invalid_value",
        changes={"tools": [{"type": "song"}]},
        whole=False,
    ),
    Refusal(
        "tool-name",
        "Invalid 'tools[0].name': string does not match pattern.",
        "tools[0].name",
        "invalid_value",
        changes={"tools": [{**TOOL, "name": "a b"}]},
        whole=False,
    ),
    Refusal(
        "tool-names",
        "Invalid 'tools[1].name': 'read_file'. Tool names must be unique.",
        "tools[1].name",
        None,
        changes={"tools": [TOOL, TOOL]},
    ),
    Refusal(
        "choice",
        "Tool choice 'dance' not found in 'tools' parameter.",
        "tool_choice",
        None,
        changes={"tool_choice": {"type": "function", "name": "dance"}},
    ),
    Refusal(
        "allowed",
        "Tool choice 'dance' not found in 'tools' parameter.",
        "tool_choice",
        None,
        changes={
            "tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "dance"}]}
        },
    ),
    Refusal(
        "choice-any",
        "Invalid value: 'any'. Supported values are: 'none', 'auto', and 'required'.",
        "tool_choice",
        "invalid_value",
        changes={"tool_choice": "any"},
    ),
    Refusal(
        "choice-without-tools",
        "Tool choice 'required' must be specified with 'tools' parameter.",
        "tool_choice",
        None,
        changes={"tools": [], "tool_choice": "required"},
    ),
    schema(
        "not-an-object", """schema must be a JSON Schema of 'type: "object"', got 'type: "None"'.""", {}, strict=False
    ),
    schema(
        "open-schema",
        "In context=(), 'additionalProperties' is required to be supplied and to be false.",
        without(SCHEMA, "additionalProperties"),
    ),
    schema(
        "optional-key",
        "In context=(), 'required' is required to be supplied and to be an array including every key in properties. "
        "Missing 'path'.",
        without(SCHEMA, "required"),
    ),
    schema(
        "inner-schema",
        "In context=('properties', 'path'), schema must have a 'type' key.",
        {**SCHEMA, "properties": {"path": {}}},
    ),
    schema(
        "one-of",
        "In context=('properties', 'path'), 'oneOf' is not permitted.",
        {**SCHEMA, "properties": {"path": {"oneOf": []}}},
    ),
    schema(
        "items",
        "In context=('properties', 'path', 'items'), 'additionalProperties' is required to be supplied and to be "
        "false.",
        {**SCHEMA, "properties": {"path": {"type": "array", "items": {"type": "object", "properties": {}}}}},
    ),
    unknown("compaction-key", "context_management[0].at", context_management=[{"type": "compaction", "at": 1}]),
    wrong_type("compaction-list", "context_management", "an array", "an object", context_management={}),
    missing("compaction-type", "context_management[0].type", context_management=[{"compact_threshold": 1000}]),
    Refusal(
        "compaction-model",
        "Unsupported parameter: 'context_management' is not supported with this model.",
        "context_management",
        "unsupported_parameter",
        "gpt-5",
        {"context_management": [{"type": "compaction", "compact_threshold": 1000}]},
    ),
    Refusal(
        "previous",
        "Previous response with id 'resp_1' not found.",
        "previous_response_id",
        "previous_response_not_found",
        changes={"previous_response_id": "resp_1"},
    ),
]
