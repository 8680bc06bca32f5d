"""The tools of MCP servers in the form that every provider accepts, and the limits on their number and size.

One tool that a provider rejects makes every request fail. So a tool that cannot be converted is left out.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from thinklsp.core.json_codec import encode_json
from thinklsp.core.text_safety import remove_invisible, to_one_line
from thinklsp.mcp_client.listed_tool import ListedTool
from thinklsp.mcp_client.schema_merging import SchemaRefused, intersect, unite_objects
from thinklsp.mcp_client.schema_reader import SchemaReader
from thinklsp.mcp_client.tool_hashes import hash_tool
from thinklsp.mcp_client.tool_names import MAX_TOOL_NAME, ToolKey, build_tool_names, is_usable_tool_name

MAX_TOOLS = 128
MAX_TOOL_BYTES = 32_000
MAX_DEFINITIONS_BYTES = 64_000
MAX_DESCRIPTION_BYTES = 2_000
_MAX_PASSES = 5
_MAX_NOTICES_PER_SERVER = 5


@dataclass(frozen=True, slots=True)
class UsableTool:
    """A tool of an MCP server as the model sees it.

    `listed` is the tool as its server listed it. `name`, `description` and `schema` are accepted by every provider.
    """

    listed: ListedTool
    name: str
    description: str
    schema: Mapping[str, Any] = field(hash=False)


def normalize_schema(schema: Mapping[str, Any]) -> dict[str, Any] | str:
    """Return the schema of a tool's arguments in a form that every provider accepts.

    If this is not possible, return a sentence with the reason. The result accepts nearly all arguments that the
    original accepts, and usually more. Equal schemas yield equal bytes, even if their keys are ordered differently, and
    a normalized schema stays the same.
    """
    try:
        encoded = _run_pass(schema)
        for _ in range(_MAX_PASSES):
            result: dict[str, Any] = json.loads(encoded)
            again = _run_pass(result)
            if again == encoded:
                return result
            encoded = again
    except SchemaRefused as refusal:
        return str(refusal)
    return "Its schema is too complicated."


def select_tools(tools: Sequence[ListedTool]) -> tuple[tuple[UsableTool, ...], tuple[str, ...]]:
    """Return the tools that a model can use, sorted by name, and notices about the tools that are left out."""
    names = build_tool_names(tools)
    by_key: dict[ToolKey, list[ListedTool]] = {}
    for tool in tools:
        by_key.setdefault((tool.server, tool.name), []).append(tool)
    selection = _Selection()
    for key, name in sorted(names.items(), key=lambda item: item[1]):
        selection.add(name, by_key[key])
    return tuple(selection.usable), selection.build_notices()


class _Selection:
    """The tools that were selected so far, and the reasons for the others."""

    def __init__(self) -> None:
        self.usable: list[UsableTool] = []
        self._bytes = 0
        self._is_full = False
        self._beyond_limits = 0
        self._checked: dict[str, int] = {}
        self._reasons: dict[str, list[str]] = {}

    def add(self, name: str, listed: Sequence[ListedTool]) -> None:
        server = listed[0].server
        self._checked[server] = self._checked.get(server, 0) + 1
        # A server with very many unusable tools would otherwise use much time.
        self._is_full = self._is_full or len(self.usable) >= MAX_TOOLS
        if self._is_full or self._checked[server] > MAX_TOOLS:
            self._beyond_limits += 1
            return
        tool = _build_tool(name, listed)
        if isinstance(tool, str):
            shown = to_one_line(listed[0].name[:MAX_TOOL_NAME])
            reason = f"The tool `{shown}` of the MCP server `{server}` is left out. {tool}"
            self._reasons.setdefault(server, []).append(reason)
            return
        size = len(encode_json([tool.name, tool.description, tool.schema]))
        if self._bytes + size > MAX_DEFINITIONS_BYTES:
            self._is_full = True
            self._beyond_limits += 1
            return
        self._bytes += size
        self.usable.append(tool)

    def build_notices(self) -> tuple[str, ...]:
        notices: list[str] = []
        for server, reasons in self._reasons.items():
            notices += reasons[:_MAX_NOTICES_PER_SERVER]
            if (more := len(reasons) - _MAX_NOTICES_PER_SERVER) > 0:
                notices.append(f"{more} more tools of the MCP server `{server}` are left out for similar reasons.")
        if self._beyond_limits:
            limits = f"{MAX_TOOLS} tools and {MAX_DEFINITIONS_BYTES // 1_000} kB of definitions"
            notices.append(
                f"{self._beyond_limits} tools of MCP servers are left out, because a request can contain {limits}. "
                "Choose fewer tools with `tools` and `deny` in the settings of the servers."
            )
        return tuple(notices)


def _build_tool(name: str, listed: Sequence[ListedTool]) -> UsableTool | str:
    """Return the usable form of a tool, or a sentence with the reason why there is none."""
    first = listed[0]
    hashes = set(map(hash_tool, listed))
    if None in hashes:
        return "Its definition is nested too deeply."
    if len(hashes) > 1:
        return "The server lists several tools of this name."
    if not is_usable_tool_name(first.name):
        return f"Its name must have 1 to {MAX_TOOL_NAME} visible characters."
    schema = normalize_schema(first.input_schema)
    return schema if isinstance(schema, str) else UsableTool(first, name, _build_description(first), schema)


def _build_description(tool: ListedTool) -> str:
    """Return the description for the model, without characters that a user cannot see."""
    text = remove_invisible((tool.description or tool.title)[: 2 * MAX_DESCRIPTION_BYTES]).strip()
    text = text or f"A tool of the MCP server {tool.server}."
    encoded = text.encode()
    if len(encoded) <= MAX_DESCRIPTION_BYTES:
        return text
    return encoded[: MAX_DESCRIPTION_BYTES - 3].decode(errors="ignore").rstrip() + "…"


def _run_pass(schema: Mapping[str, Any]) -> bytes:
    """Convert a schema once and return its JSON. Converting the result again may simplify it further."""
    reader = SchemaReader(schema)
    root = reader.read(schema)
    if root is None:
        raise SchemaRefused("Its schema accepts no arguments at all.")
    root = intersect(root, {"type": "object"}, reader.budget)
    if root is None:
        raise SchemaRefused("Its schema does not describe an object with arguments.")
    if "anyOf" in root:
        root = unite_objects(root["anyOf"], root.get("description", ""), reader.budget)
    # OpenAI requires `properties` in the schema of every function.
    encoded = encode_json(_sort_keys({"properties": {}, **root}))
    if len(encoded) > MAX_TOOL_BYTES:
        raise SchemaRefused(f"Its schema is larger than {MAX_TOOL_BYTES // 1_000} kB.")
    return encoded


def _sort_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _sort_keys(value[key]) for key in sorted(value)}
    return [_sort_keys(item) for item in value] if isinstance(value, list) else value
