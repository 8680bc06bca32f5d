"""A tool as an MCP server listed it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class ListedTool:
    """A tool as its server listed it, unchanged and unchecked.

    `server` is the server's name in the settings, never the name that the server gives itself. All other values come
    from the server, so they may be misleading, very large or deeply nested.
    """

    server: str
    name: str
    title: str = ""
    description: str = ""
    input_schema: Mapping[str, Any] = field(default_factory=dict, hash=False)
    annotations: Mapping[str, Any] = field(default_factory=dict, hash=False)
