"""The configurations of MCP servers, and the tools that they list."""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, Literal

Source = Literal["user", "project", "client"]
Ask = Literal["always", "once", "never"]


@dataclass(frozen=True, slots=True)
class ServerConfig:
    """An MCP server that the user, a project or the client of the agent has named.

    `name` consists of at most 32 of the characters `[A-Za-z0-9_-]`. `command` contains the program and its arguments,
    and is empty for a server at a URL. `env` is added to the few variables that every server receives. `token_command`
    prints the bearer token of a server at a URL. `tools` and `deny` contain glob patterns for the names of tools.
    `source` is the place that named the server.
    """

    name: str
    command: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict, repr=False)
    cwd: str | None = None
    url: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)
    token_command: tuple[str, ...] = ()
    tools: tuple[str, ...] = ("*",)
    deny: tuple[str, ...] = ()
    ask: Ask = "once"
    timeout_seconds: float = 60.0
    start_timeout_seconds: float = 10.0
    is_sandboxed: bool = False
    source: Source = "user"

    def offers(self, tool: str) -> bool:
        """Return True if the user's patterns include the name of a tool."""
        return any(fnmatchcase(tool, pattern) for pattern in self.tools) and not any(
            fnmatchcase(tool, pattern) for pattern in self.deny
        )

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the command or URL, the names of the environment variables and the working directory.

        The values of variables are left out, because a token that is renewed does not make a new server.
        """
        parts = {"command": self.command, "url": self.url, "env": sorted(self.env), "cwd": self.cwd}
        return compute_digest(parts)


_MAX_CHARACTERS = 2_000


@dataclass(frozen=True, slots=True)
class OfferedServer:
    """A server with the entry that names it.

    `place` names the source of the entry for the user. `folder` is the path of the workspace folder without links.
    `digest` is the hash of the entry. The user's consent applies to the folder, the name and the digest.
    `description` shows the entry in a question, with the names of its variables instead of their values.
    """

    config: ServerConfig
    place: str
    folder: str
    digest: str
    description: str


def compute_digest(entry: object) -> str:
    """Return the SHA-256 of canonical JSON, in which keys are sorted and there are no spaces.

    Strings keep their code points, because a Unicode normalization would hide a change. Raises ValueError or TypeError.
    """
    text = json.dumps(entry, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def describe_server(config: ServerConfig, *, has_values: bool = False) -> str:
    """Return the command line or the URL of a server, with its environment variables or headers.

    With `has_values`, the text includes the values of environment variables, which can change what a program does. They
    are left out for entries that may contain the user's secrets.
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
