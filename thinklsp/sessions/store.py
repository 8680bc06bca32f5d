"""The session store. This module contains the interface and the code that does not depend on the database.

Callers use immutable sessions and pass changes to the store. When an awaited call returns, its effect has been
committed, even if the caller was cancelled. Every call may raise SessionError with a message for the user.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import date, datetime
from operator import attrgetter
from typing import ParamSpec

from thinklsp.core.errors import SessionError
from thinklsp.core.events import Fallback
from thinklsp.core.messages import Message
from thinklsp.core.usage import Usage
from thinklsp.sessions import archives, earlier_edits, edit_rows, fallback_rows, row_copies, session_rows, spending
from thinklsp.sessions.archives import Archive, ArchivedConversation
from thinklsp.sessions.budget_caps import BudgetCap, CapReached
from thinklsp.sessions.earlier_edits import EarlierEdit
from thinklsp.sessions.ledger import EditIntent, LedgerEdit, PlannedWrite, WriteOutcome, WrittenFile, WrittenTurn
from thinklsp.sessions.row_copies import SessionRows
from thinklsp.sessions.session import Session, SessionChange, SessionSummary
from thinklsp.sessions.session_database import SessionQuery, StoreStatus
from thinklsp.sessions.session_rows import StoredSession
from thinklsp.sessions.spending import CallUsage, LastStep, UsageReport
from thinklsp.sessions.store_base import StoreBase, run_in_store

_P = ParamSpec("_P")
_UNKNOWN = "This workspace has no such session. Omit `sessionId` to start a new one."
_NO_SESSION = "This workspace has no session yet. Omit `sessionId` to start one."


class SessionStore(StoreBase):
    """The session store. If a workspace is given, only the sessions of this workspace are accessible."""

    @run_in_store
    def read_status(self) -> StoreStatus:
        database, cipher = self._database, self._cache.cipher
        sessions = len(database.read_all(session_rows.list_summaries, None, cipher))
        return StoreStatus(
            database.kind, database.path, cipher.protection, self.problems, sessions, database.size_bytes
        )

    @run_in_store
    def create(self, workspace: str) -> Session:
        """Create a session. The session is stored with its first change."""
        return self._cache.create(workspace, max(self._database.read_each(session_rows.choose_timestamp), default=0))

    @run_in_store
    def get(self, session_id: str, workspace: str | None) -> Session:
        """Return the current version of a session."""
        return self._get(session_id, workspace)

    @run_in_store
    def find_latest(self, workspace: str) -> Session:
        """Return the session that was created or changed most recently."""
        uses = [(use.updated, use.session_id) for use in self._database.read_all(session_rows.list_newest, workspace)]
        uses += [
            (new.created, key) for key, new in self._cache.new_sessions.items() if new.session.workspace == workspace
        ]
        if not uses:
            raise SessionError(_NO_SESSION)
        return self._get(max(uses)[1], workspace)

    @run_in_store
    def list_sessions(self, workspace: str | None) -> tuple[SessionSummary, ...]:
        """Return the sessions that have content, newest first."""
        summaries = self._database.read_all(session_rows.list_summaries, workspace, self._cache.cipher)
        return tuple(sorted(summaries, key=attrgetter("updated"), reverse=True))

    @run_in_store
    def update(self, session_id: str, change: SessionChange, call_usage: CallUsage | None = None) -> Session:
        """Apply `change` to the current session and store the result, so that no concurrent change is lost.

        `change` must be a pure function, because it runs in the store's thread and may run twice. If it raises an
        exception, the session stays unchanged. `call_usage` is stored in the same transaction. Raises SessionError if
        another process is using the session.
        """
        return self._save(self._cache.apply_change, session_id, change, call_usage)

    @run_in_store
    def compact(
        self, session_id: str, change: SessionChange, note: str, call_usage: CallUsage | None = None
    ) -> tuple[Session, str]:
        """Replace the conversation with a shorter one, and archive the previous conversation.

        Both changes are stored in one transaction. Returns the session and the id of the archive.
        """
        archive_id = secrets.token_hex(16)
        return self._save(self._cache.apply_change, session_id, change, call_usage, (archive_id, note)), archive_id

    @run_in_store
    def restore_archive(self, session_id: str, archive_id: str, adapt: Callable[[Message], Message]) -> Session:
        """Restore the conversation of an archive, and delete this archive and all later archives.

        Later messages are kept after `adapt`, a pure function, has been applied to each of them. Messages from before a
        repair are restored unchanged, even if providers reject them.
        """
        return self._save(self._cache.restore_archive, session_id, archive_id, adapt)

    @run_in_store
    def fork(self, session_id: str, workspace: str | None, step: int | None = None) -> Session:
        """Return a new session with the first `step` steps, or with all steps if `step` is None. Steps that a
        compaction has replaced are also copied."""
        session, cipher = self._get(session_id, workspace), self._cache.cipher
        fork = self._database.read(archives.make_fork, session_id, session, step, cipher)
        return self._save(archives.write_fork, fork.id, session, fork, cipher)

    @run_in_store
    def list_archives(self, session_id: str) -> tuple[Archive, ...]:
        """Return the archives of a session, oldest first."""
        return self._database.read(archives.list_archives, session_id, self._cache.cipher)

    @run_in_store
    def read_archive(self, session_id: str, archive_id: str) -> ArchivedConversation:
        """Return an archive with its conversation."""
        return self._database.read(archives.read_archive, session_id, archive_id, self._cache.cipher)

    @run_in_store
    def read_transcript(self, session_id: str, workspace: str | None) -> Session:
        """Return the session with its full history, in which archived messages replace their summaries.

        The result is read-only.
        """
        session = self._get(session_id, workspace)
        return self._database.read(archives.read_transcript, session_id, session, self._cache.cipher)

    @run_in_store
    def delete(self, session_id: str, workspace: str | None) -> None:
        """Delete a session and erase its bytes on disk. Its usage still counts towards the day's total."""
        if self._delete(session_id, workspace):
            self._database.erase_traces()

    @run_in_store
    def delete_all(self, session_ids: Sequence[str], workspace: str | None) -> Mapping[str, str | None]:
        """Delete several sessions. Return an error message for each session, or None if the session was deleted."""
        errors: dict[str, str | None] = {}
        stored = False
        for session_id in session_ids:
            errors[session_id] = None
            try:
                stored = self._delete(session_id, workspace) or stored
            except SessionError as error:
                errors[session_id] = str(error)
        if stored:
            self._database.erase_traces()
        return errors

    @run_in_store
    def check_lease(self, session_id: str) -> None:
        """Raise SessionError if another process has taken over a session that this process is using."""
        self._leases.check(session_id)

    @run_in_store
    def reserve_budget(self, session_id: str, usd: float, caps: Sequence[BudgetCap]) -> CapReached | None:
        """Reserve the cost of a model call until its usage is stored or the session is released.

        Returns a cap that the call would exceed, or None. Raises SessionError like `check_lease`.
        """
        return self._leases.reserve(session_id, usd, caps)

    @run_in_store
    def release(self, session_id: str) -> None:
        """Release the lease on a session, so that other processes can use the session."""
        self._leases.release(session_id)

    @run_in_store
    def find_in_use(self, session_ids: Sequence[str]) -> frozenset[str]:
        """Return the ids of the sessions that another process is using."""
        return self._leases.find_in_use(session_ids)

    @run_in_store
    def record_usage(self, session_id: str, call_usage: CallUsage) -> None:
        """Store the usage of a model call that does not change the session."""
        self._database.write(spending.record_usage, session_id, call_usage)

    @run_in_store
    def report_usage(self, session_id: str | None) -> UsageReport:
        """Return the usage of one session, or of all sessions if `session_id` is None."""
        return spending.build_report(self._database.read_each(spending.sum_usage, session_id))

    @run_in_store
    def sum_day(self, day: date) -> Usage:
        """Return the usage of all processes on the given UTC day."""
        return sum(self._database.read_each(spending.sum_day, day), Usage())

    @run_in_store
    def find_last_step(self, session_id: str) -> LastStep | None:
        """Return the newest step of a session."""
        return self._database.read(spending.find_last_step, session_id)

    @run_in_store
    def keep_fallback(self, session_id: str, service: str, fallback: Fallback) -> None:
        """Store a fallback that a turn of the session has used. `service` identifies the provider and its address."""
        conversation = self._get(session_id, None).conversation
        self._database.write(fallback_rows.write_fallback, session_id, conversation, service, fallback)

    @run_in_store
    def list_fallbacks(self, session_id: str, service: str) -> tuple[Fallback, ...]:
        """Return the fallbacks for the provider and for the session's conversation, oldest first."""
        return self._database.read(
            fallback_rows.read_fallbacks, session_id, self._get(session_id, None).conversation, service
        )

    @run_in_store
    def record_intent(
        self, session_id: str, workspace: str, turn_id: str, writes: Sequence[PlannedWrite], *, is_undo: bool = False
    ) -> EditIntent:
        """Store an edit before it is sent. If `is_undo` is true, the edit reverts earlier edits of the turn."""
        self._leases.take(session_id)
        intent = self._database.write_as_holder(
            edit_rows.write_intent,
            session_id,
            workspace,
            turn_id,
            writes,
            self._cache.cipher,
            writer=self._writer,
            is_undo=is_undo,
        )
        self._leases.hold_for_edit(session_id, intent.id)
        return intent

    @run_in_store
    def settle_edit(
        self, intent: EditIntent, outcomes: Mapping[str, WriteOutcome], parts: Sequence[PlannedWrite] = ()
    ) -> None:
        """Store the outcomes of an edit by URI. `parts` contains the changes of files that were only partly changed."""
        self._database.write(
            edit_rows.store_outcomes, intent.session_id, intent.id, outcomes, parts, self._cache.cipher
        )
        self._leases.settle_edit(intent.session_id, intent.id)

    @run_in_store
    def list_unknown_edits(self, workspace: str) -> tuple[LedgerEdit, ...]:
        """Return edits with an unknown outcome from processes that have exited. The caller must settle these edits."""
        edits = self._database.read_all(edit_rows.list_unsettled, workspace, self._writer, self._cache.cipher)
        in_use = self._leases.find_in_use({edit.session_id for edit in edits})
        return tuple(edit for edit in edits if edit.session_id not in in_use)

    @run_in_store
    def find_written_turn(
        self, workspace: str, turn_id: str | None = None, session_id: str | None = None
    ) -> WrittenTurn | None:
        """Return the turn to undo: the turn with this id, or the newest turn if `turn_id` is None."""
        turns = self._database.read_all(edit_rows.find_written_turn, workspace, turn_id, session_id, self._cache.cipher)
        return max(turns, key=lambda turn: turn.edits[-1].entries[-1].created, default=None)

    @run_in_store
    def mark_undone(self, turn: WrittenTurn, uris: Iterable[str] | None = None) -> None:
        """Mark files of the turn as undone. If `uris` is None, all files are marked."""
        selected = None if uris is None else frozenset(uris)
        self._database.write(edit_rows.mark_undone, turn.session_id, turn.edits, selected)

    @run_in_store
    def list_written_files(self, workspace: str, since: datetime) -> tuple[WrittenFile, ...]:
        """Return the files that turns have written after `since`, oldest first, also the undone ones."""
        files = self._database.read_all(edit_rows.list_written_files, workspace, since, self._cache.cipher)
        return tuple(sorted(files, key=lambda file: file.created))

    @run_in_store
    def list_earlier_edits(
        self, workspace: str, uris: Sequence[str], since: datetime, limit: int
    ) -> tuple[EarlierEdit, ...]:
        """Return the newest edits that were recorded for a file since a time, oldest first."""
        where = (workspace, uris, since, limit, self._cache.cipher)
        edits = self._database.read_all(edit_rows.list_file_edits, *where)
        return earlier_edits.describe_edits(
            edits[-limit:],
            lambda session, turns: self._database.read(earlier_edits.read_answers, session, turns, self._cache.cipher),
        )

    @run_in_store
    def read_rows(self, session_id: str) -> SessionRows:
        """Return all rows of a session, to copy them to another store."""
        return self._database.read(row_copies.read_rows, session_id, self._cache.cipher)

    @run_in_store
    def write_rows(self, rows: SessionRows) -> bool:
        """Store the rows of a session, unless this store has the same or a newer revision of it. Returns True if the
        rows were stored."""
        self._leases.acquire(rows.session_id)
        try:
            return self._database.write_as_holder(row_copies.write_rows, rows.session_id, rows, self._cache.cipher)
        finally:
            self._leases.release(rows.session_id)
            self._cache.forget(rows.session_id)

    @run_in_store
    def read_data_version(self) -> tuple[int, ...]:
        """Return a value that changes if another process or connection writes to the file."""
        return self._database.read_data_version()

    def _get(self, session_id: str, workspace: str | None) -> Session:
        new = self._cache.new_sessions.get(session_id)
        stored = new or self._database.read(self._cache.read, session_id)
        if stored is None or workspace not in (None, stored.session.workspace):
            raise SessionError(_UNKNOWN)
        return stored.session

    def _save(
        self, write: SessionQuery[_P, StoredSession], session_id: str, *args: _P.args, **kwargs: _P.kwargs
    ) -> Session:
        """Acquire the lease on a session and store the session."""
        self._leases.acquire(session_id)
        return self._cache.keep(self._database.write_as_holder(write, session_id, *args, **kwargs))

    def _delete(self, session_id: str, workspace: str | None) -> bool:
        """Delete a session without reading it, because it may be damaged. Return True if the session was stored."""
        stored = session_id not in self._cache.new_sessions
        if stored:
            stored_workspace = self._database.read(session_rows.read_workspace, session_id)
            if stored_workspace is None or workspace not in (None, stored_workspace):
                raise SessionError(_UNKNOWN)
            self._leases.acquire(session_id)
            try:
                self._database.delete(session_id)
            except SessionError:
                self._leases.release(session_id)
                raise
        self.kept_texts.forget(session_id)
        self._cache.forget(session_id)
        self._leases.forget(session_id)
        return stored
