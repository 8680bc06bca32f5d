"""The parts of a session that a client has opened."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from thinklsp.acp.config_options import AcpMode, list_modes
from thinklsp.acp.edit_writer import EditWriter
from thinklsp.acp.session_client import SessionClient
from thinklsp.acp.session_folders import ClientFiles, SessionFolders
from thinklsp.engine import Engine
from thinklsp.engine.slash_answers import SlashAnswers
from thinklsp.engine.turn_config import Preferences
from thinklsp.engine.workspace_sessions import WorkspaceSessions
from thinklsp.mcp_client.server_entries import ClientServer


class OpenSession:
    """The parts of a session. `id` is the id of the stored session, and `workspace` the key of its workspace.

    `mode` can change during a turn: a stricter mode counts at once for edits. `notices` wait for the next turn.
    `unapplied` describes the edits of earlier turns that are not in the files, for the model. `servers` are the MCP
    servers that the client names.
    """

    def __init__(
        self,
        engine: Engine,
        client: SessionClient,
        folders: SessionFolders,
        edit_lock: asyncio.Lock,
        servers: tuple[ClientServer, ...],
    ) -> None:
        self.engine = engine
        self.client = client
        self.folders = folders
        self.servers = servers
        self.mode: AcpMode = "edit"
        self.notices: list[str] = [*engine.user.problems, *folders.problems]
        self.unapplied: list[str] = []
        self.shown_title = ""
        self.files = ClientFiles(client, folders)
        get_workspace: Callable[[], str] = lambda: folders.key  # noqa: E731 - a constant for two objects
        self.sessions = WorkspaceSessions(engine, get_workspace, Preferences())
        self.slash_answers = SlashAnswers(self.sessions, engine, get_workspace)
        writes_disk = engine.user.file.acp.write_disk
        self.writer = EditWriter(client, folders, self.files, engine.store, edit_lock, writes_disk=writes_disk)
        self._reported_problems = 0

    @property
    def id(self) -> str:
        return self.client.session_id

    @property
    def workspace(self) -> str:
        return self.folders.key

    @property
    def modes(self) -> tuple[AcpMode, ...]:
        """The modes that the client may choose."""
        return list_modes(allows_auto=self.engine.user.file.acp.allow_auto)

    def choose_mode(self, mode: AcpMode) -> None:
        """Set the mode. That also ends the permission for all edits, because the user expects to be asked again."""
        self.mode = mode
        self.writer.allows_all = False

    def take_notices(self) -> list[str]:
        """Return the notices that the user has not seen, with new problems of the store."""
        problems = self.engine.store.problems
        notices = [*self.notices, *problems[self._reported_problems :]]
        self.notices, self._reported_problems = [], len(problems)
        return notices
