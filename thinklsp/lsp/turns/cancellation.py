"""The cancellation of a run: who requested it, and how far the run's edit had progressed."""

from __future__ import annotations

import asyncio
from typing import Literal

from thinklsp.engine.results import EditOutcome

EditStage = Literal["not sent", "sent"] | EditOutcome
"""The stage of a turn's edit. `sent`: the editor has not answered yet. An outcome: the editor confirmed the edit."""


class RunCancellation:
    """The cancellation state of a run. After `cancel`, the run ends, and its caller receives the partial result.

    If the client cancels its request or disconnects, the run's task is cancelled instead. In that case, the request has
    no result, but all other observers of the run are still notified of its end.
    """

    def __init__(self, *, by_user: bool = False) -> None:
        self.by_user = by_user
        self.edit: EditStage = "not sent"
        self.task: asyncio.Task[object] | None = None

    def watch(self) -> None:
        """Register the current task as the run's task.

        The run must check `by_user` after this call, because `cancel` may have been called before the task started.
        """
        self.task = asyncio.current_task()

    def cancel(self) -> None:
        self.by_user = True
        if self.task is not None:
            self.task.cancel()

    def suppress_cancel(self) -> bool:
        """Return True if the user cancelled the run.

        In that case, also clear the task's own cancellation request, because only the run was cancelled.
        """
        if self.by_user and self.task is not None and self.task.cancelling():
            self.task.uncancel()
        return self.by_user
