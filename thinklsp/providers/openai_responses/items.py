"""Output items that arrive in pieces. This module joins the pieces, the readable text and the final form of an item.

The provider sends each complete item at the item's end, and thinklsp stores the complete item. The pieces are used for
display, and for servers that do not send complete items. Encrypted thinking in an item's start event is partial, so it
is never stored.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from thinklsp.core.stream_events import (
    ArgumentBuffer,
    BlockDelta,
    BlockKind,
    BlockStarted,
    BlockStopped,
    FieldsDelta,
    InputJsonDelta,
    StreamEvent,
    TextBuffer,
    TextDelta,
    ThinkingDelta,
)
from thinklsp.providers.decoding import check_argument_size

PartKind = Literal["output_text", "refusal", "summary_text", "reasoning_text", "arguments"]

_BLOCK_KINDS: Mapping[str, BlockKind] = {"message": "text", "reasoning": "thinking", "function_call": "tool_use"}
_PARAGRAPH_BREAK = "\n\n"
# Arguments that are not valid JSON, so that a tool call in an incomplete answer never runs.
_INVALID_ARGUMENTS = "{"


def resolve_kind(item: Mapping[str, Any]) -> BlockKind:
    """Return the block kind for an item. Unknown items and calls of the provider's own tools are `opaque`."""
    return _BLOCK_KINDS.get(str(item.get("type")), "opaque")


def read_string(content: Mapping[str, Any], key: str) -> str:
    value = content.get(key)
    return value if isinstance(value, str) else ""


def find_item_id(item: Mapping[str, Any]) -> str:
    """Return the item's call ID or item ID, or an empty string if the item has neither."""
    return read_string(item, "call_id") or read_string(item, "id")


