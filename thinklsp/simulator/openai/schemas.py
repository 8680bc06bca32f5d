"""What the service asks of a function's JSON Schema: an object at the root, and in strict mode the strict subset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from thinklsp.simulator.openai.errors import invalid

_NOT_STRICT = frozenset(
    {"allOf", "dependentRequired", "dependentSchemas", "else", "if", "not", "oneOf", "patternProperties", "then"}
)
_SAYS_WHAT = frozenset({"$ref", "anyOf", "const", "enum", "type"})
_Path = tuple[str, ...]


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
