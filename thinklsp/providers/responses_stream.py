"""The decoder for the Responses API's event stream.

The `type` field in the data selects the event. The event's name is used only if there is no `type` field. Each output
item becomes a block with the item's `output_index`. Items may be interleaved, and indexes may have gaps. Unknown events
are ignored, and unknown items are kept unchanged. The decoder also accepts a complete response as JSON, and items that
appear only in the final response.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from thinklsp.core.errors import StreamProtocolError
from thinklsp.core.messages import COMPACTION_TYPE, StopReason
from thinklsp.core.stream_events import (
    ArgumentBuffer,
    BlockDelta,
    BlockKind,
    BlockStarted,
    BlockStopped,
    FieldsDelta,
    InputJsonDelta,
    MessageFinished,
    StreamEvent,
    TextBuffer,
    TextDelta,
    ThinkingDelta,
    UnmatchedEvent,
)
from thinklsp.core.usage import Usage
from thinklsp.providers.base import StreamDecoder
from thinklsp.providers.decoding import (
    build_malformed_error,
    explain_unknown_ending,
    read_count,
    read_index,
    read_object,
    read_text,
)
from thinklsp.providers.failures import classify_event

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

    `has_started` is true after the block's start, and `finished_item` is None while the item is open.
    `unencrypted_item` is a finished thinking item without encrypted content, which may still arrive in the final
    response. `shown_messages` contains the indexes of all messages in the answer whose text was emitted. A blank line
    separates a message from the first one.
    """

    def __init__(self, index: int, opening: Mapping[str, Any], shown_messages: set[int]) -> None:
        self.index = index
        self.kind = resolve_kind(opening)
        self.finished_item: dict[str, Any] | None = None
        self.unencrypted_item: Mapping[str, Any] | None = None
        self.has_started = False
        self._shown_messages = shown_messages
        self._shown_text = TextBuffer()
        self._opening = opening
        self._pieces: dict[tuple[PartKind, int], TextBuffer] = {}
        self._last_shown: tuple[PartKind, int] | None = None
        self._has_summary = False
        self.reasoning_part: int | None = None

    @property
    def item_id(self) -> str:
        return find_item_id(self._opening if self.finished_item is None else self.finished_item)

    def start(self) -> list[StreamEvent]:
        """Start the block unless it has already started."""
        if self.has_started:
            return []
        self.has_started = True
        is_call = self.kind == "tool_use"
        fields = _extract_call_fields(self._opening) if is_call else {"type": str(self._opening.get("type"))}
        return [BlockStarted(self.index, self.kind, fields)]

    def add_piece(self, part: PartKind, number: int, text: str) -> list[StreamEvent]:
        """Add a piece of a content part.

        Some servers send each piece of the reasoning text under a new index, so all pieces get the index of the first.
        """
        if not text:
            return []
        if part == "reasoning_text":
            number = self.reasoning_part = number if self.reasoning_part is None else self.reasoning_part
        if (pieces := self._pieces.get((part, number))) is None:
            pieces = self._pieces[part, number] = ArgumentBuffer() if part == "arguments" else TextBuffer()
        pieces.append(text)
        return self._show_text(part, number, text)

    def finish_item(self, item: Mapping[str, Any] | None, *, cut: bool) -> list[StreamEvent]:
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
        if text and self.kind == "text" and self._is_later_message():
            text = _PARAGRAPH_BREAK + text
        if not text.startswith(shown_text):
            return [BlockStopped(self.index, whole, text)]
        return [*self._emit_text(text[len(shown_text) :]), BlockStopped(self.index, whole)]

    def _is_later_message(self) -> bool:
        return bool(self._shown_messages) and min(self._shown_messages, default=0) != self.index

    def _show_text(self, part: PartKind, number: int, text: str) -> list[StreamEvent]:
        """Emit text for display, with a blank line between paragraphs of thinking and between messages.

        Full thinking is emitted only if there is no thinking summary.
        """
        self._has_summary = self._has_summary or part == "summary_text"
        if part in ("refusal", "arguments") or (part == "reasoning_text" and self._has_summary):
            return []
        is_thinking, is_first = self.kind == "thinking", self._last_shown is None
        is_next = not is_first and self._last_shown != (part, number)
        if is_next if is_thinking else is_first and self._is_later_message():
            text = _PARAGRAPH_BREAK + text
        self._last_shown = (part, number)
        return self._emit_text(text)

    def _emit_text(self, text: str) -> list[StreamEvent]:
        if not text:
            return []
        self._shown_text.append(text)
        if self.kind == "thinking":
            return [BlockDelta(self.index, ThinkingDelta(text))]
        self._shown_messages.add(self.index)
        return [BlockDelta(self.index, TextDelta(text))]

    def _emit_call(self, whole: Mapping[str, Any], *, cut: bool) -> list[StreamEvent]:
        """Emit a tool call's arguments, and its ID and name if they differ from those in the start event."""
        status, fields = whole.get("status"), _extract_call_fields(whole)
        is_half = status == "incomplete" or (cut and status != "completed")
        arguments = _INVALID_ARGUMENTS if is_half else read_string(whole, "arguments")
        renamed = [] if fields == _extract_call_fields(self._opening) else [BlockDelta(self.index, FieldsDelta(fields))]
        return [*renamed, BlockDelta(self.index, InputJsonDelta(arguments))]

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


