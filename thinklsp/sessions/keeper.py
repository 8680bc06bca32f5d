"""The store inside its thread: sessions in use, leases, and which transaction does what. Nothing here awaits."""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from sqlite3 import Connection
from typing import NamedTuple

from thinklsp.core.errors import SessionError
from thinklsp.core.messages import Message
from thinklsp.core.remedies import Remedy
from thinklsp.core.usage import Usage
from thinklsp.sessions import archives, ledger, remedies, rows, spending
from thinklsp.sessions.database import Opened
from thinklsp.sessions.folder import FileIds, Leases, size_of
from thinklsp.sessions.holding import Holding
from thinklsp.sessions.ledger import Intent, LedgerEdit, Outcome, PlannedWrite, WrittenFile, WrittenTurn
from thinklsp.sessions.places import Places
from thinklsp.sessions.rows import Stored
from thinklsp.sessions.sealing import Seals
from thinklsp.sessions.session import Change, Session
from thinklsp.sessions.values import Archive, Archived, LastStep, Spent, Summary, UsageReport

_MOST_CACHED = 16
_UNKNOWN = "There is no such session in this workspace. Leave sessionId out to begin a new one."
_NONE_YET = "This workspace has no session yet. Leave sessionId out to begin one."
_DELETED = "This session was deleted while it was in use."


class _New(NamedTuple):
    """A session that nothing has been said in: it is not on disk yet."""

    session: Session
    created: int


