"""Hashes of what a server says about a tool, which show whether the tool changed."""

from __future__ import annotations

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any

from thinklsp.core.json_codec import is_shallow
from thinklsp.mcp_client.listed_tool import ListedTool

_MAX_DEPTH = 64


def hash_tool(tool: ListedTool) -> str | None:
    """Return the hash of everything that the server says about a tool, or None if the tool cannot be hashed."""
    return hash_json({"name": tool.name, **list_content(tool)})


def hash_content(tool: ListedTool) -> str | None:
    """Return the hash of a tool without its name. It stays the same if the tool is only renamed."""
    return hash_json(list_content(tool))


def list_content(tool: ListedTool) -> dict[str, Any]:
    """Return everything that the server says about a tool, except its name."""
    return {
        "title": tool.title,
        "description": tool.description,
        "inputSchema": tool.input_schema,
        "annotations": tool.annotations,
    }


def hash_json(value: Mapping[str, Any]) -> str | None:
    """Return the SHA-256 of canonical JSON, in which keys are sorted and there are no spaces.

    Strings keep their code points, because a Unicode normalization would hide a change. Return None for a value that is
    nested too deeply or that contains a number too long for JSON.
    """
    if not is_shallow(value, _MAX_DEPTH):
        return None
    try:
        text = json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    except (ValueError, TypeError):
        return None
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
