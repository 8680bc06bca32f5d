"""The filter for messages from an MCP server, which drops unused messages and limits the rest."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from thinklsp.mcp_client.message_check import BadMessage

_LIST_CHANGE = "notifications/tools/list_changed"
# The SDK needs these notifications: one ends a request of the server, the other one confirms a subscription.
_PASSED_NOTIFICATIONS = ("notifications/cancelled", "notifications/subscriptions/acknowledged")
_WINDOW_SECONDS = 10.0
# The messages in a window that no request of ours asked for. Each of the few that pass costs up to 0.2 ms.
_MAX_UNSOLICITED, _MAX_PASSED = 20_000, 200
_MAX_AWAITED = 1_000


class MessageFilter:
    """The filter of a connection. `clock` returns seconds."""

    def __init__(self, clock: Callable[[], float], on_list_change: Callable[[], None]) -> None:
        self._clock = clock
        self._on_list_change = on_list_change
        # As text, because some servers answer the request 7 with the id "7", and the SDK accepts that.
        self._awaited: OrderedDict[str, None] = OrderedDict()
        self._window_end = 0.0
        self._unsolicited = self._passed = 0

    def note_request(self, request_id: int | str) -> None:
        """Expect an answer to a request."""
        self._awaited[str(request_id)] = None
        if len(self._awaited) > _MAX_AWAITED:
            self._awaited.popitem(last=False)

    def should_pass(self, message: dict[str, Any] | None) -> bool:
        """Return whether the SDK needs a message, which is None if a line contains no message.

        Answers that are late, repeated or not asked for do not pass. Raises BadMessage if there are too many messages.
        """
        if message is not None and "method" not in message:
            request_id = str(message.get("id"))
            if request_id in self._awaited:
                del self._awaited[request_id]
                return True
        self._count()
        if message is None or "method" not in message:
            return False
        method = message["method"]
        if method == _LIST_CHANGE:
            self._on_list_change()
            return False
        if "id" not in message and method not in _PASSED_NOTIFICATIONS:
            return False
        self._passed += 1
        if self._passed > _MAX_PASSED:
            raise BadMessage(f"sent more than {_MAX_PASSED} requests within {_WINDOW_SECONDS:g} seconds")
        return True

    def _count(self) -> None:
        now = self._clock()
        if now >= self._window_end:
            self._window_end = now + _WINDOW_SECONDS
            self._unsolicited = self._passed = 0
        self._unsolicited += 1
        if self._unsolicited > _MAX_UNSOLICITED:
            raise BadMessage(f"sent more than {_MAX_UNSOLICITED:,} messages within {_WINDOW_SECONDS:g} seconds")
