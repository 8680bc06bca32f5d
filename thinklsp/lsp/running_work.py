"""Work on a session that runs like a turn and is none: slash commands, and the turn for the rest of their prompt."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from thinklsp.core.events import TurnStopReason
from thinklsp.core.usage import Usage, usage_json
from thinklsp.lsp.progress import TurnProgress
from thinklsp.lsp.protocol.errors import spoken
from thinklsp.lsp.running import RunningTurn

Result = dict[str, Any]


@dataclass(slots=True)
class RunningWork:
    """`work` gives the result, `free` lets go of the session. `turn`: what the work goes on with, once it does."""

    id: str
    session_id: str
    title: str
    uri: str | None
    progress: TurnProgress
    work: Callable[[RunningWork], Awaitable[Result]]
    free: Callable[[], None]
    task: asyncio.Task[Result] | None = None
    begun: bool = False
    stopped: bool = False
    turn: RunningTurn | None = None

    def release(self) -> None:
        self.free()
        if self.turn is not None:
            self.turn.release()

    def stop(self) -> None:
        """Ends it as the user's wish; its caller is answered with what there is."""
        self.stopped = True
        if self.turn is not None:
            self.turn.stopped = True
        if self.begun and self.task is not None:
            self.task.cancel()

    async def run(self) -> Result:
        """Raises CancelledError when the request was cancelled, ThinkLspError with a sentence when it failed."""
        self.begun = True
        outcome = "failed"
        try:
            result = await self._result()
            outcome = "done"
            return result
        except asyncio.CancelledError:
            outcome = "cancelled"
            if not self.stopped:
                raise
            # The cancel has been answered here: it was meant for the work, not for whoever waits for it.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                task.uncancel()
            return plain_result(self.id, self.session_id, "cancelled")
        except Exception as error:
            outcome = spoken(error)
            raise
        finally:
            # A turn inside has ended the progress itself, and only the first end counts.
            self.progress.end(outcome)
            self.release()

    async def _result(self) -> Result:
        if self.stopped:
            raise asyncio.CancelledError
        return await self.work(self)

    async def go_on(self, turn: RunningTurn) -> Result:
        """The turn takes over; it is stopped when this is."""
        self.turn = turn
        turn.stopped = self.stopped
        return await turn.run()


def plain_result(turn_id: str, session_id: str, stop_reason: TurnStopReason, text: str = "") -> Result:
    """The TurnResult of what asked no model anything."""
    return {
        "turnId": turn_id,
        "sessionId": session_id,
        "stopReason": stop_reason,
        "text": text,
        "thinking": None,
        "edits": None,
        "verified": None,
        "usage": usage_json(Usage()),
        "notices": [],
    }
