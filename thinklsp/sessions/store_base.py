"""How the calls of a session store run: one after the other, with the store opened by the first of them."""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine
from functools import partial, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from thinklsp.core.server_context import NO_OBSERVER, Observer
from thinklsp.sessions.kept_texts import KeptTexts
from thinklsp.sessions.observed_calls import observe_call
from thinklsp.sessions.session_cache import SessionCache
from thinklsp.sessions.session_database import SessionDatabase, SessionLeases

_P = ParamSpec("_P")
_Store = TypeVar("_Store", bound="StoreBase")
_T = TypeVar("_T")


def run_in_store(
    body: Callable[Concatenate[_Store, _P], _T],
) -> Callable[Concatenate[_Store, _P], Coroutine[Any, Any, _T]]:
    """Make a method async. Its body runs in the store's thread and completes before the next call starts."""

    @wraps(body)
    async def method(self: _Store, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        with observe_call(self.observer, body.__name__):
            return await self._run(partial(body, self, *args, **kwargs))

    return method


class StoreBase(ABC):
    """The components of a session store and the order of its calls."""

    # The cache, the database and the leases are created and used only in the store's thread.
    _cache: SessionCache
    _database: SessionDatabase
    _leases: SessionLeases
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

    @abstractmethod
    def _open(self) -> None:
        """Create the components of the store."""

    @abstractmethod
    async def _run(self, work: Callable[[], _T]) -> _T:
        """Run a function in the store's thread. The function continues even if the caller is cancelled."""

    @abstractmethod
    async def aclose(self) -> None:
        """Close the store. Sessions in memory are written to disk if possible."""

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
