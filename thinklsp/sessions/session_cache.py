"""The sessions that one process works with. A stored session is read again only if another process has written it."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from sqlite3 import Connection
from typing import NamedTuple

from thinklsp.core.errors import SessionError
from thinklsp.core.messages import Message
from thinklsp.sessions import archives, rows, spending
from thinklsp.sessions.rows import Stored
from thinklsp.sessions.sealing import Seals
from thinklsp.sessions.session import Change, Session
from thinklsp.sessions.values import Spent

_MAX_CACHED = 16
_DELETED = "This session was deleted while it was in use."
_NOTHING_SAID = "There is nothing to compact: nothing has been said in this session."


class New(NamedTuple):
    session: Session
    created: int


class SessionCache:
    """Sessions by their ids, in the store's thread. `problems` gets a sentence for each session that is damaged."""

    def __init__(self, seals: Seals, problems: dict[str, None]) -> None:
        self.seals = seals
        self._problems = problems
        # Sessions that were never changed, and so are not stored yet.
        self.new: dict[str, New] = {}
        self.stored: dict[str, Stored] = {}
        # The revision that this process wrote last, of every session that it ever wrote.
        self.revisions: dict[str, int] = {}

    def create(self, workspace: str, moment: int) -> Session:
        """Begin a session that counts as created at `moment`, or later than all other new sessions."""
        created = max([moment, *(new.created + 1 for new in self.new.values())])
        session = Session(secrets.token_hex(16), workspace)
        self.new[session.id] = New(session, created)
        return session

    def read(self, connection: Connection, session_id: str) -> Stored | None:
        revision = rows.read_revision(connection, session_id)
        known = self.stored.get(session_id)
        if known is not None and known.revision == revision:
            return known
        stored = None if revision is None else rows.read_session(connection, session_id, self.seals)
        if stored is None:
            self.stored.pop(session_id, None)
            return None
        if not stored.sound:
            said = f"Parts of the session “{stored.session.title}” were damaged or could not be decrypted. They are "
            self._problems[f"{said}left out; all else is there."] = None
        return self._cache(stored)

    def _read_for_change(self, connection: Connection, session_id: str) -> tuple[Stored | None, Session]:
        """Return the stored session, and the session to change: recovered if another process left it in a turn."""
        if session_id in self.new:
            return None, self.new[session_id].session
        stored = self.read(connection, session_id)
        if stored is None:
            raise SessionError(_DELETED)
        is_mine = self.revisions.get(session_id) == stored.revision
        return stored, stored.session if is_mine else stored.session.recovered()

    def change(
        self,
        connection: Connection,
        session_id: str,
        change: Change,
        spent: Spent | None,
        archive: tuple[str, str] | None = None,
    ) -> Stored:
        """Write what `change` makes of the session. `archive`: id and note of an archive of the former conversation."""
        before, session = self._read_for_change(connection, session_id)
        if archive is not None and before is None:
            raise SessionError(_NOTHING_SAID)
        changed = change(session)
        if (changed.id, changed.workspace) != (session.id, session.workspace):
            raise ValueError("a change keeps the id and the workspace of a session")
        if archive is not None and before is not None:
            stored = rows.replace_conversation(connection, before, changed, self.seals, *archive)
        else:
            model = spent.model if spent is not None and spent.purpose == "step" else None
            stored = rows.write_session(connection, before, changed, self.seals, model)
        if spent is not None:
            spending.record(connection, session_id, spent)
        return stored

    def restore(
        self, connection: Connection, session_id: str, archive_id: str, fit: Callable[[Message], Message]
    ) -> Stored:
        """Write the session with an archive as its conversation."""
        before, session = self._read_for_change(connection, session_id)
        if before is None:
            raise SessionError(archives.UNKNOWN_ARCHIVE)
        left_by_other = session is not before.session
        return archives.restore(connection, before, archive_id, fit, self.seals, left_by_other=left_by_other)

    def rescue(self, connection: Connection, session_id: str) -> None:
        """Write the session as it is known to a database that has less of it, or nothing."""
        known = self.stored.get(session_id)
        found = rows.read_session(connection, session_id, self.seals)
        if known is not None and known != found:
            self.keep(rows.write_session(connection, found, known.session, self.seals))

    def keep(self, stored: Stored) -> Session:
        """Remember what this process has written."""
        self.new.pop(stored.session.id, None)
        self.revisions[stored.session.id] = stored.revision
        return self._cache(stored).session

    def forget(self, session_id: str) -> None:
        for known in (self.new, self.stored, self.revisions):
            known.pop(session_id, None)

    def _cache(self, stored: Stored) -> Stored:
        self.stored.pop(stored.session.id, None)
        self.stored[stored.session.id] = stored
        if len(self.stored) > _MAX_CACHED:
            del self.stored[next(iter(self.stored))]
        return stored
