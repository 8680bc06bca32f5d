"""The MCP servers of an engine. Without a configured server, nothing of `mcp_client/` is loaded."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from thinklsp.core.errors import PathRefused
from thinklsp.core.server_context import LOCAL_IDENTITY, ClientIdentity
from thinklsp.core.tool_type import Ask
from thinklsp.engine.instructions import TurnInstructions
from thinklsp.engine.turn_request import ChatRequest, TurnRequest
from thinklsp.sessions.state_folder import resolve_state_folder
from thinklsp.settings.permissions import PermissionsFile
from thinklsp.settings.user_file import UserSettings
from thinklsp.tools.tool import AnyTool
from thinklsp.workspace.paths import Root
from thinklsp.workspace.uri import RelPath

if TYPE_CHECKING:
    from thinklsp.mcp_client.consent import ServerConsent
    from thinklsp.mcp_client.server_config import ServerConfig
    from thinklsp.mcp_client.server_entries import ClientEntry
    from thinklsp.mcp_client.server_pool import ServerPool

# A project's server runs with the rights of the server process, and its configuration can name the process's variables.
# So the consent of a user who is not the owner of the process is not enough.
_NO_PROJECT_SERVERS = (
    "The MCP servers of this folder are not used, because this thinklsp server has several users. Its administrator "
    "can add a server to `[mcp]`."
)
_PROJECT_FILES = (RelPath.build((".mcp.json",)), RelPath.build((".vscode", "mcp.json")))


class McpServers:
    """The MCP servers of an engine. They start at the first turn that may use them.

    Only the owner of the process can use the servers that a project names.
    """

    def __init__(self, environment: Mapping[str, str], permissions: PermissionsFile, identity: ClientIdentity) -> None:
        self._environment = environment
        self._permissions = permissions
        self._allows_projects = identity == LOCAL_IDENTITY
        self._loaded: tuple[ServerPool, ServerConsent] | None = None
        self._load_lock = asyncio.Lock()

    async def prepare_tools(
        self, request: TurnRequest, user: UserSettings, session_id: str, instructions: TurnInstructions, ask: Ask
    ) -> tuple[tuple[AnyTool, ...], tuple[str, ...]]:
        """Return the tools of all servers that the turn may use, and notices for the user.

        Servers that a project or a client names are used only after the user's consent.
        """
        roots = [folder.root for folder in request.view.folders]
        clients = request.client_servers if isinstance(request, ChatRequest) else ()
        has_project_file = await asyncio.to_thread(_has_project_file, roots)
        ignored = (_NO_PROJECT_SERVERS,) if has_project_file and not self._allows_projects else ()
        if not user.file.mcp.servers and not clients and (ignored or not has_project_file):
            return (), ignored
        pool, consent = await self._load()
        configs, notices = await self._list_servers(roots, clients, user, instructions, ask, consent)
        folders = [root.path for root in roots]
        prepared = await pool.prepare(configs, folders, user.file.network, session_id)
        return prepared.tools, (*ignored, *notices, *prepared.notices)

    async def _list_servers(
        self, roots: Sequence[Root], clients: Sequence[ClientEntry], user: UserSettings,
        instructions: TurnInstructions, ask: Ask, consent: ServerConsent,
    ) -> tuple[list[ServerConfig], tuple[str, ...]]:  # fmt: skip
        from thinklsp.mcp_client import server_entries  # noqa: PLC0415 - only with a server

        configs, notices = server_entries.list_user_servers(user)
        allowed = roots if self._allows_projects else ()
        offered, more = await asyncio.to_thread(server_entries.read_project_servers, allowed, user)
        notices = (*notices, *more)
        if clients and roots:
            from_client, problems = server_entries.offer_client_servers(clients, roots[0].path, user)
            taken = {server.config.name for server in offered}
            offered += tuple(server for server in from_client if server.config.name not in taken)
            notices = (*notices, *problems)
        chosen, more = await consent.select_servers(
            offered, ask, is_trusted=lambda folder: folder not in instructions.untrusted
        )
        return [*configs, *chosen], (*notices, *more)

    async def build_report(self, roots: Sequence[Root], user: UserSettings) -> dict[str, Any]:
        """Describe the servers of the user and of the workspace folders, without starting one."""
        from thinklsp.engine.mcp_report import describe_servers  # noqa: PLC0415 - only for the report

        connections = () if self._loaded is None else self._loaded[0].connections
        shown = roots if self._allows_projects else ()
        return await describe_servers(user, shown, resolve_state_folder(self._environment), connections)

    async def _load(self) -> tuple[ServerPool, ServerConsent]:
        async with self._load_lock:
            if self._loaded is None:
                self._loaded = await asyncio.to_thread(self._create)
            return self._loaded

    def _create(self) -> tuple[ServerPool, ServerConsent]:
        from thinklsp.mcp_client.consent import Approvals, Pins, ServerConsent  # noqa: PLC0415 - only with a server
        from thinklsp.mcp_client.server_pool import ServerPool  # noqa: PLC0415 - only with a server

        folder = resolve_state_folder(self._environment)
        return ServerPool(self._environment, Pins(folder), self._permissions), ServerConsent(Approvals(folder))

    def forget_session(self, session_id: str) -> None:
        if self._loaded is not None:
            self._loaded[0].forget_session(session_id)

    async def aclose(self) -> None:
        if self._loaded is not None:
            await self._loaded[0].aclose()


def _has_project_file(roots: Sequence[Root]) -> bool:
    for root in roots:
        for path in _PROJECT_FILES:
            try:
                if root.stat(path) is not None:
                    return True
            except PathRefused:
                continue
    return False


async def describe_own_mcp_servers(user: UserSettings, problems: list[str]) -> dict[str, Any]:
    """Describe the MCP servers of the user's file for the doctor report, without starting them. Add their problems."""
    if not user.file.mcp.servers:
        return {"servers": [], "disabled": []}
    from thinklsp.engine.mcp_report import describe_own_servers  # noqa: PLC0415 - only with a server

    described, found = await asyncio.to_thread(describe_own_servers, user)
    problems += found
    return described