def _extract_call_fields(item: Mapping[str, Any]) -> dict[str, str]:
    return {"id": read_string(item, "call_id"), "name": read_string(item, "name")}


def _collect_texts(whole: Mapping[str, Any], key: str, kind: str, field: str = "text") -> list[str]:
    parts = whole.get(key)
    return [
        read_string(part, field)
        for part in (parts if isinstance(parts, list) else ())
        if isinstance(part, dict) and part.get("type") == kind
    ]


# Maps an event name without its last word to the content part, the item type, and the field for the part's number.
_PIECES: Mapping[str, tuple[PartKind, str, str]] = {
    "response.output_text": ("output_text", "message", "content_index"),
    "response.refusal": ("refusal", "message", "content_index"),
    "response.reasoning_summary_text": ("summary_text", "reasoning", "summary_index"),
    "response.reasoning_text": ("reasoning_text", "reasoning", "content_index"),
    "response.function_call_arguments": ("arguments", "function_call", "content_index"),
}
_CUT_REASONS: Mapping[str, StopReason] = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}
_OUTPUT_USED_UP_NOTICE = (
    "Thinking used up the output limit before the model could answer: a lower `effort` leaves more room."
)
_COMPACTED_NOTICE = (
    "The provider compacted this conversation for the model, as set by `compaction.by`. Your session is unchanged."
)
_REMOVED_NOTICE = "The provider removed some of the model's earlier thinking: {}. The session continues."
# The reasons for which the provider removes earlier thinking. Removal at the end of a turn is normal.
_ROUTINE_REASON = "turn_boundary"
_REMOVAL_REASONS: Mapping[str, str] = {
    "prefix_mismatch": "the messages before it have changed",
    "model_mismatch": "it belongs to another model",
    "organization_mismatch": "it belongs to another organization",
    "end_user_mismatch": "it belongs to another user",
}


