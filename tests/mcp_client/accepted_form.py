"""The form of schemas that every provider accepts, the simulators' judgement of it, and random schemas of servers."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from hypothesis import strategies as st

from tests.stand_ins.dialect import ReceivedRequest, WholeReply
from tests.support.services import SIDES, Place, place, refusal, request_of
from thinklsp.core.messages import ToolSpec

KEYS = {
    "string": {"enum", "minLength", "maxLength", "default"},
    "integer": {"enum", "minimum", "maximum", "default"},
    "number": {"enum", "minimum", "maximum", "default"},
    "boolean": {"default"},
    "array": {"items", "minItems", "maxItems"},
    "object": {"properties", "required", "additionalProperties"},
    "null": set[str](),
}
# A server that refuses unknown keys, besides one server of each family.
PLACES = {
    **SIDES,
    "strict server": ("openai-compatible", "strict-1"),
    "own OpenAI": ("openai-compatible", "compatible-openai"),
}


def check_form(schema: Mapping[str, Any], *, is_root: bool = True) -> None:
    """Fail if any provider could refuse the schema."""
    keys = schema.keys() - {"description"}
    assert isinstance(schema.get("description", ""), str)
    if is_root:
        assert schema["type"] == "object"
        assert "properties" in schema
    if not keys:
        return
    if "anyOf" in schema:
        assert keys == {"anyOf"}
        assert len(schema["anyOf"]) > 1
        for choice in schema["anyOf"]:
            assert "anyOf" not in choice
            check_form(choice, is_root=False)
        return
    assert keys <= {"type", *KEYS[schema["type"]]}
    for value in schema.get("enum", ()):
        assert isinstance(value, str | int | float)
        assert not isinstance(value, bool)
        assert value != ""
    if schema["type"] == "array":
        check_form(schema["items"], is_root=False)
    properties = schema.get("properties", {})
    assert set(schema.get("required", ())) <= set(properties)
    for name, inner in properties.items():
        assert re.fullmatch("[a-zA-Z0-9_.-]{1,64}", name)
        check_form(inner, is_root=False)
    if isinstance(extra := schema.get("additionalProperties", False), dict):
        check_form(extra, is_root=False)
    else:
        assert extra is False


@cache
def find_place(name: str) -> Place:
    return place(*PLACES[name])


def offer(name: str, tools: Sequence[ToolSpec]) -> str | None:
    """Send a request with these tools to a simulated service. Return its words if it refuses the request."""
    where = find_place(name)
    wire = where.encode(replace(request_of(where), tools=tuple(tools)))
    url = urlsplit(wire.url)
    dialect = where.dialect({"step": [{"block": [{"text": "Yes."}]}]})
    reply = dialect.build_reply(ReceivedRequest("POST", url.path, url.query, wire.headers, wire.body))
    return str(refusal(where, reply)) if isinstance(reply, WholeReply) else None


def read_corpus() -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(Path(__file__).with_name("nasty_schemas.json").read_text("utf-8"))
    return rows


NAMES = st.sampled_from(["a", "b", "c", "not good", "x" * 65, "$defs"])
SCALARS = st.none() | st.booleans() | st.integers(-3, 3) | st.floats(-2, 2) | st.sampled_from(["", "a", "b", "\u200b"])
TYPES = st.sampled_from(["object", "array", "string", "integer", "number", "boolean", "null"])
REFERENCES = st.sampled_from(["#", "#/$defs/A", "#/$defs/B", "#/properties/a", "#b", "other.json", "https://x/y"])
TEXTS = st.text(max_size=8) | st.sampled_from(["\U000e0041", "a\u200bb", "x" * 2000, "👩\u200d💻"])


def extend(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Return schemas whose parts are `inner`. All keywords have values of the right type."""
    names = st.lists(NAMES, max_size=3, unique=True)
    sizes = st.integers(0, 4)
    properties = st.dictionaries(NAMES, inner, max_size=4)
    return st.fixed_dictionaries(
        {},
        optional={
            "type": TYPES | st.lists(TYPES, min_size=1, max_size=3, unique=True),
            "description": TEXTS,
            "properties": properties,
            "required": names,
            "additionalProperties": inner,
            "patternProperties": st.dictionaries(st.just("^b"), inner, max_size=1),
            "items": inner,
            "prefixItems": st.lists(inner, min_size=1, max_size=2),
            "minItems": sizes,
            "maxItems": sizes,
            "minLength": sizes,
            "maxLength": sizes,
            "minimum": st.integers(-3, 3) | st.floats(-3, 3),
            "exclusiveMaximum": st.integers(-3, 3) | st.floats(-3, 3),
            "enum": st.lists(SCALARS, min_size=1, max_size=4),
            "const": SCALARS,
            "default": SCALARS,
            "allOf": st.lists(inner, min_size=1, max_size=2),
            "anyOf": st.lists(inner, min_size=1, max_size=3),
            "oneOf": st.lists(inner, min_size=1, max_size=3),
            "not": inner,
            "if": inner,
            "then": inner,
            "$defs": st.fixed_dictionaries({"A": inner, "B": inner}),
        },
    )


# Schemas that a validator accepts, and any nonsense.
VALID = st.recursive(st.booleans() | st.just({}), extend, max_leaves=12)
VALID_OBJECTS = extend(VALID).map(lambda schema: {**schema, "type": "object"})
WITH_REFERENCES = st.recursive(
    st.booleans() | st.builds(lambda reference: {"$ref": reference}, REFERENCES), extend, max_leaves=12
)
JSON = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3))
KEYWORDS = st.sampled_from(sorted({"type", "anyOf", "allOf", "$ref", *KEYS["object"], *KEYS["array"], *KEYS["string"]}))
NONSENSE = st.dictionaries(KEYWORDS | NAMES, JSON | st.deferred(lambda: NONSENSE), max_size=5)
SCHEMAS = st.one_of(extend(WITH_REFERENCES), VALID_OBJECTS, NONSENSE)
ARGUMENTS = st.dictionaries(NAMES, JSON, max_size=4)
