"""The MCP servers of one engine, and the tools that they offer to a turn.

Servers start at the first turn that may use them, in parallel. A turn waits for a server until its time limit at the
start; a server that is not ready then has no tools in this turn. The tools of a turn do not change while it runs.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from thinklsp.core.bounded_dict import BoundedDict
from thinklsp.core.choices import ALLOW_FOR_SESSION, DO_NOT_RUN, RUN_ONCE
from thinklsp.core.errors import McpFailed, SettingsError, ToolFailed
from thinklsp.core.events import CallLocation
from thinklsp.core.messages import ToolSpec
from thinklsp.core.text_safety import escape_invisible, mask_keys
from thinklsp.core.tool_type import Ask, AskText, TextKeeper, ToolOutput
from thinklsp.mcp_client.call_result import format_result
from thinklsp.mcp_client.connection import McpConnection
from thinklsp.mcp_client.consent import PinReport, Pins, format_first_sight
from thinklsp.mcp_client.elicitation import FormQuestions
from thinklsp.mcp_client.server_config import ListedTool, ServerConfig
from thinklsp.mcp_client.tool_schemas import UsableTool, check_arguments, select_tools
from thinklsp.settings.permissions import PermissionsFile
from thinklsp.settings.user_file import NetworkSection

_LOG = logging.getLogger(__name__)

_MAX_SESSIONS = 64
_MAX_ARGUMENTS_CHARACTERS = 2_000
_LIST_CHANGED = (
    "The MCP server `{}` has changed its list of tools, so the provider's prompt cache for this session is lost."
)
_DENIED = (
    "The user did not allow this call. Do not try it in another form: continue without it, and tell the user what is "
    "missing."
)


class AskingContext(Protocol):
    """The part of a turn's tool context that MCP tools use."""

    @property
    def ask(self) -> Ask: ...

    @property
    def ask_text(self) -> AskText | None: ...

    @property
    def texts(self) -> TextKeeper | None: ...


@dataclass(slots=True)
class _Session:
    """A session's permissions for tools, as server, tool and pin, and the names of the tools of its last turn."""

    allowed: set[tuple[str, str, str]] = field(default_factory=set)
    tool_names: frozenset[tuple[str, str]] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class McpTool:
    """A tool of an MCP server. It needs the user's permission, and is never run in the modes that only read.

    `pin` is the hash of its definition. If the tool is new, it is pinned when the user allows its first call. A
    permission for always is stored in `permissions.toml` with the pin, so it ends when the server changes the tool.
    """

    usable: UsableTool
    connection: McpConnection
    pin: str
    is_new: bool
    pins: Pins
    permissions: PermissionsFile
    session: _Session
    read_only: bool = False
    edits: bool = False
    runs: bool = True

    @property
    def name(self) -> str:
        return self.usable.name

    def build_spec(self) -> ToolSpec:
        return ToolSpec(self.usable.name, self.usable.description, self.usable.schema)

    def format_title(self, arguments: Mapping[str, Any]) -> str:  # noqa: ARG002 - part of the signature
        return f"{self.usable.listed.server}: {self.usable.listed.name}"

    def find_location(self, arguments: Mapping[str, Any]) -> CallLocation | None:  # noqa: ARG002 - part of the signature
        """Return None, because the arguments of another program are not known to be paths."""
        return None

    async def call(self, arguments: Mapping[str, Any], context: AskingContext) -> ToolOutput:
        """Run a call. Raises ToolFailed with a message for the model."""
        listed = self.usable.listed
        if (problem := await check_arguments(listed.input_schema, arguments)) is not None:
            raise ToolFailed(problem)
        await self._require_permission(arguments, context.ask)
        if self.is_new:
            try:
                await asyncio.to_thread(self.pins.accept, self.connection.config, (listed,))
            except SettingsError as unusable:
                raise ToolFailed(str(unusable)) from None
        questions = FormQuestions(listed.server, context.ask, context.ask_text)
        try:
            result = await self.connection.call(listed.name, arguments, questions.elicit)
        except McpFailed as failed:
            raise ToolFailed(" ".join((str(failed), *questions.notes))) from None
        output = await format_result(listed.server, result, context.texts)
        return replace(output, text="\n".join((*questions.notes, output.text)))

    async def _require_permission(self, arguments: Mapping[str, Any], ask: Ask) -> None:
        """Ask the user if no permission covers the call. Raises ToolFailed if the user does not agree."""
        policy = self.connection.config.ask
        key = (self.connection.config.name, self.usable.listed.name, self.pin)
        if policy == "never" or (policy == "once" and (key in self.session.allowed or await self._is_remembered(key))):
            return
        always = f"Always allow {self.name}"
        options = (RUN_ONCE, DO_NOT_RUN) if policy == "always" else (RUN_ONCE, ALLOW_FOR_SESSION, always, DO_NOT_RUN)
        answer = await ask(self._build_question(arguments), options)
        if answer == ALLOW_FOR_SESSION:
            self.session.allowed.add(key)
        elif answer == always:
            try:
                await asyncio.to_thread(self.permissions.allow_mcp_tool, *key)
            except SettingsError as error:
                _LOG.warning("the permission is stored for this session only: %s", error)
                self.session.allowed.add(key)
        elif answer != RUN_ONCE:
            raise ToolFailed(_DENIED)

    async def _is_remembered(self, key: tuple[str, str, str]) -> bool:
        try:
            remembered = await asyncio.to_thread(self.permissions.read)
        except SettingsError:
            return False
        return any((entry.server, entry.tool, entry.pin) == key for entry in remembered.mcp)

    def _build_question(self, arguments: Mapping[str, Any]) -> str:
        """Return the question about a call. For a new tool, it shows the description, which may mislead the model."""
        listed = self.usable.listed
        shown = mask_keys(json.dumps(dict(arguments), ensure_ascii=False, indent=1))
        if (omitted := len(shown) - _MAX_ARGUMENTS_CHARACTERS) > 0:
            shown = f"{shown[:_MAX_ARGUMENTS_CHARACTERS]}\n[… {omitted:,} more characters]"
        parts = [f"Let the model use the tool `{listed.name}` of the MCP server `{listed.server}`?", shown]
        if self.is_new:
            parts.append(f"The server describes this new tool so: {format_first_sight(listed) or '(no description)'}")
        return escape_invisible("\n\n".join(parts))


