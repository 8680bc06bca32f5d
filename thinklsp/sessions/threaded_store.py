"""A session store whose database is used by a single thread."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

from thinklsp.core.errors import SessionError
from thinklsp.sessions.kept_texts import KeptTexts
from thinklsp.sessions.store import SessionStore

_T = TypeVar("_T")


class ThreadedStore(SessionStore):
    """A store with its own thread. The first call opens the database, so creating the store performs no I/O."""

    def __init__(self, kept_texts: KeptTexts) -> None:
        super().__init__(kept_texts)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="thinklsp-sessions")
        self._has_started = self._is_closed = False

    async def _run(self, work: Callable[[], _T]) -> _T:
        if self._is_closed:
            raise SessionError("The session store is closed. Restart the server.")
        if not self._has_started:
            # Start the thread with an empty function. If the thread cannot start, `submit` raises an error but still
            # queues the function, which would run later.
            self._thread.submit(lambda: None)
            self._has_started = True
        return await _wait_for(self._thread.submit(self._run_work, work))

    async def aclose(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._has_started:
            closing = self._thread.submit(self._close)
            self._thread.shutdown(wait=False)
            await _wait_for(closing)


async def _wait_for(work: Future[_T]) -> _T:
    """Wait for a function in the store's thread and return its result. Cancellation does not stop the function.

    This requires fewer event loop iterations than `wrap_future` with a shield.
    """
    loop, done = asyncio.get_running_loop(), asyncio.Event()
    work.add_done_callback(lambda _: None if loop.is_closed() else loop.call_soon_threadsafe(done.set))
    await done.wait()
    return work.result()
