"""The check of a call's arguments against the schema that the server listed.

The model knows only a simplified schema. Keywords that are slow or ambiguous, such as `pattern`, `not` and `if`, are
not checked here but by the server. So the check never refuses arguments that the schema accepts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import unquote

from thinklsp.core.json_codec import is_shallow
from thinklsp.core.text_safety import to_one_line

_MAX_STEPS = 20_000
_MAX_DEPTH = 64
_MAX_SENTENCES = 5
_MAX_NAME = 100
_MAX_LISTED_VALUES = 20
_TYPE_WORDS = {
    "object": "an object", "array": "an array", "string": "a string", "number": "a number", "integer": "an integer",
    "boolean": "true or false", "null": "null",
}  # fmt: skip
_COMPARISONS: tuple[tuple[str, str, str], ...] = (
    ("minLength", "string", "must have at least {} characters"),
    ("maxLength", "string", "must have at most {} characters"),
    ("minItems", "array", "must have at least {} items"),
    ("maxItems", "array", "must have at most {} items"),
    ("minimum", "number", "must be at least {}"),
    ("maximum", "number", "must be at most {}"),
    ("exclusiveMinimum", "number", "must be more than {}"),
    ("exclusiveMaximum", "number", "must be less than {}"),
)


def check_arguments(schema: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """Return sentences about wrong arguments, with which the model can correct its call, or None if none is wrong."""
    if not is_shallow(arguments, _MAX_DEPTH):
        return f"The arguments are nested more than {_MAX_DEPTH} levels deep."
    checker = _Checker(schema)
    sentences: list[str] = []
    try:
        for sentence in checker.find_problems(schema, arguments, ""):
            if sentence not in sentences:
                sentences.append(sentence)
            if len(sentences) >= _MAX_SENTENCES:
                break
    except _TooMuchWork:
        # The server checks its arguments itself. This check only saves a call.
        pass
    return " ".join(sentences) or None


class _TooMuchWork(Exception):
    """The error raised if a schema is too large to check."""


class _Checker:
    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self._steps = 0
        self._depth = 0

    def find_problems(self, schema: Any, value: Any, place: str) -> Iterator[str]:
        """Yield a sentence for each problem of a value."""
        self._spend(1)
        if schema is False:
            yield f"{_name(place)} is not allowed."
        if not isinstance(schema, Mapping):
            return
        self._depth += 1
        if self._depth > 2 * _MAX_DEPTH:
            raise _TooMuchWork
        yield from self._find_combined_problems(schema, value, place)
        if (problem := self._find_type_problem(schema, value)) is not None:
            yield f"{_name(place)} {problem}."
        else:
            yield from self._find_value_problems(schema, value, place)
        self._depth -= 1

    def _spend(self, steps: int) -> None:
        self._steps += steps
        if self._steps > _MAX_STEPS:
            raise _TooMuchWork

    def _find_combined_problems(self, schema: Mapping[str, Any], value: Any, place: str) -> Iterator[str]:
        if isinstance(reference := schema.get("$ref"), str):
            yield from self.find_problems(self._resolve(reference), value, place)
        for part in _get_list(schema, "allOf"):
            yield from self.find_problems(part, value, place)
        for key in ("anyOf", "oneOf"):
            choices = _get_list(schema, key)
            # Several choices of `oneOf` may match, because their other keywords are not checked.
            if choices and all(self._has_problem(choice, value, place) for choice in choices):
                yield self._describe_choices(choices, value, place)

    def _has_problem(self, schema: Any, value: Any, place: str) -> bool:
        depth = self._depth
        found = next(self.find_problems(schema, value, place), None)
        self._depth = depth
        return found is not None

    def _describe_choices(self, choices: Sequence[Any], value: Any, place: str) -> str:
        kinds = [choice.get("type") if isinstance(choice, Mapping) else None for choice in choices]
        words = [_TYPE_WORDS[kind] for kind in kinds if isinstance(kind, str) and kind in _TYPE_WORDS]
        if len(words) == len(choices) and self._find_type_problem({"type": kinds}, value) is not None:
            return f"{_name(place)} must be {' or '.join(dict.fromkeys(words))}."
        return f"{_name(place)} matches none of the {len(choices)} forms that the schema allows."

    def _resolve(self, reference: str) -> Any:
        """Return the schema that a reference names. References that are not supported accept every value."""
        target: Any = self._root
        if reference != "#" and not reference.startswith("#/"):
            return True
        parts = unquote(reference[1:]).split("/")[1:]
        self._spend(len(parts))
        for part in parts:
            name = part.replace("~1", "/").replace("~0", "~")
            target = target.get(name) if isinstance(target, Mapping) else None
        return target

    def _find_type_problem(self, schema: Mapping[str, Any], value: Any) -> str | None:
        given = schema.get("type")
        kinds = given if isinstance(given, list) else [given]
        known = [kind for kind in kinds if isinstance(kind, str) and kind in _TYPE_WORDS]
        if len(known) < len(kinds) or any(_has_type(value, kind) for kind in known):
            return None
        hint = ", not null" if value is None else ""
        return f"must be {' or '.join(_TYPE_WORDS[kind] for kind in known)}{hint}"

    def _find_value_problems(self, schema: Mapping[str, Any], value: Any, place: str) -> Iterator[str]:
        allowed = [schema["const"]] if "const" in schema else schema.get("enum")
        if isinstance(allowed, list):
            self._spend(len(allowed))
            if not any(_is_equal(value, each) for each in allowed):
                yield f"{_name(place)} {_describe_values(allowed)}."
        for key, kind, text in _COMPARISONS:
            if _is_number(schema.get(key)) and _has_type(value, kind) and _is_outside(value, key, schema[key]):
                yield f"{_name(place)} {text.format(schema[key])}."
        if isinstance(value, Mapping):
            yield from self._find_member_problems(schema, value, place)
        elif isinstance(value, list):
            yield from self._find_item_problems(schema, value, place)

    def _find_member_problems(self, schema: Mapping[str, Any], value: Mapping[str, Any], place: str) -> Iterator[str]:
        required = _get_list(schema, "required")
        self._spend(len(required))
        for name in required:
            if isinstance(name, str) and name not in value:
                yield f"{_name(_join(place, name))} is missing."
        properties = schema.get("properties")
        properties = properties if isinstance(properties, Mapping) else {}
        has_patterns = bool(schema.get("patternProperties"))
        for name, member in value.items():
            inner = _join(place, name)
            if name in properties:
                yield from self.find_problems(properties[name], member, inner)
            elif not has_patterns and schema.get("additionalProperties") is False:
                self._spend(1)
                yield f"{_name(inner)} is unknown. {_list_names(properties)}"
            elif not has_patterns and "additionalProperties" in schema:
                yield from self.find_problems(schema["additionalProperties"], member, inner)

    def _find_item_problems(self, schema: Mapping[str, Any], value: Sequence[Any], place: str) -> Iterator[str]:
        rest = schema.get("items", True)
        # Before the draft 2020-12, a list of schemas was in `items`.
        prefix = rest if isinstance(rest, list) else _get_list(schema, "prefixItems")
        for index, item in enumerate(value):
            if index < len(prefix):
                yield from self.find_problems(prefix[index], item, f"{place}[{index}]")
            elif not isinstance(rest, list):
                yield from self.find_problems(rest, item, f"{place}[{index}]")


def _get_list(schema: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = schema.get(key)
    return value if isinstance(value, list) else ()


def _has_type(value: Any, kind: str) -> bool:
    match kind:
        case "object":
            return isinstance(value, Mapping)
        case "array":
            return isinstance(value, list)
        case "string":
            return isinstance(value, str)
        case "boolean":
            return isinstance(value, bool)
        case "null":
            return value is None
        case "integer":
            return _is_number(value) and (isinstance(value, int) or value.is_integer())
        case _:
            return _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_equal(value: Any, other: Any) -> bool:
    """Return whether two JSON values are equal. In Python, True equals 1."""
    return isinstance(value, bool) == isinstance(other, bool) and bool(value == other)


def _is_outside(value: Any, key: str, limit: float) -> bool:
    size = value if _is_number(value) else len(value)
    if key.startswith("exclusive"):
        return bool(size <= limit if key.endswith("Minimum") else size >= limit)
    return bool(size < limit if key.startswith("min") else size > limit)


def _join(place: str, name: Any) -> str:
    return f"{place}.{name}" if place else str(name)


def _name(place: str) -> str:
    """Return the subject of a sentence. The names come from the model and from the server."""
    if not place:
        return "The object of arguments"
    shown = to_one_line(place[:_MAX_NAME]).replace("`", "'")
    return f"The argument `{shown}`"


def _list_names(properties: Mapping[str, Any]) -> str:
    names = [to_one_line(str(name)[:_MAX_NAME]) for name in list(properties)[:_MAX_LISTED_VALUES]]
    more = " and others" if len(properties) > _MAX_LISTED_VALUES else ""
    return f"The known ones are: {', '.join(names)}{more}." if names else "None is known."


def _describe_values(allowed: Sequence[Any]) -> str:
    simple = [each for each in allowed if each is None or isinstance(each, str | int | float)]
    if not simple or len(simple) < len(allowed) or len(allowed) > _MAX_LISTED_VALUES:
        return "is not one of the allowed values"
    shown = ", ".join(to_one_line(json.dumps(each)[:_MAX_NAME]) for each in simple)
    return f"must be {shown}" if len(simple) == 1 else f"must be one of {shown}"
