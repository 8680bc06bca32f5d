"""One running turn as the editor sees it: events to progress, the edit set to the editor, the outcome to the caller."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, Literal

from thinklsp.core.edits import FileEdit
from thinklsp.core.events import TurnFinished, TurnStopReason
from thinklsp.core.usage import usage_json
from thinklsp.engine import ChatTask, Turn
from thinklsp.lsp.applying import Applying, Outcome
from thinklsp.lsp.client import Client
from thinklsp.lsp.edits import Scope, Status
from thinklsp.lsp.progress import TurnProgress
from thinklsp.lsp.proposals import Kept
from thinklsp.lsp.protocol.errors import spoken

_BUDGET_ANSWERS: dict[str, Literal["continue", "raise", "stop"]] = {
    "Continue once": "continue",
    "Lift the limit for this turn": "raise",
    "Stop": "stop",
}

# Why an edit is not sent, by the way in which its turn ended.
_HELD: dict[TurnStopReason, str] = {
    "cancelled": "the turn was cancelled",
    "refusal": "the service declined to answer",
    "max_tokens": "the answer was cut at the output limit",
    "max_steps": "the turn reached its limit of steps",
    "budget": "the turn reached its budget",
    "context_window": "the conversation outgrew the model's context window",
}

Deliver = Callable[[Turn, TurnFinished, tuple[str, ...]], Awaitable[None]]


@dataclass(slots=True)
class RunningTurn:
    """`uri`: the document that it works for, if any. `scope` is asked for when the edit is sent, as the place may move.
    `stopped`: the user ended it, so that it answers `cancelled`."""

    turn: Turn
    client: Client
    applying: Applying
    progress: TurnProgress
    uri: str | None
    scope: Callable[[], Scope | None]
    deliver: Deliver | None
    shape: Callable[[Turn], dict[str, Any]] | None = None
    task: asyncio.Task[dict[str, Any]] | None = None
    begun: bool = False
    stopped: bool = False
    outcome: Outcome | None = None
    edit_sent: bool = False

    @property
    def id(self) -> str:
        return self.turn.id

    @property
    def session_id(self) -> str:
        return self.turn.session.id

    @property
    def title(self) -> str:
        return self.turn.spec.title

    def release(self) -> None:
        self.turn.release()

    def stop(self) -> None:
        """Ends the turn as the user's wish; its caller is answered with what there is."""
        self.stopped = True
        # A task that is cancelled before its first step never runs; this one sees by itself that it was stopped.
        if self.begun and self.task is not None:
            self.task.cancel()

    async def run(self) -> dict[str, Any]:
        """The turn from its first event to its TurnResult. Progress has ended and the session is free afterwards.

        Raises CancelledError when the request was cancelled, ThinkLspError with a sentence when the turn failed.
        """
        self.begun = True
        outcome = "failed"
        try:
            with self.turn:
                result = await self._result()
            self.progress.finished(result)
            outcome = _said(result)
            return result if self.shape is None else self.shape(self.turn)
        except asyncio.CancelledError:
            outcome = "cancelled"
            # Whoever watches the turn did not cancel the request: for them it has ended like any other.
            finished = TurnFinished("cancelled", self.turn.text, self.turn.thinking, self.turn.usage)
            self.progress.finished(turn_result(self.turn, finished, self.outcome))
            raise
        except Exception as error:
            outcome = spoken(error)
            self.progress.failed(outcome)
            raise
        finally:
            self.progress.end(outcome)

    async def _result(self) -> dict[str, Any]:
        try:
            finished = await self._finished()
            if finished.stop_reason == "end_turn":
                self.outcome = await self._send()
            else:
                self.outcome = self._hold(_HELD[finished.stop_reason])
            if self.deliver is not None:
                await self.deliver(self.turn, finished, self._notices())
        except asyncio.CancelledError:
            self.outcome = self.outcome or self._hold(_HELD["cancelled"])
            if not self.stopped:
                raise
            # The cancel has been answered here: it was meant for the turn, not for whoever waits for it.
            if (task := asyncio.current_task()) is not None and task.cancelling():
                task.uncancel()
            finished = TurnFinished("cancelled", self.turn.text, self.turn.thinking, self.turn.usage)
        except Exception:
            self.outcome = self.outcome or self._hold("the turn failed")
            raise
        return turn_result(self.turn, finished, self.outcome)

    def _notices(self) -> tuple[str, ...]:
        """What the user should know beside the answer: sentences, files that were not changed first."""
        outcome = self.outcome or Outcome(())
        left = [file for file in outcome.files if file.status != "applied"]
        names = (f"{file.uri.rpartition('/')[2]} was not changed: {file.reason}." for file in left)
        return (*names, *self.turn.said, *outcome.notices)

    async def _finished(self) -> TurnFinished:
        if self.stopped:
            raise asyncio.CancelledError
        async with aclosing(self.turn.events(self._ask, self._ask_budget)) as events:
            async for event in events:
                self.progress.show(event)
                if isinstance(event, TurnFinished):
                    return event
        raise AssertionError("a turn ends with TurnFinished or an error")

    async def _send(self) -> Outcome | None:
        files = self.turn.overlay.edit_set().files
        if not files:
            return None
        self.progress.waiting()
        return await self.applying.send(
            self._kept(files),
            review=self.turn.review,
            scope=self.scope,
            sent=self._edit_is_sent,
            applied=self._edit_is_applied,
        )

    def _edit_is_sent(self) -> None:
        self.edit_sent = True

    def _edit_is_applied(self, outcome: Outcome) -> None:
        self.outcome = outcome

    def _hold(self, reason: str) -> Outcome | None:
        files = self.turn.overlay.edit_set().files
        if not files:
            return None
        if self.edit_sent:
            reason = "the turn was ended while the editor was applying the edit"
        status: Status = "unknown" if self.edit_sent else "held"
        return self.applying.hold(self._kept(files), reason, status=status)

    def _kept(self, files: tuple[FileEdit, ...]) -> Kept:
        # Chats all have one title; what was asked for tells them apart.
        name = self.turn.session.title if isinstance(self.turn.spec.task, ChatTask) else ""
        return Kept(self.turn.id, self.turn.session.id, self.turn.spec.title, files, known_as=name)

    async def _ask(self, question: str, options: tuple[str, ...]) -> str | None:
        self.progress.waiting()
        try:
            return await self.client.question(question, options)
        finally:
            self.progress.resumed()

    async def _ask_budget(self, text: str) -> Literal["continue", "raise", "stop"]:
        answer = await self._ask(text, tuple(_BUDGET_ANSWERS))
        return "stop" if answer is None else _BUDGET_ANSWERS[answer]


