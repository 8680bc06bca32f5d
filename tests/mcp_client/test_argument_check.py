"""Wrong arguments are explained to the model, and the check never refuses what the schema accepts."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given, settings
from jsonschema import Draft202012Validator
from referencing import Registry

from tests.mcp_client.accepted_form import ARGUMENTS, SCHEMAS, VALID_OBJECTS, read_corpus
from tests.support.sizes import examples
from thinklsp.core.text_safety import find_invisible
from thinklsp.mcp_client.argument_check import check_arguments

TEXT = {"type": "string"}
SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "path": {"type": "string", "minLength": 1},
        "count": {"type": "integer", "minimum": 1, "maximum": 9},
        "mode": {"enum": ["fast", "slow"]},
        "points": {"type": "array", "items": {"$ref": "#/$defs/Point"}, "maxItems": 2},
        "either": {"anyOf": [{"type": "string"}, {"type": "number"}]},
        "labels": {"type": "object", "additionalProperties": {"type": "boolean"}},
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
    ({}, "The argument `path` is missing."),
    ({"path": 7}, "The argument `path` must be a string."),
    ({"path": None}, "The argument `path` must be a string, not null."),
    ({"path": ""}, "The argument `path` must have at least 1 characters."),
    ({"path": "a", "count": 1.5}, "The argument `count` must be an integer."),
    ({"path": "a", "count": True}, "The argument `count` must be an integer."),
    ({"path": "a", "count": 10}, "The argument `count` must be at most 9."),
    ({"path": "a", "mode": "other"}, 'The argument `mode` must be one of "fast", "slow".'),
    ({"path": "a", "points": [{"x": 1}, {}]}, "The argument `points[1].x` is missing."),
    ({"path": "a", "points": [{"x": 1}] * 3}, "The argument `points` must have at most 2 items."),
    ({"path": "a", "either": []}, "The argument `either` must be a string or a number."),
    ({"path": "a", "labels": {"b": 1}}, "The argument `labels.b` must be true or false."),
    ({"path": "a", "kind": "y"}, 'The argument `kind` must be "x".'),
    (
        {"path": "a", "tree": {"child": {"leaf": 1}}},
        "The argument `tree.child.leaf` is unknown. The known ones are: child.",
    ),
    (
        {"path": "a", "paht": 1},
        f"The argument `paht` is unknown. The known ones are: {', '.join(SCHEMA['properties'])}.",
    ),
]


@pytest.mark.parametrize(("arguments", "sentence"), WRONG)
def test_a_wrong_argument_is_explained(arguments: dict[str, Any], sentence: str) -> None:
    assert check_arguments(SCHEMA, arguments) == sentence


def test_right_arguments_pass() -> None:
    arguments = {"path": "a", "count": 2.0, "mode": "slow", "points": [{"x": 0.5}], "either": 1, "kind": "x"}
    assert check_arguments(SCHEMA, {**arguments, "tree": {"child": {"child": {}}}, "labels": {"a": True}}) is None


def test_a_pattern_is_left_to_the_server() -> None:
    assert check_arguments(SCHEMA, {"path": "a", "slow": "a" * 5_000 + "!"}) is None


def test_several_problems_are_reported_together() -> None:
    answer = check_arguments(SCHEMA, {"count": 0, "mode": 1, "kind": 2, "either": None, "labels": 3, "points": 4})
    assert answer is not None
    assert answer.count("The argument") == 5


@settings(max_examples=examples(200), deadline=None)
@given(VALID_OBJECTS, ARGUMENTS)
def test_the_check_never_refuses_what_the_schema_accepts(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    """The oracle is a complete validator."""
    answer = check_arguments(schema, arguments)
    if answer is not None:
        assert not Draft202012Validator(schema, registry=Registry()).is_valid(arguments)
        assert answer.endswith(".")
        assert not find_invisible(answer)


@settings(max_examples=examples(100), deadline=None)
@given(SCHEMAS, ARGUMENTS)
def test_the_check_survives_any_schema(schema: dict[str, Any], arguments: dict[str, Any]) -> None:
    answer = check_arguments(schema, arguments)
    assert answer is None or answer.endswith(".")


@pytest.mark.parametrize("row", read_corpus(), ids=[row["name"] for row in read_corpus()])
def test_the_check_survives_the_corpus(row: dict[str, Any]) -> None:
    for arguments in ({}, {"a": "x"}, {"a": None}, {"a": [1, {"b": {}}]}, {"a": 5, "b": True}):
        answer = check_arguments(row["schema"], arguments)
        assert answer is None or answer.endswith(".")


def build_bombs() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    doubling = {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(60)}
    deep: dict[str, Any] = {}
    for _ in range(100_000):
        deep = {"a": deep}
    return {
        "doubling references": ({"$ref": "#/$defs/0", "$defs": {**doubling, "60": TEXT}}, {"a": 1}),
        "circle": ({"$ref": "#/$defs/A", "$defs": {"A": {"$ref": "#/$defs/B"}, "B": {"$ref": "#/$defs/A"}}}, {"a": 1}),
        "self in allOf": ({"allOf": [{"$ref": "#"}, {"$ref": "#"}]}, {"a": 1}),
        "many items": ({"properties": {"a": {"items": TEXT}}}, {"a": ["x"] * 1_000_000}),
        "many values": ({"properties": {"a": {"enum": list(range(1_000_000))}}}, {"a": -1}),
        "many choices": ({"properties": {"a": {"anyOf": [{"items": TEXT}] * 100_000}}}, {"a": ["x"] * 100_000}),
        "many required": ({"required": [f"a{n}" for n in range(1_000_000)]}, {"a": 1}),
        "many unknown": ({"additionalProperties": False}, {f"a{n}": 1 for n in range(100_000)}),
        "deep arguments": ({}, deep),
        "deep schema": ({"properties": {"a": {"anyOf": [{"not": deep}, deep]}}}, {"a": 1}),
        "long pointer": ({"$ref": "#" + "/a" * 1_000_000}, {"a": 1}),
        "deep alternatives": ({"$ref": "#/$defs/A", "$defs": {"A": {"anyOf": [{"$ref": "#/$defs/A"}] * 3}}}, {"a": 1}),
    }


BOMBS = build_bombs()


@pytest.mark.parametrize("name", BOMBS)
def test_the_answer_is_bounded(name: str) -> None:
    answer = check_arguments(*BOMBS[name])
    assert answer is None or len(answer) < 5_000


@pytest.mark.timing
@pytest.mark.parametrize("name", BOMBS)
def test_the_work_is_bounded(name: str) -> None:
    start = time.process_time()
    check_arguments(*BOMBS[name])
    assert time.process_time() - start < 1
