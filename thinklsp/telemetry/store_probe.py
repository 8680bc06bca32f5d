"""The probe of the session store, which finds out whether sessions can be read."""

from __future__ import annotations

import asyncio
import logging
from typing import Literal, Protocol

from thinklsp.core.errors import SessionError

_log = logging.getLogger(__name__)

StoreState = Literal["unknown", "ok", "degraded", "unreachable"]

_PROBE_SECONDS = 5.0
_MAX_ANSWER_SECONDS = 4.0
_MAX_FAILURES = 2


class ProbedStore(Protocol):
    """A session store that answers a cheap query."""

    @property
    def problems(self) -> tuple[str, ...]: ...

    async def read_data_version(self) -> object: ...

    async def aclose(self) -> None: ...


class StoreProbe:
    """The state of the session store, which the probe asks every five seconds.

    `unreachable` means that the store has not answered twice in a row. `degraded` means that the store reports a
    problem, for example that it keeps sessions in memory only.
    """

    def __init__(self, store: ProbedStore, max_answer_seconds: float = _MAX_ANSWER_SECONDS) -> None:
        self._store = store
        self._max_answer_seconds = max_answer_seconds
        self._failures = 0
        self._question: asyncio.Task[object] | None = None
        self.state: StoreState = "unknown"

    async def run(self) -> None:
        """Ask the store until the task is cancelled."""
        while True:
            await self.ask()
            await asyncio.sleep(_PROBE_SECONDS)

    async def ask(self) -> None:
        """Ask the store once and update the state. A question without an answer is not asked again."""
        if self._question is None:
            self._question = asyncio.create_task(self._read())
        await asyncio.wait([self._question], timeout=self._max_answer_seconds)
        if not self._question.done():
            self._count_failure("it is silent")
            return
        error, self._question = self._question.exception(), None
        if error is None:
            self._failures = 0
            self.state = "degraded" if self._store.problems else "ok"
        else:
            self._count_failure(str(error) if isinstance(error, SessionError) else type(error).__name__)

    async def _read(self) -> object:
        return await self._store.read_data_version()

    def _count_failure(self, reason: str) -> None:
        self._failures += 1
        if self.state != "unreachable" and (self._failures >= _MAX_FAILURES or self.state == "unknown"):
            self.state = "unreachable"
            _log.warning("the session store does not answer: %s", reason)

    def explain_unready(self) -> str | None:
        """Return a sentence if the store is not known to answer. Any thread may call this method."""
        match self.state:
            case "unknown":
                return "The session store has not answered yet."
            case "unreachable":
                return "The session store does not answer."
            case "ok" | "degraded":
                return None
