"""Stops the work on a session that another process has taken over."""

from __future__ import annotations

import asyncio
from types import TracebackType
from typing import Self

from thinklsp.core.errors import SessionError
from thinklsp.sessions.store import SessionStore

_LOST = "The turn was stopped, because another thinklsp has taken over its session. Open the session again."


class LeaseGuard:
    """An async context that is cancelled if the lease on the session is lost. It then raises SessionError."""

    def __init__(self, store: SessionStore, session_id: str) -> None:
        self._store = store
        self._session_id = session_id
        self._task: asyncio.Task[object] | None = None
        self._is_lost = False

    async def __aenter__(self) -> Self:
        self._task = asyncio.current_task()
        self._store.lease_watchers[self._session_id] = self._stop
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        del self._store.lease_watchers[self._session_id]
        # After another cancellation, for example by the user, the task stays cancelled.
        if self._is_lost and self._task is not None and not self._task.uncancel():
            raise SessionError(_LOST) from None

    def _stop(self) -> None:
        if not self._is_lost and self._task is not None:
            self._is_lost = True
            self._task.cancel()
