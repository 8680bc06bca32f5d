"""Long lists of tools in pages that the SDK handles quickly.

The SDK validates a list of tools on the event loop, where a tool with a large schema takes up to 0.2 ms. So a transport
hands a long list to the SDK as several pages, between which the event loop does other work.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from typing import Any

MAX_TOOLS_AT_ONCE = 25
_PREFIX = "thinklsp-page-"
_MAX_WAITING = 64


class ToolPages:
    """The pages of one connection that the SDK has not asked for yet, by their cursors."""

    def __init__(self) -> None:
        self._waiting: dict[str, dict[str, Any]] = {}
        self._numbers = count()

    def shorten(self, message: dict[str, Any]) -> dict[str, Any]:
        """Return a message to the SDK, with only the first page if it contains a long list of tools."""
        result = message.get("result")
        tools = result.get("tools") if isinstance(result, dict) else None
        if not isinstance(result, dict) or not isinstance(tools, list) or len(tools) <= MAX_TOOLS_AT_ONCE:
            return message
        cursor = f"{_PREFIX}{next(self._numbers)}"
        self._waiting[cursor] = {**result, "tools": tools[MAX_TOOLS_AT_ONCE:]}
        if len(self._waiting) > _MAX_WAITING:
            del self._waiting[next(iter(self._waiting))]
        return {**message, "result": {**result, "tools": tools[:MAX_TOOLS_AT_ONCE], "nextCursor": cursor}}

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return the answer to a request for a page, or None if the request is for the server."""
        params = request.get("params")
        cursor = params.get("cursor") if isinstance(params, Mapping) else None
        if request.get("method") != "tools/list" or not is_own_cursor(cursor):
            return None
        result = self._waiting.pop(str(cursor), None)
        if result is None:
            error = {"code": -32602, "message": "this page of the list of tools is no longer known"}
            return {"jsonrpc": "2.0", "id": request.get("id"), "error": error}
        return self.shorten({"jsonrpc": "2.0", "id": request.get("id"), "result": result})


def is_own_cursor(cursor: object) -> bool:
    """Return True for the cursor of a page that the server does not know."""
    return isinstance(cursor, str) and cursor.startswith(_PREFIX)
