"""The engine for a client connection and the objects that use it. They are created after the reply to `initialize`."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from thinklsp.engine import Engine
from thinklsp.engine.instructions import FoundSkills, find_all_skills
from thinklsp.engine.session_stores import open_session_store
from thinklsp.engine.turn_config import Preferences
from thinklsp.engine.workspace_sessions import WorkspaceSessions
from thinklsp.lsp.chats.chat import ChatDocuments
from thinklsp.lsp.chats.chat_context import FileNames
from thinklsp.lsp.chats.chat_outline import find_session_id
from thinklsp.lsp.documents.open_documents import Document
from thinklsp.lsp.editor.connection_state import ConnectionState
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.lsp.edits.edit_applier import EditApplier
from thinklsp.lsp.edits.edit_ledger import EditLedger
from thinklsp.lsp.edits.pending_edits import OfferedEdit
from thinklsp.lsp.turns.turn_registry import TurnRegistry
from thinklsp.settings.sources import CheckedSettings, EditorSettings

# The minimum interval between two checks of the user's settings file, and the delay before each check.
_CHECK_INTERVAL_SECONDS = 1.0
_CHECK_DELAY_SECONDS = 0.1


class Assistant:
    """The central object of a connection. It creates the engine and keeps the settings up to date."""

    def __init__(self, state: ConnectionState, checked: CheckedSettings) -> None:
        self.state = state
        self._checked_settings = checked
        store = open_session_store(state.environment, state.identity)
        store.observer = state.observer
        self.engine = Engine(state.environment, store, identity=state.identity)
        self.settings = self.engine.resolve_settings(EditorSettings()).settings
        workspace = self.engine.user.file.workspace
        self.snapshots = Snapshots(state, workspace.allow_protected, workspace.allow_home, workspace.extra_roots)
        self.ledger = EditLedger(state, self.snapshots, self.engine)
        self.edit_applier = EditApplier(state, self.snapshots, self.ledger)
        self.preferences = Preferences()
        self.sessions = WorkspaceSessions(self.engine, lambda: self.snapshots.key, self.preferences)
        self.chat = ChatDocuments(state, self.snapshots, self.sessions)
        self.file_names = FileNames(state, self.snapshots)
        self.turns = TurnRegistry(state, self.engine, self.preferences, self.edit_applier, self._on_turn_change)
        self._reported_problems = 0
        self._user, self._last_check = self.engine.user, 0.0
        self.engine.config.on_change = self._on_user_file_change
        checked.report_problems(self.engine.user)
        self._resolve()

    def configure(self, raw: object) -> None:
        """Apply new editor settings, which replace earlier choices. Errors and ignored values are reported once."""
        before = self.preferences.editor.values
        self._checked_settings.configure(raw, self.engine.user)
        self._resolve()
        now, choices = self.preferences.editor.values, self.preferences.choices
        self.preferences.choices = {key: value for key, value in choices.items() if now.get(key) == before.get(key)}
        self.refresh_lenses()

    def _resolve(self) -> None:
        self._user, self.preferences.editor = self.engine.user, self._checked_settings.editor
        self.settings = self.engine.resolve_settings(self.preferences.editor).settings
        self.chat.suffix = self.settings.chat.file_suffix

    def schedule_refresh(self) -> None:
        """Schedule a background check for changes to the user's settings file."""
        loop = asyncio.get_running_loop()
        if loop.time() - self._last_check > _CHECK_INTERVAL_SECONDS:
            self._last_check = loop.time()
            loop.call_later(_CHECK_DELAY_SECONDS, self._start_refresh)

    def _start_refresh(self) -> None:
        if not self.state.is_stopped:
            self.state.spawn(self.refresh())

    async def refresh(self) -> None:
        """Reload the user's settings file if it has changed."""
        await self.engine.config.refresh()

    def _on_user_file_change(self, problems: Sequence[str]) -> None:
        for problem in problems:
            self.state.client.show_message("warning", problem)
        if self.engine.user is not self._user:
            self._resolve()
            self.refresh_lenses()

    def _on_turn_change(self) -> None:
        self.report_store_problems()
        self.refresh_lenses()

    def report_store_problems(self) -> None:
        """Report new problems with the store. Each problem is reported only once."""
        problems = self.engine.store.problems
        for problem in problems[self._reported_problems :]:
            self.state.client.show_message("warning", problem)
        self._reported_problems = len(problems)

    async def find_skills(self) -> FoundSkills:
        """Find the user's own skills and those of the open folders, whether the user trusts them or not."""
        view = self.snapshots.create_disk_view(is_quiet=True)
        return await asyncio.to_thread(find_all_skills, view, self.engine.user.path)

    def find_pending_edits(self, uri: str) -> list[OfferedEdit]:
        """Return the pending edits for a document."""
        offers = self.edit_applier.pending_edits.find_offers(uri)
        if self.edit_applier.pending_edits.list_applied():
            self.state.spawn(self.edit_applier.settle_applied())
        return offers

    def look_up_session(self, document: Document) -> None:
        """Look up the session that a chat document names, unless it is cached. Then refresh the code lenses."""
        session_id = find_session_id(document.lines)
        if session_id is not None and not self.sessions.is_remembered(session_id):
            self.state.spawn(self._look_up(session_id))

    async def _look_up(self, session_id: str) -> None:
        await self.sessions.find(session_id)
        self.refresh_lenses()

    def refresh_lenses(self) -> None:
        """Refresh the code lenses if a chat document is open."""
        if not self.state.is_stopped and any(
            self.chat.is_chat(document.uri) for document in self.state.documents.list_documents()
        ):
            self.state.refresh_lenses()

    async def close(self) -> None:
        await self.engine.aclose()
