"""The configuration of an MCP server, which is either a command on this machine or a URL."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Literal

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
        """Return True if the patterns of the user include the name of a tool."""
        return any(fnmatchcase(tool, pattern) for pattern in self.tools) and not any(
            fnmatchcase(tool, pattern) for pattern in self.deny
        )

    @property
    def fingerprint(self) -> str:
        """The SHA-256 of the parts that decide which program answers: the command or URL, the names of the environment
        variables and the working directory.

        The values of variables are left out, because a token that is renewed does not make a new server.
        """
        parts = {"command": self.command, "url": self.url, "env": sorted(self.env), "cwd": self.cwd}
        text = json.dumps(parts, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()