def turn_result(turn: Turn, finished: TurnFinished, outcome: Outcome | None) -> dict[str, Any]:
    return {
        "turnId": turn.id,
        "sessionId": turn.session.id,
        "stopReason": finished.stop_reason,
        "text": finished.text,
        "thinking": (finished.thinking or None) if turn.display == "summary" else None,
        "edits": None if outcome is None else outcome.json(),
        "verified": None,
        "usage": usage_json(finished.usage),
        "notices": [*turn.said, *(outcome.notices if outcome is not None else ())],
    }


def compacted_json(turn: Turn) -> dict[str, Any]:
    """What `thinklsp.compact` answers. Both sides are the same where it was stopped before anything was replaced."""
    done = turn.shortened
    if done is None:
        same = {"messages": len(turn.session.conversation), "tokens": None}
        return {"before": same, "after": same, "archiveId": None}
    how = done.how
    return {
        "before": {"messages": len(how.before), "tokens": how.tokens_before},
        "after": {"messages": len(how.after), "tokens": how.tokens_after},
        "archiveId": done.archive,
    }


def _said(result: dict[str, Any]) -> str:
    """The outcome in one line, for the end of the progress."""
    edits = result["edits"]
    if result["stopReason"] != "end_turn":
        reason = str(result["stopReason"].replace("_", " "))
        if edits is None:
            return reason
        return f"{reason}; the edit is {'in' if edits['applied'] == 'all' else 'held'}"
    if edits is None:
        return "done"
    applied = sum(file["status"] == "applied" for file in edits["files"])
    left = len(edits["files"]) - applied
    files = "1 file" if applied == 1 else f"{applied} files"
    return f"done, changed {files}" + (f"; {left} left: see the action to apply" if left else "")
