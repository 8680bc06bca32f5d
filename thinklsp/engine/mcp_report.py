"""The reports about MCP servers and their tools, for terminal commands and editors."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from thinklsp.core.errors import McpFailed, SettingsError, ThinkLspError
from thinklsp.core.text_safety import escape_invisible
from thinklsp.mcp_client.connection import McpConnection, explain_missing_sdk
from thinklsp.mcp_client.consent import Approvals, PinReport, Pins, is_approved, is_changed
from thinklsp.mcp_client.server_config import ListedTool, OfferedServer, ServerConfig, describe_server
from thinklsp.mcp_client.server_entries import list_disabled_servers, list_user_servers, read_project_servers
from thinklsp.mcp_client.tool_schemas import UsableTool, select_tools
from thinklsp.settings.user_file import UserSettings
from thinklsp.workspace.paths import Root

Consent = Literal["own", "approved", "new", "changed"]
_OWN_PLACE = "your config.toml"


@dataclass(frozen=True, slots=True)
class KnownServer:
    """A server with its source.

    `consent` is `own` for a server of the user's file, and otherwise the state of the approval. `offered` is None for a
    server of the user's file.
    """

    config: ServerConfig
    place: str
    consent: Consent
    offered: OfferedServer | None = None

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def may_run(self) -> bool:
        return self.consent in ("own", "approved")

    @property
    def description(self) -> str:
        """The command or URL, with invisible characters made visible."""
        return escape_invisible(self.offered.description if self.offered is not None else describe_server(self.config))

    def describe(self) -> dict[str, Any]:
        """Return the server as a JSON object, without values of variables."""
        return {
            "name": self.name,
            "place": self.place,
            "consent": self.consent,
            "description": self.description,
            "fingerprint": self.config.fingerprint,
        }


@dataclass(frozen=True, slots=True)
class KnownServers:
    """The servers in the order of their names. `disabled` are the names that the user's file turns off."""

    servers: tuple[KnownServer, ...]
    disabled: tuple[str, ...]
    problems: tuple[str, ...]

    def find(self, name: str) -> KnownServer:
        """Return the server of this name. Raises SettingsError."""
        server = next((server for server in self.servers if server.name == name), None)
        if server is not None:
            return server
        if name in self.disabled:
            raise SettingsError("mcp", f"The MCP server `{name}` is off, because its `enabled` is false.")
        shown = escape_invisible(name[:60])
        mistake = next((problem for problem in self.problems if f"`{shown}`" in problem), None)
        raise SettingsError("mcp", mistake or f"There is no MCP server `{shown}`. `thinklsp mcp list` lists them.")


def list_known_servers(user: UserSettings, roots: Sequence[Root], approvals: Approvals) -> KnownServers:
    """Return the servers of the user's file, and those that the workspace folders name."""
    own, problems = list_user_servers(user)
    servers = [KnownServer(config, _OWN_PLACE, "own") for config in own]
    offered, notices = read_project_servers(roots, user)
    problems += notices
    try:
        approved = approvals.read() if offered else ()
    except SettingsError as error:
        approved, problems = (), (*problems, str(error))
    for server in offered:
        consent: Consent = "changed" if is_changed(server, approved) else "new"
        consent = "approved" if is_approved(server, approved) else consent
        servers.append(KnownServer(server.config, server.place, consent, server))
    return KnownServers(tuple(sorted(servers, key=lambda server: server.name)), list_disabled_servers(user), problems)


def describe_own_servers(user: UserSettings) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return the servers of the user's file as a JSON object, and problems with advice for the user."""
    servers, problems = list_user_servers(user)
    missing = explain_missing_sdk() if servers else None
    described = [KnownServer(config, _OWN_PLACE, "own").describe() for config in servers]
    report = {"servers": described, "disabled": list(list_disabled_servers(user))}
    return report, problems if missing is None else (*problems, missing)


@dataclass(frozen=True, slots=True)
class StartedServer:
    """A server after an attempt to start it. `tools` are the tools that the user's patterns include."""

    config: ServerConfig
    state: str
    era: str
    start_seconds: float | None
    last_error: str
    stderr_tail: str
    tools: tuple[ListedTool, ...]
    usable: tuple[UsableTool, ...]
    pins: PinReport | None
    problems: tuple[str, ...]

    def describe(self) -> dict[str, Any]:
        """Return the state as a JSON object. With hundreds of tools, this takes tens of milliseconds."""
        names = {tool.listed.name: tool.name for tool in self.usable}
        return {
            "name": self.config.name,
            "state": self.state,
            "era": self.era or None,
            "startSeconds": None if self.start_seconds is None else round(self.start_seconds, 3),
            "lastError": escape_invisible(self.last_error) or None,
            "stderr": escape_invisible(self.stderr_tail),
            "fingerprint": self.config.fingerprint,
            "tools": [
                self._describe_tool(tool, names.get(tool.name))
                for tool in sorted(self.tools, key=lambda tool: tool.name)
            ],
            "problems": [escape_invisible(problem) for problem in self.problems],
        }

    def _describe_tool(self, tool: ListedTool, model_name: str | None) -> Mapping[str, Any]:
        pin = None if self.pins is None else self.pins.tools.get(tool.name)
        return {
            "name": escape_invisible(tool.name),
            "modelName": model_name,
            "description": escape_invisible(tool.description or tool.title),
            "hash": None if pin is None else pin.hash,
            "pin": None if pin is None else pin.state,
        }


async def inspect_connection(connection: McpConnection, pins: Pins) -> StartedServer:
    """Return the present state of a connection, and compare its tools with the pins."""
    config = connection.config
    tools = tuple(tool for tool in connection.tools if config.offers(tool.name))
    usable, problems = await asyncio.to_thread(select_tools, tools)
    report: PinReport | None = None
    if connection.state == "ready":
        try:
            report = await asyncio.to_thread(pins.check, config, tools)
            problems += report.build_notices()
        except ThinkLspError as error:
            problems += (str(error),)
    return StartedServer(
        config, connection.state, connection.era, connection.start_seconds, connection.last_error,
        connection.stderr_tail, tools, usable, report, problems,
    )  # fmt: skip


async def try_server(config: ServerConfig, user: UserSettings, folder: str, pins: Pins) -> StartedServer:
    """Start a server, list its tools and end it. A failure is part of the result."""
    connection = McpConnection(config, user.environment, [folder], user.file.network)
    failure = ""
    try:
        try:
            await connection.start()
        except McpFailed as error:
            failure = str(error)
        started = await inspect_connection(connection, pins)
    finally:
        await connection.aclose()
    return replace(started, state="failed", last_error=started.last_error or failure) if failure else started


async def describe_servers(
    user: UserSettings, roots: Sequence[Root], state_folder: str, connections: Sequence[McpConnection]
) -> dict[str, Any]:
    """Return all servers as a JSON object, with the present state of those that have been started.

    No server is started.
    """
    known = await asyncio.to_thread(list_known_servers, user, roots, Approvals(state_folder))
    pins = Pins(state_folder)
    live = {connection.config.name: await inspect_connection(connection, pins) for connection in connections}
    unknown = dict.fromkeys(("era", "startSeconds", "lastError"))
    not_started: dict[str, Any] = {"state": "stopped", **unknown, "stderr": "", "tools": [], "problems": []}
    servers = []
    for server in known.servers:
        started = live.get(server.name)
        is_current = started is not None and started.config == server.config
        state = await asyncio.to_thread(started.describe) if started is not None and is_current else not_started
        servers.append({**state, **server.describe()})
    return {"servers": servers, "disabled": list(known.disabled), "problems": list(known.problems)}
