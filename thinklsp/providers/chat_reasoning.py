"""Decoders for thinking in a Chat Completions stream.

Thinking arrives in one of four fields or in the content, where tags may enclose it. Gateways may send the same text in
several fields. The first field that contains text is used, in the order `reasoning_details`, `reasoning`,
`reasoning_content`, `thinking_blocks`. The thinking is later sent back in the same field. The contents of
`reasoning_details`, `thinking_blocks`, and the content's thinking parts are always kept, because they may be signed. So
is `extra_content` if it contains a signature.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

from thinklsp.core.stream_events import BlockDelta, BlockStarted, BlockStopped, StreamEvent, TextBuffer, ThinkingDelta

DETAILS_FIELD = "reasoning_details"
BLOCKS_FIELD = "thinking_blocks"
EXTRA_FIELD = "extra_content"
PARTS_FIELD = "content"
REASONING_FIELDS = (DETAILS_FIELD, "reasoning", "reasoning_content", BLOCKS_FIELD)
# Maps the type of a `reasoning_details` entry to the field whose pieces are appended. Later pieces replace all other
# fields.
_APPENDED_FIELDS = {"reasoning.text": "text", "reasoning.summary": "summary"}
_OPENING_TAG = "<think>"
_CLOSING_TAG = "</think>"
_LONE_CLOSING_TAG = re.compile(r"^[ \t]*</think>[ \t]*\r?$", re.MULTILINE)
_MAX_LEADING_BLANKS = 64


class _Entry:
    """An entry of `reasoning_details` or `thinking_blocks` that arrives in pieces."""

    def __init__(self, field: str) -> None:
        self.field = field
        self.fields: dict[str, Any] = {}
        self.pieces = TextBuffer()

    @property
    def is_closed(self) -> bool:
        """Whether the entry is a complete block of Claude's. A signature ends a block, and redacted thinking is one."""
        return isinstance(self.fields.get("signature"), str) or self.fields.get("type") == "redacted_thinking"

    def add_piece(self, piece: Mapping[str, Any]) -> str:
        """Add a piece of the entry and return its readable text. Null never replaces an existing value."""
        self.fields |= {key: value for key, value in piece.items() if value is not None or key not in self.fields}
        text = piece.get(self.field)
        if not isinstance(text, str):
            return ""
        self.pieces.append(text)
        return text

    def build(self) -> dict[str, Any]:
        return {**self.fields, self.field: str(self.pieces)} if self.pieces else self.fields


class _ThinkingPart:
    """A thinking part in the content of a Mistral stream. A signature, or the mark `closed`, ends the part."""

    def __init__(self) -> None:
        self._fields: dict[str, Any] = {}
        self._chunks: list[TextBuffer | object] = []

    @property
    def is_closed(self) -> bool:
        return bool(self._fields.get("signature")) or self._fields.get("closed") is True

    def add_piece(self, part: Mapping[str, Any]) -> None:
        self._fields |= {key: value for key, value in part.items() if value is not None or key not in self._fields}
        chunks = part.get("thinking")
        for chunk in chunks if isinstance(chunks, list) else [{"type": "text", "text": extract_text(chunks)}]:
            if not (isinstance(chunk, dict) and chunk.keys() == {"type", "text"} and isinstance(chunk["text"], str)):
                self._chunks.append(chunk)
                continue
            if not (self._chunks and isinstance(self._chunks[-1], TextBuffer)):
                self._chunks.append(TextBuffer())
            if isinstance(buffer := self._chunks[-1], TextBuffer):
                buffer.append(chunk["text"])

    def build_part(self) -> dict[str, Any]:
        chunks = [
            {"type": "text", "text": str(chunk)} if isinstance(chunk, TextBuffer) else chunk for chunk in self._chunks
        ]
        # The field is a string only if the server sent a string.
        is_text = isinstance(self._fields.get("thinking"), str)
        return self._fields | {"thinking": extract_text(chunks) if is_text else chunks}


def _has_signature(value: Mapping[str, Any]) -> bool:
    """Return whether an object, or an object in it, has a field for a signature."""
    return any(
        "signature" in key or (isinstance(inner, dict) and _has_signature(inner)) for key, inner in value.items()
    )


