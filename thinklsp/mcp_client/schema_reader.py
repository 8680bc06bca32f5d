"""The reader that turns any JSON Schema of a server into the form that every provider accepts.

The reader drops keywords that a provider might reject. So the result accepts more arguments than the original, and the
arguments of a call are checked against the original.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote

from thinklsp.core.text_safety import remove_invisible
from thinklsp.mcp_client.schema_merging import (
    Schema,
    SchemaRefused,
    StepBudget,
    drop_contradictory_bounds,
    drop_null,
    intersect,
    join_choices,
)

_MAX_DEPTH = 24
_MAX_INLININGS = 50
_MAX_REFERENCE_DEPTH = 10
_MAX_REFERENCE = 500
_MAX_DESCRIPTION = 1_000
_MAX_NOTE = 200
_MAX_ENUM_TEXT = 300
_MAX_NUMBER = 2**53
_PROPERTY_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_TYPES = ("string", "integer", "number", "boolean", "array", "object", "null")
# The type of a schema without `type` follows from its keywords.
_KEYWORD_TYPES = {
    "object": ("properties", "required", "additionalProperties", "patternProperties", "minProperties", "maxProperties"),
    "array": ("items", "prefixItems", "minItems", "maxItems", "uniqueItems", "contains"),
    "string": ("minLength", "maxLength", "pattern", "format"),
    "number": ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"),
}


class SchemaReader:
    """A reader for one schema of a server. The work is bounded, even for a hostile schema."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.budget = StepBudget()
        self._root = root
        self._open_nodes: list[int] = []
        self._reference_depth = 0
        self._inlinings = 0

    def read(self, node: Any) -> Schema | None:
        """Return the schema in the accepted form, or None if no value satisfies it. Raises SchemaRefused."""
        self.budget.spend()
        if node is False:
            return None
        if not isinstance(node, Mapping):
            return {}
        self.budget.spend(len(node))
        with self._enter(node):
            schema: Schema | None = self._read_own_keywords(node)
            for part in self._read_parts(node):
                if schema is None or part is None:
                    return None
                schema = intersect(schema, part, self.budget)
            return schema

    @contextmanager
    def _enter(self, node: Mapping[str, Any]) -> Iterator[None]:
        if len(self._open_nodes) >= _MAX_DEPTH:
            raise SchemaRefused(f"Its schema is nested more than {_MAX_DEPTH} levels deep.")
        self._open_nodes.append(id(node))
        yield
        self._open_nodes.pop()

    def _read_parts(self, node: Mapping[str, Any]) -> Iterator[Schema | None]:
        """Yield the schemas that a value must satisfy in addition to the node's own keywords."""
        if "$ref" in node:
            yield self._read_reference(node["$ref"])
        for key in ("$dynamicRef", "$recursiveRef"):
            if key in node:
                raise SchemaRefused(f"Its schema uses `{key}`, which thinklsp does not support.")
        for part in _get_list(node, "allOf"):
            yield self.read(part)
        for key in ("anyOf", "oneOf"):
            choices = _get_list(node, key)
            if choices:
                read = [self.read(choice) for choice in choices]
                yield join_choices((choice for choice in read if choice is not None), "", self.budget)

    def _read_reference(self, reference: Any) -> Schema | None:
        shown = _show(reference)
        if not isinstance(reference, str) or len(reference) > _MAX_REFERENCE or not reference.startswith("#"):
            raise SchemaRefused(f"Its schema refers to {shown}, which is not in the schema itself.")
        target = self._resolve(reference)
        if isinstance(target, Mapping) and id(target) in self._open_nodes:
            raise SchemaRefused(f"Its schema refers to itself at {shown}.")
        self._inlinings += 1
        if self._inlinings > _MAX_INLININGS:
            raise SchemaRefused(f"Its schema uses more than {_MAX_INLININGS} references.")
        self._reference_depth += 1
        if self._reference_depth > _MAX_REFERENCE_DEPTH:
            raise SchemaRefused(f"Its schema nests references more than {_MAX_REFERENCE_DEPTH} levels deep.")
        schema = self.read(target)
        self._reference_depth -= 1
        return schema

    def _resolve(self, reference: str) -> Any:
        target: Any = self._root
        pointer = unquote(reference[1:])
        for part in pointer.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if isinstance(target, Mapping) and name in target:
                target = target[name]
            elif isinstance(target, list) and name.isascii() and name.isdecimal() and int(name[:9]) < len(target):
                target = target[int(name[:9])]
            else:
                target = None
        if not isinstance(target, Mapping | bool) or (pointer and not pointer.startswith("/")):
            raise SchemaRefused(f"Its schema refers to {_show(reference)}, which does not exist in the schema.")
        return target

    def _read_own_keywords(self, node: Mapping[str, Any]) -> Schema | None:
        given = [_simplify_number(value) for value in _get_values(node)]
        self.budget.spend(len(given))
        # None if the providers do not accept all values.
        values = _drop_duplicates(given) if all(map(_is_plain_value, given)) else None
        kinds = _list_types(node) or _list_types_of_values(given)
        description = _build_description(node, is_enum_dropped=values is None)
        if not kinds:
            return {"description": description} if description else {}
        choices: list[Schema] = []
        for kind in kinds:
            members = [value for value in values or () if _has_type(value, kind)]
            schema = self._read_type(node, kind) if members or not values else None
            if schema is not None:
                choices.append(_add_values(schema, members, node))
        return join_choices(choices, description, self.budget)

    def _read_type(self, node: Mapping[str, Any], kind: str) -> Schema | None:
        schema: Schema = {"type": kind}
        match kind:
            case "object":
                return self._read_object(node)
            case "array":
                schema["items"] = self._read_items(node, schema)
                _copy_counts(node, schema, "minItems", "maxItems")
            case "string":
                _copy_counts(node, schema, "minLength", "maxLength")
            case "integer" | "number":
                _copy_limits(node, schema)
            case _:
                pass
        drop_contradictory_bounds(schema)
        return schema

    def _read_object(self, node: Mapping[str, Any]) -> Schema | None:
        given = node.get("properties")
        given = given if isinstance(given, Mapping) else {}
        required = list(dict.fromkeys(name for name in _get_list(node, "required") if isinstance(name, str)))
        self.budget.spend(len(given) + len(required))
        wrong = next((name for name in required if not _PROPERTY_NAME.fullmatch(name)), None)
        if wrong is not None:
            raise SchemaRefused(f"It requires the argument {_show(wrong)}, whose name the providers do not accept.")
        names = set(required)
        properties: Schema = {name: {} for name in required if name not in given}
        for name in filter(_PROPERTY_NAME.fullmatch, given):
            value = self.read(given[name])
            if value is None and name in names:
                return None
            if value is not None and name not in names:
                value = drop_null(value, self.budget)
            if value is not None:
                properties[name] = value
        schema: Schema = {"type": "object"}
        schema |= {key: value for key, value in (("properties", properties), ("required", required)) if value}
        extra = node.get("additionalProperties")
        if not node.get("patternProperties") and (extra is False or isinstance(extra, Mapping)):
            value = self.read(extra)
            if value != {}:
                schema["additionalProperties"] = False if value is None else value
        return schema

    def _read_items(self, node: Mapping[str, Any], schema: Schema) -> Schema:
        """Return the schema of any item. OpenAI requires one in every array."""
        rest = node.get("items")
        prefix = rest if isinstance(rest, list) else _get_list(node, "prefixItems")
        if prefix and rest is False:
            schema["maxItems"] = len(prefix)
        items = [self.read(item) for item in (*prefix, *([rest] if isinstance(rest, Mapping) else []))]
        return join_choices((item for item in items if item is not None), "", self.budget) or {}


