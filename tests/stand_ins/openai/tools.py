"""Checks for `tools` and `tool_choice` in a Responses API request, including names and schemas.

Scenarios can call only functions. Hosted tools are accepted without checks and are never called.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import Field

from tests.stand_ins.rejections import (
    JsonPath,
    Shape,
    check_supported_value,
    format_path,
    read_shape,
    reject,
    reject_like_openai,
    reject_missing,
    reject_type,
)

_NON_STRICT_KEYS = frozenset(
    {"allOf", "dependentRequired", "dependentSchemas", "else", "if", "not", "oneOf", "patternProperties", "then"}
)
_ROOT_COMPOSITION = frozenset({"allOf", "anyOf", "enum", "not", "oneOf"})
_TYPE_KEYS = frozenset({"$ref", "anyOf", "const", "enum", "type"})
_SchemaPath = tuple[str, ...]
_HOSTED_TOOLS = (
    "apply_patch", "code_interpreter", "computer", "computer_use_preview", "custom", "file_search", "image_generation",
    "local_shell", "mcp", "namespace", "programmatic_tool_calling", "shell", "tool_search", "web_search",
    "web_search_preview",
)  # fmt: skip
_TOOL_TYPES = ("function", *_HOSTED_TOOLS)
_CHOICE_MODES = ("none", "auto", "required")
# A function name in a tool definition or in a tool call.
FunctionName = Annotated[str, Field(min_length=1, max_length=128, pattern="^[a-zA-Z0-9_-]+$")]


class _Function(Shape):
    name: FunctionName
    type: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    output_schema: Any = None
    allowed_callers: Any = None
    defer_loading: Any = None


class _FunctionChoice(Shape):
    type: str
    name: str


class _AllowedTools(Shape):
    type: str
    mode: Literal["auto", "required"]
    tools: Annotated[list[dict[str, Any]], Field(min_length=1)]


def read_type(value: Any, place: str, supported: Sequence[str]) -> str:
    """Return the `type` of an object. Reject the request if the type is not supported."""
    if not isinstance(value, dict):
        reject_type(place, "an object", value)
    if "type" not in value:
        reject_missing(f"{place}.type")
    return check_supported_value(value["type"], f"{place}.type", supported)


def check_tools(tools: Sequence[Any], place: JsonPath = ("tools",)) -> tuple[str, ...]:
    """Check tool definitions and return the names of the functions in order."""
    names: list[str] = []
    for index, tool in enumerate(tools):
        here = (*place, index)
        if read_type(tool, format_path(here), _TOOL_TYPES) != "function":
            continue
        read = read_shape(_Function, tool, here, reject_like_openai)
        if read.name in names:
            reject(
                f"Invalid '{format_path(here)}.name': '{read.name}'. Tool names must be unique.",
                f"{format_path(here)}.name",
            )
        if read.parameters is not None:
            check_schema(read.name, read.parameters, f"{format_path(here)}.parameters", is_strict=bool(read.strict))
        names.append(read.name)
    return tuple(names)


def check_tool_choice(choice: Any, names: Sequence[str], *, any_tools: bool) -> None:
    place = "tool_choice"
    if choice is None:
        return
    if isinstance(choice, str):
        check_supported_value(choice, place, _CHOICE_MODES)
        if choice == "required" and not any_tools:
            reject("Tool choice 'required' must be specified with 'tools' parameter.", place)
        return
    if not isinstance(choice, dict):
        reject_type(place, "one of a string or an object", choice)
    kind = read_type(choice, place, ("allowed_tools", *_TOOL_TYPES))
    offered: list[Any] = []
    if kind == "function":
        offered = [read_shape(_FunctionChoice, choice, (place,), reject_like_openai).name]
    if kind == "allowed_tools":
        allowed = read_shape(_AllowedTools, choice, (place,), reject_like_openai).tools
        offered = [tool.get("name") for tool in allowed if tool.get("type") == "function"]
    for name in offered:
        if name not in names:
            reject(f"Tool choice '{name}' not found in 'tools' parameter.", place)


def complete_tools(tools: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Return the tools in the form that the response contains. The schema determines the default for `strict`."""
    result: list[Mapping[str, Any]] = []
    for tool in tools:
        if tool["type"] == "function":
            schema = tool.get("parameters") or {}
            strict = tool.get("strict")
            if strict is None:
                strict = _find_root_problem(schema) is None and _find_strict_problem(schema) is None
            tool = {"description": None, "parameters": None, **tool, "strict": strict}
        result.append(tool)
    return result


def check_schema(name: str, schema: Mapping[str, Any], place: str, *, is_strict: bool) -> None:
    """Check the schema of a function's parameters."""
    problem = _find_root_problem(schema) or _find_items_problem(schema)
    problem = problem or (_find_strict_problem(schema) if is_strict else None)
    if problem is not None:
        reject(f"Invalid schema for function '{name}': {problem}", place, "invalid_function_parameters")


def _find_root_problem(schema: Mapping[str, Any]) -> str | None:
    kind = schema.get("type")
    if kind != "object":
        return f"""schema must be a JSON Schema of 'type: "object"', got 'type: "{kind}"'."""
    if _ROOT_COMPOSITION & schema.keys():
        keys = "'oneOf'/'anyOf'/'allOf'/'enum'/'not'"
        return f"schema must have type 'object' and not have {keys} at the top level."
    return None


def _find_items_problem(schema: Mapping[str, Any]) -> str | None:
    for path, part in _iter_schemas(schema, ()):
        if part.get("type") == "array" and "items" not in part:
            return f"In context={path}, array schema missing items."
    return None


def _find_strict_problem(schema: Mapping[str, Any]) -> str | None:
    for path, part in _iter_schemas(schema, ()):
        for key in part:
            if key in _NON_STRICT_KEYS:
                return f"In context={path}, '{key}' is not permitted."
        if not _TYPE_KEYS & part.keys():
            return f"In context={path}, schema must have a 'type' key."
        if _is_object(part) and (problem := _find_object_problem(part)) is not None:
            return f"In context={path}, {problem}"
    return None


def _is_object(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def _find_object_problem(part: Mapping[str, Any]) -> str | None:
    if part.get("additionalProperties") is not False:
        return "'additionalProperties' is required to be supplied and to be false."
    properties, required = part.get("properties"), part.get("required")
    names = list(properties) if isinstance(properties, dict) else []
    listed = required if isinstance(required, list) else []
    for name in names:
        if name not in listed:
            return (
                "'required' is required to be supplied and to be an array including every key in properties. "
                f"Missing '{name}'."
            )
    for name in listed:
        if name not in names:
            return f"'required' is required to be an array of keys in properties. Extra required key '{name}' supplied."
    return None


def _iter_schemas(schema: Any, path: _SchemaPath) -> Iterator[tuple[_SchemaPath, Mapping[str, Any]]]:
    """Yield a schema and all nested schemas, each with its path."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for holder in ("properties", "$defs", "definitions"):
        inner = schema.get(holder)
        if isinstance(inner, dict):
            for name, part in inner.items():
                yield from _iter_schemas(part, (*path, holder, name))
    yield from _iter_schemas(schema.get("items"), (*path, "items"))
    choices = schema.get("anyOf")
    for index, part in enumerate(choices if isinstance(choices, list) else ()):
        yield from _iter_schemas(part, (*path, "anyOf", str(index)))
