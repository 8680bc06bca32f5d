"""The session store: its interface, its thread, and the code that does not depend on the database.

Callers use immutable sessions and pass changes to the store. When an awaited call returns, its effect has been
committed, even if the caller was cancelled. Every call may raise SessionError with a message for the user.
"""

from __future__ import annotations

import asyncio
import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial, wraps
from typing import Any, Concatenate, Literal, ParamSpec, Protocol, TypeVar

from thinklsp.core.errors import SessionError, StoreUnreachable
from thinklsp.core.events import Fallback
from thinklsp.core.messages import Message
from thinklsp.core.server_context import NO_OBSERVER, Observer
from thinklsp.sessions import archives, ledger, session_rows, spending, tables
from thinklsp.sessions.ledger import (
    EditIntent,
    LedgerEdit,
    PlannedWrite,
    WriteOutcome,
    WrittenTurn,
)
from thinklsp.sessions.session import Session, SessionChange
from thinklsp.sessions.session_cache import SessionCache
from thinklsp.sessions.session_rows import StoredSession
from thinklsp.sessions.spending import BudgetCap, CallUsage, CapReached
from thinklsp.sessions.store_folder import KeptTexts, Leases
from thinklsp.sessions.tables import SessionRows

_P = ParamSpec("_P")
_Store = TypeVar("_Store", bound="SessionStore")
_T = TypeVar("_T")
# A function that queries one session. Its first argument is a connection of the database.
SessionQuery = Callable[Concatenate[Any, str, _P], _T]
StoreKind = Literal["file", "read-only", "memory", "postgresql"]
_UNKNOWN = "This workspace has no such session. Omit `sessionId` to start a new one."
_NO_SESSION = "This workspace has no session yet. Omit `sessionId` to start one."
_CLOSED = "The session store is closed. Restart the server."
_DIFFERENT = "The copy differed from the original and was deleted. The original was not changed."


@dataclass(frozen=True, slots=True)
class StoreStatus:
    """The status of the session store, for `doctor`. If `kind` is `memory`, sessions are lost when the process exits.

    `place` is the path of the file or the address of the database. `protection` describes the encryption. `size` is the
    size of the store in bytes.
    """

    kind: StoreKind
    place: str
    protection: str
    problems: tuple[str, ...]
    sessions: int
    size: int


