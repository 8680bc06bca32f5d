"""Requests that the Gemini service refuses, and the words in which it does."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from tests.support.simulator_google_talk import DECLARATIONS, NEW, OLD, model, user

CALL = {"functionCall": {"name": "read_file", "args": {}}, "thoughtSignature": "skip_thought_signature_validator"}
SECOND = {"functionCall": {"name": "list_files", "args": {}}}
RESULT = {"functionResponse": {"name": "read_file", "response": {"output": "ok"}}}
SECOND_RESULT = {"functionResponse": {"name": "list_files", "response": {"output": "ok"}}}
CALL_TURN = (
    "Please ensure that function call turn comes immediately after a user turn or after a function response turn."
)
RESPONSE_TURN = "Please ensure that function response turn comes immediately after a function call turn."
COUNT = (
    "Please ensure that the number of function response parts is equal to the number of function call parts of the "
    "function call turn."
)
NAME_RULE = (
    "Invalid function name. Must start with a letter or an underscore. Must be alphameric (a-z, A-Z, 0-9), "
    "underscores (_), dots (.), colons (:), or dashes (-), with a maximum length of 64."
)
SCHEMA_TYPE = "functionDeclaration parameters schema should be of type OBJECT."
TYPE = "type.googleapis.com/google.ai.generativelanguage.v1beta."


def with_id(part: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: {**value, "id": name} if isinstance(value, dict) else value for key, value in part.items()}


@dataclass(frozen=True)
class Refusal:
    """A request that is refused with exactly this message."""

    id: str
    message: str
    changes: dict[str, Any] = field(default_factory=dict)
    model: str = NEW


def contents(id_: str, message: str, *values: Any, model: str = NEW) -> Refusal:
    return Refusal(id_, message, {"contents": list(values)}, model)


def thinking(id_: str, message: str, model: str, **config: Any) -> Refusal:
    return Refusal(id_, message, {"generationConfig": {"thinkingConfig": config}}, model)


def generation(id_: str, message: str, **config: Any) -> Refusal:
    return Refusal(id_, message, {"generationConfig": config})


def tool(id_: str, message: str, **changes: Any) -> Refusal:
    declaration = {**DECLARATIONS[0], **changes}
    present = {key: value for key, value in declaration.items() if value is not None}
    return Refusal(id_, message, {"tools": [{"functionDeclarations": [present]}]})


def field_problem(place: str, text: str) -> str:
    return f"* GenerateContentRequest.{place}: {text}\n"


def no_data(place: str) -> str:
    return field_problem(f"{place}.data", "required oneof field 'data' must have one initialized field")


def unknown(name: str, place: str) -> str:
    at = f" at '{place}'" if place else ""
    return f'Invalid JSON payload received. Unknown name "{name}"{at}: Cannot find field.'


DECLARATION = "tools[0].function_declarations[0]"
CALLING = "tool_config.function_calling_config.allowed_function_names"

REFUSALS = [
    Refusal("top-level", unknown("mood", ""), {"mood": 1}),
    generation("config-key", unknown("thinkingLevel", "generation_config"), thinkingLevel="LOW"),
    thinking("thinking-key", unknown("effort", "generation_config.thinking_config"), NEW, effort="low"),
    contents("part-key", unknown("type", "contents[0].parts[0]"), user({"type": "text", "text": "a"})),
    contents(
        "call-key",
        unknown("arguments", "contents[1].parts[0].function_call"),
        user("a"),
        model({"functionCall": {"name": "a", "arguments": {}}}),
        user(RESULT),
    ),
    contents("content-key", unknown("content", "contents[0]"), {"role": "user", "content": "a"}),
    Refusal("tool-key", unknown("name", "tools[0]"), {"tools": [{"name": "a"}]}),
    tool(
        "schema-key",
        unknown("exclusiveMinimum", f"{DECLARATION}.parameters.properties[1].value.items"),
        parametersJsonSchema=None,
        parameters={"type": "object", "properties": {"a": {}, "b": {"items": {"exclusiveMinimum": 1}}}},
    ),
    tool(
        "schema-type-list",
        f"Invalid JSON payload received. Unknown name \"type\" at '{DECLARATION}.parameters.properties[0].value': "
        "Proto field is not repeating, cannot start list.",
        parametersJsonSchema=None,
        parameters={"type": "object", "properties": {"a": {"type": ["string", "null"]}}},
    ),
    Refusal(
        "several-problems",
        f"{unknown('a', '')}\n{unknown('b', 'generation_config')}",
        {"a": 1, "generationConfig": {"b": 2}},
    ),
    contents("text-number", "Invalid value at 'contents[0].parts[0].text' (TYPE_STRING), 5", user({"text": 5})),
    contents("part-text", f"Invalid value at 'contents[0].parts[0]' ({TYPE}Part), \"a\"", {"parts": "a"}),
    contents("no-object", f"Invalid value at 'contents[0]' ({TYPE}Content), \"loop\"", "loop"),
    Refusal(
        "system-text",
        f"Invalid value at 'system_instruction' ({TYPE}Content), \"Help.\"",
        {"systemInstruction": "Help."},
    ),
    generation(
        "tokens-text",
        "Invalid value at 'generation_config.max_output_tokens' (TYPE_INT32), \"many\"",
        maxOutputTokens="many",
    ),
    thinking(
        "level-unknown",
        "Invalid value at 'generation_config.thinking_config.thinking_level' "
        f'({TYPE}ThinkingConfig.ThinkingLevel), "MAX"',
        NEW,
        thinkingLevel="MAX",
    ),
    contents(
        "two-kinds",
        "Invalid value at 'contents[0].parts[0]' (oneof), oneof field 'data' is already set. Cannot set 'functionCall'",
        user({"text": "a", "functionCall": {"name": "a"}}),
    ),
    contents(
        "response-text",
        "Invalid value at 'contents[2].parts[0].function_response.response' "
        '(type.googleapis.com/google.protobuf.Struct), "ok"',
        user("a"),
        model(CALL),
        user({"functionResponse": {"name": "read_file", "response": "ok"}}),
    ),
    contents(
        "args-text",
        "Invalid value at 'contents[1].parts[0].function_call.args' "
        '(type.googleapis.com/google.protobuf.Struct), "{}"',
        user("a"),
        model({"functionCall": {"name": "read_file", "args": "{}"}}),
        user(RESULT),
    ),
    contents("no-contents", field_problem("contents", "contents is not specified")),
    contents(
        "no-parts",
        field_problem("contents[1].parts", "contents.parts must not be empty."),
        user("a"),
        {"role": "model", "parts": []},
        user("b"),
    ),
    contents("empty-part", no_data("contents[0].parts[0]"), user({})),
    contents("empty-text", no_data("contents[0].parts[0]"), user("")),
    contents("only-thought", no_data("contents[1].parts[0]"), user("a"), model({"thought": True}), user("b")),
    Refusal("empty-system", no_data("system_instruction.parts[0]"), {"systemInstruction": {"parts": [{"text": ""}]}}),
    contents("role", "Please use a valid role: user, model.", {"role": "assistant", "parts": [{"text": "a"}]}),
    contents("no-role", "Please use a valid role: user, model.", user("a"), model("b"), {"parts": [{"text": "c"}]}),
    contents("function-role", "Please use a valid role: user, model.", user("a"), {"role": "function", "parts": []}),
    contents("first-model", "Please ensure that multiturn requests begin with a user role.", model("a"), user("b")),
    contents("first-call", CALL_TURN, model(CALL), user(RESULT)),
    contents(
        "last-model",
        "Please ensure that multiturn requests ends with a user role or a function response.",
        user("a"),
        model("b"),
    ),
    contents(
        "only-model",
        "Please ensure that single turn requests end with a user role or the role field is empty.",
        model("a"),
    ),
    contents("call-behind-model", CALL_TURN, user("a"), model("b"), model(CALL), user(RESULT)),
    contents("call-unanswered", COUNT, user("a"), model(CALL), user("b")),
    contents("call-unanswered-by-model", COUNT, user("a"), model(CALL), model("b"), user("c")),
    contents("one-of-two", COUNT, user("a"), model(CALL, SECOND), user(RESULT)),
    contents("results-apart", COUNT, user("a"), model(CALL, SECOND), user(RESULT), user(SECOND_RESULT)),
    contents("too-many", COUNT, user("a"), model(CALL), user(RESULT, RESULT)),
    contents("orphan", RESPONSE_TURN, user(RESULT)),
    contents("late", RESPONSE_TURN, user("a"), model(CALL), user(RESULT), user(RESULT)),
    contents("result-of-model", RESPONSE_TURN, user("a"), model(RESULT), user("b")),
    contents("mixed", RESPONSE_TURN, user("a"), model(CALL), user(RESULT, "and now?")),
    contents("mixed-text-first", RESPONSE_TURN, user("a"), model(CALL), user("here:", RESULT)),
    contents(
        "call-of-user",
        field_problem("contents[0].parts[0].function_call", "function_call must have the role model."),
        user(SECOND),
    ),
    contents(
        "result-name",
        field_problem(
            "contents[2].parts[0].function_response.name",
            "The name list_files does not match the function call read_file.",
        ),
        user("a"),
        model(CALL),
        user(SECOND_RESULT),
    ),
    contents(
        "result-without-name",
        field_problem("contents[2].parts[0].function_response.name", "Name cannot be empty."),
        user("a"),
        model(CALL),
        user({"functionResponse": {"response": {}}}),
    ),
    contents(
        "result-without-response",
        field_problem("contents[2].parts[0].function_response.response", "response is required."),
        user("a"),
        model(CALL),
        user({"functionResponse": {"name": "read_file"}}),
    ),
    contents(
        "result-id",
        field_problem(
            "contents[2].parts[0].function_response.id",
            "The id c2 does not match a function call of the function call turn.",
        ),
        user("a"),
        model(with_id(CALL, "c1")),
        user(with_id(RESULT, "c2")),
    ),
    contents(
        "result-id-twice",
        field_problem(
            "contents[2].parts[1].function_response.id",
            "The id c1 does not match a function call of the function call turn.",
        ),
        user("a"),
        model(with_id(CALL, "c1"), with_id({"functionCall": CALL["functionCall"]}, "c2")),
        user(with_id(RESULT, "c1"), with_id(RESULT, "c1")),
    ),
    contents(
        "signature-of-user",
        "Invalid thought signature.",
        user({"text": "a", "thoughtSignature": "skip_thought_signature_validator"}),
    ),
    thinking(
        "both-knobs",
        "You can only set only one of thinking budget and thinking level.",
        NEW,
        thinkingBudget=-1,
        thinkingLevel="LOW",
    ),
    thinking("image", "Thinking is not enabled for this model", "gemini-2.5-flash-image", includeThoughts=True),
    thinking(
        "budget-too-big",
        "The thinking budget (32769) is invalid. Please choose a value between 128 and 32768.",
        "gemini-2.5-pro",
        thinkingBudget=32769,
    ),
    thinking(
        "budget-too-small",
        "The thinking budget (511) is invalid. Please choose a value between 512 and 24576.",
        "gemini-2.5-flash-lite",
        thinkingBudget=511,
    ),
    thinking(
        "budget-negative",
        "The thinking budget (-2) is invalid. Please choose a value between 1 and 24576.",
        OLD,
        thinkingBudget=-2,
    ),
    generation(
        "tokens",
        "Unable to submit request because it has a maxOutputTokens value of 65537 but the supported range is from 1 "
        "(inclusive) to 65537 (exclusive). Update the value and try again.",
        maxOutputTokens=65537,
    ),
    generation("candidates", "Multiple candidates is not enabled for this model", candidateCount=2),
    generation(
        "temperature",
        field_problem("generation_config.temperature", "temperature must be in the range [0.0, 2.0]."),
        temperature=2.1,
    ),
    tool("name", field_problem(f"{DECLARATION}.name", NAME_RULE), name="read file"),
    tool("name-number", field_problem(f"{DECLARATION}.name", NAME_RULE), name="1st"),
    tool("name-long", field_problem(f"{DECLARATION}.name", NAME_RULE), name="a" * 65),
    tool("no-name", field_problem(f"{DECLARATION}.name", NAME_RULE), name=None),
    tool(
        "both-schemas",
        field_problem(DECLARATION, "only one of parameters and parameters_json_schema can be set."),
        parameters={"type": "object"},
    ),
    tool(
        "schema-no-object", field_problem(f"{DECLARATION}.parameters_json_schema", SCHEMA_TYPE), parametersJsonSchema=[]
    ),
    tool(
        "schema-string",
        field_problem(f"{DECLARATION}.parameters", SCHEMA_TYPE),
        parametersJsonSchema=None,
        parameters={"type": "STRING"},
    ),
    Refusal(
        "twice",
        "Duplicate function declaration found: read_file",
        {"tools": [{"functionDeclarations": DECLARATIONS[:1]}, {"functionDeclarations": DECLARATIONS[:1]}]},
    ),
    Refusal(
        "functions-of-image",
        "Function calling is not enabled for models/gemini-2.5-flash-image",
        model="gemini-2.5-flash-image",
    ),
    Refusal(
        "calling-without-functions",
        "Function calling config is set without function_declarations.",
        {"tools": [], "toolConfig": {"functionCallingConfig": {"mode": "AUTO"}}},
    ),
    Refusal(
        "allowed-with-auto",
        field_problem(CALLING, "only supported with the modes ANY and VALIDATED."),
        {"toolConfig": {"functionCallingConfig": {"mode": "AUTO", "allowedFunctionNames": ["read_file"]}}},
    ),
    Refusal(
        "allowed-unknown",
        field_problem(CALLING, "sing is not among the function_declarations."),
        {"toolConfig": {"functionCallingConfig": {"mode": "ANY", "allowedFunctionNames": ["sing"]}}},
    ),
]
