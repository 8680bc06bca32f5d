"""What commands answer when a turn has ended, and the same in one line for the end of its progress."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thinklsp.core.events import TurnFinished, TurnStopReason
from thinklsp.core.usage import Usage, usage_json
from thinklsp.engine import Turn
from thinklsp.lsp.edits.outcome import Outcome

Result = dict[str, Any]
"""A TurnResult, or what a command answers in its place."""


def turn_result(turn: Turn, finished: TurnFinished, outcome: Outcome | None, more: Sequence[str] = ()) -> Result:
    """`more`: further notices."""
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
    """The TurnResult of work that ended without a turn of its own."""
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


def compacted_json(turn: Turn, result: Result) -> Result:
    """What `thinklsp.compact` answers. Without an archive nothing was replaced, and both sides are the same."""
    ended = {"stopReason": result["stopReason"], "usage": result["usage"]}
    done = turn.shortened
    if done is None:
        same = {"messages": len(turn.session.conversation), "tokens": None}
        return {"before": same, "after": same, "archiveId": None, **ended}
    how = done.how
    return {
        "before": {"messages": len(how.before), "tokens": how.tokens_before},
        "after": {"messages": len(how.after), "tokens": how.tokens_after},
        "archiveId": done.archive,
        **ended,
    }


def compacted_told(compacted: Result) -> str:
    """The same of what `thinklsp.compact` answers."""
    if compacted["archiveId"] is None:
        return "done, nothing was shortened" if compacted["stopReason"] == "end_turn" else _reason(compacted)
    before, after = (compacted[side]["messages"] for side in ("before", "after"))
    return f"done, {before} messages became {after}"


def outcome_told(result: Result) -> str:
    edits = result["edits"]
    if result["stopReason"] != "end_turn":
        return _reason(result) if edits is None else f"{_reason(result)}; the edit {_became(edits)}"
    if edits is None:
        return "done"
    applied = sum(file["status"] in ("applied", "some") for file in edits["files"])
    left = sum(file["status"] != "applied" for file in edits["files"])
    files = "1 file" if applied == 1 else f"{applied} files"
    return f"done, changed {files}" + (f"; {left} left: see the action to apply" if left else "")


def _reason(result: Result) -> str:
    return str(result["stopReason"].replace("_", " "))


def _became(edits: dict[str, Any]) -> str:
    if edits["applied"] == "all":
        return "is in"
    unsure = any(file["status"] == "unknown" for file in edits["files"])
    return "may have arrived: see the action to apply" if unsure else "is held"
