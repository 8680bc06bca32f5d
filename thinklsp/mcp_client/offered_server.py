"""An MCP server that a project or a client of the agent names. It runs only after the user's consent."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from thinklsp.mcp_client.server_config import ServerConfig

_MAX_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class OfferedServer:
    """A server with the entry that names it.

    `place` names the source of the entry for the user. `folder` is the path of the workspace folder without links.
    `digest` is the hash of the entry. The consent of the user applies to the folder, the name and the digest.
    `description` shows the entry in a question, with the names of its variables instead of their values.
    """

    config: ServerConfig
    place: str
    folder: str
    digest: str
    description: str


def compute_digest(entry: object) -> str:
    """Return the SHA-256 of the canonical JSON of an entry, with the characters as they are in the entry."""
    text = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def describe_server(config: ServerConfig, *, has_values: bool = False) -> str:
    """Return the command line or the URL of a server, with its environment variables or headers.

    With `has_values`, the text includes the values of environment variables, which can change what a program does. They
    are left out for entries that may contain secrets of the user.
    """
    return "\n".join(_list_properties(config, has_values=has_values))


def _list_properties(config: ServerConfig, *, has_values: bool) -> Iterator[str]:
    if config.url is not None:
        yield f"Address: {_cut(config.url)}"
    else:
        yield f"Command: {_cut(shlex.join(config.command))}"
    if config.cwd is not None:
        yield f"Working directory: {_cut(config.cwd)}"
    for label, values in (("Environment variables", config.env), ("Headers", config.headers)):
        if values:
            items = [f"{name}={json.dumps(values[name])}" if has_values else name for name in sorted(values)]
            yield f"{label}: {_cut(', '.join(items))}"


def _cut(text: str) -> str:
    omitted = len(text) - _MAX_CHARACTERS
    return text if omitted <= 0 else f"{text[:_MAX_CHARACTERS]} [… {omitted:,} more characters]"
