"""The session stores over SQLite: in memory, and in a file with a thread of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import TypeVar

from thinklsp.core.errors import SessionError
from thinklsp.sessions.database import PATIENCE, Opened, open_database
from thinklsp.sessions.failover import Failover
from thinklsp.sessions.folder import FileIds, leases_of
from thinklsp.sessions.holding import Holding
from thinklsp.sessions.sealing import Seals, Vault, load_seals
from thinklsp.sessions.session_cache import SessionCache
from thinklsp.sessions.store import SessionStore

_T = TypeVar("_T")
RETRY_SECONDS = 30.0


class MemoryStore(SessionStore):
    """Sessions for the life of the process: the same store over a database in memory, with no thread and no disk."""

    def _open(self) -> None:
        self._cache = SessionCache(Seals(protection="Nothing is written to disk."), self._problems)
        self._database = Failover(None, RETRY_SECONDS, self._cache, self._problems)
        self._holding = Holding()

    async def _run(self, work: Callable[[], _T]) -> _T:
        return self._work(work)

    async def aclose(self) -> None:
        self._close()
        self._is_open = False


class SqliteStore(SessionStore):
    """Sessions in `sessions/` of the state folder. One thread of its own does all that touches the disk.

    It may be made anywhere: the first call opens the database. `patience`: seconds to wait for another process.
    """

    def __init__(
        self,
        state_folder: str,
        *,
        patience: float = PATIENCE,
        retry_after: float = RETRY_SECONDS,
        vault: Callable[[], Vault] | None = None,
    ) -> None:
        super().__init__()
        self._state_folder = state_folder
        self._patience = patience
        self._retry_after = retry_after
        self._load_seals = load_seals if vault is None else partial(load_seals, vault)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="thinklsp-sessions")
        self._started = self._closed = False

    def _open(self) -> None:
        self._cache = SessionCache(self._load_seals(), self._problems)
        self._database = Failover(self._open_file, self._retry_after, self._cache, self._problems)
        leases = partial(leases_of, self._state_folder)
        self._holding = Holding(leases, lambda: self._database.file is not None)

    def _open_file(self, damaged: FileIds) -> Opened:
        return open_database(self._state_folder, self._patience, damaged=damaged)

    async def _run(self, work: Callable[[], _T]) -> _T:
        if self._closed:
            raise SessionError("The session store is closed. Start the server again.")
        if not self._started:
            # If no thread can be started, work that was handed in stays, and would be done later although it failed.
            self._thread.submit(lambda: None)
            self._started = True
        return await _wait_for(self._thread.submit(self._work, work))

    async def aclose(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._started:
            closing = self._thread.submit(self._close)
            self._thread.shutdown(wait=False)
            await _wait_for(closing)


async def _wait_for(work: Future[_T]) -> _T:
    """Return the result of the thread's work, which goes on if the caller is cancelled.

    This takes fewer rounds of the loop than `wrap_future` and a shield.
    """
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    work.add_done_callback(lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(done.set))
    await done.wait()
    return work.result()
