"""Session stores that use SQLite, either in memory or in a file."""

from __future__ import annotations

import os
from collections.abc import Callable
from functools import partial
from typing import TypeVar

from thinklsp.sessions.database import LOCK_TIMEOUT_SECONDS, open_database
from thinklsp.sessions.encryption import MEMORY_PROTECTION, OpaqueCipher, Vault, load_cipher
from thinklsp.sessions.failover import Failover
from thinklsp.sessions.folder import LOCK_FOLDER
from thinklsp.sessions.kept_texts import KeptTexts
from thinklsp.sessions.leases import Leases
from thinklsp.sessions.session_cache import SessionCache
from thinklsp.sessions.session_cipher import StoreCipher
from thinklsp.sessions.store import SessionStore
from thinklsp.sessions.threaded_store import ThreadedStore

_T = TypeVar("_T")
RETRY_SECONDS = 30.0


class MemoryStore(SessionStore):
    """A store that keeps sessions in memory until the process exits. It uses neither a thread nor the disk."""

    def __init__(self) -> None:
        super().__init__(KeptTexts(None))

    def _open(self) -> None:
        self._cache = SessionCache(StoreCipher(OpaqueCipher(protection=MEMORY_PROTECTION)), self._problems)
        self._database = Failover(None, RETRY_SECONDS, self._cache, self._problems)
        self._leases = Leases()

    async def _run(self, work: Callable[[], _T]) -> _T:
        return self._run_work(work)

    async def aclose(self) -> None:
        self._close()
        self._is_open = False


class SqliteStore(ThreadedStore):
    """A store in a file in the state folder. A single thread accesses the file.

    The first call opens the database, so creating the store performs no I/O. `timeout_seconds` is the maximum time to
    wait for the lock of another process.
    """

    def __init__(
        self,
        state_folder: str,
        *,
        timeout_seconds: float = LOCK_TIMEOUT_SECONDS,
        retry_seconds: float = RETRY_SECONDS,
        vault: Callable[[], Vault] | None = None,
    ) -> None:
        super().__init__(KeptTexts(os.path.join(state_folder, "sessions", "texts")))
        self._state_folder = state_folder
        self._timeout_seconds = timeout_seconds
        self._retry_seconds = retry_seconds
        self._load_cipher = load_cipher if vault is None else partial(load_cipher, vault)

    def _open(self) -> None:
        self._cache = SessionCache(StoreCipher(self._load_cipher()), self._problems)
        open_file = partial(open_database, self._state_folder, self._timeout_seconds)
        database = Failover(open_file, self._retry_seconds, self._cache, self._problems)
        locks = os.path.join(self._state_folder, "sessions", LOCK_FOLDER)
        self._database = database
        self._leases = Leases(locks, lambda: database.file is not None)
