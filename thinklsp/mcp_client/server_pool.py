"""The MCP servers of one engine, and the tools that they offer to a turn.

Servers start at the first turn that may use them, in parallel. A turn waits for a server until its time limit at the
start; a server that is not ready then has no tools in this turn. The tools of a turn do not change while it runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import partial

from thinklsp.core.errors import McpFailed, ToolFailed
from thinklsp.mcp_client.connection import McpConnection
from thinklsp.mcp_client.listed_tool import ListedTool
from thinklsp.mcp_client.mcp_tool import McpTool
from thinklsp.mcp_client.pins import PinReport, Pins, PinsUnusable, format_first_sight
from thinklsp.mcp_client.server_config import ServerConfig
from thinklsp.mcp_client.tool_permission import AskedTool, ToolPermissions
from thinklsp.mcp_client.tool_schemas import UsableTool, select_tools
from thinklsp.settings.permissions import PermissionsFile

_MAX_SESSIONS = 64
_LIST_CHANGED = (
    "The MCP server `{}` has changed its list of tools, so the provider's prompt cache for this session is lost."
)


@dataclass(frozen=True, slots=True)
class TurnTools:
    """The MCP tools of a turn, sorted by name, with notices for the user."""

    tools: tuple[McpTool, ...] = ()
    notices: tuple[str, ...] = ()


class ServerPool:
    """The connections of an engine, by server name.

    Each notice about a server is shown once per process.
    """

    def __init__(
        self,
        environment: Mapping[str, str],
        pins: Pins,
        permissions: PermissionsFile,
    ) -> None:
        self._environment = environment
        self._pins = pins
        self._permissions_file = permissions
        self._connections: dict[str, McpConnection] = {}
        self._permissions: dict[str, ToolPermissions] = {}
        self._last_names: dict[str, tuple[str, ...]] = {}
        self._shown: set[str] = set()

    @property
    def connections(self) -> Sequence[McpConnection]:
        """The connections that have been started, in the order of their names."""
        return [self._connections[name] for name in sorted(self._connections)]

    async def prepare(
        self,
        configs: Sequence[ServerConfig],
        folders: Sequence[str],
        session_id: str,
        *,
        proxy: str | None = None,
        ca_bundle: str | None = None,
    ) -> TurnTools:
        """Start the servers that do not run yet, and return their tools for one turn.

        `proxy` and `ca_bundle` come from the user's file.
        """
        connections = [self._find_connection(config, folders, proxy, ca_bundle) for config in configs]
        problems = await asyncio.gather(*(_start(connection) for connection in connections))
        notices = [problem for problem in problems if problem is not None]
        listed: list[ListedTool] = []
        reports: dict[str, PinReport] = {}
        for connection, problem in zip(connections, problems, strict=True):
            if problem is not None:
                continue
            wanted = [tool for tool in connection.tools if _is_wanted(tool, connection.config)]
            try:
                report = await asyncio.to_thread(self._pins.check, connection.config, wanted)
            except PinsUnusable as unusable:
                return TurnTools((), self._filter_new((*notices, str(unusable))))
            reports[connection.config.name] = report
            notices += report.build_notices()
            listed += (tool for tool in wanted if report.allows(tool.name) or report.needs_question(tool.name))
        usable, more_notices = await asyncio.to_thread(select_tools, listed)
        notices += (*more_notices, *self._note_changes(session_id, usable))
        by_name = {connection.config.name: connection for connection in connections}
        tools = tuple(self._build_tool(tool, by_name[tool.listed.server], reports, session_id) for tool in usable)
        return TurnTools(tools, self._filter_new(notices))

    def _find_connection(
        self, config: ServerConfig, folders: Sequence[str], proxy: str | None, ca_bundle: str | None
    ) -> McpConnection:
        """Return the connection of a server. A changed configuration starts another process."""
        connection = self._connections.get(config.name)
        if connection is not None and connection.config == config:
            return connection
        if connection is not None:
            asyncio.get_running_loop().create_task(connection.aclose())
        self._connections[config.name] = connection = McpConnection(
            config, self._environment, folders, proxy=proxy, ca_bundle=ca_bundle
        )
        return connection

    def _build_tool(
        self, usable: UsableTool, connection: McpConnection, reports: Mapping[str, PinReport], session_id: str
    ) -> McpTool:
        config, report = connection.config, reports[usable.listed.server]
        asked = AskedTool(
            config,
            usable.listed.name,
            usable.name,
            report.tools[usable.listed.name].hash,
            format_first_sight(usable.listed),
            report.needs_question(usable.listed.name),
        )
        accept = partial(self._accept, config, usable.listed)
        return McpTool(usable, connection, asked, self._get_permissions(session_id), accept)

    async def _accept(self, config: ServerConfig, listed: ListedTool) -> None:
        """Pin a new tool that the user has allowed. Raises ToolFailed if the pin cannot be stored."""
        try:
            await asyncio.to_thread(self._pins.accept, config, (listed,))
        except PinsUnusable as unusable:
            raise ToolFailed(str(unusable)) from None

    def _get_permissions(self, session_id: str) -> ToolPermissions:
        permissions = self._permissions.pop(session_id, None)
        if permissions is None:
            permissions = ToolPermissions(self._permissions_file)
        self._permissions[session_id] = permissions
        if len(self._permissions) > _MAX_SESSIONS:
            del self._permissions[next(iter(self._permissions))]
        return permissions

    def _note_changes(self, session_id: str, usable: Sequence[UsableTool]) -> list[str]:
        """Return a notice for each server whose tools differ from those of the session's last turn."""
        names = tuple(f"{tool.listed.server} {tool.name}" for tool in usable)
        before = self._last_names.pop(session_id, names)
        self._last_names[session_id] = names
        if len(self._last_names) > _MAX_SESSIONS:
            del self._last_names[next(iter(self._last_names))]
        changed = {name.partition(" ")[0] for name in set(before) ^ set(names)}
        return [_LIST_CHANGED.format(server) for server in sorted(changed)]

    def _filter_new(self, notices: Sequence[str]) -> tuple[str, ...]:
        new = tuple(dict.fromkeys(notice for notice in notices if notice not in self._shown))
        self._shown.update(new)
        return new

    def forget_session(self, session_id: str) -> None:
        self._permissions.pop(session_id, None)
        self._last_names.pop(session_id, None)

    async def aclose(self) -> None:
        """End every server."""
        connections, self._connections = list(self._connections.values()), {}
        await asyncio.gather(*(connection.aclose() for connection in connections), return_exceptions=True)


async def _start(connection: McpConnection) -> str | None:
    """Start a server, and return a notice if it cannot be used in this turn."""
    try:
        await connection.start()
    except McpFailed as failed:
        return f"The tools of the MCP server `{connection.config.name}` are not available in this turn. {failed}"
    return None


def _is_wanted(tool: ListedTool, config: ServerConfig) -> bool:
    """Return True if the user's patterns include the tool."""
    wanted = any(fnmatchcase(tool.name, pattern) for pattern in config.tools)
    return wanted and not any(fnmatchcase(tool.name, pattern) for pattern in config.deny)
