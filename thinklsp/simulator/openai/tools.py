"""Tools and tool_choice of an OpenAI request: their shapes, names and schemas.

Only functions can be played; hosted tools are accepted as they stand and never used.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NoReturn

from thinklsp.simulator.openai.errors import (
    array,
    choice,
    filled_array,
    flag,
    invalid,
    missing,
    only,
    required,
    short_text,
    table,
    text,
    wrong_type,
)

_NOT_STRICT = frozenset(
    {"allOf", "dependentRequired", "dependentSchemas", "else", "if", "not", "oneOf", "patternProperties", "then"}
)
_SAYS_WHAT = frozenset({"$ref", "anyOf", "const", "enum", "type"})
_Path = tuple[str, ...]
_HOSTED = (
    "apply_patch", "code_interpreter", "computer", "computer_use_preview", "file_search", "image_generation",
    "local_shell", "mcp", "namespace", "programmatic_tool_calling", "shell", "tool_search", "web_search",
    "web_search_preview",
)  # fmt: skip
_TYPES = ("function", "custom", *_HOSTED)
_FUNCTION_KEYS = frozenset(
    {"allowed_callers", "defer_loading", "description", "name", "output_schema", "parameters", "strict", "type"}
)
_CUSTOM_KEYS = frozenset({"allowed_callers", "defer_loading", "description", "format", "name", "type"})
_MODES = ("none", "auto", "required")
_NAME = re.compile(r"[a-zA-Z0-9_-]+")
_MAX_NAME = 128


def check_schema(schema: Any, function: str, place: str, *, strict: bool) -> None:
    """Raises Refused in the service's words."""
    problem = _root_problem(schema) or (_strict_problem(schema) if strict else None)
    if problem is not None:
        _refuse(problem, function, place)


def conforms(schema: Any) -> bool:
    """Whether strict mode could take the schema."""
    return _root_problem(schema) is None and _strict_problem(schema) is None


def _root_problem(schema: Mapping[str, Any]) -> str | None:
    kind = schema.get("type")
    if kind == "object":
        return None
    return f"""schema must be a JSON Schema of 'type: "object"', got 'type: "{kind}"'."""


def _strict_problem(schema: Mapping[str, Any]) -> str | None:
    for path, part in _parts(schema, ()):
        for key in part:
            if key in _NOT_STRICT:
                return f"In context={path}, '{key}' is not permitted."
        if not _SAYS_WHAT & part.keys():
            return f"In context={path}, schema must have a 'type' key."
        if _is_object(part) and (problem := _object_problem(part)) is not None:
            return f"In context={path}, {problem}"
    return None


def _is_object(part: Mapping[str, Any]) -> bool:
    kind = part.get("type")
    return kind == "object" or (isinstance(kind, list) and "object" in kind)


def _object_problem(part: Mapping[str, Any]) -> str | None:
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


def _parts(schema: Any, path: _Path) -> Iterator[tuple[_Path, Mapping[str, Any]]]:
    """The schema and every schema inside it, with where it stands."""
    if not isinstance(schema, dict):
        return
    yield path, schema
    for holder in ("properties", "$defs", "definitions"):
        inner = schema.get(holder)
        if isinstance(inner, dict):
            for name, part in inner.items():
                yield from _parts(part, (*path, holder, name))
    yield from _parts(schema.get("items"), (*path, "items"))
    choices = schema.get("anyOf")
    for index, part in enumerate(choices if isinstance(choices, list) else ()):
        yield from _parts(part, (*path, "anyOf", str(index)))


def _refuse(problem: str, function: str, place: str) -> NoReturn:
    invalid(f"Invalid schema for function '{function}': {problem}", place, "invalid_function_parameters")


def check_tools(tools: Any, place: str = "tools") -> tuple[str, ...]:
    """Names of the functions and custom tools, in order."""
    if tools is None:
        return ()
    names: list[str] = []
    for index, tool in enumerate(array(tools, place)):
        name = _check_tool(tool, f"{place}[{index}]")
        if name is not None and name in names:
            invalid(f"Invalid '{place}[{index}].name': '{name}'. Tool names must be unique.", f"{place}[{index}].name")
        if name is not None:
            names.append(name)
    return tuple(names)


def check_name(value: Any, place: str) -> str:
    """A function's name, in a tool or in a call of it."""
    if not _NAME.fullmatch(short_text(value, place, _MAX_NAME)):
        invalid(
            f"Invalid '{place}': string does not match pattern. Expected a string that matches the pattern "
            "'^[a-zA-Z0-9_-]+$'.",
            place,
            "invalid_value",
        )
    return str(value)


def check_choice(selected: Any, names: Sequence[str], *, any_tools: bool) -> None:
    match selected:
        case None:
            return
        case str():
            choice(selected, "tool_choice", _MODES)
            if selected == "required" and not any_tools:
                invalid("Tool choice 'required' must be specified with 'tools' parameter.", "tool_choice")
        case dict():
            _check_selected(selected, names)
        case _:
            wrong_type("tool_choice", "one of a string or an object", selected)


def echoed_tools(tools: Any) -> list[Mapping[str, Any]]:
    """The tools as a response repeats them: `strict` is told, guessed where the request leaves it out."""
    result: list[Mapping[str, Any]] = []
    for tool in tools or ():
        if tool["type"] != "function":
            result.append(tool)
            continue
        given = tool.get("strict")
        strict = given if given is not None else conforms(tool.get("parameters") or {})
        echo = {"description": None, "parameters": None, **tool, "strict": strict}
        result.append(echo)
    return result


def _check_tool(tool: Any, place: str) -> str | None:
    kind = choice(required(table(tool, place), "type", place), f"{place}.type", _TYPES)
    if kind == "function":
        return _check_function(tool, place)
    if kind == "custom":
        only(tool, _CUSTOM_KEYS, place)
        return check_name(required(tool, "name", place), f"{place}.name")
    return None


def _check_function(tool: Mapping[str, Any], place: str) -> str:
    if "name" not in tool:
        missing(f"{place}.name")
    only(tool, _FUNCTION_KEYS, place)
    name = check_name(tool["name"], f"{place}.name")
    if tool.get("description") is not None:
        text(tool["description"], f"{place}.description")
    strict = tool.get("strict") is not None and flag(tool["strict"], f"{place}.strict")
    if tool.get("parameters") is not None:
        schema = table(tool["parameters"], f"{place}.parameters")
        check_schema(schema, name, f"{place}.parameters", strict=strict)
    return name


def _check_selected(selected: Mapping[str, Any], names: Sequence[str]) -> None:
    kind = choice(required(selected, "type", "tool_choice"), "tool_choice.type", ("allowed_tools", *_TYPES))
    if kind in ("function", "custom"):
        only(selected, ("type", "name"), "tool_choice")
        _check_offered(required(selected, "name", "tool_choice"), names)
    if kind == "allowed_tools":
        only(selected, ("type", "mode", "tools"), "tool_choice")
        choice(required(selected, "mode", "tool_choice"), "tool_choice.mode", ("auto", "required"))
        allowed = filled_array(required(selected, "tools", "tool_choice"), "tool_choice.tools")
        for index, tool in enumerate(allowed):
            place = f"tool_choice.tools[{index}]"
            if table(tool, place).get("type") in ("function", "custom"):
                _check_offered(required(tool, "name", place), names)


def _check_offered(name: Any, names: Sequence[str]) -> None:
    if text(name, "tool_choice.name") not in names:
        invalid(f"Tool choice '{name}' not found in 'tools' parameter.", "tool_choice")