class Keeper:
    """`opener` and `leases` None: everything is in memory and belongs to this process."""

    def __init__(
        self,
        opener: Callable[[FileIds], Opened] | None,
        leases: Callable[[], Leases] | None,
        seals: Seals,
        retry_after: float = 30.0,
    ) -> None:
        self._cached: dict[str, Stored] = {}
        self._new: dict[str, _New] = {}
        # The last revision of each session that this process wrote: another one means that somebody else was there.
        self._mine: dict[str, int] = {}
        self._seals = seals
        self._writer = secrets.token_hex(8)
        self.places = Places(opener, retry_after, self)
        self._holding = Holding(leases, lambda: self.places.file is not None)

    @property
    def protection(self) -> str:
        return self._seals.protection

    def close(self) -> None:
        self.places.close()
        self._holding.close()

    def look(self) -> None:
        """Notices a store that was taken away. Sessions at work are kept from other processes at the new one, too."""
        if self.places.look():
            self._holding.renew()

    def create(self, workspace: str) -> Session:
        session = Session(secrets.token_hex(16), workspace)
        self._new[session.id] = _New(session, self._moment())
        return session

    def get(self, session_id: str, workspace: str | None) -> Session:
        if session_id in self._new:
            session = self._new[session_id].session
        else:
            stored = self.places.read(session_id, lambda place: self._stored(place, session_id))
            if stored is None:
                raise SessionError(_UNKNOWN)
            session = stored.session
        if workspace is not None and session.workspace != workspace:
            raise SessionError(_UNKNOWN)
        return session

    def latest(self, workspace: str) -> Session:
        found = [
            (updated, session_id)
            for (session_id, updated), by_file in self.places.everywhere(lambda place: rows.newest(place, workspace))
            if not (by_file and session_id in self.places.moved)
        ]
        found += [(new.created, key) for key, new in self._new.items() if new.session.workspace == workspace]
        if not found:
            raise SessionError(_NONE_YET)
        return self.get(max(found)[1], workspace)

    def summaries(self, workspace: str | None) -> tuple[Summary, ...]:
        found = self.places.everywhere(lambda place: rows.summaries(place, workspace))
        present = [summary for summary, by_file in found if not (by_file and summary.id in self.places.moved)]
        return tuple(sorted(present, key=lambda summary: summary.updated, reverse=True))

    def update(self, session_id: str, change: Change, spent: Spent | None, day: date) -> Session:
        self._holding.work(session_id)

        def act(place: Connection) -> Stored:
            before, session = self._before(place, session_id)
            model = spent.model if spent is not None and spent.purpose == "step" else None
            stored = rows.write_session(place, before, _same(session, change(session)), self._seals, model)
            if spent is not None:
                spending.record(place, session_id, spent, day)
            return stored

        return self._remember(self.places.write(session_id, act)).session

    def compact(
        self, session_id: str, change: Change, note: str, spent: Spent | None, day: date
    ) -> tuple[Session, str]:
        self._holding.work(session_id)

        def act(place: Connection) -> tuple[Stored, str]:
            before, session = self._before(place, session_id)
            if before is None:
                raise SessionError("There is nothing to compact: nothing has been said in this session.")
            changed = _same(session, change(session))
            stored, archive_id = rows.replace_conversation(place, before, changed, self._seals, note)
            if spent is not None:
                spending.record(place, session_id, spent, day)
            return stored, archive_id

        stored, archive_id = self.places.write(session_id, act)
        return self._remember(stored).session, archive_id

    def restore(self, session_id: str, archive_id: str, fit: Callable[[Message], Message]) -> Session:
        self._holding.work(session_id)

        def act(place: Connection) -> Stored:
            old, session = self._before(place, session_id)
            if old is None:
                raise SessionError(archives.UNKNOWN_ARCHIVE)
            return archives.restore(place, old, archive_id, fit, self._seals, left_by_other=session is not old.session)

        return self._remember(self.places.write(session_id, act)).session

    def archives(self, session_id: str) -> tuple[Archive, ...]:
        return self.places.read(session_id, lambda place: archives.archives(place, session_id))

    def archived(self, session_id: str, archive_id: str) -> Archived:
        archive = next((archive for archive in self.archives(session_id) if archive.id == archive_id), None)
        if archive is None:
            raise SessionError(archives.UNKNOWN_ARCHIVE)
        return self.places.read(session_id, lambda place: archives.read_archive(place, archive, self._seals))

    def transcript(self, session_id: str, workspace: str | None) -> Session:
        now = self.get(session_id, workspace)
        return self.places.read(session_id, lambda place: archives.transcript(place, now, self._seals))

    def extent(self) -> tuple[int, int]:
        """How many sessions there are, and the bytes of the files that hold them."""
        count = sum(count for count, _ in self.places.everywhere(lambda place: [rows.count_sessions(place)]))
        return count, 0 if self.places.file is None else size_of(self.places.path)

    def fork(self, session_id: str, workspace: str | None, step: int | None) -> Session:
        session = self.get(session_id, workspace)
        new_id = secrets.token_hex(16)
        try:
            fork = session.forked(new_id, step)
        except ValueError:
            fork = self._forked_from_archive(session, new_id, step or 0)
        self._holding.work(new_id)

        def act(place: Connection) -> Stored:
            stored = rows.write_session(place, None, fork, self._seals)
            remedies.copy(place, session_id, new_id, rows.shared(session.conversation, fork.conversation))
            return stored

        self._remember(self.places.write(new_id, act))
        return fork

    def delete(self, session_id: str, workspace: str | None) -> None:
        if self._delete(session_id, workspace):
            self.places.erase_traces()

    def delete_all(self, session_ids: Sequence[str], workspace: str | None) -> dict[str, str | None]:
        done: dict[str, str | None] = {}
        stored = False
        for session_id in session_ids:
            done[session_id] = None
            try:
                stored = self._delete(session_id, workspace) or stored
            except SessionError as error:
                done[session_id] = str(error)
        if stored:
            self.places.erase_traces()
        return done

    def _delete(self, session_id: str, workspace: str | None) -> bool:
        """Whether it was stored anywhere. A session that is damaged can be deleted too, so it is not read."""
        stored = session_id not in self._new
        if stored:
            found = self.places.read(session_id, lambda place: rows.read_workspace(place, session_id))
            if found is None or workspace not in (None, found):
                raise SessionError(_UNKNOWN)
            self._holding.work(session_id)
            try:
                self.places.erase(session_id)
            except SessionError:
                self._holding.release(session_id)
                raise
        for known in (self._new, self._cached, self._mine):
            known.pop(session_id, None)
        self._holding.forget(session_id)
        return stored

    def release(self, session_id: str) -> None:
        self._holding.release(session_id)

    def record(self, session_id: str, spent: Spent, day: date) -> None:
        self.places.write(session_id, lambda place: spending.record(place, session_id, spent, day))

    def keep_remedy(self, session_id: str, service: str, remedy: Remedy) -> None:
        session = self.get(session_id, None)
        self.places.write(session_id, lambda place: remedies.write(place, session, service, remedy))

    def remedies(self, session_id: str, service: str) -> tuple[Remedy, ...]:
        session = self.get(session_id, None)
        return self.places.read(session_id, lambda place: tuple(remedies.read(place, session, service)))

    def usage(self, session_id: str | None) -> UsageReport:
        found = self.places.everywhere(lambda place: spending.sums(place, session_id))
        return spending.report(row for row, _ in found)

    def spent_on(self, day: date) -> Usage:
        return sum(
            (usage for usage, _ in self.places.everywhere(lambda place: [spending.spent_on(place, day)])), Usage()
        )

    def last_step(self, session_id: str) -> LastStep | None:
        return self.places.read(session_id, lambda place: spending.last_step(place, session_id))

    def in_use_elsewhere(self, session_ids: Sequence[str]) -> frozenset[str]:
        return frozenset(session_id for session_id in session_ids if not self._holding.is_free(session_id))

    def intend(
        self, session_id: str, workspace: str, turn_id: str, writes: Sequence[PlannedWrite], *, undo: bool = False
    ) -> Intent:
        self._holding.take(session_id)
        edit = LedgerEdit(Intent(secrets.token_hex(16), session_id), workspace, turn_id, ())
        self.places.write(session_id, lambda place: ledger.write_intent(place, edit, self._writer, writes, undo=undo))
        self._holding.wait(session_id, edit.intent.id)
        return edit.intent

    def settle(self, intent: Intent, outcomes: Mapping[str, Outcome], parts: Sequence[PlannedWrite] = ()) -> None:
        self.places.write(intent.session_id, lambda place: ledger.settle(place, intent, outcomes, parts))
        self._holding.settle(intent.session_id, intent.id)

    def unknown_edits(self, workspace: str) -> tuple[LedgerEdit, ...]:
        found = self.places.everywhere(
            lambda place: ledger.unsettled(place, workspace, self._writer, self._holding.is_free)
        )
        return tuple(edit for edit, by_file in found if not (by_file and edit.intent.session_id in self.places.moved))

    def last_written(self, workspace: str, turn_id: str | None, session_id: str | None) -> WrittenTurn | None:
        found = self.places.everywhere(
            lambda place: filter(None, [ledger.written(place, workspace, turn_id, session_id)])
        )
        present = [turn for turn, by_file in found if not (by_file and turn.session_id in self.places.moved)]
        return max(present, key=lambda turn: turn.edits[-1].entries[-1].made, default=None)

    def mark_undone(self, turn: WrittenTurn, uris: Iterable[str] | None) -> None:
        named = None if uris is None else frozenset(uris)
        self.places.write(turn.session_id, lambda place: ledger.mark_undone(place, turn, named))

    def written_files(self, workspace: str, since: datetime) -> tuple[WrittenFile, ...]:
        found = self.places.everywhere(lambda place: ledger.written_files(place, workspace, since))
        return tuple(sorted((file for file, _ in found), key=lambda file: file.made))

    def in_use(self) -> Iterable[str]:
        return tuple(self._cached)

    def written(self) -> Iterable[str]:
        return tuple(self._mine)

    def rescue(self, connection: Connection, session_id: str) -> None:
        known = self._cached.get(session_id)
        found = rows.read_session(connection, session_id, self._seals)
        if known is not None and known != found:
            self._remember(rows.write_session(connection, found, known.session, self._seals))

    def _moment(self) -> int:
        newest = max((new.created for new in self._new.values()), default=0)
        return max(newest, *(moment for moment, _ in self.places.everywhere(lambda place: [rows.moment(place)])), 0) + 1

    def _stored(self, place: Connection, session_id: str) -> Stored | None:
        """Read again only if somebody else has written it since."""
        revision = rows.read_revision(place, session_id)
        known = self._cached.get(session_id)
        if known is not None and known.revision == revision:
            return known
        stored = None if revision is None else rows.read_session(place, session_id, self._seals)
        if stored is None:
            self._cached.pop(session_id, None)
            return None
        if not stored.sound:
            self.places.say(
                f"Parts of the session “{stored.session.title}” were damaged or could not be decrypted. They are left "
                "out; all else is there."
            )
        return self._cache(stored)

    def _before(self, place: Connection, session_id: str) -> tuple[Stored | None, Session]:
        """What is stored, and the session as the change is to find it. Raises SessionError."""
        if session_id in self._new:
            return None, self._new[session_id].session
        stored = self._stored(place, session_id)
        if stored is None:
            raise SessionError(_DELETED)
        mine = self._mine.get(session_id) == stored.revision
        return stored, stored.session if mine else stored.session.recovered()

    def _remember(self, stored: Stored) -> Stored:
        """After a write."""
        self._new.pop(stored.session.id, None)
        self._mine[stored.session.id] = stored.revision
        return self._cache(stored)

    def _cache(self, stored: Stored) -> Stored:
        self._cached.pop(stored.session.id, None)
        self._cached[stored.session.id] = stored
        if len(self._cached) > _MOST_CACHED:
            del self._cached[next(iter(self._cached))]
        return stored

    def _forked_from_archive(self, session: Session, new_id: str, step: int) -> Session:
        earlier = self.places.read(
            session.id, lambda place: archives.before_compaction(place, session, step, self._seals)
        )
        try:
            if earlier is not None:
                return earlier.forked(new_id, step)
        except ValueError:
            pass
        raise SessionError(f"This session has no step {step} to fork at. Its steps are 0 to {session.steps}.")


def _same(before: Session, after: Session) -> Session:
    if (before.id, before.workspace) != (after.id, after.workspace):
        raise ValueError("a change keeps the id and the workspace of a session")
    return after