def extract_text(value: object) -> str:
    """Return the text of a part, which is a string or a list of parts."""
    if isinstance(value, list):
        return "".join(text for part in value if isinstance(part, dict) and isinstance(text := part.get("text"), str))
    return value if isinstance(value, str) else ""


class ReasoningDecoder:
    """A decoder that converts all thinking in a stream to the events of a single thinking block."""

    def __init__(self, index: int) -> None:
        self._index = index
        self._source: str | None = None
        self._pieces = TextBuffer()
        self._details: list[_Entry] = []
        self._details_by_key: dict[tuple[str, int], _Entry] = {}
        self._blocks: list[_Entry] = []
        self._parts: list[_ThinkingPart] = []
        self._extra: dict[str, Any] = {}
        self._is_open = False

    @property
    def has_started(self) -> bool:
        return self._is_open

    @property
    def can_hold_signature(self) -> bool:
        """Whether the thinking arrived in a field that can contain a signature."""
        return bool(self._details or self._list_blocks() or self._parts or self._extra)

    @property
    def text(self) -> str:
        return str(self._pieces)

    def decode_delta(self, delta: Mapping[str, Any]) -> list[StreamEvent]:
        """Return the events for the thinking in a delta."""
        entries = delta.get(DETAILS_FIELD)
        texts = {DETAILS_FIELD: self._merge_entries(entries) if isinstance(entries, list) else ""}
        texts |= {name: text for name in REASONING_FIELDS[1:3] if isinstance(text := delta.get(name), str)}
        texts[BLOCKS_FIELD] = self._add_blocks(delta.get(BLOCKS_FIELD))
        extra = delta.get(EXTRA_FIELD)
        if isinstance(extra, dict) and _has_signature(extra):
            self._extra |= extra
        return self._show_text(texts)

    def add_part(self, part: Mapping[str, Any]) -> list[StreamEvent]:
        """Add a thinking part of the content, or a piece of one."""
        if not self._parts or self._parts[-1].is_closed:
            self._parts.append(_ThinkingPart())
        self._parts[-1].add_piece(part)
        return self._show_text({PARTS_FIELD: extract_text(part.get("thinking"))})

    def add_text(self, source: str, text: str) -> list[StreamEvent]:
        """Add thinking that was part of the content. `source` is its form, for example `think_tags`."""
        return self._show_text({source: text})

    def emit_whole_block(self, source: str, text: str) -> list[StreamEvent]:
        """Emit a complete thinking block for thinking that was previously streamed as text."""
        self._source, self._is_open = source, True
        return [BlockStarted(self._index, "thinking", {}), BlockStopped(self._index, {source: text}, text)]

    def stop(self) -> list[StreamEvent]:
        if not self._is_open:
            return []
        entries = {
            DETAILS_FIELD: [detail.build() for detail in self._details],
            BLOCKS_FIELD: self._list_blocks(),
            PARTS_FIELD: [part.build_part() for part in self._parts],
        }
        raw: dict[str, Any] = {field: listed for field, listed in entries.items() if listed}
        text = {self._source or REASONING_FIELDS[1]: self.text} if self._source != BLOCKS_FIELD else {}
        extra = {EXTRA_FIELD: self._extra} if self._extra else {}
        return [BlockStopped(self._index, (raw or text) | extra)]

    def _show_text(self, texts: Mapping[str, str]) -> list[StreamEvent]:
        if self._source is None:
            self._source = next((name for name, text in texts.items() if text), None)
        text = texts.get(self._source or "", "")
        events: list[StreamEvent] = []
        if not self._is_open and (text or self.can_hold_signature):
            self._is_open = True
            events.append(BlockStarted(self._index, "thinking", {}))
        if text:
            self._pieces.append(text)
            events.append(BlockDelta(self._index, ThinkingDelta(text)))
        return events

    def _list_blocks(self) -> list[dict[str, Any]]:
        """Return the complete blocks, which can be sent back. Claude rejects thinking without a signature."""
        return [block.build() for block in self._blocks if block.is_closed]

    def _add_blocks(self, entries: object) -> str:
        """Add the pieces of `thinking_blocks` in a delta, which have no index, and return their readable text."""
        text = ""
        for piece in entries if isinstance(entries, list) else ():
            if isinstance(piece, dict):
                is_redacted = piece.get("type") == "redacted_thinking"
                if is_redacted or not self._blocks or self._blocks[-1].is_closed:
                    self._blocks.append(_Entry("thinking"))
                text += self._blocks[-1].add_piece(piece)
        return text

    def _merge_entries(self, entries: list[Any]) -> str:
        """Add `reasoning_details` entries and return their readable text, separated by blank lines."""
        text = ""
        for position, entry in enumerate(entries):
            if not isinstance(entry, dict):
                continue
            count = len(self._details)
            piece = self._find_detail(entry, position).add_piece(entry)
            is_new = len(self._details) > count
            text += f"\n\n{piece}" if piece and is_new and (text or self._pieces) else piece
        return text

    def _find_detail(self, entry: Mapping[str, Any], position: int) -> _Entry:
        """Return the detail with the entry's type and index. An entry with a different ID starts a new detail.

        A text and its encrypted form may have the same index, so the type is part of the key.
        """
        kind, index, name = str(entry.get("type") or ""), entry.get("index"), entry.get("id")
        place = (kind, index if isinstance(index, int) else position)
        detail = self._details_by_key.get(place)
        if detail is None or (name and detail.fields.get("id") and detail.fields["id"] != name):
            detail = self._details_by_key[place] = _Entry(_APPENDED_FIELDS.get(kind, ""))
            self._details.append(detail)
        return detail


