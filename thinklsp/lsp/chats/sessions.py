"""The sessions of this connection's workspace, as documents and choices see them: begun, found, chosen for.

What was chosen for a session is remembered here too, so that a look at a document never waits for the store.
"""

from __future__ import annotations

from collections import OrderedDict
from contextlib import suppress
from dataclasses import replace
from typing import Any

from thinklsp.core.errors import SessionError, ThinkLspError
from thinklsp.engine import Choices, Engine
from thinklsp.engine.cached_prefix import dropped_cache
from thinklsp.engine.choices import Status, choose, merged, status
from thinklsp.lsp.editor.snapshots import Snapshots
from thinklsp.sessions.session import Session
from thinklsp.settings import EditorSettings, Settings

_REMEMBERED = 1_000


class Sessions:
    """`choices` are those that the user made for no session in particular. Changed by commands only."""

    def __init__(self, engine: Engine, snapshots: Snapshots) -> None:
        self._engine = engine
        self._snapshots = snapshots
        self._remembered: OrderedDict[str, Choices | None] = OrderedDict()
        self.editor = EditorSettings()
        self.choices: Choices = {}

    async def begin(self) -> Session:
        return self._kept(await self._engine.session(None, self._snapshots.key))

    async def get(self, session_id: str) -> Session:
        """Raises SessionError for one that is unknown or belongs to another workspace."""
        return self._kept(await self._engine.session(session_id, self._snapshots.key))

    async def find(self, session_id: str) -> Session | None:
        """The session that a document names. `last` names none: a document that came with a repository must not find
        the user's newest one."""
        try:
            if session_id != "last":
                return await self.get(session_id)
        except SessionError:
            self._remember(session_id, None)
        return None

    async def choose(self, key: str, value: str | None, session_id: str | None) -> dict[str, Any]:
        """Effort, thinking or model: for a session, or for everything from now on. Without a value it only tells.

        Raises SettingsError for a value that is none of the choices, SessionError for a session that is not known.
        """
        session = None if session_id is None else await self.get(session_id)
        known = session or await self._newest()
        if known is not None:
            await self._recall_refusals(session, known)
        answer, made = choose(self._engine, self.editor, key, value, connection=self.choices, session=session)
        if made and known and (dropped := await self._dropped_cache(made, session, known)) is not None:
            answer["notice"] = " ".join(filter(None, (answer["notice"], dropped)))
        if made and session is not None:
            update = self._engine.store.update
            self._kept(await update(session.id, lambda now: replace(now, choices=merged(now.choices, made))))
            if not self._engine.is_busy(session.id):
                await self._engine.store.release(session.id)
        elif made:
            self.choices = merged(self.choices, made)
        return answer

    async def _newest(self) -> Session | None:
        try:
            return await self._engine.session("last", self._snapshots.key)
        except SessionError:
            return None

    async def _recall_refusals(self, session: Session | None, known: Session) -> None:
        """Learn what earlier processes found out, so that the answer tells what is sent. `known`: a stored session."""
        with suppress(ThinkLspError):
            settings = self._resolved(self.choices, {} if session is None else session.choices)
            await self._engine.recall_refusals(known.id, settings)

    async def _dropped_cache(self, made: Choices, session: Session | None, known: Session) -> str | None:
        """Return what the choice costs `known`: the session, or for a choice of none in particular the newest."""
        before = (self.choices, known.choices)
        by_session = (self.choices, merged(known.choices, made))
        after = (merged(self.choices, made), known.choices) if session is None else by_session
        try:
            then, now = (self._engine.sent(self._resolved(*chosen)) for chosen in (before, after))
        except ThinkLspError:
            return None
        return await dropped_cache(self._engine.store, known.id, then, now)

    def _resolved(self, connection: Choices, session: Choices) -> Settings:
        return self._engine.resolved(self.editor, ("choice", connection), ("session", session)).settings

    def is_remembered(self, session_id: str) -> bool:
        """Whether it has been looked for, and so what `status` says is right."""
        return session_id in self._remembered

    def is_known(self, session_id: str) -> bool:
        """Whether it was found when it was last looked for."""
        return self._remembered.get(session_id) is not None

    def status(self, session_id: str | None) -> Status | None:
        """What the next turn would use; from memory. None where no turn could begin."""
        chosen = None if session_id is None else self._remembered.get(session_id)
        return status(self._engine, self.editor, self.choices, chosen or {})

    def models(self) -> tuple[str, ...]:
        """Ids that `/model` takes; from memory."""
        settings = self._engine.resolved(self.editor, ("choice", self.choices)).settings
        return self._engine.model_choices(settings.provider)

    def _kept(self, session: Session) -> Session:
        self._remember(session.id, session.choices)
        return session

    def _remember(self, session_id: str, choices: Choices | None) -> None:
        self._remembered[session_id] = choices
        if len(self._remembered) > _REMEMBERED:
            self._remembered.popitem(last=False)