class OpenAiResponsesDecoder(StreamDecoder):
    """A decoder for the Responses API's event stream."""

    usage = Usage()

    def __init__(self) -> None:
        super().__init__()
        self._drafts: dict[int, ItemDraft] = {}
        self._removals: list[str] = []
        self._shown_messages: set[int] = set()
        self._response_id = ""

    def _decode(self, event: str, content: Mapping[str, Any]) -> list[StreamEvent]:
        self._update_usage(content)
        match content.get("type", event):
            case "response.created" | "response.queued" | "response.in_progress" as name:
                return self._begin_message(read_object(content, "response"), is_first=name == "response.created")
            case "response.output_item.added":
                # Some gateways send this event without an item, so indexes may have gaps.
                return (
                    self._open_item(read_index(content, "output_index"), read_object(content, "item"))[1]
                    if content.get("item")
                    else []
                )
            case "response.output_item.done":
                return self._end_item(read_index(content, "output_index"), read_object(content, "item"))
            case "response.completed":
                return self._end_message(read_object(content, "response"), cut=False)
            case "response.incomplete":
                return self._end_message(read_object(content, "response"), cut=True)
            case "response.failed":
                raise classify_event("responses", read_object(content, "response"))
            case "error":
                raise classify_event("responses", content)
            case "response.reasoning_text.done":
                if (draft := self._drafts.get(read_index(content, "output_index"))) is not None:
                    draft.reasoning_part = None
                return []
            case str() as name if name.removesuffix(".delta") in _PIECES:
                return self._add_piece(content, *_PIECES[name.removesuffix(".delta")])
            case _:
                return self._read_whole(content)

    def _update_usage(self, content: Mapping[str, Any]) -> None:
        """Update the usage if the event contains a response with usage."""
        response = content.get("response", content)
        usage = response.get("usage") if isinstance(response, dict) else None
        if isinstance(usage, dict):
            self.usage = _parse_usage(usage)

    def _begin_message(self, response: Mapping[str, Any], *, is_first: bool = False) -> list[StreamEvent]:
        """Start the message unless it has already started. Some servers give each event after the first another ID."""
        response_id = read_string(response, "id") if is_first else ""
        if self._response_id and response_id not in ("", self._response_id):
            raise StreamProtocolError("The provider started a second message within the same answer.")
        self._response_id = self._response_id or response_id
        self._removals = _read_removals(response.get("input_transformations")) or self._removals
        return self._begin(read_string(response, "model"))

    def _open_item(
        self, index: int, item: Mapping[str, Any], *, by_piece: bool = False
    ) -> tuple[ItemDraft, list[StreamEvent]]:
        """Return the item's draft and any start events. If `by_piece` is true, `item` contains only the type."""
        draft, events = self._drafts.get(index), []
        if draft is None:
            if not read_string(item, "type"):
                raise build_malformed_error("a block")
            # Some servers send the first item without a preceding `response.created` event.
            events = self._begin_message({})
            draft = self._drafts[index] = ItemDraft(index, item, self._shown_messages)
        elif draft.kind != resolve_kind(item):
            raise StreamProtocolError("The provider changed the type of a content part in the middle of the stream.")
        # The arguments of a call may arrive before its name.
        return draft, events if by_piece and draft.kind == "tool_use" else [*events, *draft.start()]

    def _add_piece(self, content: Mapping[str, Any], part: PartKind, item_type: str, counter: str) -> list[StreamEvent]:
        """Add a piece of an item. A piece that arrives before its item starts the item."""
        index, text = read_index(content, "output_index"), read_text(content, "delta")
        draft = self._drafts.get(index)
        events: list[StreamEvent] = []
        if draft is None:
            draft, events = self._open_item(index, {"type": item_type}, by_piece=True)
        if draft.kind != resolve_kind({"type": item_type}):
            return [UnmatchedEvent(f"a piece of type {part} for an item of kind {draft.kind}")]
        if draft.finished_item is not None:
            return events
        number = content.get(counter)
        return [*events, *draft.add_piece(part, number if isinstance(number, int) else 0, text)]

    def _end_item(self, index: int, item: Mapping[str, Any]) -> list[StreamEvent]:
        """Finish an item. Thinking stays open if its encrypted content is missing.

        LiteLLM sends Claude's encrypted thinking only in the final response.
        """
        draft, events = self._open_item(index, item)
        if draft.kind != "thinking" or draft.finished_item is not None or item.get("encrypted_content"):
            return [*events, *self._finish_item(index, item)]
        draft.unencrypted_item = item
        return events

    def _finish_item(self, index: int, item: Mapping[str, Any] | None, *, cut: bool = False) -> list[StreamEvent]:
        """Finish an item unless it is already finished.

        `item` is the complete item, or None if the provider did not send it.
        """
        draft, events = (self._drafts[index], []) if item is None else self._open_item(index, item)
        if draft.finished_item is not None:
            return []
        return [*events, *draft.finish_item(item, cut=cut)]

    def _end_message(self, response: Mapping[str, Any], *, cut: bool) -> list[StreamEvent]:
        events = self._begin_message(response)
        items = _match_final_items(self._drafts, response.get("output"))
        for index in sorted(self._drafts.keys() | items.keys()):
            draft, final = self._drafts.get(index), items.get(index)
            if draft is not None and final is None and not draft.has_started:
                del self._drafts[index]
                events.append(UnmatchedEvent("arguments for an item that is not open"))
                continue
            if draft is not None and draft.unencrypted_item is not None:
                final = {**draft.unencrypted_item, **(final or {})}
            events += self._finish_item(index, final, cut=cut)
        self._finished = True
        return [*events, _finish_message(response, self._drafts.values(), self._removals, cut=cut)]

    def _read_whole(self, content: Mapping[str, Any]) -> list[StreamEvent]:
        """Decode a complete response, or an error without an event type. Gateways may send either."""
        if content.get("object") != "response" and not isinstance(content.get("output"), list):
            if content.get("error"):
                raise classify_event("responses", content)
            return []
        match content.get("status", "completed"):
            case "failed":
                raise classify_event("responses", content)
            case "queued" | "in_progress" | "cancelled":
                raise StreamProtocolError("The provider sent an unfinished answer.")
            case status:
                return self._end_message(content, cut=status == "incomplete")


