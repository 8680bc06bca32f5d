"""Wrong arguments are explained to the model, and the check never refuses what the schema accepts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator
from referencing import Registry

from tests.mcp_client.accepted_form import ARGUMENTS, VALID_OBJECTS
from tests.support.sizes import examples
from thinklsp.core.text_safety import find_invisible
from thinklsp.mcp_client.tool_schemas import check_arguments, find_problems

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "mode": {"enum": ["fast", "slow"]},
        "points": {"type": "array", "items": {"$ref": "#/$defs/Point"}, "maxItems": 2},
        "either": {"oneOf": [{"type": "string"}, {"type": "number"}]},
        "kind": {"const": "x"},
        "tree": {"$ref": "#/$defs/Tree"},
        "slow": {"type": "string", "pattern": "^(a+)+$"},
    },
    "required": ["path"],
    "additionalProperties": False,
    "$defs": {
        "Point": {"type": "object", "properties": {"x": {"type": "number"}}, "required": ["x"]},
        "Tree": {"type": "object", "properties": {"child": {"$ref": "#/$defs/Tree"}}, "additionalProperties": False},
    },
}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({}, "'path' is a required property."),
    ({"path": 7}, "The argument `path`: 7 is not of type 'string'."),
    ({"path": None}, "The argument `path`: None is not of type 'string'."),
    ({"path": "a", "count": True}, "The argument `count`: True is not of type 'integer'."),
    ({"path": "a", "count": 10}, "The argument `count`: 10 is greater than the maximum of 9."),
    ({"path": "a", "mode": "other"}, "The argument `mode`: 'other' is not one of ['fast', 'slow']."),
    ({"path": "a", "points": [{"x": 1}, {}]}, "The argument `points[1]`: 'x' is a required property."),
    ({"path": "a", "either": []}, "The argument `either`: [] is not valid under any of the given schemas."),
    ({"path": "a", "kind": "y"}, "The argument `kind`: 'x' was expected."),
    ({"path": "a", "tree": {"child": {"leaf": 1}}}, "('leaf' was unexpected)."),
    ({"path": "a", "paht": 1}, "Additional properties are not allowed ('paht' was unexpected)."),
]


@pytest.mark.parametrize(("arguments", "sentence"), WRONG)
def test_a_wrong_argument_is_explained(arguments: dict[str, Any], sentence: str) -> None:
    [problem] = find_problems(SCHEMA, arguments)
    assert problem.endswith(sentence)


async def test_right_arguments_pass_and_patterns_are_not_checked() -> None:
    arguments = {"path": "a", "count": 2.0, "mode": "slow", "points": [{"x": 0.5}], "either": 1, "kind": "x"}
    assert await check_arguments(SCHEMA, {**arguments, "tree": {"child": {}}, "slow": "a" * 5_000 + "!"}) is None


@settings(max_examples=examples(60), deadline=None)
@given(VALID_OBJECTS, ARGUMENTS)
def test_the_check_never_refuses_what_the_schema_accepts(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """The oracle is a complete validator."""
    problems = find_problems(schema, arguments)
    if problems:
        assert not Draft202012Validator(schema, registry=Registry()).is_valid(arguments)
        assert not find_invisible("".join(problems))


def build_bombs() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    doubling = {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(60)}
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    return {
        "doubling references": ({"$ref": "#/$defs/0", "$defs": {**doubling, "60": {"type": "string"}}}, {"a": 1}),
        "self in allOf": ({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, {"a": 1}),
        "network": ({"properties": {"a": {"$ref": "https://127.0.0.1:9/schema"}}}, {"a": 1}),
        "no type": ({"properties": {"a": {"type": "str"}}}, {"a": 1}),
        "nonsense": ({"properties": [1], "required": 5}, {"a": 1}),
        "deep arguments": ({}, deep),
        "deep schema": ({"properties": {"a": {"anyOf": [deep]}}}, {"a": 1}),
    }


@pytest.mark.parametrize("name", build_bombs())
async def test_an_invalid_or_endless_schema_is_left_to_the_server(name: str) -> None:
    assert await check_arguments(*build_bombs()[name]) is None
