"""From the parts of an answer to blocks, in the order they came in.

Neighbouring pieces of plain text become one block. A signed part is never merged with anything, and neither is one with
fields that are not known here: both go back as they came.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from thinklsp.core.errors import StreamProtocolError
from thinklsp.core.pieces import Pieces
from thinklsp.core.stream import (
    BlockDelta,
    BlockKind,
    BlockStarted,
    BlockStopped,
    Delta,
    InputJsonDelta,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
)

_CALL = "a tool call"
_UNFINISHED = ("partialArgs", "willContinue")


@dataclass(slots=True)
class _Open:
    """A block of plain text that may still grow."""

    index: int
    is_thought: bool
    pieces: Pieces = field(default_factory=Pieces)

    def raw(self) -> Mapping[str, Any]:
        text = str(self.pieces)
        return {"text": text, "thought": True} if self.is_thought else {"text": text}


class BlockBuilder:
    """Owned by one decoder. `called`: whether a call of a tool was among the parts."""

    def __init__(self) -> None:
        self._open: _Open | None = None
        self._count = 0
        self._thought_tokens = 0
        self.called = False

    def part(self, part: Mapping[str, Any], thought_tokens: int) -> Iterator[StreamEvent]:
        """`thought_tokens`: what the service has counted so far. Raises StreamProtocolError."""
        text = _text(part, "text")
        is_thought = part.get("thought") is True
        signed = bool(_text(part, "thoughtSignature"))
        others = [
            key
            for key, value in part.items()
            if value is not None and key not in ("text", "thought", "thoughtSignature")
        ]
        if "functionCall" in others:
            yield from self._call(part)
        elif text:
            delta = ThinkingDelta(text, self._newly_thought(thought_tokens)) if is_thought else TextDelta(text)
            yield from self._whole(part, delta) if signed or others else self._piece(delta)
        elif signed or others:
            yield from self.block("opaque", {"type": others[0] if others else "thoughtSignature"}, raw=part)

    def block(
        self,
        kind: BlockKind,
        opening: Mapping[str, Any],
        delta: Delta | None = None,
        *,
        raw: Mapping[str, Any] | None = None,
    ) -> Iterator[StreamEvent]:
        """A block that comes whole. `raw` None: what it opens with is all of it."""
        yield from self.close()
        index = self._next()
        yield BlockStarted(index, kind, opening)
        if delta is not None:
            yield BlockDelta(index, delta)
        yield BlockStopped(index, raw)

    def close(self) -> Iterator[StreamEvent]:
        """Nothing more belongs to the text before."""
        if self._open is not None:
            yield BlockStopped(self._open.index, self._open.raw())
            self._open = None

    def _piece(self, delta: TextDelta | ThinkingDelta) -> Iterator[StreamEvent]:
        is_thought = isinstance(delta, ThinkingDelta)
        if self._open is None or self._open.is_thought is not is_thought:
            yield from self.close()
            self._open = _Open(self._next(), is_thought)
            yield BlockStarted(self._open.index, *_opening(delta))
        self._open.pieces.append(delta.text)
        yield BlockDelta(self._open.index, delta)

    def _whole(self, part: Mapping[str, Any], delta: TextDelta | ThinkingDelta) -> Iterator[StreamEvent]:
        kind, opening = _opening(delta)
        yield from self.block(kind, opening, delta, raw=part)

    def _call(self, part: Mapping[str, Any]) -> Iterator[StreamEvent]:
        """Arguments come whole. Whatever is no object, or only a piece of one, is for nobody to run."""
        call = part["functionCall"]
        if not isinstance(call, dict):
            raise malformed(_CALL)
        self.called = True
        given = call.get("args")
        arguments: object = {} if given is None else given
        if any(call.get(key) for key in _UNFINISHED):
            arguments = None
        if not isinstance(arguments, dict):
            # For the replay it needs an object, and the empty one says nothing that the model did not say.
            kept = {key: value for key, value in call.items() if key not in _UNFINISHED}
            part = {**part, "functionCall": {**kept, "args": {}}}
        opening = {"type": "tool_use", "id": _text(call, "id", _CALL), "name": _text(call, "name", _CALL)}
        if not opening["name"]:
            raise malformed(_CALL)
        yield from self.block("tool_use", opening, InputJsonDelta(json.dumps(arguments)), raw=part)

    def _newly_thought(self, thought_tokens: int) -> int | None:
        more = thought_tokens - self._thought_tokens
        self._thought_tokens = max(thought_tokens, self._thought_tokens)
        return more if more > 0 else None

    def _next(self) -> int:
        self._count += 1
        return self._count - 1


def _opening(delta: TextDelta | ThinkingDelta) -> tuple[BlockKind, Mapping[str, Any]]:
    kind: BlockKind = "thinking" if isinstance(delta, ThinkingDelta) else "text"
    return kind, {"type": kind, kind: ""}


def _text(content: Mapping[str, Any], key: str, what: str = "a part") -> str:
    value = content.get(key)
    if value is not None and not isinstance(value, str):
        raise malformed(what)
    return value or ""


def malformed(part: str) -> StreamProtocolError:
    return StreamProtocolError(f"The service sent {part} that cannot be read.")