def _finish_message(
    response: Mapping[str, Any], drafts: Iterable[ItemDraft], removals: Sequence[str], *, cut: bool
) -> MessageFinished:
    """Return the final event of an answer. `response` is the final response, and all drafts are finished.

    `removals` contains the reasons for which the provider removed earlier thinking.
    """
    items = [(draft.kind, draft.finished_item or {}) for draft in drafts]
    refusal = "".join(text for _, item in items for text in _collect_texts(item, "content", "refusal", "refusal"))
    spoke = any(text.strip() for _, item in items for text in _collect_texts(item, "content", "output_text"))
    calls = any(kind == "tool_use" for kind, _ in items)
    details = response.get("incomplete_details")
    why = read_string(details, "reason") if isinstance(details, dict) else ""
    reason: StopReason = _CUT_REASONS.get(why, "other") if cut else "tool_use" if calls else "end_turn"
    causes = dict.fromkeys(_REMOVAL_REASONS.get(reason, "it no longer applies") for reason in removals)
    notices = [_REMOVED_NOTICE.format(", and ".join(causes))] if removals else []
    if reason == "other":
        notices.append(explain_unknown_ending(why))
    if any(item.get("type") == COMPACTION_TYPE for _, item in items):
        notices.append(_COMPACTED_NOTICE)
    if reason == "max_tokens" and not spoke and not calls:
        notices.append(_OUTPUT_USED_UP_NOTICE)
    explanation = None
    if refusal:
        reason, explanation = "refusal", refusal
    elif reason == "refusal":
        explanation = "The provider's content filter stopped the answer."
    unsealed = not cut and any(kind == "thinking" and not is_reasoning_complete(item) for kind, item in items)
    return MessageFinished(reason, _parse_usage(response.get("usage")), explanation, tuple(notices), unsealed)


def _read_removals(transformations: object) -> list[str]:
    """Return the reasons for which the provider unexpectedly removed earlier thinking."""
    return [
        read_string(entry, "reason")
        for entry in (transformations if isinstance(transformations, list) else ())
        if isinstance(entry, dict)
        and (entry.get("type"), entry.get("action")) == ("reasoning", "removed")
        and entry.get("reason") != _ROUTINE_REASON
    ]


def _parse_usage(usage: object) -> Usage:
    counts = usage if isinstance(usage, dict) else {}
    input_details, output_details = counts.get("input_tokens_details"), counts.get("output_tokens_details")
    return Usage(
        input_tokens=read_count(counts, "input_tokens"),
        output_tokens=read_count(counts, "output_tokens"),
        thinking_tokens=read_count(output_details, "reasoning_tokens"),
        cache_read_tokens=read_count(input_details, "cached_tokens"),
        cache_write_tokens=read_count(input_details, "cache_write_tokens"),
    )


def _match_final_items(drafts: Mapping[int, ItemDraft], output: object) -> dict[int, Mapping[str, Any]]:
    """Return the items of the final response by index. Items that were not streamed get an unused index.

    Items are matched by ID. Some servers assign new IDs in the final response, so items without a match are matched by
    their order among items of the same kind.
    """
    listed = output if isinstance(output, list) else []
    items = [(place, item) for place, item in enumerate(listed) if isinstance(item, dict) and read_string(item, "type")]
    by_name = {(draft.kind, draft.item_id): index for index, draft in drafts.items() if draft.item_id}
    matched: dict[int, Mapping[str, Any]] = {}
    unnamed = []
    for place, item in items:
        index = by_name.get((resolve_kind(item), find_item_id(item)))
        if index is None or index in matched:
            unnamed.append((place, item))
        else:
            matched[index] = item
    nameless: dict[BlockKind, deque[int]] = defaultdict(deque)
    for index in sorted(drafts.keys() - matched.keys()):
        nameless[drafts[index].kind].append(index)
    end = max([*drafts, len(listed)])
    for place, item in unnamed:
        if same_kind := nameless[resolve_kind(item)]:
            matched[same_kind.popleft()] = item
        elif place not in drafts and place not in matched:
            matched[place] = item
        else:
            end += 1
            matched[end] = item
    return matched


def is_reasoning_complete(item: Mapping[str, Any]) -> bool:
    """Return whether thinking can be sent back. The provider does not store it, so it needs one of its contents."""
    return bool(item.get("encrypted_content") or item.get("content"))
