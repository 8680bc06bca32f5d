"""The two stores that keep the promises of `contract`: in memory, and in a file with a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import date, datetime
from functools import partial
from typing import TypeVar

from thinklsp.core.errors import SessionError
from thinklsp.core.messages import Message
from thinklsp.core.remedies import Remedy
from thinklsp.core.usage import Usage
from thinklsp.sessions.contract import Condition
from thinklsp.sessions.database import PATIENCE, Opened, open_database
from thinklsp.sessions.folder import FileIds, Leases, leases_of
from thinklsp.sessions.keeper import Keeper
from thinklsp.sessions.ledger import Intent, LedgerEdit, Outcome, PlannedWrite, WrittenFile, WrittenTurn
from thinklsp.sessions.sealing import Seals, Vault, load_seals
from thinklsp.sessions.session import Change, Session
from thinklsp.sessions.spending import utc_today
from thinklsp.sessions.values import Archive, Archived, LastStep, Spent, Summary, UsageReport

_T = TypeVar("_T")
RETRY_AFTER = 30.0


class _Store:
    """Every call is a job for the keeper. Where jobs run is what the two stores differ in."""

    def __init__(self) -> None:
        self._keeper: Keeper | None = None

    def _make(self) -> Keeper:
        raise NotImplementedError

    async def _run(self, job: Callable[[Keeper], _T]) -> _T:
        raise NotImplementedError

    def _do(self, job: Callable[[Keeper], _T]) -> _T:
        if self._keeper is None:
            self._keeper = self._make()
        self._keeper.look()
        try:
            return job(self._keeper)
        finally:
            # What was written meanwhile to a file without a name is brought away before anybody hears that it is kept.
            self._keeper.look()

    async def create(self, workspace: str) -> Session:
        return await self._run(lambda keeper: keeper.create(workspace))

    async def get(self, session_id: str, workspace: str | None) -> Session:
        return await self._run(lambda keeper: keeper.get(session_id, workspace))

    async def latest(self, workspace: str) -> Session:
        return await self._run(lambda keeper: keeper.latest(workspace))

    async def update(self, session_id: str, change: Change, spent: Spent | None = None) -> Session:
        day = utc_today()
        return await self._run(lambda keeper: keeper.update(session_id, change, spent, day))

    async def list(self, workspace: str | None) -> tuple[Summary, ...]:
        return await self._run(lambda keeper: keeper.summaries(workspace))

    async def delete(self, session_id: str, workspace: str | None) -> None:
        await self._run(lambda keeper: keeper.delete(session_id, workspace))

    async def delete_all(self, session_ids: Sequence[str], workspace: str | None) -> Mapping[str, str | None]:
        return await self._run(lambda keeper: keeper.delete_all(session_ids, workspace))

    async def fork(self, session_id: str, workspace: str | None, step: int | None = None) -> Session:
        return await self._run(lambda keeper: keeper.fork(session_id, workspace, step))

    async def release(self, session_id: str) -> None:
        await self._run(lambda keeper: keeper.release(session_id))

    async def compact(
        self, session_id: str, change: Change, note: str, spent: Spent | None = None
    ) -> tuple[Session, str]:
        day = utc_today()
        return await self._run(lambda keeper: keeper.compact(session_id, change, note, spent, day))

    async def archives(self, session_id: str) -> tuple[Archive, ...]:
        return await self._run(lambda keeper: keeper.archives(session_id))

    async def archived(self, session_id: str, archive_id: str) -> Archived:
        return await self._run(lambda keeper: keeper.archived(session_id, archive_id))

    async def transcript(self, session_id: str, workspace: str | None) -> Session:
        return await self._run(lambda keeper: keeper.transcript(session_id, workspace))

    async def restore(self, session_id: str, archive_id: str, fit: Callable[[Message], Message]) -> Session:
        return await self._run(lambda keeper: keeper.restore(session_id, archive_id, fit))

    async def record(self, session_id: str, spent: Spent) -> None:
        day = utc_today()
        await self._run(lambda keeper: keeper.record(session_id, spent, day))

    async def keep_remedy(self, session_id: str, service: str, remedy: Remedy) -> None:
        await self._run(lambda keeper: keeper.keep_remedy(session_id, service, remedy))

    async def remedies(self, session_id: str, service: str) -> tuple[Remedy, ...]:
        return await self._run(lambda keeper: keeper.remedies(session_id, service))

    async def usage(self, session_id: str | None) -> UsageReport:
        return await self._run(lambda keeper: keeper.usage(session_id))

    async def last_step(self, session_id: str) -> LastStep | None:
        return await self._run(lambda keeper: keeper.last_step(session_id))

    async def in_use(self, session_ids: Sequence[str]) -> frozenset[str]:
        return await self._run(lambda keeper: keeper.in_use_elsewhere(session_ids))

    async def spent_on(self, day: date) -> Usage:
        return await self._run(lambda keeper: keeper.spent_on(day))

    async def intend(
        self, session_id: str, workspace: str, turn_id: str, writes: Sequence[PlannedWrite], *, undo: bool = False
    ) -> Intent:
        return await self._run(lambda keeper: keeper.intend(session_id, workspace, turn_id, writes, undo=undo))

    async def settle(self, intent: Intent, outcomes: Mapping[str, Outcome], parts: Sequence[PlannedWrite] = ()) -> None:
        await self._run(lambda keeper: keeper.settle(intent, outcomes, parts))

    async def unknown_edits(self, workspace: str) -> tuple[LedgerEdit, ...]:
        return await self._run(lambda keeper: keeper.unknown_edits(workspace))

    async def last_written(
        self, workspace: str, turn_id: str | None = None, session_id: str | None = None
    ) -> WrittenTurn | None:
        return await self._run(lambda keeper: keeper.last_written(workspace, turn_id, session_id))

    async def mark_undone(self, turn: WrittenTurn, uris: Iterable[str] | None = None) -> None:
        await self._run(lambda keeper: keeper.mark_undone(turn, uris))

    async def written_files(self, workspace: str, since: datetime) -> tuple[WrittenFile, ...]:
        return await self._run(lambda keeper: keeper.written_files(workspace, since))

    @property
    def problems(self) -> tuple[str, ...]:
        return () if self._keeper is None else tuple(self._keeper.places.problems)

    async def condition(self) -> Condition:
        def look(keeper: Keeper) -> Condition:
            places = keeper.places
            extent = keeper.extent()
            return Condition(places.kind, places.path, keeper.protection, tuple(places.problems), *extent)

        return await self._run(look)


class MemoryStore(_Store):
    """Sessions for the life of the process: the same store over a database in memory, with no thread and no disk."""

    def _make(self) -> Keeper:
        return Keeper(None, None, Seals(protection="Nothing is written to disk."))

    async def _run(self, job: Callable[[Keeper], _T]) -> _T:
        return self._do(job)

    async def aclose(self) -> None:
        if self._keeper is not None:
            self._keeper.close()
        self._keeper = None


class SqliteStore(_Store):
    """Sessions in `sessions/` of the state folder. One thread of its own does all that touches the disk.

    It may be made anywhere: the first call opens the database. `patience`: seconds to wait for another process.
    """

    def __init__(
        self,
        state_folder: str,
        *,
        patience: float = PATIENCE,
        retry_after: float = RETRY_AFTER,
        vault: Callable[[], Vault] | None = None,
    ) -> None:
        super().__init__()
        self._open: Callable[[FileIds], Opened] = lambda damaged: open_database(state_folder, patience, damaged=damaged)
        self._leases: Callable[[], Leases] = partial(leases_of, state_folder)
        self._seals = load_seals if vault is None else partial(load_seals, vault)
        self._retry_after = retry_after
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="thinklsp-sessions")
        self._started = self._closed = False

    def _make(self) -> Keeper:
        return Keeper(self._open, self._leases, self._seals(), self._retry_after)

    async def _run(self, job: Callable[[Keeper], _T]) -> _T:
        if self._closed:
            raise SessionError("The session store is closed. Start the server again.")
        if not self._started:
            # Where no thread can be started what was handed in stays, and would be done later although it has failed.
            self._thread.submit(lambda: None)
            self._started = True
        return await _outcome(self._thread.submit(self._do, job))

    async def aclose(self) -> None:
        """What waits in memory is written if the disk lets it."""
        if self._closed:
            return
        self._closed = True
        if self._started:
            closing = self._thread.submit(self._close)
            self._thread.shutdown(wait=False)
            await _outcome(closing)

    def _close(self) -> None:
        if self._keeper is not None:
            self._keeper.close()


async def _outcome(work: Future[_T]) -> _T:
    """What the thread's work comes to; it goes on where the caller is cancelled. It takes fewer rounds of the loop than
    `wrap_future` and a shield."""
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    work.add_done_callback(lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(done.set))
    await done.wait()
    return work.result()
