"""The sessions of a connection's workspace, and the choices that the user makes for them.

The choices for recent sessions are cached, so that document features never wait for the store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace

from thinklsp.core.errors import SessionError, ThinkLspError
from thinklsp.engine.engine import Engine
from thinklsp.engine.results import Result
from thinklsp.engine.turn_config import Choices, Preferences, describe_cache_loss
from thinklsp.engine.user_choices import StatusLine, choose, describe_status, merge_choices
from thinklsp.sessions.session import Session
from thinklsp.settings.model import Settings

_MAX_REMEMBERED = 1_000


class WorkspaceSessions:
    """The sessions of a workspace.

    `get_workspace` returns the key of the workspace. `preferences` contains the editor settings and the choices made
    outside a session.
    """

    def __init__(self, engine: Engine, get_workspace: Callable[[], str], preferences: Preferences) -> None:
        self._engine = engine
        self._preferences = preferences
        self._get_workspace = get_workspace
        self._choices_by_session: OrderedDict[str, Choices | None] = OrderedDict()

    async def create(self) -> Session:
        return self._remember_session(await self._engine.open_session(None, self._get_workspace()))

    async def get(self, session_id: str) -> Session:
        """Return a session. Raises SessionError if the session does not exist or belongs to another workspace."""
        return self._remember_session(await self._engine.open_session(session_id, self._get_workspace()))

    async def find(self, session_id: str) -> Session | None:
        """Return the session that a document names, or None if it does not exist.

        The name `last` is rejected. Otherwise, a document in a repository could access the user's newest session.
        """
        try:
            if session_id != "last":
                return await self.get(session_id)
        except SessionError:
            self._remember_choices(session_id, None)
        return None

    async def choose(self, key: str, value: str | None, session_id: str | None) -> Result:
        """Set the effort, thinking or model for a session, or for all later turns outside a session.

        If no value is given, only return the current value. Raises SettingsError for an invalid value, and SessionError
        if the session does not exist.
        """
        session = None if session_id is None else await self.get(session_id)
        affected = session or await self._find_newest()
        if affected is not None:
            await self._load_fallbacks(session, affected)
        editor, choices = self._preferences.editor, self._preferences.choices
        answer, new_choices = choose(self._engine, editor, key, value, connection=choices, session=session)
        if (
            new_choices
            and affected
            and (cache_notice := await self._check_cache_loss(new_choices, session, affected)) is not None
        ):
            answer["notice"] = " ".join(filter(None, (answer["notice"], cache_notice)))
        if new_choices and session is not None:
            update = self._engine.store.update
            self._remember_session(
                await update(session.id, lambda now: replace(now, choices=merge_choices(now.choices, new_choices)))
            )
            if not self._engine.claims.is_busy(session.id):
                await self._engine.store.release(session.id)
        elif new_choices:
            self._preferences.choices = merge_choices(self._preferences.choices, new_choices)
        return answer

    async def _find_newest(self) -> Session | None:
        try:
            return await self._engine.open_session("last", self._get_workspace())
        except SessionError:
            return None

    async def _load_fallbacks(self, session: Session | None, stored: Session) -> None:
        """Load the fallbacks that earlier processes stored for a session.

        Fallbacks affect the effective settings. `stored` is the session from the store.
        """
        with suppress(ThinkLspError):
            settings = self._resolve_settings(self._preferences.choices, {} if session is None else session.choices)
            await self._engine.load_fallbacks(stored.id, settings)

    async def _check_cache_loss(self, new_choices: Choices, session: Session | None, affected: Session) -> str | None:
        """Return a notice if the new choices invalidate the prompt cache of the `affected` session."""
        before = (self._preferences.choices, affected.choices)
        by_session = (self._preferences.choices, merge_choices(affected.choices, new_choices))
        after = (
            (merge_choices(self._preferences.choices, new_choices), affected.choices) if session is None else by_session
        )
        try:
            then, now = (
                self._engine.plan_sent_settings(self._resolve_settings(*choices)) for choices in (before, after)
            )
        except ThinkLspError:
            return None
        return await describe_cache_loss(self._engine.store, affected.id, then, now)

    def _resolve_settings(self, connection: Choices, session: Choices) -> Settings:
        return self._engine.resolve_settings(
            self._preferences.editor, ("choice", connection), ("session", session)
        ).settings

    def is_remembered(self, session_id: str) -> bool:
        """Return True if the session has been looked up, so that its choices are cached."""
        return session_id in self._choices_by_session

    def is_known(self, session_id: str) -> bool:
        """Return True if the last lookup found the session."""
        return self._choices_by_session.get(session_id) is not None

    def describe_status(self, session_id: str | None) -> StatusLine | None:
        """Return the settings of the next turn, or None if a turn cannot start. This method does not read the store."""
        choices = None if session_id is None else self._choices_by_session.get(session_id)
        return describe_status(self._engine, self._preferences.editor, self._preferences.choices, choices or {})

    def list_models(self) -> tuple[str, ...]:
        """Return the model ids that `/model` accepts. This method does not read the store."""
        settings = self._engine.resolve_settings(
            self._preferences.editor, ("choice", self._preferences.choices)
        ).settings
        return self._engine.list_model_choices(settings.provider)

    def _remember_session(self, session: Session) -> Session:
        self._remember_choices(session.id, session.choices)
        return session

    def _remember_choices(self, session_id: str, choices: Choices | None) -> None:
        self._choices_by_session[session_id] = choices
        if len(self._choices_by_session) > _MAX_REMEMBERED:
            self._choices_by_session.popitem(last=False)