class ItemDraft:
    """An output item that arrives in pieces.

    `finished_item` is None while the item is open. `unencrypted_item` is a finished thinking item without encrypted
    content, which may still arrive in the final response. `has_shown_text` is true if any text was emitted, and
    `has_shown_words` is true if any of it was not blank.
    """

    def __init__(self, index: int, opening: Mapping[str, Any]) -> None:
        self.index = index
        self.kind = resolve_kind(opening)
        self.finished_item: dict[str, Any] | None = None
        self.unencrypted_item: Mapping[str, Any] | None = None
        self.has_shown_text = self.has_shown_words = False
        self._shown_text = TextBuffer()
        self._opening = opening
        self._pieces: dict[tuple[PartKind, int], TextBuffer] = {}
        self._last_shown: tuple[PartKind, int] | None = None
        self._has_summary = False
        self._reasoning_part: int | None = None
        self._argument_chars = 0

    @property
    def item_id(self) -> str:
        return find_item_id(self._opening if self.finished_item is None else self.finished_item)

    def build_start(self) -> StreamEvent:
        fields = (
            _extract_call_fields(self._opening) if self.kind == "tool_use" else {"type": str(self._opening.get("type"))}
        )
        return BlockStarted(self.index, self.kind, fields)

    def add_piece(self, part: PartKind, number: int, text: str, *, is_separate: bool) -> list[StreamEvent]:
        """Add a piece of a content part.

        `is_separate` is true if the answer contains text from an earlier message, so a blank line is needed.
        """
        if not text:
            return []
        if part == "arguments":
            self._count_argument_chars(len(text))
        number = self._normalize_number(part, number)
        if (pieces := self._pieces.get((part, number))) is None:
            pieces = self._pieces[part, number] = ArgumentBuffer() if part == "arguments" else TextBuffer()
        pieces.append(text)
        return self._show_text(part, number, text, is_separate=is_separate)

    def settle_part(self, part: PartKind, number: int, text: str, *, is_separate: bool) -> list[StreamEvent]:
        """Replace the pieces of a content part with the finished part. Emit any text that was missing."""
        number = self._normalize_number(part, number)
        so_far = str(self._pieces.get((part, number), ""))
        is_end = part == "reasoning_text" and so_far.endswith(text)
        if part == "reasoning_text":
            self._reasoning_part = None
        if not text or text == so_far or is_end:
            return []
        self._pieces[part, number] = TextBuffer(text)
        return (
            self._show_text(part, number, text[len(so_far) :], is_separate=is_separate)
            if text.startswith(so_far)
            else []
        )

    def finish_item(self, item: Mapping[str, Any] | None, *, cut: bool, is_separate: bool) -> list[StreamEvent]:
        """Finish the item. `item` is the complete item, or None if the provider did not send it.

        `cut` is true if the answer is incomplete.
        """
        whole = self.finished_item = self._complete_item(item, cut=cut)
        if self.kind == "tool_use":
            return [*self._emit_call(whole, cut=cut), BlockStopped(self.index, whole)]
        if self.kind not in ("text", "thinking"):
            return [BlockStopped(self.index, whole)]
        text, shown_text = self._extract_text(whole), str(self._shown_text)
        # Free copies of the text early to save memory.
        self._shown_text, self._pieces = TextBuffer(), {}
        if text and self.kind == "text" and (shown_text.startswith(_PARAGRAPH_BREAK) if shown_text else is_separate):
            text = _PARAGRAPH_BREAK + text
        if not text.startswith(shown_text):
            self.has_shown_text, self.has_shown_words = bool(text), bool(text.strip())
            return [BlockStopped(self.index, whole, text)]
        return [*self._emit_text(text[len(shown_text) :]), BlockStopped(self.index, whole)]

    def _show_text(self, part: PartKind, number: int, text: str, *, is_separate: bool) -> list[StreamEvent]:
        """Emit text for display. Full thinking is emitted only if there is no thinking summary.

        Blank lines separate paragraphs of thinking, and separate a second message from the first message.
        """
        self._has_summary = self._has_summary or part == "summary_text"
        if part in ("refusal", "arguments") or (part == "reasoning_text" and self._has_summary):
            return []
        is_next = self._last_shown not in (None, (part, number)) if self.kind == "thinking" else is_separate
        if is_next and (self.kind == "thinking" or not self.has_shown_text):
            text = _PARAGRAPH_BREAK + text
        self._last_shown = (part, number)
        return self._emit_text(text)

    def _emit_text(self, text: str) -> list[StreamEvent]:
        if not text:
            return []
        self._shown_text.append(text)
        self.has_shown_text = True
        self.has_shown_words = self.has_shown_words or not text.isspace()
        return [BlockDelta(self.index, TextDelta(text) if self.kind == "text" else ThinkingDelta(text))]

    def _emit_call(self, whole: Mapping[str, Any], *, cut: bool) -> list[StreamEvent]:
        """Emit a tool call's arguments, and its ID and name if they differ from those in the start event."""
        status, fields = whole.get("status"), _extract_call_fields(whole)
        is_half = status == "incomplete" or (cut and status != "completed")
        arguments = _INVALID_ARGUMENTS if is_half else read_string(whole, "arguments")
        self._argument_chars = 0
        self._count_argument_chars(len(arguments))
        renamed = [] if fields == _extract_call_fields(self._opening) else [BlockDelta(self.index, FieldsDelta(fields))]
        return [*renamed, BlockDelta(self.index, InputJsonDelta(arguments))]

    def _count_argument_chars(self, chars: int) -> None:
        self._argument_chars += chars
        check_argument_size(self._argument_chars)

    def _complete_item(self, item: Mapping[str, Any] | None, *, cut: bool) -> dict[str, Any]:
        """Return the finished item. Missing fields are filled in from the pieces."""
        whole = {**(self._copy_opening(cut=cut) if item is None else item)}
        match self.kind:
            case "text" if not whole.get("content"):
                whole["content"] = list(self._build_parts("output_text", "refusal"))
            case "thinking":
                if not isinstance(whole.get("summary"), list):
                    whole["summary"] = list(self._build_parts("summary_text"))
                if item is None and (content := list(self._build_parts("reasoning_text"))):
                    whole["content"] = content
            case "tool_use" if not read_string(whole, "arguments"):
                whole["arguments"] = self._join_pieces("arguments")
        return whole

    def _copy_opening(self, *, cut: bool) -> dict[str, Any]:
        """Return the fields of the start event that are also valid in a finished item."""
        partial = ("encrypted_content", "content", "summary", "status")
        whole = {key: value for key, value in self._opening.items() if key not in partial}
        if self.kind == "text":
            whole["role"] = "assistant"
        # An opaque item may be incomplete if the provider did not send its final form.
        return whole | {"status": "incomplete" if cut or self.kind == "opaque" else "completed"}

    def _extract_text(self, whole: Mapping[str, Any]) -> str:
        """Return the finished item's text. If finished thinking has no text, return the text of the pieces."""
        if self.kind == "text":
            return "".join(_collect_texts(whole, "content", "output_text"))
        texts = _collect_texts(whole, "summary", "summary_text") or _collect_texts(whole, "content", "reasoning_text")
        if any(text.strip() for text in texts):
            return _PARAGRAPH_BREAK.join(text for text in texts if text)
        return self._join_pieces("summary_text") or self._join_pieces("reasoning_text")

    def _build_parts(self, *kinds: PartKind) -> Iterator[dict[str, Any]]:
        for part, number in sorted(self._pieces, key=lambda place: place[1]):
            text = str(self._pieces[part, number])
            if part not in kinds:
                continue
            if part == "refusal":
                yield {"type": part, "refusal": text}
            elif part == "output_text":
                yield {"type": part, "text": text, "annotations": []}
            else:
                yield {"type": part, "text": text}

    def _join_pieces(self, kind: PartKind) -> str:
        places = sorted(place for place in self._pieces if place[0] == kind)
        return _PARAGRAPH_BREAK.join(str(self._pieces[place]) for place in places)

    def _normalize_number(self, part: PartKind, number: int) -> int:
        """Return the index of a content part.

        Some servers send each piece of the reasoning text under a new index, so all pieces get the index of the first.
        """
        if part == "reasoning_text" and self._reasoning_part is None:
            self._reasoning_part = number
        return self._reasoning_part if part == "reasoning_text" and self._reasoning_part is not None else number


def read_refusal(message: Mapping[str, Any]) -> str:
    """Return the refusal in a finished message, or an empty string."""
    return "".join(_collect_texts(message, "content", "refusal", "refusal"))


def _extract_call_fields(item: Mapping[str, Any]) -> dict[str, str]:
    return {"id": read_string(item, "call_id"), "name": read_string(item, "name")}


def _collect_texts(whole: Mapping[str, Any], key: str, kind: str, field: str = "text") -> list[str]:
    parts = whole.get(key)
    return [
        read_string(part, field)
        for part in (parts if isinstance(parts, list) else ())
        if isinstance(part, dict) and part.get("type") == kind
    ]
