"""The assembler that joins streamed pieces into tool calls. Its main task is to assign each piece to the right call.

Calls are identified by their index. If indexes are missing or all the same, a new ID starts a new call. If there is no
ID either, a name starts a new call once the previous call's arguments are complete, unless it repeats them. IDs and
names are set only once, because some servers repeat them. Arguments are appended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from thinklsp.core.errors import StreamProtocolError
from thinklsp.core.stream_events import (
    ArgumentBuffer,
    BlockDelta,
    BlockStarted,
    BlockStopped,
    FieldsDelta,
    InputJsonDelta,
    StreamEvent,
    UnmatchedEvent,
)
from thinklsp.providers.decoding import build_malformed_error, check_argument_size

# The maximum length of arguments that are checked for completeness. The check parses all arguments again for each
# piece, which is slow for longer arguments.
_MAX_CHECKED_CHARS = 64 * 1024
_STANDARD_FIELDS = frozenset({"index", "id", "type", "function"})


class _Call:
    """A tool call that arrives in pieces."""

    __slots__ = ("arguments", "extras", "id", "index", "name")

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments = ArgumentBuffer()
        self.extras: dict[str, Any] = {}

    def add_piece(self, piece: _Piece) -> None:
        self.id = self.id or piece.id
        self.name = self.name or piece.name
        if piece.arguments:
            self.arguments.append(piece.arguments)
            check_argument_size(self.arguments.size)
        self.extras.update(piece.extras)

    def is_followed_by(self, piece: _Piece) -> bool:
        """Return whether the arguments are complete, so that other arguments belong to another call."""
        if self.arguments.size > _MAX_CHECKED_CHARS:
            return False
        arguments = _parse_object(str(self.arguments))
        if piece.name == self.name and not arguments and piece.index is not None:
            return False  # The empty object is a placeholder.
        return arguments is not None and (piece.name != self.name or arguments != _parse_object(piece.arguments))

    def build_events(self) -> list[StreamEvent]:
        """Return all events of the call except the start event. The arguments are sent in a single event."""
        arguments = str(self.arguments)
        raw = {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}}
        events: list[StreamEvent] = [BlockDelta(self.index, FieldsDelta({"id": self.id, "name": self.name}))]
        if arguments.strip() not in ("", "null"):
            events.append(BlockDelta(self.index, InputJsonDelta(arguments)))
        return [*events, BlockStopped(self.index, raw | self.extras)]


class _Piece:
    """An entry of `delta.tool_calls` with validated fields. `index` is None if the entry has no index."""

    __slots__ = ("arguments", "extras", "id", "index", "name")

    def __init__(self, entry: Mapping[str, Any]) -> None:
        function = entry.get("function")
        function = function if isinstance(function, dict) else {}
        index, call_id, name = entry.get("index"), entry.get("id"), function.get("name")
        self.index = index if isinstance(index, int) and not isinstance(index, bool) else None
        self.id = str(call_id) if isinstance(call_id, str | int) else ""
        self.name = name if isinstance(name, str) else ""
        self.arguments = _read_arguments(function.get("arguments"))
        # Keep non-standard fields, because some providers use them for signatures.
        self.extras = {key: value for key, value in entry.items() if key not in _STANDARD_FIELDS and value is not None}

    def is_call_after(self, call: _Call) -> bool:
        """Return whether the piece starts a new call after `call`.

        A new call starts only if the arguments of `call` are complete. The piece must have a name. If both names are
        the same, the piece must also have arguments.
        """
        is_more = bool(self.arguments) or self.name != call.name
        return bool(self.name and call.name) and is_more and call.is_followed_by(self)


class ToolCallAssembler:
    """An assembler for the tool calls in a stream.

    Calls become blocks in the order in which they start. The first block has the index `first`.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add_entries(self, entries: list[Any], *, whole: bool) -> list[StreamEvent]:
        """Add the `tool_calls` entries in a delta. If `whole` is true, each entry is a complete call."""
        count = len(self._calls)
        unmatched: list[StreamEvent] = []
        for position, entry in enumerate(entries):
            if entry is None:
                continue
            if not isinstance(entry, dict):
                raise build_malformed_error("a tool call")
            piece = _Piece(entry)
            if not (piece.id or piece.name or piece.arguments or piece.extras):
                continue
            call = self._begin_call(piece) if whole else self._find_call(piece, position)
            if call is None:
                unmatched.append(UnmatchedEvent("arguments for a call that is not open"))
                continue
            call.add_piece(piece)
            if piece.id:
                self._by_id.setdefault(piece.id, call)
        new_calls = self._calls[count:]
        return [
            *unmatched,
            *(BlockStarted(call.index, "tool_use", {"id": call.id, "name": call.name}) for call in new_calls),
        ]

    def stop(self, *, cut: bool) -> list[StreamEvent]:
        """End all calls. If `cut` is true, the answer is incomplete, so calls without a name are not an error."""
        if not cut and any(not call.name for call in self._calls):
            raise StreamProtocolError("The provider sent a tool call without a name.")
        return [event for call in self._calls for event in call.build_events()]

    def _begin_call(self, piece: _Piece) -> _Call:
        call = _Call(self._first + len(self._calls))
        self._calls.append(call)
        if piece.index is not None:
            self._by_index[piece.index] = call
        return call

    def _find_call(self, piece: _Piece, position: int) -> _Call | None:
        """Return the call that a piece belongs to, or None if the start of the call is missing."""
        if piece.index is not None:
            current = self._by_index.get(piece.index)
        elif piece.id:
            current = self._by_id.get(piece.id)
        else:
            # If a delta contains several entries, an entry with a name starts a separate call.
            current = self._calls[-1] if self._calls and not (position and piece.name) else None
        if current is None:
            return self._begin_call(piece) if piece.id or piece.name else None
        if piece.id and current.id and piece.id != current.id:
            return self._by_id.get(piece.id) or self._begin_call(piece)
        return self._begin_call(piece) if not piece.id and piece.is_call_after(current) else current


def _parse_object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _read_arguments(value: object) -> str:
    """Return the arguments as JSON text, even if the server sends an object."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, dict) else ""
