"""The engine of a client and the sessions that the client has opened."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any

from thinklsp.acp.acp_session import AcpSession
from thinklsp.acp.initialization import KEY_METHOD, SETUP_HINT, SETUP_METHOD, AnnouncedFeatures
from thinklsp.acp.open_session import OpenSession
from thinklsp.acp.params import (
    AuthenticateParams,
    ListSessionsParams,
    McpServer,
    NewSessionParams,
    OpenSessionParams,
    PromptParams,
    SessionParams,
    SetConfigOptionParams,
    SetModeParams,
    parse_params,
)
from thinklsp.acp.peer import AUTHENTICATION_REQUIRED, RESOURCE_NOT_FOUND, AcpError, AcpPeer, Handler, Params, Reply
from thinklsp.acp.session_client import SessionClient
from thinklsp.acp.session_folders import SessionFolders, check_directory, check_path
from thinklsp.acp.session_list import build_page
from thinklsp.core.errors import SessionError, ThinkLspError
from thinklsp.engine import Engine
from thinklsp.engine.session_stores import open_session_store
from thinklsp.jsonrpc.error_responses import InvalidParams
from thinklsp.settings.sources import EditorSettings
from thinklsp.workspace.paths import compute_workspace_key
from thinklsp.workspace.uri import path_to_uri

_UNKNOWN_SESSION = "This session is not open. Open it with `session/load`, `session/resume` or `session/new`."
_NO_STORED_SESSION = "This folder has no session with this id. List the sessions to find the right id."
_IN_USE = "This session is in use by another thinklsp. Wait until its turn ends, or cancel the turn there."
# The number of sessions that keep their folders open. Some clients never close a session.
_MAX_READY = 32


class SessionHost:
    """The sessions of a client. Each method handles one request, and its call comes before the next message is read."""

    def __init__(self, peer: AcpPeer, features: AnnouncedFeatures, environment: Mapping[str, str]) -> None:
        self._peer = peer
        self._features = features
        self._engine = Engine(environment, open_session_store(environment))
        self._sessions: dict[str, AcpSession] = {}
        self._edit_lock = asyncio.Lock()
        self.handlers: dict[str, Handler] = {
            "authenticate": self.authenticate,
            "session/new": self.create_session,
            "session/load": self.load_session,
            "session/resume": self.resume_session,
            "session/list": self.list_sessions,
            "session/delete": self.delete_session,
            "session/close": self.close_session,
            "session/prompt": self.prompt,
            "session/set_mode": self.set_mode,
            "session/set_config_option": self.set_config_option,
        }

    async def authenticate(self, params: Params) -> Reply:
        """Check that a provider has a key. The client calls this before its first session, if at all."""
        method = parse_params(AuthenticateParams, params).method_id
        if method != KEY_METHOD:
            hint = " It runs in a terminal." if method == SETUP_METHOD else ""
            raise InvalidParams(f"The field `methodId` must be `{KEY_METHOD}`.{hint}")
        await self._engine.config.refresh()
        try:
            self._engine.resolve_target(self._engine.resolve_settings(EditorSettings()).settings)
        except ThinkLspError as error:
            raise AcpError(AUTHENTICATION_REQUIRED, f"{error} {SETUP_HINT}") from None
        return Reply({})

    async def create_session(self, params: Params) -> Reply:
        wanted = parse_params(NewSessionParams, params)
        await self._engine.config.refresh()
        folders = self._open_folders(wanted.cwd, wanted.additional_directories)
        stored = await self._engine.open_session(None, folders.key)
        session = self._build_session(stored.id, folders, wanted.mcp_servers)
        return await self._finish_opening(session, {"sessionId": stored.id})

    async def load_session(self, params: Params) -> Reply:
        session = await self._open_stored(params)
        await session.replay()
        return await self._finish_opening(session, {})

    async def resume_session(self, params: Params) -> Reply:
        return await self._finish_opening(await self._open_stored(params), {})

    async def _open_stored(self, params: Params) -> AcpSession:
        """Open a stored session. Raises AcpError for an unknown one; a new one is never created in its place."""
        wanted = parse_params(OpenSessionParams, params)
        await self._engine.config.refresh()
        folders = self._open_folders(wanted.cwd, wanted.additional_directories)
        try:
            await self._engine.store.get(wanted.session_id, folders.key)
        except SessionError:
            raise AcpError(RESOURCE_NOT_FOUND, _NO_STORED_SESSION) from None
        if await self._engine.store.find_in_use([wanted.session_id]):
            raise SessionError(_IN_USE)
        await self._close_opened(wanted.session_id)
        session = self._build_session(wanted.session_id, folders, wanted.mcp_servers)
        await session.settle_edits(asks_client=False)
        return session

    async def _finish_opening(self, session: AcpSession, result: dict[str, Any]) -> Reply:
        """Add a session to the open ones, and return the answer to the request that opens it."""
        described = await session.describe()
        await self._close_opened(session.id)
        self._sessions[session.id] = session
        for idle in list(self._sessions.values())[:-_MAX_READY]:
            idle.release_folders()
        return Reply(result | described, session.send_commands)

    async def _close_opened(self, session_id: str) -> None:
        """Close a session if it is open. Another request may open it meanwhile, so look again."""
        while (session := self._sessions.pop(session_id, None)) is not None:
            await session.close()

    def _open_folders(self, cwd: str, additional: Sequence[str]) -> SessionFolders:
        more = [check_directory(path, "additionalDirectories") for path in additional]
        return SessionFolders(check_directory(cwd, "cwd"), more, self._engine.user)

    def _build_session(self, session_id: str, folders: SessionFolders, servers: Sequence[McpServer]) -> AcpSession:
        client = SessionClient(self._peer, self._features, session_id)
        named = tuple(server.build_client_server() for server in servers)
        return AcpSession(OpenSession(self._engine, client, folders, self._edit_lock, named))

    async def list_sessions(self, params: Params) -> Reply:
        wanted = parse_params(ListSessionsParams, params)
        workspace = None if wanted.cwd is None else compute_workspace_key(path_to_uri(check_path(wanted.cwd, "cwd")))
        summaries = await self._engine.store.list_sessions(workspace)
        return Reply(build_page(summaries, wanted.cursor))

    async def delete_session(self, params: Params) -> Reply:
        """Delete a stored session. An unknown id succeeds, because a client may repeat the request."""
        session_id = parse_params(SessionParams, params).session_id
        await self._close_opened(session_id)
        known = {summary.id for summary in await self._engine.store.list_sessions(None)}
        if session_id in known:
            await self._engine.store.delete(session_id, None)
        self._engine.forget_session(session_id)
        return Reply({})

    async def close_session(self, params: Params) -> Reply:
        session_id = parse_params(SessionParams, params).session_id
        self._find(session_id)
        await self._close_opened(session_id)
        return Reply({})

    def prompt(self, params: Params) -> Awaitable[Reply]:
        wanted = parse_params(PromptParams, params)
        return self._find(wanted.session_id).begin_prompt(wanted.prompt)

    async def set_mode(self, params: Params) -> Reply:
        wanted = parse_params(SetModeParams, params)
        await self._find(wanted.session_id).set_mode(wanted.mode_id)
        return Reply({})

    async def set_config_option(self, params: Params) -> Reply:
        wanted = parse_params(SetConfigOptionParams, params)
        options = await self._find(wanted.session_id).set_option(wanted.config_id, wanted.value)
        return Reply({"configOptions": options})

    def cancel(self, params: Params) -> None:
        session_id = params.get("sessionId")
        session = self._sessions.get(session_id) if isinstance(session_id, str) else None
        if session is not None:
            session.cancel()

    def _find(self, session_id: str) -> AcpSession:
        session = self._sessions.get(session_id)
        if session is None:
            raise AcpError(RESOURCE_NOT_FOUND, _UNKNOWN_SESSION)
        return session

    async def close(self) -> None:
        """Close the engine. The peer has already cancelled the requests."""
        await self._engine.aclose()
