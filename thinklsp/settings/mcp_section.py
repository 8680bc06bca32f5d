"""The section `[mcp]` of the user's file, which names MCP servers.

A mistake in the entry of one server turns off this server only. So `McpSection` does not validate the entries.
"""

from __future__ import annotations

import os
from typing import Annotated, Any, Literal

from pydantic import Field

from thinklsp.settings.section import Section

VARIABLE_PATTERN = r"^[A-Za-z_][A-Za-z0-9_]{0,127}$"
MAX_TIMEOUT_SECONDS, MAX_START_SECONDS = 600, 120

_Words = Annotated[tuple[str, ...], Field(max_length=200)]


class McpServerSection(Section):
    """The entry `[mcp.servers.NAME]`, which names either a command on this machine or a URL."""

    command: str | None = Field(None, min_length=1, description="Program to start, without its arguments.")
    args: _Words = Field((), description="Arguments of the program.")
    env: dict[Annotated[str, Field(pattern=VARIABLE_PATTERN)], str] = Field(
        {}, description="Environment variables for the program, besides the few that every server receives."
    )
    cwd: str | None = Field(None, pattern=r"^(/|~/|~$)", description="Working directory. The path begins with / or ~/.")
    url: str | None = Field(None, min_length=1, description="Address of the server: https, or http on this machine.")
    headers: dict[str, str] = Field({}, description="HTTP headers for the server at `url`.")
    token_command: _Words = Field((), description="Command that prints the bearer token for the server at `url`.")
    enabled: bool = Field(True, strict=True, description="Whether thinklsp uses the server.")
    tools: _Words = Field(("*",), description="Patterns for the names of the tools to offer to the model.")
    deny: _Words = Field((), description="Patterns for the names of tools that the model never gets.")
    ask: Literal["always", "once", "never"] = Field(
        "once",
        description="When a tool asks for permission: before every call, once per tool and session, or never.",
    )
    timeout_s: float = Field(
        60.0, strict=True, allow_inf_nan=False, ge=1, le=MAX_TIMEOUT_SECONDS, description="Seconds for one call."
    )
    start_timeout_s: float = Field(
        10.0,
        strict=True,
        allow_inf_nan=False,
        ge=1,
        le=MAX_START_SECONDS,
        description="Seconds that a turn waits for the server to start.",
    )
    sandbox: bool | None = Field(
        None, strict=True, description="Whether the program runs in the sandbox. The default is `mcp.sandbox`."
    )

    def build_command(self) -> tuple[str, ...]:
        """Return the program and its arguments, or nothing for a server at a URL."""
        return () if self.command is None else (os.path.expanduser(self.command), *self.args)

    def find_directory(self) -> str | None:
        """Return the absolute path of the working directory, or None if the entry names none."""
        return None if self.cwd is None else os.path.expanduser(self.cwd)


class McpSection(Section):
    """The section `[mcp]`. `servers` contains the entries as they are in the file, which may include secrets."""

    sandbox: bool = Field(False, strict=True, description="Whether servers that are programs run in the sandbox.")
    project_env: tuple[Annotated[str, Field(pattern=VARIABLE_PATTERN)], ...] = Field(
        (),
        max_length=100,
        description="Environment variables that the MCP servers of a project may receive by `${NAME}`.",
    )
    servers: dict[str, Any] = Field({}, repr=False, description="MCP servers by name.")
