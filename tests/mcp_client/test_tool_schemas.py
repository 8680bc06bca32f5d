"""Whatever schemas a server lists, a request with its tools is never refused, and converting them takes little time."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.mcp_client.accepted_form import PLACES, SCHEMAS, check_form, offer, read_corpus
from tests.support.sizes import examples
from thinklsp.core.json_codec import encode_json
from thinklsp.core.messages import ToolSpec
from thinklsp.core.text_safety import find_invisible
from thinklsp.mcp_client.server_config import ListedTool
from thinklsp.mcp_client.tool_schemas import (
    MAX_DEFINITIONS_BYTES,
    MAX_DESCRIPTION_BYTES,
    MAX_TOOL_BYTES,
    MAX_TOOLS,
    SchemaRefused,
    convert_schema,
    select_tools,
)

CORPUS = read_corpus()
TEXT = {"type": "string"}


def convert(schema: Any) -> dict[str, Any] | str:
    """Return the converted schema, or the reason why there is none."""
    try:
        return convert_schema(schema)
    except SchemaRefused as refused:
        return str(refused)


def list_tool(name: str, schema: Any, server: str = "s", **more: Any) -> ListedTool:
    return ListedTool(server, name, input_schema=schema, **more)


def nest(depth: int, key: str = "properties") -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(depth):
        wrapped = {"a": schema} if key == "properties" else [schema]
        schema = {"type": "object", key: wrapped}
    return schema


@pytest.mark.parametrize("row", CORPUS, ids=[row["name"] for row in CORPUS])
def test_a_nasty_schema_is_converted_or_left_out(row: dict[str, Any]) -> None:
    assert convert(row["schema"]) == row.get("kept", row.get("left_out"))


@pytest.mark.parametrize("name", PLACES)
def test_every_service_takes_the_corpus(name: str) -> None:
    tools, _ = select_tools([list_tool(f"t{index}", row["schema"]) for index, row in enumerate(CORPUS)])
    assert len(tools) == sum("kept" in row for row in CORPUS)
    assert offer(name, [ToolSpec(tool.name, tool.description, tool.schema) for tool in tools]) is None


@pytest.mark.parametrize("name", ["anthropic", "openai"])
def test_the_services_refuse_some_schemas_as_they_were_listed(name: str) -> None:
    refused = [row["name"] for row in CORPUS if offer(name, [ToolSpec("t", "d", row["schema"])]) is not None]
    assert {"no schema at all", "oneOf at the top", "allOf at the top"} <= set(refused)


@settings(max_examples=examples(120), deadline=None)
@given(SCHEMAS)
def test_a_converted_schema_has_the_accepted_form(schema: dict[str, Any]) -> None:
    result = convert(schema)
    if isinstance(result, str):
        assert result.endswith(".")
        assert not find_invisible(result)
        return
    check_form(result)
    assert len(encode_json(result)) <= MAX_TOOL_BYTES
    assert not find_invisible(json.dumps(result, ensure_ascii=False))


@settings(max_examples=examples(30), deadline=None)
@given(st.lists(SCHEMAS, min_size=1, max_size=5), st.sampled_from(list(PLACES)))
def test_every_service_takes_random_tools(schemas: list[dict[str, Any]], name: str) -> None:
    tools, _ = select_tools([list_tool(f"t{index}", schema) for index, schema in enumerate(schemas)])
    if tools:
        assert offer(name, [ToolSpec(tool.name, tool.description, tool.schema) for tool in tools]) is None


@settings(max_examples=examples(50), deadline=None)
@given(SCHEMAS)
def test_the_order_of_keys_does_not_matter(schema: dict[str, Any]) -> None:
    def turn(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: turn(value[key]) for key in reversed(value)}
        return [turn(item) for item in value] if isinstance(value, list) else value

    assert encode_json(convert(turn(schema))) == encode_json(convert(schema))


def build_bombs() -> dict[str, Any]:
    choices = [{"type": "object", "properties": {"a": {"const": index}}, "required": ["a"]} for index in range(20)]
    definitions = {str(n): {"allOf": [{"$ref": f"#/$defs/{n + 1}"}] * 2} for n in range(9)}
    return {
        "many properties": {"properties": {f"p{index}": TEXT for index in range(100_000)}},
        "many choices": {"anyOf": [{"required": [f"a{index}"]} for index in range(100_000)]},
        "many values": {"properties": {"a": {"enum": list(range(100_000))}}},
        "many required": {"required": [f"a{index}" for index in range(100_000)]},
        "many keywords": {"properties": {"a": {f"x{index}": 1 for index in range(100_000)}}},
        "product of choices": {"properties": {"a": {"allOf": [{"anyOf": choices}] * 200}}},
        "doubling references": {"$ref": "#/$defs/0", "$defs": {**definitions, "9": TEXT}},
        "long texts": {"properties": {"a": {"type": "string", "description": "x\u200b" * 5_000_000}}},
        "long pointer": {"$ref": "#" + "/a" * 1_000_000},
        "long number": {"properties": {"a": {"minimum": 10**10_000, "enum": [10**10_000], "const": -(10**9_000)}}},
        "wide and deep": {"properties": {f"p{n}": nest(20) for n in range(200)}},
        "many equal choices": {"properties": {"a": {"anyOf": [{"properties": {f"a{n}": TEXT}} for n in range(900)]}}},
    }


@pytest.fixture(scope="module")
def bombs() -> dict[str, Any]:
    return build_bombs()


@pytest.mark.parametrize("name", build_bombs())
def test_the_result_is_bounded(bombs: dict[str, Any], name: str) -> None:
    result = convert(bombs[name])
    assert isinstance(result, str) or len(encode_json(result)) <= MAX_TOOL_BYTES


@pytest.mark.timing
@pytest.mark.parametrize("name", build_bombs())
def test_the_work_is_bounded(bombs: dict[str, Any], name: str) -> None:
    start = time.process_time()
    convert(bombs[name])
    assert time.process_time() - start < 1


@pytest.mark.parametrize(("key", "depth"), [("properties", 100_000), ("allOf", 10_000)])
def test_depth_is_bounded(key: str, depth: int) -> None:
    schema = nest(depth, key)
    assert convert(schema) == "Its schema is nested more than 24 levels deep."
    tools, notices = select_tools([list_tool("deep", schema), list_tool("deep", schema), list_tool("good", {})])
    assert [tool.name for tool in tools] == ["mcp__s__good"]
    assert notices == ("The tool `deep` of the MCP server `s` is left out. Its definition is nested too deeply.",)


def test_a_tool_has_the_description_that_a_user_can_see() -> None:
    [tool] = select_tools([list_tool("t", {}, description="Read.\u200b\U000e0049\U000e0067\x07 ")])[0]
    assert tool.description == "Read."
    [tool] = select_tools([list_tool("t", {}, title="Reader")])[0]
    assert tool.description == "Reader"
    [tool] = select_tools([list_tool("t", {})])[0]
    assert tool.description == "A tool of the MCP server s."
    [tool] = select_tools([list_tool("t", {}, description="é" * 1_000_000)])[0]
    assert tool.description.endswith("é…")
    assert len(tool.description.encode()) <= MAX_DESCRIPTION_BYTES


def test_a_name_that_is_listed_twice_counts_if_both_are_equal() -> None:
    tool, other = list_tool("t", {}), list_tool("t", {"properties": {"a": TEXT}})
    assert len(select_tools([tool, tool])[0]) == 1
    assert select_tools([tool, other]) == (
        (),
        ("The tool `t` of the MCP server `s` is left out. The server lists several tools of this name.",),
    )


@pytest.mark.parametrize("name", ["", "x" * 129, "a\u200bb", "a\nb", "a\ud800"])
def test_a_name_that_cannot_be_shown_is_left_out(name: str) -> None:
    [notice] = select_tools([list_tool(name, {})])[1]
    assert notice.endswith("is left out. Its name must have 1 to 128 visible characters.")
    assert not find_invisible(notice)


def test_the_number_of_tools_is_bounded() -> None:
    tools, [notice] = select_tools([list_tool(f"t{index:06}", {}, server) for server in "ab" for index in range(100)])
    assert len(tools) == MAX_TOOLS
    assert [tool.listed.server for tool in tools].count("a") == 100
    assert notice.startswith("72 tools of MCP servers are left out")


def test_the_size_of_the_definitions_is_bounded() -> None:
    schema = {"properties": {f"p{index:03}": TEXT for index in range(200)}}
    tools, [notice] = select_tools([list_tool(f"t{index}", schema) for index in range(30)])
    assert 5 < len(tools) < 30
    assert sum(len(encode_json(tool.schema)) for tool in tools) <= MAX_DEFINITIONS_BYTES
    assert notice.startswith(f"{30 - len(tools)} tools of MCP servers are left out")


@pytest.fixture
def many_bad_tools() -> list[ListedTool]:
    bad = [list_tool(f"t{index}", {"type": "string"}) for index in range(20_000)]
    return [*bad, list_tool("good", {}, "z")]


def test_many_bad_tools_yield_few_notices(many_bad_tools: list[ListedTool]) -> None:
    tools, notices = select_tools(many_bad_tools)
    assert [tool.name for tool in tools] == ["mcp__z__good"]
    assert len(notices) == 7
    assert notices[5] == "123 more tools of the MCP server `s` are left out for similar reasons."
