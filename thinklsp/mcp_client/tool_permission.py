"""The user's permission for the tools of MCP servers.

A permission for always is stored in `permissions.toml` with the pin of the tool, so it ends when the server changes the
tool. The first question about a tool shows its description, because a description can be written to mislead.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from thinklsp.core.choices import ALLOW_FOR_SESSION, DO_NOT_RUN, RUN_ONCE
from thinklsp.core.errors import SettingsError, ToolFailed
from thinklsp.core.text_safety import escape_invisible, mask_keys
from thinklsp.core.tool_type import Ask
from thinklsp.mcp_client.server_config import ServerConfig
from thinklsp.settings.permissions import PermissionsFile

_LOG = logging.getLogger(__name__)

_ALWAYS = "Always allow {}"
_MAX_ARGUMENTS_CHARACTERS = 2_000
_DENIED = (
    "The user did not allow this call. Do not try it in another form: continue without it, and tell the user what is "
    "missing."
)


@dataclass(frozen=True, slots=True)
class AskedTool:
    """A tool that needs permission. `pin` identifies its definition. `description` is shown if the tool is new."""

    server: ServerConfig
    name: str
    shown_name: str
    pin: str
    description: str
    is_new: bool


@dataclass(slots=True)
class ToolPermissions:
    """The permissions of one session. `allowed` contains the pins that the user has allowed for the session."""

    file: PermissionsFile
    allowed: set[tuple[str, str, str]] = field(default_factory=set)

    async def require(self, tool: AskedTool, arguments: Mapping[str, Any], ask: Ask) -> None:
        """Check that a call is allowed, and ask the user if necessary. Raises ToolFailed if the user does not agree."""
        key = (tool.server.name, tool.name, tool.pin)
        policy = tool.server.ask
        if policy == "never" or (policy == "once" and (key in self.allowed or await self._is_remembered(key))):
            return
        always = _ALWAYS.format(tool.shown_name)
        options = (RUN_ONCE, DO_NOT_RUN) if policy == "always" else (RUN_ONCE, ALLOW_FOR_SESSION, always, DO_NOT_RUN)
        answer = await ask(self._build_question(tool, arguments), options)
        if answer == ALLOW_FOR_SESSION:
            self.allowed.add(key)
        elif answer == always:
            await self._remember(key)
        elif answer != RUN_ONCE:
            raise ToolFailed(_DENIED)

    async def _is_remembered(self, key: tuple[str, str, str]) -> bool:
        try:
            remembered = await asyncio.to_thread(self.file.read)
        except SettingsError:
            return False
        return any((entry.server, entry.tool, entry.pin) == key for entry in remembered.mcp)

    async def _remember(self, key: tuple[str, str, str]) -> None:
        try:
            await asyncio.to_thread(self.file.allow_mcp_tool, *key)
        except SettingsError as error:
            _LOG.warning("the permission is stored for this session only: %s", error)
            self.allowed.add(key)

    def _build_question(self, tool: AskedTool, arguments: Mapping[str, Any]) -> str:
        shown = mask_keys(json.dumps(dict(arguments), ensure_ascii=False, indent=1))
        if len(shown) > _MAX_ARGUMENTS_CHARACTERS:
            shown = (
                f"{shown[:_MAX_ARGUMENTS_CHARACTERS]}\n[… {len(shown) - _MAX_ARGUMENTS_CHARACTERS:,} more characters]"
            )
        parts = [f"Let the model use the tool `{tool.name}` of the MCP server `{tool.server.name}`?", shown]
        if tool.is_new:
            parts.append(f"The server describes this new tool so: {tool.description or '(no description)'}")
        return escape_invisible("\n\n".join(parts))
