"""Pages of the list of stored sessions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from thinklsp.core.errors import PathRefused
from thinklsp.jsonrpc.error_responses import InvalidParams
from thinklsp.sessions.session import SessionSummary
from thinklsp.workspace.uri import uri_to_path

_PAGE_SIZE = 50


def build_page(summaries: Sequence[SessionSummary], cursor: str | None) -> dict[str, Any]:
    """Return one page of sessions, newest first. `cursor` comes from the page before. Raises InvalidParams."""
    rows = sorted((summary for summary in summaries if _find_folder(summary) is not None), key=_order, reverse=True)
    if cursor is not None:
        time, separator, session_id = cursor.partition(" ")
        if not separator:
            raise InvalidParams("The field `cursor` must come from an earlier page.")
        rows = [summary for summary in rows if _order(summary) < (time, session_id)]
    page = rows[:_PAGE_SIZE]
    result: dict[str, Any] = {"sessions": [_build_entry(summary) for summary in page]}
    if len(rows) > len(page):
        result["nextCursor"] = " ".join(_order(page[-1]))
    return result


def _order(summary: SessionSummary) -> tuple[str, str]:
    return summary.updated.isoformat(timespec="microseconds"), summary.id


def _find_folder(summary: SessionSummary) -> str | None:
    """Return the folder of a session, or None for a session without a folder."""
    try:
        return uri_to_path(summary.workspace)
    except PathRefused:
        return None


def _build_entry(summary: SessionSummary) -> dict[str, Any]:
    updated = summary.updated.isoformat(timespec="seconds").replace("+00:00", "Z")
    return {"sessionId": summary.id, "cwd": _find_folder(summary), "title": summary.title, "updatedAt": updated}
