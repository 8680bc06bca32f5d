"""A cache of the sessions that this process uses.

A session is read again only after another process has changed it.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from typing import NamedTuple

from thinklsp.core.bounded_dict import BoundedDict
from thinklsp.core.errors import SessionError
from thinklsp.core.messages import Message
from thinklsp.sessions import archives, session_rows, spending
from thinklsp.sessions.encryption import RowConnection
from thinklsp.sessions.session import Session, SessionChange
from thinklsp.sessions.session_rows import StoredSession
from thinklsp.sessions.spending import CallUsage

# With the images of their prompts, these sessions have at most about 100 MB.
_MAX_CACHED = 8
_MAX_REMEMBERED = 1_000
_DELETED = "This session was deleted while it was in use."
_NO_MESSAGES = "This session has no messages to compact."


class NewSession(NamedTuple):
    """A new session, which is not stored yet, with its creation time."""

    session: Session
    created: int


class SessionCache:
    """A cache of at most `max_sessions` sessions by id. Only the store's thread uses it.

    Messages about damaged sessions are added to `problems`.
    """

    def __init__(self, problems: dict[str, None], max_sessions: int = _MAX_CACHED) -> None:
        self._problems = problems
        # New sessions, which are stored only after their first change.
        self.new_sessions: dict[str, NewSession] = BoundedDict(_MAX_REMEMBERED)
        self.stored_sessions: dict[str, StoredSession] = BoundedDict(max_sessions)
        # The latest revision of each session that this process has written.
        self.revisions: dict[str, int] = BoundedDict(_MAX_REMEMBERED)

    def create(self, workspace: str, moment: int) -> Session:
        """Create a session. It is created no earlier than `moment`, and later than every session created before it."""
        created = max([moment, *(new.created + 1 for new in self.new_sessions.values())])
        session = Session(secrets.token_hex(16), workspace)
        self.new_sessions[session.id] = NewSession(session, created)
        return session

    def read(self, connection: RowConnection, session_id: str) -> StoredSession | None:
        """Read a session, or return None if it is not in the database."""
        revision = session_rows.read_revision(connection, session_id)
        cached = self.stored_sessions.get(session_id)
        if cached is not None and cached.revision == revision:
            return cached
        stored = None if revision is None else session_rows.read_session(connection, session_id)
        if stored is None:
            self.stored_sessions.pop(session_id, None)
            return None
        if not stored.is_sound:
            problem = f"Parts of the session “{stored.session.title}” are damaged or cannot be decrypted. The session "
            self._problems[f"{problem}continues without these parts."] = None
        return self._cache(stored)

    def _read_for_change(self, connection: RowConnection, session_id: str) -> tuple[StoredSession | None, Session]:
        """Return the stored session, which is None for a new session, and the session to change.

        If another process has exited during a turn, the session to change is recovered first.
        """
        if session_id in self.new_sessions:
            return None, self.new_sessions[session_id].session
        stored = self.read(connection, session_id)
        if stored is None:
            raise SessionError(_DELETED)
        is_mine = self.revisions.get(session_id) == stored.revision
        return stored, stored.session if is_mine else stored.session.recover()

    def apply_change(
        self,
        connection: RowConnection,
        session_id: str,
        change: SessionChange,
        call_usage: CallUsage | None,
        archive: tuple[str, str] | None = None,
    ) -> StoredSession:
        """Apply `change` to the session and store the result.

        `archive` contains the id and the note of an archive for the previous conversation.
        """
        before, session = self._read_for_change(connection, session_id)
        if archive is not None and before is None:
            raise SessionError(_NO_MESSAGES)
        changed = change(session)
        if (changed.id, changed.workspace) != (session.id, session.workspace):
            raise ValueError("a change must keep the id and the workspace of a session")
        if archive is not None and before is not None:
            stored = session_rows.replace_conversation(connection, before, changed, *archive)
        else:
            model = call_usage.model if call_usage is not None and call_usage.purpose == "step" else None
            stored = session_rows.write_session(connection, before, changed, model)
        if call_usage is not None:
            spending.record_usage(connection, session_id, call_usage)
        return stored

    def restore_archive(
        self, connection: RowConnection, session_id: str, archive_id: str, adapt: Callable[[Message], Message]
    ) -> StoredSession:
        """Restore the conversation of an archive and store the session."""
        before, session = self._read_for_change(connection, session_id)
        if before is None:
            raise SessionError(archives.UNKNOWN_ARCHIVE)
        left_by_other = session is not before.session
        return archives.restore_archive(connection, before, archive_id, adapt, left_by_other=left_by_other)

    def rescue(self, connection: RowConnection, session_id: str) -> None:
        """Write the cached session to a database, unless it contains the session or a newer version of it."""
        cached = self.stored_sessions.get(session_id)
        stored = session_rows.read_session(connection, session_id)
        is_newer = stored is not None and stored.is_sound and cached is not None and stored.revision > cached.revision
        if cached is not None and cached != stored and not is_newer:
            self.keep(session_rows.write_session(connection, stored, cached.session, least_revision=cached.revision))

    def keep(self, stored: StoredSession) -> Session:
        """Cache a session that this process has written."""
        self.new_sessions.pop(stored.session.id, None)
        self.revisions[stored.session.id] = stored.revision
        return self._cache(stored).session

    def forget(self, session_id: str) -> None:
        """Remove a session from the cache."""
        for sessions in (self.new_sessions, self.stored_sessions, self.revisions):
            sessions.pop(session_id, None)

    def _cache(self, stored: StoredSession) -> StoredSession:
        self.stored_sessions[stored.session.id] = stored
        return stored
