"""The session store: its interface, and its calls whatever the engine.

The store is the sole owner of sessions; others hold values and hand back changes. What an awaited call has returned is
committed. A change that has begun runs to its end, even if its caller is cancelled. Every call raises SessionError with
a sentence. A new query is a function of SQL (`rows`, `ledger`, `spending`, …) and a method here.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from datetime import date, datetime
from functools import partial, wraps
from operator import attrgetter
from typing import Any, Concatenate, ParamSpec, TypeVar

from thinklsp.core.errors import SessionError
from thinklsp.core.messages import Message
from thinklsp.core.remedies import Remedy
from thinklsp.core.usage import Usage
from thinklsp.sessions import archives, ledger, remedies, rows, spending
from thinklsp.sessions.failover import Failover, OfOne
from thinklsp.sessions.holding import Holding
from thinklsp.sessions.ledger import Intent, LedgerEdit, Outcome, PlannedWrite, WrittenFile, WrittenTurn
from thinklsp.sessions.rows import Stored
from thinklsp.sessions.session import Change, Session
from thinklsp.sessions.session_cache import SessionCache
from thinklsp.sessions.values import Archive, Archived, Condition, LastStep, Spent, Summary, UsageReport

_P = ParamSpec("_P")
_T = TypeVar("_T")
_UNKNOWN = "There is no such session in this workspace. Leave sessionId out to begin a new one."
_NONE_YET = "This workspace has no session yet. Leave sessionId out to begin one."


def run_in_store(
    body: Callable[Concatenate[SessionStore, _P], _T],
) -> Callable[Concatenate[SessionStore, _P], Coroutine[Any, Any, _T]]:
    """Make an async method: its body runs in the store's thread, to its end, and nothing else runs there meanwhile."""

    @wraps(body)
    async def method(self: SessionStore, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await self._run(partial(body, self, *args, **kwargs))

    return method


class SessionStore(ABC):
    """A session is found only from its own workspace; workspace None is for the user's own terminal and finds all."""

    # The first call makes them, in the store's thread; nothing else touches them.
    _cache: SessionCache
    _database: Failover
    _holding: Holding

    def __init__(self) -> None:
        self._problems: dict[str, None] = {}
        self._is_open = False
        self._writer = secrets.token_hex(8)

    @abstractmethod
    def _open(self) -> None:
        """Make the parts of the store."""

    @abstractmethod
    async def _run(self, work: Callable[[], _T]) -> _T:
        """Call `_work` in the store's thread. The work goes on if the caller is cancelled."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the store. What waits in memory is written if the disk allows it."""

    def _work(self, work: Callable[[], _T]) -> _T:
        if not self._is_open:
            self._open()
            self._is_open = True
        self._follow_files()
        try:
            return work()
        finally:
            # If the files were taken away meanwhile, what was written is saved before the caller hears of it.
            self._follow_files()

    def _follow_files(self) -> None:
        if self._database.follow_file():
            self._holding.renew()

    def _close(self) -> None:
        if self._is_open:
            self._database.close()
            self._holding.close()

    @property
    def problems(self) -> tuple[str, ...]:
        """Sentences for people, in the order in which they came up, each once. They only grow."""
        return tuple(self._problems)

    @run_in_store
    def condition(self) -> Condition:
        """Return how the store is."""
        database, seals = self._database, self._cache.seals
        sessions = len(database.read_all(rows.list_summaries, None))
        return Condition(database.kind, database.path, seals.protection, self.problems, sessions, database.size)

    @run_in_store
    def create(self, workspace: str) -> Session:
        """Begin a session. It is kept in memory until its first change."""
        return self._cache.create(workspace, max(self._database.read_each(rows.find_moment), default=0))

    @run_in_store
    def get(self, session_id: str, workspace: str | None) -> Session:
        """Return a session as it is now."""
        return self._get(session_id, workspace)

    @run_in_store
    def latest(self, workspace: str) -> Session:
        """Return the session that was created or changed last."""
        found = [(use.updated, use.session_id) for use in self._database.read_all(rows.list_newest, workspace)]
        found += [(new.created, key) for key, new in self._cache.new.items() if new.session.workspace == workspace]
        if not found:
            raise SessionError(_NONE_YET)
        return self._get(max(found)[1], workspace)

    @run_in_store
    def list(self, workspace: str | None) -> tuple[Summary, ...]:
        """Return the sessions in which something was said, newest first."""
        found = self._database.read_all(rows.list_summaries, workspace)
        return tuple(sorted(found, key=attrgetter("updated"), reverse=True))

    @run_in_store
    def update(self, session_id: str, change: Change, spent: Spent | None = None) -> Session:
        """Replace the session by what `change` makes of it now, so that no update is lost. A step is acknowledged only
        when this has returned.

        `change` must be pure: it runs in the store's thread, and again if the first try fails. What it raises changes
        nothing and is raised here. Refused while another process works on the session. A session that a process left
        in the middle of a turn is first recovered. `spent` is recorded in the same transaction.
        """
        return self._save(self._cache.change, session_id, change, spent)

    @run_in_store
    def compact(self, session_id: str, change: Change, note: str, spent: Spent | None = None) -> tuple[Session, str]:
        """Do as `update`, for a change that replaces the conversation by a shorter one. In the same transaction the
        former conversation becomes an archive, whose id is returned too."""
        archive_id = secrets.token_hex(16)
        return self._save(self._cache.change, session_id, change, spent, (archive_id, note)), archive_id

    @run_in_store
    def restore(self, session_id: str, archive_id: str, fit: Callable[[Message], Message]) -> Session:
        """Make an archive the conversation again, followed by what was said since; delete it and later archives.

        `fit` must be pure: it is applied to each message that was said since, in the store's thread. What a repair has
        replaced comes back as it was, even if no service accepts it.
        """
        return self._save(self._cache.restore, session_id, archive_id, fit)

    @run_in_store
    def fork(self, session_id: str, workspace: str | None, step: int | None = None) -> Session:
        """Return a new session that knows what this one knew after `step` steps (None: all), also from before a
        compaction."""
        session, seals = self._get(session_id, workspace), self._cache.seals
        fork = self._database.read(archives.make_fork, session_id, session, step, seals)
        return self._save(archives.write_fork, fork.id, session, fork, seals)

    @run_in_store
    def archives(self, session_id: str) -> tuple[Archive, ...]:
        """Return the archives of a session, oldest first."""
        return self._database.read(archives.list_archives, session_id)

    @run_in_store
    def archived(self, session_id: str, archive_id: str) -> Archived:
        """Return an archive with its conversation."""
        return self._database.read(archives.read_archive, session_id, archive_id, self._cache.seals)

    @run_in_store
    def transcript(self, session_id: str, workspace: str | None) -> Session:
        """Return the session with all that was ever said in it, to be read and not to be continued: the conversations
        that compactions have replaced stand in the place of their summaries."""
        session = self._get(session_id, workspace)
        return self._database.read(archives.read_transcript, session_id, session, self._cache.seals)

    @run_in_store
    def delete(self, session_id: str, workspace: str | None) -> None:
        """Delete a session for good: no byte of it stays. What it has cost still counts for the day."""
        if self._delete(session_id, workspace):
            self._database.erase_traces()

    @run_in_store
    def delete_all(self, session_ids: Sequence[str], workspace: str | None) -> Mapping[str, str | None]:
        """Delete many sessions. Return None for each that was deleted, or the sentence why it was not."""
        done: dict[str, str | None] = {}
        stored = False
        for session_id in session_ids:
            done[session_id] = None
            try:
                stored = self._delete(session_id, workspace) or stored
            except SessionError as error:
                done[session_id] = str(error)
        if stored:
            self._database.erase_traces()
        return done

    @run_in_store
    def release(self, session_id: str) -> None:
        """Let other processes work on the session."""
        self._holding.release(session_id)

    @run_in_store
    def in_use(self, session_ids: Sequence[str]) -> frozenset[str]:
        """Return the sessions that another process works on now."""
        return frozenset(session_id for session_id in session_ids if not self._holding.is_free(session_id))

    @run_in_store
    def record(self, session_id: str, spent: Spent) -> None:
        """Record a model call that belongs to no change of the session."""
        self._database.write(spending.record, session_id, spent)

    @run_in_store
    def usage(self, session_id: str | None) -> UsageReport:
        """Return the sums of a session; None: of all sessions."""
        return spending.make_report(self._database.read_each(spending.sum_usage, session_id))

    @run_in_store
    def spent_on(self, day: date) -> Usage:
        """Return what all processes have spent on a UTC day."""
        return sum(self._database.read_each(spending.sum_day, day), Usage())

    @run_in_store
    def last_step(self, session_id: str) -> LastStep | None:
        """Return the newest step of a session."""
        return self._database.read(spending.find_last_step, session_id)

    @run_in_store
    def keep_remedy(self, session_id: str, service: str, remedy: Remedy) -> None:
        """Keep what the session's turn found out about a service, which is known by its name."""
        conversation = self._get(session_id, None).conversation
        self._database.write(remedies.write, session_id, conversation, service, remedy)

    @run_in_store
    def remedies(self, session_id: str, service: str) -> tuple[Remedy, ...]:
        """Return what is known of the service and of this conversation there, in the order in which it was found."""
        return self._database.read(remedies.read, session_id, self._get(session_id, None).conversation, service)

    @run_in_store
    def intend(
        self, session_id: str, workspace: str, turn_id: str, writes: Sequence[PlannedWrite], *, undo: bool = False
    ) -> Intent:
        """Store an edit before it is sent. `undo`: it takes back what the turn wrote."""
        self._holding.take(session_id)
        intent = self._database.write(
            ledger.write_intent, session_id, workspace, turn_id, writes, writer=self._writer, undo=undo
        )
        self._holding.wait(session_id, intent.id)
        return intent

    @run_in_store
    def settle(self, intent: Intent, outcomes: Mapping[str, Outcome], parts: Sequence[PlannedWrite] = ()) -> None:
        """Store what the editor made of an edit: the outcome by URI, and the parts of files that were written."""
        self._database.write(ledger.settle, intent.session_id, intent.id, outcomes, parts)
        self._holding.settle(intent.session_id, intent.id)

    @run_in_store
    def unknown_edits(self, workspace: str) -> tuple[LedgerEdit, ...]:
        """Return edits of processes that are gone, of which it is unknown whether they arrived. To be settled once the
        user was told."""
        found = self._database.read_all(ledger.list_unsettled, workspace, self._writer)
        return tuple(edit for edit in found if self._holding.is_free(edit.session_id))

    @run_in_store
    def last_written(
        self, workspace: str, turn_id: str | None = None, session_id: str | None = None
    ) -> WrittenTurn | None:
        """Return what an undo needs: the newest turn that wrote and was not undone, of the session or of all, or the
        named one."""
        found = self._database.read_all(ledger.find_written, workspace, turn_id, session_id)
        return max(found, key=lambda turn: turn.edits[-1].entries[-1].made, default=None)

    @run_in_store
    def mark_undone(self, turn: WrittenTurn, uris: Iterable[str] | None = None) -> None:
        """Mark all files of the turn as undone, or the named ones."""
        named = None if uris is None else frozenset(uris)
        self._database.write(ledger.mark_undone, turn.session_id, turn.edits, named)

    @run_in_store
    def written_files(self, workspace: str, since: datetime) -> tuple[WrittenFile, ...]:
        """Return what turns have written since then and nobody has undone, oldest first."""
        found = self._database.read_all(ledger.list_written_files, workspace, since)
        return tuple(sorted(found, key=attrgetter("made")))

    def _get(self, session_id: str, workspace: str | None) -> Session:
        new = self._cache.new.get(session_id)
        found = new or self._database.read(self._cache.read, session_id)
        if found is None or workspace not in (None, found.session.workspace):
            raise SessionError(_UNKNOWN)
        return found.session

    def _save(self, write: OfOne[_P, Stored], session_id: str, *args: _P.args, **kwargs: _P.kwargs) -> Session:
        """Write a session on which no other process works."""
        self._holding.work(session_id)
        return self._cache.keep(self._database.write(write, session_id, *args, **kwargs))

    def _delete(self, session_id: str, workspace: str | None) -> bool:
        """Return whether the session was stored. It is not read, so that a damaged session can be deleted too."""
        stored = session_id not in self._cache.new
        if stored:
            found = self._database.read(rows.read_workspace, session_id)
            if found is None or workspace not in (None, found):
                raise SessionError(_UNKNOWN)
            self._holding.work(session_id)
            try:
                self._database.delete(session_id)
            except SessionError:
                self._holding.release(session_id)
                raise
        self._cache.forget(session_id)
        self._holding.forget(session_id)
        return stored
