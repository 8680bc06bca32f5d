"""The check and the filter of the messages that an MCP server sends.

The structure of a line is checked before the line is parsed, because a few bytes of deeply nested or densely packed
JSON use much more memory and time as Python objects.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

from thinklsp.core.bounded_dict import BoundedDict

MAX_LINE_BYTES = 4 * 1024 * 1024
MAX_DEPTH = 64
# Brackets and commas outside of strings, which are about as many as the values.
MAX_VALUES = 100_000
_MAX_QUOTES = 5 * MAX_VALUES
# More than a request to a model can contain.
_MAX_LISTED_TOOLS = 250
# The SDK validates these lists on the event loop, where each entry takes up to 40 microseconds.
_MAX_ENTRIES = {"tools": 1_000, "content": 1_000, "inputRequests": 16}

_STRUCTURE = b"[]{},"
_OTHER_BYTES = bytes(set(range(256)) - set(_STRUCTURE))
# A surrogate as an escape, which is valid only in pairs and cannot be encoded alone.
_SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
_OPENING, _COMMA = b"[{", b","[0]


class BadMessage(ValueError):
    """Raised if a message exceeds a limit. The message is the end of a sentence about the server."""


def parse_message(line: bytes) -> dict[str, Any] | None:
    """Parse a line that contains a JSON-RPC message. Return None if the line contains something else.

    Raises BadMessage if the message exceeds a limit. A line of 4 MiB takes up to 0.1 s, so the caller should use a
    thread for long lines. No step holds the interpreter lock for longer than 50 ms.
    """
    check_structure(line)
    try:
        # int() raises ValueError for NaN and infinity.
        parsed: Any = json.loads(line.decode("utf-8"), parse_constant=int)
    except (ValueError, RecursionError):
        return None
    if not isinstance(parsed, dict):
        return None
    message: dict[str, Any] = parsed
    if _SURROGATE.search(line):
        message = {name: _replace_surrogates(value) for name, value in message.items()}
    result = message.get("result")
    for name, maximum in _MAX_ENTRIES.items():
        entries = result.get(name) if isinstance(result, dict) else None
        if isinstance(entries, list | dict) and len(entries) > maximum:
            raise BadMessage(f"sent a result with {len(entries):,} entries in `{name}`; at most {maximum:,} are read")
    return message


def check_structure(text: bytes) -> None:
    """Raise BadMessage if JSON text is nested too deeply or contains too many values."""
    plain = text.replace(b"\\\\", b"").replace(b'\\"', b"")
    if plain.count(b'"') > _MAX_QUOTES:
        raise _build_size_error()
    structure = b"".join(plain.split(b'"')[::2]).translate(None, _OTHER_BYTES)
    depth = 0
    for byte in structure[: MAX_VALUES + 1]:
        if byte in _OPENING:
            depth += 1
            if depth > MAX_DEPTH:
                raise BadMessage(f"sent a message that is nested more than {MAX_DEPTH} levels deep")
        elif byte != _COMMA:
            depth -= 1
    if len(structure) > MAX_VALUES:
        raise _build_size_error()


def _build_size_error() -> BadMessage:
    return BadMessage(f"sent a message with more than {MAX_VALUES:,} values")


def _replace_surrogates(value: Any) -> Any:
    """Replace surrogates without a partner in all strings."""
    if isinstance(value, str):
        return value.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    if isinstance(value, list):
        return [_replace_surrogates(entry) for entry in value]
    if isinstance(value, dict):
        return {_replace_surrogates(name): _replace_surrogates(entry) for name, entry in value.items()}
    return value


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
        self._awaited: dict[str, None] = BoundedDict(_MAX_AWAITED)
        self._window_end = 0.0
        self._unsolicited = self._passed = 0

    def note_request(self, request_id: int | str) -> None:
        """Expect an answer to a request."""
        self._awaited[str(request_id)] = None

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


def limit_tools(result: dict[str, Any], is_wanted: Callable[[str], bool]) -> dict[str, Any]:
    """Return a result with only the wanted tools, and of very many only the first in the order of their names.

    The SDK rejects a list for one wrong tool, and validates large schemas on the event loop. So each tool becomes one
    that the SDK accepts, with the tool as the server listed it in `_meta`.
    """
    tools = result.get("tools")
    if not isinstance(tools, list):
        return result
    wanted = [tool for tool in map(_wrap_tool, tools) if is_wanted(tool["name"])]
    if len(wanted) > _MAX_LISTED_TOOLS:
        wanted = sorted(wanted, key=lambda tool: tool["name"])[:_MAX_LISTED_TOOLS]
    return {**result, "tools": wanted}


def _wrap_tool(listed: Any) -> dict[str, Any]:
    tool = listed if isinstance(listed, dict) else {}
    name, schema = tool.get("name"), tool.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, dict) else None
    if not isinstance(properties, dict) or not all(isinstance(value, dict) for value in properties.values()):
        properties = {}
    # The SDK needs the properties for `x-mcp-header`.
    accepted = {"type": "object", "properties": properties}
    return {"name": name if isinstance(name, str) else "", "inputSchema": accepted, "_meta": {"listed": tool}}


def make_printable(text: str, max_length: int) -> str:
    """Return the beginning of a text with its control and invisible characters replaced."""
    shown = "".join(char if char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text[:max_length])
    return f"{shown}…" if len(text) > max_length else shown
