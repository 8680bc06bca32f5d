"""Tool calls out of the pieces in which servers send them. Which piece belongs to which call is the whole art.

The rule is the index. Where it is missing, or the same for all, an id that is new begins a call; where there is no id
either, a name with arguments does, once those of the call before it are whole. Ids and names are set once, since some
servers repeat them; arguments are appended.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from thinklsp.core.errors import StreamProtocolError
from thinklsp.core.stream import (
    BlockDelta,
    BlockStarted,
    BlockStopped,
    FieldsDelta,
    InputJsonDelta,
    StreamEvent,
    Unmatched,
)

_ARGUMENT_CHARS = 1024 * 1024
# Longer ones are not tried for being complete, since that may happen once for each piece.
_TRIED_CHARS = 64 * 1024
_OWN = frozenset({"index", "id", "type", "function"})


class _Call:
    __slots__ = ("chars", "extras", "id", "index", "name", "pieces")

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.pieces: list[str] = []
        self.chars = 0
        self.extras: dict[str, Any] = {}

    def take(self, piece: _Piece) -> None:
        self.id = self.id or piece.id
        self.name = self.name or piece.name
        self.chars += len(piece.arguments)
        if self.chars > _ARGUMENT_CHARS:
            error = StreamProtocolError("The model wrote tool arguments of more than a million characters.")
            error.retryable = False
            raise error
        if piece.arguments:
            self.pieces.append(piece.arguments)
        self.extras.update(piece.extras)

    def is_whole(self) -> bool:
        """Whether its arguments are complete, so that more of them would belong to another call."""
        if not self.pieces or self.chars > _TRIED_CHARS or not self.pieces[-1].rstrip().endswith("}"):
            return False
        try:
            return isinstance(json.loads("".join(self.pieces)), dict)
        except (ValueError, RecursionError):
            return False

    def events(self) -> list[StreamEvent]:
        """Everything but its opening. Arguments are told at once, as the service's own JSON keeps them."""
        arguments = "".join(self.pieces)
        raw = {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}}
        events: list[StreamEvent] = [BlockDelta(self.index, FieldsDelta({"id": self.id, "name": self.name}))]
        if arguments.strip() not in ("", "null"):
            events.append(BlockDelta(self.index, InputJsonDelta(arguments)))
        return [*events, BlockStopped(self.index, raw | self.extras)]


class _Piece:
    """One entry of `delta.tool_calls`, brought into one form. `index` None where there is none."""

    __slots__ = ("arguments", "extras", "id", "index", "name")

    def __init__(self, entry: Mapping[str, Any]) -> None:
        function = entry.get("function")
        function = function if isinstance(function, dict) else {}
        index, call_id, name = entry.get("index"), entry.get("id"), function.get("name")
        self.index = index if isinstance(index, int) and not isinstance(index, bool) else None
        self.id = str(call_id) if isinstance(call_id, str | int) else ""
        self.name = name if isinstance(name, str) else ""
        self.arguments = _arguments(function.get("arguments"))
        # Some services sign their calls in fields of their own.
        self.extras = {key: value for key, value in entry.items() if key not in _OWN and value is not None}

    def begins_behind(self, call: _Call) -> bool:
        """Whether this can only be another call: it has a name and is more than a repeat, and that one is complete."""
        is_more = bool(self.arguments) or self.name != call.name
        return bool(self.name and call.name) and is_more and call.is_whole()


class ToolCalls:
    """Lives with one stream. The calls become blocks from index `first` on, in the order in which they began."""

    def __init__(self, first: int) -> None:
        self._first = first
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def take(self, entries: list[Any], *, whole: bool) -> list[StreamEvent]:
        """The entries of one delta. `whole`: each is a call of its own."""
        known = len(self._calls)
        unmatched: list[StreamEvent] = []
        for position, entry in enumerate(entries):
            if entry is None:
                continue
            if not isinstance(entry, dict):
                raise StreamProtocolError("The service sent a tool call that cannot be read.")
            piece = _Piece(entry)
            if not (piece.id or piece.name or piece.arguments or piece.extras):
                continue
            call = self._begin(piece) if whole else self._call_of(piece, position)
            if call is None:
                unmatched.append(Unmatched("arguments for a call that is not open"))
                continue
            call.take(piece)
            if piece.id:
                self._by_id.setdefault(piece.id, call)
        opened = self._calls[known:]
        return [
            *unmatched,
            *(BlockStarted(call.index, "tool_use", {"id": call.id, "name": call.name}) for call in opened),
        ]

    def stop(self, *, cut: bool) -> list[StreamEvent]:
        """`cut`: the answer ended in the middle, and none of its calls will run."""
        if not cut and any(not call.name for call in self._calls):
            raise StreamProtocolError("The service sent a tool call without a name.")
        return [event for call in self._calls for event in call.events()]

    def _begin(self, piece: _Piece) -> _Call:
        call = _Call(self._first + len(self._calls))
        self._calls.append(call)
        if piece.index is not None:
            self._by_index[piece.index] = call
        return call

    def _call_of(self, piece: _Piece, position: int) -> _Call | None:
        """Return the call that the piece belongs to, None for a piece of a call that was never begun."""
        if piece.index is not None:
            current = self._by_index.get(piece.index)
        elif piece.id:
            current = self._by_id.get(piece.id)
        else:
            # Two entries of one delta are two calls, unless the second only continues.
            current = self._calls[-1] if self._calls and not (position and piece.name) else None
        if current is None:
            return self._begin(piece) if piece.id or piece.name else None
        if piece.id and current.id and piece.id != current.id:
            return self._by_id.get(piece.id) or self._begin(piece)
        return self._begin(piece) if not piece.id and piece.begins_behind(current) else current


def _arguments(value: object) -> str:
    """Some servers send the object itself instead of its text."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, dict) else ""