class SessionDatabase(Protocol):
    """Transactions on the rows of sessions, in the store's thread.

    Every call may raise SessionError with a message for the user.
    """

    @property
    def protection(self) -> str: ...

    @property
    def kind(self) -> StoreKind: ...

    @property
    def path(self) -> str: ...

    @property
    def size_bytes(self) -> int: ...

    def read(self, function: Callable[Concatenate[Any, _P], _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run a query in a transaction."""

    def write(self, function: SessionQuery[_P, _T], session_id: str, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Write to one session in one transaction. The function may run twice, so it must then have the same effect."""

    def write_as_holder(
        self, function: SessionQuery[_P, _T], session_id: str, *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Write like `write`, but only if this process still holds the lease on the session."""

    def delete(self, session_id: str) -> None:
        """Delete the rows of a session. Call `erase_traces` afterwards."""

    def erase_traces(self) -> None:
        """Erase the bytes of deleted rows."""

    def read_data_version(self) -> tuple[int, ...]:
        """Return a value that changes if another process or connection commits a transaction."""

    def follow_file(self) -> bool:
        """Return True if another program has removed or replaced the database file."""

    def close(self) -> None:
        """Close the database."""


def run_in_store(
    body: Callable[Concatenate[_Store, _P], _T],
) -> Callable[Concatenate[_Store, _P], Coroutine[Any, Any, _T]]:
    """Make a method async. Its body runs in the store's thread and completes before the next call starts.

    The call is reported to the observer, unless it was cancelled. A SessionError is an answer of the store, for example
    that the session is unknown or in use, unless the store is unreachable.
    """

    @wraps(body)
    async def method(self: _Store, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        began = time.perf_counter()
        try:
            result = await self._run(partial(body, self, *args, **kwargs))
        except Exception as error:
            is_answer = isinstance(error, SessionError) and not isinstance(error, StoreUnreachable)
            seconds = time.perf_counter() - began
            self.observer.report_store_call(body.__name__, seconds, "refused" if is_answer else "failed")
            raise
        self.observer.report_store_call(body.__name__, time.perf_counter() - began, "ok")
        return result

    return method


def run_query(
    function: Callable[Concatenate[Any, _P], _T],
) -> Callable[Concatenate[SessionStore, _P], Coroutine[Any, Any, _T]]:
    """Return an async method that runs a query. The first argument of `function` is a connection of the database."""

    @wraps(function)
    def body(store: SessionStore, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return store._database.read(function, *args, **kwargs)  # noqa: SLF001 - a method of the class

    return run_in_store(body)


async def _wait_for(work: Future[_T]) -> _T:
    """Wait for a function in the store's thread and return its result. Cancellation does not stop the function.

    This requires fewer event loop iterations than `wrap_future` with a shield.
    """
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    work.add_done_callback(lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(done.set))
    await done.wait()
    return work.result()


class SessionStore(ABC):
    """The session store. If a workspace is given, only the sessions of this workspace are accessible.

    Its calls run in a thread of the store, one after the other. The first call opens the database, so creating the
    store performs no I/O.
    """

    # The cache, the database and the leases are created and used only in the store's thread.
    _cache: SessionCache
    _database: SessionDatabase
    _leases: Leases
    observer: Observer = NO_OBSERVER
    # What the user should know after deleting a session, or an empty text.
    deletion_notice: str = ""

    def __init__(self, kept_texts: KeptTexts) -> None:
        self.kept_texts = kept_texts
        self._problems: dict[str, None] = {}
        self._is_open = False
        self._writer = secrets.token_hex(8)
        # Called in the event loop if another process has taken over the session.
        self.lease_watchers: dict[str, Callable[[], None]] = {}
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="thinklsp-sessions")
        self._has_started = self._is_closed = False

    @abstractmethod
    def _open(self) -> None:
        """Create the cache, the database and the leases."""

    async def _run(self, work: Callable[[], _T]) -> _T:
        """Run a function in the store's thread. The function continues even if the caller is cancelled."""
        if self._is_closed:
            raise SessionError(_CLOSED)
        if not self._has_started:
            # Start the thread with an empty function. If the thread cannot start, `submit` raises an error but still
            # queues the function, which would run later.
            self._thread.submit(lambda: None)
            self._has_started = True
        return await _wait_for(self._thread.submit(self._run_work, work))

    async def aclose(self) -> None:
        """Close the store. Sessions in memory are written to disk if possible."""
        if self._is_closed:
            return
        self._is_closed = True
        if self._has_started:
            closing = self._thread.submit(self._close)
            self._thread.shutdown(wait=False)
            await _wait_for(closing)

    def _run_work(self, work: Callable[[], _T]) -> _T:
        if not self._is_open:
            self._open()
            self._is_open = True
        self._follow_files()
        try:
            return work()
        finally:
            # If another program has removed the files, write the data again before the call returns.
            self._follow_files()

    def _follow_files(self) -> None:
        if self._database.follow_file():
            self._leases.renew()

    def _close(self) -> None:
        if self._is_open:
            self._database.close()
            self._leases.close()

    @property
    def problems(self) -> tuple[str, ...]:
        """All messages about problems for the user, oldest first and without duplicates."""
        return tuple(self._problems)

    list_sessions = run_query(session_rows.list_sessions)
    list_archives = run_query(archives.list_archives)
    read_archive = run_query(archives.read_archive)
    sum_day = run_query(spending.sum_day)
    report_usage = run_query(spending.report_usage)
    find_written_turn = run_query(ledger.find_written_turn)
    list_written_files = run_query(ledger.list_written_files)
    list_earlier_edits = run_query(ledger.list_earlier_edits)
    # The rows of a session, which a copy to another store reads.
    read_rows = run_query(tables.read_rows)

    @run_in_store
    def read_status(self) -> StoreStatus:
        database = self._database
        sessions = len(database.read(session_rows.list_sessions, None))
        return StoreStatus(
            database.kind, database.path, database.protection, self.problems, sessions, database.size_bytes
        )

    @run_in_store
    def create(self, workspace: str) -> Session:
        """Create a session. The session is stored with its first change."""
        return self._cache.create(workspace, self._database.read(session_rows.choose_timestamp))

    @run_in_store
    def get(self, session_id: str, workspace: str | None) -> Session:
        """Return the current version of a session."""
        return self._get(session_id, workspace)

    @run_in_store
    def find_latest(self, workspace: str) -> Session:
        """Return the session that was created or changed most recently."""
        uses = [
            (new.created, key) for key, new in self._cache.new_sessions.items() if new.session.workspace == workspace
        ]
        newest = max([*uses, *self._database.read(session_rows.find_newest, workspace)], default=None)
        if newest is None:
            raise SessionError(_NO_SESSION)
        return self._get(newest[1], workspace)

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
        """Return a new session with the first `step` steps, or with all steps if `step` is None.

        Steps that a compaction has replaced are also copied.
        """
        session = self._get(session_id, workspace)
        fork = self._database.read(archives.make_fork, session_id, session, step)
        return self._save(archives.write_fork, fork.id, session, fork)

    @run_in_store
    def read_transcript(self, session_id: str, workspace: str | None) -> Session:
        """Return the session with its full history, in which archived messages replace their summaries.

        The result is read-only.
        """
        session = self._get(session_id, workspace)
        return self._database.read(archives.read_transcript, session_id, session)

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
    def keep_fallback(self, session_id: str, service: str, fallback: Fallback) -> None:
        """Store a fallback that a turn of the session has used. `service` identifies the provider and its address."""
        conversation = self._get(session_id, None).conversation
        self._database.write(session_rows.write_fallback, session_id, conversation, service, fallback)

    @run_in_store
    def list_fallbacks(self, session_id: str, service: str) -> tuple[Fallback, ...]:
        """Return the fallbacks for the provider and for the session's conversation, oldest first."""
        return self._database.read(
            session_rows.read_fallbacks, session_id, self._get(session_id, None).conversation, service
        )

    @run_in_store
    def record_intent(
        self, session_id: str, workspace: str, turn_id: str, writes: Sequence[PlannedWrite], *, is_undo: bool = False
    ) -> EditIntent:
        """Store an edit before it is sent. If `is_undo` is true, the edit reverts earlier edits of the turn."""
        self._leases.take(session_id)
        intent = self._database.write_as_holder(
            ledger.write_intent, session_id, workspace, turn_id, writes, writer=self._writer, is_undo=is_undo
        )
        self._leases.hold_for_edit(session_id, intent.id)
        return intent

    @run_in_store
    def settle_edit(
        self, intent: EditIntent, outcomes: Mapping[str, WriteOutcome], parts: Sequence[PlannedWrite] = ()
    ) -> None:
        """Store the outcomes of an edit by URI. `parts` contains the changes of files that were only partly changed."""
        self._database.write(ledger.store_outcomes, intent.session_id, intent.id, outcomes, parts)
        self._leases.settle_edit(intent.session_id, intent.id)

    @run_in_store
    def list_unknown_edits(self, workspace: str) -> tuple[LedgerEdit, ...]:
        """Return edits with an unknown outcome from processes that have exited. The caller must settle these edits."""
        edits = self._database.read(ledger.list_unsettled, workspace, self._writer)
        in_use = self._leases.find_in_use({edit.session_id for edit in edits})
        return tuple(edit for edit in edits if edit.session_id not in in_use)

    @run_in_store
    def mark_undone(self, turn: WrittenTurn, uris: Iterable[str] | None = None) -> None:
        """Mark files of the turn as undone. If `uris` is None, all files are marked."""
        selected = None if uris is None else frozenset(uris)
        self._database.write(ledger.mark_undone, turn.session_id, turn.edits, selected)

    @run_in_store
    def write_rows(self, rows: SessionRows) -> bool:
        """Store the rows of a session, unless this store has the same or a newer revision of it.

        Returns True if the rows were stored.
        """
        self._leases.acquire(rows.session_id)
        try:
            return self._database.write_as_holder(tables.write_rows, rows.session_id, rows)
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


@dataclass(frozen=True, slots=True)
class CopyReport:
    """The numbers of copied sessions and of sessions that were already there, and an error for each other session."""

    copied: int
    present: int
    errors: Mapping[str, str]


async def copy_sessions(source: SessionStore, target: SessionStore) -> CopyReport:
    """Copy all sessions, read each copy back and compare it with the original.

    A session that the target has with the same or a newer revision is skipped. Raises SessionError if a store cannot be
    used.
    """
    await target.read_data_version()
    copied = present = 0
    errors: dict[str, str] = {}
    for summary in await source.list_sessions(None):
        try:
            rows = await source.read_rows(summary.id)
            if not await target.write_rows(rows):
                present += 1
            elif await target.read_rows(summary.id) == rows:
                copied += 1
            else:
                # Otherwise the next attempt would find the session in the target.
                await target.delete(summary.id, None)
                errors[summary.id] = _DIFFERENT
        except SessionError as error:
            errors[summary.id] = str(error)
    return CopyReport(copied, present, errors)