def _get_list(node: Mapping[str, Any], key: str) -> Sequence[Any]:
    value = node.get(key)
    return value if isinstance(value, list) else ()


def _get_values(node: Mapping[str, Any]) -> Sequence[Any]:
    """Return the values of `const` or `enum`, or nothing without these."""
    return [node["const"]] if "const" in node else _get_list(node, "enum")


def _drop_duplicates(values: Sequence[Any]) -> list[Any]:
    # In Python, True equals 1.
    return list({(isinstance(value, bool), value): value for value in values}.values())


def _list_types(node: Mapping[str, Any]) -> list[str]:
    """Return the types that the node names or, if it names none, the one that its keywords imply."""
    given = node.get("type")
    if given is None:
        implied = [kind for kind, keys in _KEYWORD_TYPES.items() if any(key in node for key in keys)]
        return implied if len(implied) == 1 and not {"enum", "const"} & node.keys() else []
    names = given if isinstance(given, list) else [given]
    kinds = [kind for kind in _TYPES if kind in names]
    return _drop(kinds, "integer") if "number" in kinds else kinds


def _drop(kinds: list[str], kind: str) -> list[str]:
    return [each for each in kinds if each != kind]


def _list_types_of_values(values: Sequence[Any]) -> list[str]:
    kinds = [kind for kind in _TYPES if any(_has_type(value, kind) for value in values)]
    return _drop(kinds, "integer") if any(isinstance(value, float) for value in values) else _drop(kinds, "number")


