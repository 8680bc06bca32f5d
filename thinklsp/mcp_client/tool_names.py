"""The names under which the model sees the tools of MCP servers.

A name is `mcp__SERVER__TOOL`. It depends only on the two parts, so a tool keeps its name if other servers or tools come
and go. The prefix separates all names from those of the built-in tools.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from hashlib import sha256

from thinklsp.core.text_safety import to_one_line
from thinklsp.mcp_client.listed_tool import ListedTool

MAX_TOOL_NAME = 128
"""The longest name that the Model Context Protocol allows for a tool."""
MAX_NAME = 64
"""The longest name that every provider accepts. Providers accept only ASCII letters, digits, `_` and `-`."""
PREFIX = "mcp__"

ToolKey = tuple[str, str]
"""The name of a server in the settings, and the name of one of its tools."""

_OTHER = re.compile(r"[^A-Za-z0-9_-]")
# The first `__` after the prefix must be the separator, so that the server and the tool can be told apart.
_PLAIN_SERVER = re.compile(r"(?!.*__)[A-Za-z0-9_-]*[A-Za-z0-9-]")
_PLAIN_TOOL = re.compile(r"[A-Za-z0-9_-]+")
# A plain name must not look like a name with a digest.
_DIGEST_END = re.compile(r"_[0-9a-f]{8}")
_DIGEST_LENGTHS = (8, 16, 32, MAX_NAME - len(PREFIX) - 1)


def is_usable_tool_name(name: str) -> bool:
    """Return True if a user can see the whole name that a server gave to a tool."""
    return 0 < len(name) <= MAX_TOOL_NAME and to_one_line(name) == name


def build_tool_names(tools: Sequence[ListedTool]) -> dict[ToolKey, str]:
    """Return a unique name for each tool, in the order of servers and tools."""
    return assign_names((tool.server, tool.name) for tool in tools)


def assign_names(keys: Iterable[ToolKey]) -> dict[ToolKey, str]:
    """Return a unique name for each pair of server and tool. The order of the pairs does not matter."""
    ordered = sorted(set(keys))
    names = {key: _build_name(key, _DIGEST_LENGTHS[0]) for key in ordered}
    # Only names that were made to collide share a digest. Each of them gets a longer one.
    for digits in _DIGEST_LENGTHS[1:]:
        counts = Counter(names.values())
        colliding = [key for key, name in names.items() if counts[name] > 1]
        if not colliding:
            break
        names.update((key, _build_name(key, digits)) for key in colliding)
    return names


def _build_name(key: ToolKey, digits: int) -> str:
    server, tool = key
    name = f"{PREFIX}{server}__{tool}"
    is_plain = _PLAIN_SERVER.fullmatch(server) and _PLAIN_TOOL.fullmatch(tool) and len(name) <= MAX_NAME
    if is_plain and not _DIGEST_END.fullmatch(name[-9:]):
        return name
    digest = sha256(f"{server}\0{tool}".encode("utf-8", "surrogatepass")).hexdigest()[:digits]
    start = _OTHER.sub("_", name[: MAX_NAME - digits - 1])
    return f"{start}_{digest}"
