"""What commands answer when a turn has ended, and the same in one line for the end of its progress."""

from __future__ import annotations

from typing import Any

from thinklsp.engine import Turn
from thinklsp.engine.results import Result


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