def _has_type(value: Any, kind: str) -> bool:
    """Return True if a simple value has the JSON type."""
    if isinstance(value, bool):
        return kind == "boolean"
    if kind == "number":
        return isinstance(value, int | float)
    return type(value) is {"string": str, "integer": int, "null": type(None)}.get(kind)


def _add_values(schema: Schema, members: list[Any], node: Mapping[str, Any]) -> Schema:
    """Add the allowed values and the default to the schema of a type."""
    kind = schema["type"]
    if members and kind in ("string", "integer", "number"):
        schema = {"type": kind, "enum": members}
    default = _simplify_number(node.get("default"))
    fits = default is not None and _is_plain_value(default) and _has_type(default, kind)
    if fits and (not members or default in members):
        schema["default"] = default
    return schema


def _simplify_number(value: Any) -> Any:
    is_whole = isinstance(value, float) and value.is_integer() and abs(value) <= _MAX_NUMBER
    return int(value) if is_whole else value


def _is_plain_value(value: Any) -> bool:
    """Return True for a value that every provider accepts in `enum`, without hidden characters."""
    if isinstance(value, str):
        return 0 < len(value) <= _MAX_NOTE and remove_invisible(value) == value
    return value is None or isinstance(value, bool) or _is_plain_number(value)


def _is_plain_number(value: Any) -> bool:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return is_number and abs(value) <= _MAX_NUMBER


def _copy_counts(node: Mapping[str, Any], schema: Schema, *keys: str) -> None:
    for key in keys:
        value = _simplify_number(node.get(key))
        if isinstance(value, int) and _is_plain_number(value) and value >= 0:
            schema[key] = min(value, schema.get(key, value)) if key == "maxItems" else value


def _copy_limits(node: Mapping[str, Any], schema: Schema) -> None:
    """Copy the bounds of a number. An exclusive bound of a number becomes inclusive."""
    is_integer = schema["type"] == "integer"
    for key, exclusive, choose, step in (
        ("minimum", "exclusiveMinimum", max, 1),
        ("maximum", "exclusiveMaximum", min, -1),
    ):
        limits = [_round(node[key], step) if is_integer else node[key]] if _is_plain_number(node.get(key)) else []
        if _is_plain_number(node.get(exclusive)):
            limits.append(_round(node[exclusive], -step) + step if is_integer else node[exclusive])
        if limits:
            schema[key] = _simplify_number(choose(limits))


def _round(value: float, step: int) -> int:
    return math.ceil(value) if step > 0 else math.floor(value)


def _build_description(node: Mapping[str, Any], *, is_enum_dropped: bool) -> str:
    """Return the description with notes about the keywords that are not in the result."""
    description = node.get("description")
    parts = [remove_invisible(description[: 2 * _MAX_DESCRIPTION])] if isinstance(description, str) else []
    for key, label in (("format", "Format"), ("pattern", "Pattern")):
        value = node.get(key)
        if isinstance(value, str) and _is_plain_value(value):
            parts.append(f"{label}: {value}")
    values = _get_values(node)
    if is_enum_dropped and not any(isinstance(value, Mapping | list) for value in values):
        parts.append(f"Allowed: {_list_values(values)}")
    text = " ".join(part.strip() for part in parts).strip()
    return text if len(text) <= _MAX_DESCRIPTION else f"{text[: _MAX_DESCRIPTION - 1].rstrip()}…"


def _list_values(values: Sequence[Any]) -> str:
    shown = ", ".join(_show(value) for value in values[:20])
    return shown if len(shown) <= _MAX_ENUM_TEXT and len(values) <= 20 else f"{shown[:_MAX_ENUM_TEXT]}…"


def _show(value: Any) -> str:
    """Return a short text for a value of a server. Containers are not shown, because they can be very deep."""
    if isinstance(value, str):
        return json.dumps(value[:100])
    if value is None or isinstance(value, bool) or _is_plain_number(value):
        return json.dumps(value)
    return "a value that is not text"
