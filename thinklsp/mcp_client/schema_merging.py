"""Operations on schemas in the form that every provider accepts.

Such a schema is empty, or it has one `type` with the keywords of this type, or it has only `anyOf` with such schemas.
Each can also have a description. If this form cannot express the result of an operation, the result accepts more
values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

Schema = dict[str, Any]

_MAX_STEPS = 4_000
_MAX_PRODUCT = 24
_MAX_NOTE = 300
_BOUNDS: tuple[tuple[str, Callable[[Any, Any], Any]], ...] = (
    ("minimum", max), ("maximum", min), ("minItems", max), ("maxItems", min), ("minLength", max), ("maxLength", min),
)  # fmt: skip
_BOUND_PAIRS = (("minimum", "maximum"), ("minItems", "maxItems"), ("minLength", "maxLength"))


class SchemaRefused(Exception):
    """The error raised for a schema that cannot be used. The message is a sentence for the user."""


class StepBudget:
    """The work that one schema may cause. A short schema can otherwise cause work without limit."""

    def __init__(self) -> None:
        self._left = _MAX_STEPS

    def spend(self, steps: int = 1) -> None:
        """Count steps of work. Raises SchemaRefused if there were too many."""
        self._left -= steps
        if self._left < 0:
            raise SchemaRefused("Its schema is too large.")


def join_choices(choices: Iterable[Schema], description: str, budget: StepBudget) -> Schema | None:
    """Return the schema of values that satisfy at least one of the schemas, or None if there is no schema."""
    flat: list[Schema] = []
    for choice in choices:
        flat += choice.get("anyOf", [choice])
    distinct: list[Schema] = []
    for choice in flat:
        budget.spend(len(distinct) + 1)
        if not _strip_description(choice):
            return _describe({}, description)
        _add_choice(distinct, choice)
    if not distinct:
        return None
    if len(distinct) == 1:
        return _describe(distinct[0], description)
    return _describe({"anyOf": distinct}, description)


def intersect(first: Schema, second: Schema, budget: StepBudget) -> Schema | None:
    """Return the schema of values that satisfy both schemas, or None if no value does."""
    budget.spend(1 + len(first.get("properties", ())) + len(second.get("properties", ())))
    description = first.get("description") or second.get("description") or ""
    if not _strip_description(first):
        return _describe(second, description)
    if not _strip_description(second):
        return _describe(first, description)
    if "anyOf" not in first and "anyOf" not in second:
        merged = _intersect_plain(first, second, budget)
        return None if merged is None else _describe(merged, description)
    pairs = [(one, other) for one in first.get("anyOf", [first]) for other in second.get("anyOf", [second])]
    if len(pairs) > _MAX_PRODUCT:
        return first
    combined = [intersect(one, other, budget) for one, other in pairs]
    return join_choices((choice for choice in combined if choice is not None), description, budget)


def unite_objects(objects: Sequence[Schema], description: str, budget: StepBudget) -> Schema:
    """Return one object schema that accepts what at least one of the object schemas accepts."""
    united = objects[0]
    for other in objects[1:]:
        united = _unite_pair(united, other, budget)
    description = description or united.get("description", "")
    return _describe(united, f"{description} {_describe_alternatives(objects)}".strip())


def is_null(schema: Schema) -> bool:
    return schema.get("type") == "null"


def drop_null(schema: Schema, budget: StepBudget) -> Schema | None:
    """Return the schema without null, for an argument that can be omitted. Return None if it accepts nothing else."""
    if is_null(schema):
        return None
    if "anyOf" not in schema:
        return schema
    choices = [choice for choice in schema["anyOf"] if not is_null(choice)]
    return join_choices(choices, schema.get("description", ""), budget)


def drop_contradictory_bounds(schema: Schema) -> None:
    """Remove bounds that no value satisfies."""
    for low, high in _BOUND_PAIRS:
        if low in schema and high in schema and schema[low] > schema[high]:
            del schema[low], schema[high]


def _add_choice(choices: list[Schema], choice: Schema) -> None:
    """Append a schema to the choices, or add its values to an equal choice."""
    for index, existing in enumerate(choices):
        if _strip_description(existing) == _strip_description(choice):
            return
        if existing["type"] == choice["type"] and "enum" in existing and "enum" in choice:
            values = dict.fromkeys((*existing["enum"], *choice["enum"]))
            choices[index] = {"type": choice["type"], "enum": list(values)}
            return
    choices.append(choice)


def _intersect_plain(first: Schema, second: Schema, budget: StepBudget) -> Schema | None:
    kinds = {first["type"], second["type"]}
    if len(kinds) > 1 and kinds != {"integer", "number"}:
        return None
    merged: Schema = {**second, **first, "type": "integer" if "integer" in kinds else first["type"]}
    for key, choose in _BOUNDS:
        if key in first and key in second:
            merged[key] = choose(first[key], second[key])
    drop_contradictory_bounds(merged)
    if "enum" in first and "enum" in second:
        allowed = set(second["enum"])
        merged["enum"] = [value for value in first["enum"] if value in allowed]
        if not merged["enum"]:
            return None
    if "items" in merged:
        merged["items"] = intersect(first["items"], second["items"], budget) or {}
    return _intersect_objects(merged, first, second, budget) if merged["type"] == "object" else merged


def _intersect_objects(merged: Schema, first: Schema, second: Schema, budget: StepBudget) -> Schema | None:
    required = list(dict.fromkeys((*first.get("required", ()), *second.get("required", ()))))
    properties: Schema = {**first.get("properties", {}), **second.get("properties", {})}
    for name in first.get("properties", {}).keys() & second.get("properties", {}).keys():
        common = intersect(first["properties"][name], second["properties"][name], budget)
        if common is not None:
            properties[name] = common
        elif name in required:
            return None
        else:
            del properties[name]
    _set(merged, "properties", properties)
    _set(merged, "required", required)
    extras = [schema["additionalProperties"] for schema in (first, second) if "additionalProperties" in schema]
    if len(extras) == 2:
        is_closed = False in extras
        merged["additionalProperties"] = False if is_closed else intersect(extras[0], extras[1], budget) or False
    return merged


def _unite_pair(first: Schema, second: Schema, budget: StepBudget) -> Schema:
    budget.spend(1 + len(first.get("properties", ())) + len(second.get("properties", ())))
    properties: Schema = {**first.get("properties", {}), **second.get("properties", {})}
    for name in first.get("properties", {}).keys() & second.get("properties", {}).keys():
        one, other = first["properties"][name], second["properties"][name]
        description = one.get("description") or other.get("description") or ""
        properties[name] = join_choices((one, other), description, budget) or {}
    united: Schema = {"type": "object", "properties": properties}
    _set(united, "required", [name for name in first.get("required", ()) if name in second.get("required", ())])
    if first.get("additionalProperties") is False and second.get("additionalProperties") is False:
        united["additionalProperties"] = False
    return _describe(united, first.get("description") or second.get("description") or "")


def _describe_alternatives(objects: Sequence[Schema]) -> str:
    """Return a note about the arguments that the alternatives require, or an empty text if there is no difference."""
    groups = list(dict.fromkeys(tuple(schema.get("required", ())) for schema in objects))
    if len(groups) < 2 or not all(groups):
        return ""
    shown = "; or ".join(", ".join(f"`{name}`" for name in group) for group in groups)
    return f"Required: {shown}." if len(shown) <= _MAX_NOTE else ""


def _set(schema: Schema, key: str, value: Any) -> None:
    """Set a keyword, or remove it if the value is empty."""
    schema.pop(key, None)
    if value:
        schema[key] = value


def _describe(schema: Schema, description: str) -> Schema:
    return {**schema, "description": description} if description else schema


def _strip_description(schema: Schema) -> Schema:
    return {key: value for key, value in schema.items() if key != "description"}
