"""The thinking in a stream of chat completions: one of four fields, or a part of the content.

Gateways may send the same text under several names. One of them is read, the first that brings text, in the order
`reasoning_details`, `reasoning`, `reasoning_content`, `thinking_blocks`; under that name it can go back. Details and
blocks are kept whole, whatever else comes, since they may be signed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thinklsp.core.pieces import Pieces
from thinklsp.core.stream import BlockDelta, BlockStarted, BlockStopped, StreamEvent, ThinkingDelta

DETAILS = "reasoning_details"
BLOCKS = "thinking_blocks"
FIELDS = (DETAILS, "reasoning", "reasoning_content", BLOCKS)
# What is appended where a detail comes in pieces; everything else in it is set.
_APPENDED = {"reasoning.text": "text", "reasoning.summary": "summary"}


class _Detail:
    """One entry of `reasoning_details` on its way."""

    __slots__ = ("field", "fields", "pieces")

    def __init__(self, kind: str) -> None:
        self.field = _APPENDED.get(kind, "")
        self.fields: dict[str, Any] = {}
        self.pieces = Pieces()

    def take(self, entry: Mapping[str, Any]) -> str:
        """The readable text in this piece. Nulls never replace what is known."""
        for key, value in entry.items():
            if value is not None or key not in self.fields:
                self.fields[key] = value
        text = entry.get(self.field)
        if not isinstance(text, str):
            return ""
        self.pieces.append(text)
        return text

    def whole(self) -> dict[str, Any]:
        return {**self.fields, self.field: str(self.pieces)} if self.pieces else self.fields


class _ThinkingBlocks:
    """LiteLLM's `thinking_blocks`: Claude's signed and redacted thinking. Used for one stream.

    The pieces carry no index. A signature ends a block of thinking; redacted thinking comes whole.
    """

    def __init__(self) -> None:
        self._finished: list[dict[str, Any]] = []
        self._pieces = Pieces()

    def take(self, entries: object) -> str:
        """Take the entries of one delta; return the readable text in them."""
        found = [entry for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
        return "".join(map(self._take, found))

    def whole(self) -> list[dict[str, Any]]:
        """Return the blocks that can go back. Thinking without a signature would be refused."""
        return self._finished

    def _take(self, entry: dict[str, Any]) -> str:
        if entry.get("type") == "redacted_thinking":
            self._finished.append(entry)
            return ""
        text, signature = entry.get("thinking"), entry.get("signature")
        text = text if isinstance(text, str) else ""
        self._pieces.append(text)
        if isinstance(signature, str) and signature:
            self._finished.append({**entry, "type": "thinking", "thinking": str(self._pieces)})
            self._pieces = Pieces()
        return text


class Reasoning:
    """Lives with one stream; gives the events of one thinking block."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._source: str | None = None
        self._pieces = Pieces()
        self._details: list[_Detail] = []
        self._places: dict[tuple[str, int], _Detail] = {}
        self._blocks = _ThinkingBlocks()
        self._open = False

    @property
    def seen(self) -> bool:
        return self._open

    @property
    def is_sealed(self) -> bool:
        """Whether it came in a form that can hold a signature."""
        return bool(self._details or self._blocks.whole())

    @property
    def text(self) -> str:
        return str(self._pieces)

    def take(self, delta: Mapping[str, Any]) -> list[StreamEvent]:
        """What of the delta is thinking."""
        entries = delta.get(DETAILS)
        found = {DETAILS: self._merge(entries) if isinstance(entries, list) else ""}
        found |= {name: text for name in FIELDS[1:3] if isinstance(text := delta.get(name), str)}
        found[BLOCKS] = self._blocks.take(delta.get(BLOCKS))
        return self._show(found)

    def tell(self, source: str, text: str) -> list[StreamEvent]:
        """Thinking that stood in the content; `source` says how."""
        return self._show({source: text})

    def whole(self, source: str, text: str) -> list[StreamEvent]:
        """A whole block of thinking that has been shown as something else before."""
        self._source, self._open = source, True
        return [BlockStarted(self._index, "thinking", {}), BlockStopped(self._index, {source: text}, text)]

    def stop(self) -> list[StreamEvent]:
        if not self._open:
            return []
        raw: dict[str, Any] = {DETAILS: [detail.whole() for detail in self._details]} if self._details else {}
        if blocks := self._blocks.whole():
            raw[BLOCKS] = blocks
        text = {self._source or FIELDS[1]: self.text} if self._source != BLOCKS else {}
        return [BlockStopped(self._index, raw or text)]

    def _show(self, found: Mapping[str, str]) -> list[StreamEvent]:
        if self._source is None:
            self._source = next((name for name, text in found.items() if text), None)
        text = found.get(self._source or "", "")
        events: list[StreamEvent] = []
        if not self._open and (text or self._details or self._blocks.whole()):
            self._open = True
            events.append(BlockStarted(self._index, "thinking", {}))
        if text:
            self._pieces.append(text)
            events.append(BlockDelta(self._index, ThinkingDelta(text)))
        return events

    def _merge(self, entries: list[Any]) -> str:
        """The readable text of the entries; what belongs to different ones is set apart."""
        text = ""
        for position, entry in enumerate(entries):
            if not isinstance(entry, dict):
                continue
            known = len(self._details)
            piece = self._detail(entry, position).take(entry)
            begins = len(self._details) > known
            text += f"\n\n{piece}" if piece and begins and (text or self._pieces) else piece
        return text

    def _detail(self, entry: Mapping[str, Any], position: int) -> _Detail:
        """By type and index: text and its encrypted twin may share an index. Another id is another entry."""
        kind, index, name = str(entry.get("type") or ""), entry.get("index"), entry.get("id")
        place = (kind, index if isinstance(index, int) else position)
        detail = self._places.get(place)
        if detail is None or (name and detail.fields.get("id") and detail.fields["id"] != name):
            detail = self._places[place] = _Detail(kind)
            self._details.append(detail)
        return detail
