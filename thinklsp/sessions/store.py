"""Where sessions live. The store is their sole owner: others hold values and hand back new ones."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import Protocol

from thinklsp.core.errors import SessionError
from thinklsp.sessions.session import Session


class SessionStore(Protocol):
    """A session is found only from its own workspace. Every method raises SessionError with a sentence."""

    def create(self, workspace: str) -> Session: ...

    def get(self, session_id: str, workspace: str) -> Session: ...

    def latest(self, workspace: str) -> Session: ...

    def update(self, session_id: str, change: Callable[[Session], Session]) -> Session:
        """Replaces the session by what `change` makes of it now, so that no update is lost. A step is acknowledged
        only when this has returned."""
        ...


class MemoryStore:
    """Sessions for the life of the process."""

    def __init__(self) -> None:
        self._sessions: dict[str, Session] = {}

    def create(self, workspace: str) -> Session:
        session = Session(secrets.token_hex(16), workspace)
        self._sessions[session.id] = session
        return session

    def get(self, session_id: str, workspace: str) -> Session:
        session = self._sessions.get(session_id)
        if session is None or session.workspace != workspace:
            raise SessionError("There is no such session in this workspace. Leave sessionId out to begin a new one.")
        return session

    def latest(self, workspace: str) -> Session:
        for session in reversed(self._sessions.values()):
            if session.workspace == workspace:
                return session
        raise SessionError("This workspace has no session yet. Leave sessionId out to begin one.")

    def update(self, session_id: str, change: Callable[[Session], Session]) -> Session:
        stored = self._sessions.pop(session_id, None)
        if stored is None:
            raise SessionError("This session was deleted while it was in use.")
        # Put back at the end: the newest one stands last, which is what `latest` looks for.
        self._sessions[session_id] = stored
        self._sessions[session_id] = change(stored)
        return self._sessions[session_id]