class TextPiece(NamedTuple):
    """A piece of an answer, which is either thinking or text."""

    kind: Literal["thinking", "text"]
    text: str


class ThinkTagSplitter:
    """A splitter that separates `<think>…</think>` at the start of an answer from the answer's text.

    The splitter is used only if the user enables `think_tags`, because a model may also write about such tags. An
    opening tag is recognized only at the start of the answer, after optional whitespace. Whitespace after a tag is
    dropped.
    """

    def __init__(self) -> None:
        # None until it is known whether the answer begins with an opening tag.
        self._kind: Literal["thinking", "text"] | None = None
        self._pending_text = ""
        self._is_after_tag = False
        self.has_opened = False

    def feed(self, text: str) -> list[TextPiece]:
        """Add text and return the pieces that can already be classified. An incomplete tag is held back."""
        text, self._pending_text = self._pending_text + text, ""
        if self._kind is None:
            bare = text.lstrip()
            can_open = len(text) - len(bare) <= _MAX_LEADING_BLANKS
            if can_open and len(bare) < len(_OPENING_TAG) and _OPENING_TAG.startswith(bare):
                self._pending_text = text
                return []
            self.has_opened = self._is_after_tag = can_open and bare.startswith(_OPENING_TAG)
            self._kind, text = ("thinking", bare.removeprefix(_OPENING_TAG)) if self.has_opened else ("text", text)
        if self._kind == "text":
            return self._emit("text", text)
        thought, closed, rest = text.partition(_CLOSING_TAG)
        if closed:
            pieces = self._emit("thinking", thought)
            self._kind, self._is_after_tag = "text", True
            return [*pieces, *self._emit("text", rest)]
        tail = next((size for size in range(len(_CLOSING_TAG) - 1, 0, -1) if text.endswith(_CLOSING_TAG[:size])), 0)
        self._pending_text = text[len(text) - tail :]
        return self._emit("thinking", text[: len(text) - tail])

    def finish(self) -> list[TextPiece]:
        """Return the remaining text. Thinking without a closing tag remains thinking."""
        text, self._pending_text = self._pending_text, ""
        return self._emit(self._kind or "text", text)

    def _emit(self, kind: Literal["thinking", "text"], text: str) -> list[TextPiece]:
        if self._is_after_tag:
            text = text.lstrip()
            self._is_after_tag = not text
        return [TextPiece(kind, text)] if text else []


def split_unopened(text: str) -> tuple[str, str] | None:
    """Split a complete text at a closing tag on its own line.

    Return the thinking and the answer, or None if there is no such tag. Some chat templates put the opening tag in the
    prompt, so that the model sends only the closing tag.
    """
    closing = _LONE_CLOSING_TAG.search(text)
    return None if closing is None else (text[: closing.start()].strip(), text[closing.end() :].lstrip())
