"""The input of the user that a server asks for during a call."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

from thinklsp.mcp_client.call_result import Elicit

MAX_ROUNDS = 3
_LOG = logging.getLogger(__name__)


class CallInput:
    """The questions of one call and the call's time limit, which does not count the time that the user needs."""

    def __init__(self, elicit: Elicit, seconds: float) -> None:
        self._elicit = elicit
        self._seconds = seconds
        self._count = 0
        self._lock = asyncio.Lock()
        self._limit: asyncio.Timeout | None = None
        self._questions: set[asyncio.Task[Any]] = set()

    @asynccontextmanager
    async def limit_time(self) -> AsyncIterator[None]:
        """Raise TimeoutError if the server takes longer than the limit."""
        try:
            async with asyncio.timeout(self._seconds) as self._limit:
                yield
        finally:
            self._limit = None

    async def ask(self, message: str, schema: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the user's input, or None if the user declines or the server asks more than three times."""
        self._count += 1
        if self._count > MAX_ROUNDS:
            return None
        async with self._lock:
            question = asyncio.ensure_future(self._elicit(message, schema))
            self._questions.add(question)
            self._set_limit(None)
            try:
                return await question
            except asyncio.CancelledError:
                if not question.cancelled() or _is_cancelled():
                    raise
                # The call has ended, so its question was cancelled.
                return None
            except Exception:  # noqa: BLE001 - the question is declined if it cannot be asked
                _LOG.info("a question of an MCP server could not be asked", exc_info=True)
                return None
            finally:
                question.cancel()
                self._questions.discard(question)
                self._set_limit(asyncio.get_running_loop().time() + self._seconds)

    def cancel(self) -> None:
        """Cancel the open questions, because the call has ended."""
        for question in self._questions:
            question.cancel()

    def _set_limit(self, when: float | None) -> None:
        if self._limit is not None and not self._limit.expired():
            self._limit.reschedule(when)


def _is_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
