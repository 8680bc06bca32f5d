"""The JSON results of turns, which editors and the terminal share."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from thinklsp.core.edits import FileEdit, count_hunks
from thinklsp.core.errors import PathRefused
from thinklsp.core.events import TurnFinished, TurnStopReason
from thinklsp.core.usage import Usage, serialize_usage
from thinklsp.engine.turn import Turn
from thinklsp.engine.turn_request import ActionRequest
from thinklsp.workspace.view import WorkspaceView

_FINDING = re.compile(
    r"\s*(?:[-*+]|\d{1,3}[.)])\s+[*`\[]*(?P<path>(?:[a-z]+:)?[^\s`*\]:][^`*\]:\n]{0,500}):(?P<first>\d{1,7})(?:-(?P<last>\d{1,7}))?"
    r"[*`\]]*:?\s*[*`]*(?:(?P<severity>error|warning|note)[*`]*:)?\s*(?P<message>\S.*)",
    re.IGNORECASE,
)


def parse_findings(text: str, view: WorkspaceView) -> list[dict[str, Any]]:
    """Return the findings of a review with their places in the workspace. Other lines are ignored."""
    findings: list[dict[str, Any]] = []
    for match in filter(None, map(_FINDING.fullmatch, text.splitlines())):
        try:
            uri = view.resolve(match["path"].strip()).uri
        except PathRefused:
            continue
        first = max(1, int(match["first"])) - 1
        last = max(first, int(match["last"] or match["first"]) - 1)
        findings.append(
            {
                "uri": uri,
                "range": {"start": {"line": first, "character": 0}, "end": {"line": last + 1, "character": 0}},
                "severity": (match["severity"] or "warning").lower(),
                "message": match["message"].strip(),
            }
        )
    return findings


EditStatus = Literal["applied", "some", "conflict", "refused", "held", "unknown"]

Result = dict[str, Any]
"""A TurnResult, or another JSON answer of a command."""

# Reasons why a turn can end without a complete answer. The edits of such a turn are not sent to the editor.
ENDINGS: Mapping[TurnStopReason, str] = {
    "cancelled": "the turn was cancelled",
    "refusal": "the provider declined to answer",
    "max_tokens": "the answer reached the output limit",
    "max_steps": "the turn reached its step limit",
    "budget": "the turn reached its budget",
    "context_window": "the conversation no longer fits the model's context window",
    "error": "the turn failed",
}


INSERT_TEXT = "insert the new text yourself"
"""The end of the reason of a file whose new text is in the answer, because the editor accepts no edits."""


@dataclass(frozen=True, slots=True)
class HunkCounts:
    """The numbers of applied and pending hunks in a file. Creating, renaming or deleting a file counts as one hunk."""

    applied: int = 0
    pending: int = 0

    def to_json(self) -> dict[str, Any]:
        return {"applied": self.applied, "waiting": self.pending}


@dataclass(frozen=True, slots=True)
class FileStatus:
    """The status of a file in an edit set.

    `is_pending` is true if the editor received the file's edit but did not apply it completely.
    """

    uri: str
    status: EditStatus
    reason: str | None = None
    hunks: HunkCounts = field(default_factory=HunkCounts)
    is_pending: bool = False

    def to_json(self) -> dict[str, Any]:
        return {"uri": self.uri, "status": self.status, "hunks": self.hunks.to_json(), "reason": self.reason}


@dataclass(frozen=True, slots=True)
class EditOutcome:
    """The outcome of an edit set: the status of each file and notices for the user.

    `pending_notice` describes the files that the editor did not change completely. `new_text` contains the changes for
    the user to insert, if the editor accepts no edits.
    """

    files: tuple[FileStatus, ...]
    proposal_id: str | None = None
    notices: tuple[str, ...] = ()
    pending_notice: str = ""
    new_text: str = ""

    @property
    def applied(self) -> Literal["all", "some", "none"]:
        """`all`, `some` or `none`, depending on how many files the editor changed."""
        if all(file.status == "applied" for file in self.files):
            return "all"
        return "some" if any(file.status in ("applied", "some") for file in self.files) else "none"

    @property
    def all_notices(self) -> tuple[str, ...]:
        """All notices for the user, beginning with the notice about pending files."""
        return (self.pending_notice, *self.notices) if self.pending_notice else self.notices

    def to_json(self) -> dict[str, Any]:
        files = [file.to_json() for file in self.files]
        return {"applied": self.applied, "files": files, "proposalId": self.proposal_id}


def count_unsent_hunks(file: FileEdit, *, is_applied: bool = False) -> HunkCounts:
    """Count the hunks of an unsent edit. They count as applied if `is_applied` is true, and as pending otherwise."""
    count = count_hunks(file)
    return HunkCounts(count, 0) if is_applied else HunkCounts(0, count)


def build_turn_result(
    turn: Turn, finished: TurnFinished, outcome: EditOutcome | None, extra_notices: Sequence[str] = ()
) -> Result:
    """Build the TurnResult of a finished turn. `extra_notices` follow the turn's own notices."""
    notices = [*turn.output.notices, *(outcome.all_notices if outcome is not None else ()), *extra_notices]
    text = "\n\n".join(filter(None, (finished.text, "" if outcome is None else outcome.new_text)))
    return build_plain_result(turn.id, turn.session.id, finished.stop_reason, text, notices) | {
        "thinking": (finished.thinking or None) if turn.display == "summary" else None,
        "edits": None if outcome is None else outcome.to_json(),
        "verified": None if finished.test_outcome is None else finished.test_outcome.to_json(),
        "findings": _find_findings(turn, finished),
        "usage": serialize_usage(finished.usage),
    }


