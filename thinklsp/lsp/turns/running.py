"""What runs in a session, from its first step to its one result: a turn, or slash commands and what they lead to."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from thinklsp.core.events import TurnStopReason
from thinklsp.core.usage import Usage, usage_json
from thinklsp.engine.results import Result, plain_result
from thinklsp.lsp.editor.progress import TurnProgress
from thinklsp.lsp.protocol.errors import spoken
from thinklsp.lsp.turns.results import compacted_told, outcome_told


def _as_it_is(result: Result) -> Result:
    return result


@dataclass(slots=True)
class Running:
    """`work` gives the TurnResult, `shape` makes of it what the command answers. `free` lets go of the session. `uri`:
    the document that it works for, if any. `stopped`: the user ended it, so that it answers `cancelled`.

    What its turns leave here: `usage` and `notices` of those so far, and as `cut` the result of one that was cancelled
    or failed.
    """

    id: str
    session_id: str
    uri: str | None
    progress: TurnProgress
    work: Callable[[Running], Awaitable[Result]]
    free: Callable[[], None]
    shape: Callable[[Result], Result] = _as_it_is
    task: asyncio.Task[Result] | None = None
    begun: bool = False
    stopped: bool = False
    usage: Usage = field(default_factory=Usage)
    notices: list[str] = field(default_factory=list)
    cut: Result | None = None

    def release(self) -> None:
        self.free()

    def stop(self) -> None:
        """Ends it as the user's wish; its caller is answered with what there is."""
        self.stopped = True
        # A task that is cancelled before its first step never runs; this one sees by itself that it was stopped.
        if self.begun and self.task is not None:
            self.task.cancel()

    async def run(self) -> Result:
        """To the one result. Progress has ended and the session is free afterwards.

        Raises CancelledError when the request was cancelled, ThinkLspError with a sentence when it failed.
        """
        self.begun = True
        outcome = "failed"
        try:
            result = await self._result()
            self.progress.finished(result)
            shaped = self.shape(result)
            outcome = outcome_told(result) if shaped is result else compacted_told(shaped)
            return shaped
        except asyncio.CancelledError:
            # Whoever watches did not cancel the request: for them it has ended like any other.
            cancelled = self._cut_off("cancelled")
            outcome = outcome_told(cancelled)
            self.progress.finished(cancelled)
            raise
        except Exception as error:
            outcome = spoken(error)
            self.progress.failed(self._cut_off("error", outcome))
            raise
        finally:
            self.progress.end(outcome)

    async def _result(self) -> Result:
        try:
            # Stopped before its first step, it has nothing to do.
            result = self._cut_off("cancelled") if self.stopped else await self.work(self)
            return result | {"usage": usage_json(self.usage)}
        except asyncio.CancelledError:
            if not self.stopped:
                raise
            # The cancel has been answered here: it was meant for this, not for whoever waits for it.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                task.uncancel()
            return self._cut_off("cancelled")
        finally:
            self.release()

    def _cut_off(self, reason: TurnStopReason, text: str = "") -> Result:
        """Return the result of what was cancelled or failed; `text` is the sentence of a failure."""
        cut = self.cut or plain_result(self.id, self.session_id, reason, text, self.notices)
        return cut | {"usage": usage_json(self.usage)}
