"""The result values of a turn, shared by editors and the terminal: its edit, file by file, and its JSON form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from thinklsp.core.edits import FileEdit, count_hunks
from thinklsp.core.events import TurnFinished, TurnStopReason
from thinklsp.core.usage import Usage, usage_json
from thinklsp.engine.turn import Turn

Status = Literal["applied", "some", "conflict", "refused", "held", "unknown"]

Result = dict[str, Any]
"""A TurnResult, or what a command answers in its place."""

# Why a turn ended without a whole answer. Such a turn's edit is not sent.
ENDINGS: Mapping[TurnStopReason, str] = {
    "cancelled": "the turn was cancelled",
    "refusal": "the service declined to answer",
    "max_tokens": "the answer was cut at the output limit",
    "max_steps": "the turn reached its limit of steps",
    "budget": "the turn reached its budget",
    "context_window": "the conversation outgrew the model's context window",
    "error": "the turn failed",
}


@dataclass(frozen=True, slots=True)
class Hunks:
    """Counts of one file. Creating, renaming and deleting the file are one hunk each."""

    applied: int = 0
    waiting: int = 0

    def json(self) -> dict[str, Any]:
        """Return the counts as a TurnResult holds them."""
        return {"applied": self.applied, "waiting": self.waiting}


@dataclass(frozen=True, slots=True)
class FileStatus:
    """The status of a file of an edit set. `waits`: the editor was asked for the change and did not make all of it."""

    uri: str
    status: Status
    reason: str | None = None
    hunks: Hunks = field(default_factory=Hunks)
    waits: bool = False

    def json(self) -> dict[str, Any]:
        """Return the status as a TurnResult holds it."""
        return {"uri": self.uri, "status": self.status, "hunks": self.hunks.json(), "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an edit set. `notices` are sentences for the user; `waiting` is the one about files that the
    editor did not change, or not completely.
    """

    files: tuple[FileStatus, ...]
    proposal_id: str | None = None
    notices: tuple[str, ...] = ()
    waiting: str = ""

    @property
    def applied(self) -> Literal["all", "some", "none"]:
        """How many of the files have the change."""
        if all(file.status == "applied" for file in self.files):
            return "all"
        return "some" if any(file.status in ("applied", "some") for file in self.files) else "none"

    @property
    def sentences(self) -> tuple[str, ...]:
        """All sentences for the user, the one about waiting files first."""
        return (self.waiting, *self.notices) if self.waiting else self.notices

    def json(self) -> dict[str, Any]:
        """Return the outcome as a TurnResult holds it."""
        files = [file.json() for file in self.files]
        return {"applied": self.applied, "files": files, "proposalId": self.proposal_id}


def not_sent(file: FileEdit, *, is_there: bool = False) -> Hunks:
    """Count the hunks of a file that is not sent, because the file has the change already or the change must wait."""
    count = count_hunks(file)
    return Hunks(count, 0) if is_there else Hunks(0, count)


def turn_result(turn: Turn, finished: TurnFinished, outcome: Outcome | None, more: Sequence[str] = ()) -> Result:
    """Build the TurnResult of a turn that has ended. `more`: further notices."""
    return {
        "turnId": turn.id,
        "sessionId": turn.session.id,
        "stopReason": finished.stop_reason,
        "text": finished.text,
        "thinking": (finished.thinking or None) if turn.display == "summary" else None,
        "edits": None if outcome is None else outcome.json(),
        "verified": None if finished.verified is None else finished.verified.json(),
        "usage": usage_json(finished.usage),
        "notices": [*turn.said, *(outcome.sentences if outcome is not None else ()), *more],
    }


def plain_result(
    turn_id: str, session_id: str, stop_reason: TurnStopReason, text: str = "", notices: Sequence[str] = ()
) -> Result:
    """Build the TurnResult of work that ended without a turn of its own."""
    return {
        "turnId": turn_id,
        "sessionId": session_id,
        "stopReason": stop_reason,
        "text": text,
        "thinking": None,
        "edits": None,
        "verified": None,
        "usage": usage_json(Usage()),
        "notices": list(notices),
    }