def _find_findings(turn: Turn, finished: TurnFinished) -> list[dict[str, Any]] | None:
    """Return the findings of a review, or None for other turns and for a review without a complete answer."""
    request = turn.request
    if not isinstance(request, ActionRequest) or request.name != "review" or finished.stop_reason != "end_turn":
        return None
    return parse_findings(finished.text, request.view)


def build_plain_result(
    turn_id: str, session_id: str, stop_reason: TurnStopReason, text: str = "", notices: Sequence[str] = ()
) -> Result:
    """Build the TurnResult of a command that ended without starting a turn."""
    return {
        "turnId": turn_id,
        "sessionId": session_id,
        "stopReason": stop_reason,
        "text": text,
        "thinking": None,
        "edits": None,
        "verified": None,
        "findings": None,
        "usage": serialize_usage(Usage()),
        "notices": list(notices),
    }


def build_compact_result(turn: Turn, result: Result) -> Result:
    """Build the result of `thinklsp.compact`.

    If nothing was compacted, `archiveId` is null and the message counts are equal.
    """
    common = {"stopReason": result["stopReason"], "usage": result["usage"]}
    compaction = turn.output.compaction
    if compaction is None:
        same = {"messages": len(turn.session.conversation), "tokens": None}
        return {"before": same, "after": same, "archiveId": None, **common}
    how = compaction.event
    return {
        "before": {"messages": len(how.before), "tokens": how.tokens_before},
        "after": {"messages": len(how.after), "tokens": how.tokens_after},
        "archiveId": compaction.archive_id,
        **common,
    }


def format_compaction(compacted: Result) -> str:
    """Format the result of `thinklsp.compact` as the final progress message."""
    if compacted["archiveId"] is None:
        return "done, nothing to compact" if compacted["stopReason"] == "end_turn" else _format_stop_reason(compacted)
    before, after = (compacted[side]["messages"] for side in ("before", "after"))
    return f"done, compacted {before} messages to {after}"


def format_outcome(result: Result) -> str:
    edits = result["edits"]
    if result["stopReason"] != "end_turn":
        return (
            _format_stop_reason(result)
            if edits is None
            else f"{_format_stop_reason(result)}; the edit {_format_edit_state(edits)}"
        )
    if edits is None:
        return "done"
    applied = sum(file["status"] in ("applied", "some") for file in edits["files"])
    unapplied = [file["reason"] or "" for file in edits["files"] if file["status"] != "applied"]
    files = "1 file" if applied == 1 else f"{applied} files"
    way = INSERT_TEXT if all(reason.endswith(INSERT_TEXT) for reason in unapplied) else "use `thinklsp: apply`"
    return f"done, changed {files}" + (f"; {len(unapplied)} not applied: {way}" if unapplied else "")


def _format_stop_reason(result: Result) -> str:
    return str(result["stopReason"].replace("_", " "))


def _format_edit_state(edits: dict[str, Any]) -> str:
    if edits["applied"] == "all":
        return "was applied"
    unsure = any(file["status"] == "unknown" for file in edits["files"])
    return "may have been applied: check with `thinklsp: apply`" if unsure else "is held"