@dataclass(frozen=True, slots=True)
class TurnTools:
    """The MCP tools of a turn, sorted by name, with notices for the user."""

    tools: tuple[McpTool, ...] = ()
    notices: tuple[str, ...] = ()


class ServerPool:
    """The connections of an engine, by server name. Each notice about a server is shown once per process."""

    def __init__(self, environment: Mapping[str, str], pins: Pins, permissions: PermissionsFile) -> None:
        self._environment = environment
        self._pins = pins
        self._permissions = permissions
        self._connections: dict[str, McpConnection] = {}
        self._sessions: dict[str, _Session] = BoundedDict(_MAX_SESSIONS)
        self._shown: set[str] = set()

    @property
    def connections(self) -> Sequence[McpConnection]:
        """The connections that have been started, in the order of their names."""
        return [self._connections[name] for name in sorted(self._connections)]

    async def prepare(
        self, configs: Sequence[ServerConfig], folders: Sequence[str], network: NetworkSection, session_id: str
    ) -> TurnTools:
        """Start the servers that do not run yet, and return their tools for one turn."""
        connections = {config.name: self._find_connection(config, folders, network) for config in configs}
        problems = await asyncio.gather(*map(_start, connections.values()))
        notices = [problem for problem in problems if problem is not None]
        listed: list[ListedTool] = []
        reports: dict[str, PinReport] = {}
        for (name, connection), problem in zip(connections.items(), problems, strict=True):
            if problem is not None:
                continue
            wanted = [tool for tool in connection.tools if connection.config.offers(tool.name)]
            try:
                report = await asyncio.to_thread(self._pins.check, connection.config, wanted)
            except SettingsError as unusable:
                return TurnTools((), self._filter_new((*notices, str(unusable))))
            reports[name] = report
            notices += report.build_notices()
            listed += (tool for tool in wanted if report.allows(tool.name) or report.needs_question(tool.name))
        usable, more_notices = await asyncio.to_thread(select_tools, listed)
        session = self._sessions[session_id] = self._sessions.get(session_id) or _Session()
        notices += (*more_notices, *_note_changes(session, usable))
        tools = []
        for tool in usable:
            report, name = reports[tool.listed.server], tool.listed.name
            pin, is_new = report.tools[name].hash, report.needs_question(name)
            connection = connections[tool.listed.server]
            tools.append(McpTool(tool, connection, pin, is_new, self._pins, self._permissions, session))
        return TurnTools(tuple(tools), self._filter_new(notices))

    def _find_connection(self, config: ServerConfig, folders: Sequence[str], network: NetworkSection) -> McpConnection:
        """Return the connection of a server. A changed configuration starts another process."""
        connection = self._connections.get(config.name)
        if connection is not None and connection.config == config:
            return connection
        if connection is not None:
            asyncio.get_running_loop().create_task(connection.aclose())
        self._connections[config.name] = connection = McpConnection(config, self._environment, folders, network)
        return connection

    def _filter_new(self, notices: Sequence[str]) -> tuple[str, ...]:
        new = tuple(dict.fromkeys(notice for notice in notices if notice not in self._shown))
        self._shown.update(new)
        return new

    def forget_session(self, session_id: str) -> None:
        self._sessions.pop(session_id, None)

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


def _note_changes(session: _Session, usable: Sequence[UsableTool]) -> list[str]:
    """Return a notice for each server whose tools differ from those of the session's last turn."""
    names = frozenset((tool.listed.server, tool.name) for tool in usable)
    before, session.tool_names = session.tool_names, names
    changed = set() if before is None else {server for server, _ in before ^ names}
    return [_LIST_CHANGED.format(server) for server in sorted(changed)]
