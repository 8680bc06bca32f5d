"""The decoder for the Responses API's event stream.

The `type` field in the data selects the event. The event's name is used only if there is no `type` field. Each output
item becomes a block with the item's `output_index`. Items may be interleaved, and indexes may have gaps. Unknown events
are ignored, and unknown items are kept unchanged. The decoder also accepts a complete response as JSON, and items that
appear only in the final response.
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from thinklsp.core.errors import StreamProtocolError
from thinklsp.core.messages import COMPACTION_TYPE, StopReason
from thinklsp.core.stream_events import BlockKind, MessageFinished, MessageStarted, StreamEvent, UnmatchedEvent
from thinklsp.core.usage import Usage
from thinklsp.providers.decoding import (
    build_cut_off_error,
    build_malformed_error,
    explain_unknown_ending,
    parse_event,
    read_count,
    read_index,
    read_object,
    read_text,
)
from thinklsp.providers.openai_responses.errors import parse_stream_failure
from thinklsp.providers.openai_responses.items import (
    ItemDraft,
    PartKind,
    find_item_id,
    read_refusal,
    read_string,
    resolve_kind,
)

# Maps an event name without its last word to the content part, the item type, and the field for the part's number.
_PIECES: Mapping[str, tuple[PartKind, str, str]] = {
    "response.output_text": ("output_text", "message", "content_index"),
    "response.refusal": ("refusal", "message", "content_index"),
    "response.reasoning_summary_text": ("summary_text", "reasoning", "summary_index"),
    "response.reasoning_text": ("reasoning_text", "reasoning", "content_index"),
    "response.function_call_arguments": ("arguments", "function_call", "content_index"),
}
_WHOLE_PARTS = ("response.content_part.done", "response.reasoning_summary_part.done")
_CUT_REASONS: Mapping[str, StopReason] = {"max_output_tokens": "max_tokens", "content_filter": "refusal"}
_OUTPUT_USED_UP_NOTICE = (
    "Thinking used up the output limit before the model could answer: a lower `effort` leaves more room."
)
_COMPACTED_NOTICE = (
    "The provider compacted this conversation for the model, as set by `compaction.by`. Your session is unchanged."
)
# The reasons for which the provider removes earlier thinking. Removal at the end of a turn is normal.
_ROUTINE_REASON = "turn_boundary"
_REMOVAL_REASONS: Mapping[str, str] = {
    "prefix_mismatch": "the messages before it have changed",
    "model_mismatch": "it belongs to another model",
    "organization_mismatch": "it belongs to another organization",
    "end_user_mismatch": "it belongs to another user",
}


class OpenAiResponsesDecoder:
    """A decoder for the Responses API's event stream."""

    def __init__(self) -> None:
        self._drafts: dict[int, ItemDraft] = {}
        self._removals: list[str] = []
        self._text_indexes: set[int] = set()
        # Tool calls whose arguments arrived before their names. A call becomes a block when its name arrives.
        self._unnamed_calls: set[int] = set()
        self._response_id = ""
        self._started = False
        self._finished = False
        self.usage = Usage()

    def feed(self, event: str, data: str) -> list[StreamEvent]:
        """Decode the data of a server-sent event, or a complete JSON response. Raise ProviderError for an error."""
        if self._finished or data.strip() in ("", "[DONE]"):
            return []
        content = parse_event(event, data)
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
                raise parse_stream_failure(read_object(content, "response").get("error"))
            case "error":
                raise parse_stream_failure(content.get("error") or content)
            case str() as name if name in _WHOLE_PARTS:
                return self._read_whole_part(content)
            case str() as name if name.startswith("response."):
                return self._read_piece(name, content)
            case _:
                return self._read_whole(content)

    def finish(self) -> list[StreamEvent]:
        if not self._finished:
            raise build_cut_off_error()
        return []

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
        if self._started:
            return []
        self._started = True
        return [MessageStarted(read_string(response, "model"), Usage())]

    def _open_item(
        self, index: int, item: Mapping[str, Any], *, by_piece: bool = False
    ) -> tuple[ItemDraft, list[StreamEvent]]:
        """Return the item's draft and any start events. If `by_piece` is true, `item` contains only the type."""
        draft = self._drafts.get(index)
        if draft is not None:
            if draft.kind != resolve_kind(item):
                raise StreamProtocolError(
                    "The provider changed the type of a content part in the middle of the stream."
                )
            is_named = index in self._unnamed_calls
            self._unnamed_calls.discard(index)
            return draft, [draft.build_start()] if is_named else []
        if not read_string(item, "type"):
            raise build_malformed_error("a block")
        draft = self._drafts[index] = ItemDraft(index, item)
        # Some servers send the first item without a preceding `response.created` event.
        events = self._begin_message({})
        if by_piece and draft.kind == "tool_use":
            self._unnamed_calls.add(index)
            return draft, events
        return draft, [*events, draft.build_start()]

    def _read_piece(self, name: str, content: Mapping[str, Any]) -> list[StreamEvent]:
        stem, _, end = name.rpartition(".")
        if stem not in _PIECES or end not in ("delta", "done"):
            return []
        part, item_type, counter = _PIECES[stem]
        text = read_text(content, "delta" if end == "delta" else _find_text_field(part))
        return self._add_piece(content, part, item_type, counter, text, whole=end == "done")

    def _read_whole_part(self, content: Mapping[str, Any]) -> list[StreamEvent]:
        content_part = read_object(content, "part")
        for part, item_type, counter in _PIECES.values():
            if content_part.get("type") == part:
                return self._add_piece(
                    content, part, item_type, counter, read_text(content_part, _find_text_field(part)), whole=True
                )
        return []

    def _add_piece(
        self, content: Mapping[str, Any], part: PartKind, item_type: str, counter: str, text: str, *, whole: bool
    ) -> list[StreamEvent]:
        """Add a piece of an item, or a complete content part. A piece that arrives before its item starts the item."""
        index = read_index(content, "output_index")
        draft = self._drafts.get(index)
        events: list[StreamEvent] = []
        if draft is None:
            draft, events = self._open_item(index, {"type": item_type}, by_piece=True)
        if draft.kind != resolve_kind({"type": item_type}):
            return [UnmatchedEvent(f"a piece of type {part} for an item of kind {draft.kind}")]
        if draft.finished_item is not None:
            return events
        number = content.get(counter)
        take = draft.settle_part if whole else draft.add_piece
        events += take(part, number if isinstance(number, int) else 0, text, is_separate=self._is_separate(draft))
        return self._track_text(draft, events)

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
        events += draft.finish_item(item, cut=cut, is_separate=self._is_separate(draft))
        return self._track_text(draft, events)

    def _is_separate(self, draft: ItemDraft) -> bool:
        return len(self._text_indexes) > (draft.index in self._text_indexes)

    def _track_text(self, draft: ItemDraft, events: list[StreamEvent]) -> list[StreamEvent]:
        if draft.kind == "text" and draft.has_shown_text:
            self._text_indexes.add(draft.index)
        return events

    def _end_message(self, response: Mapping[str, Any], *, cut: bool) -> list[StreamEvent]:
        events = self._begin_message(response)
        items = _match_final_items(self._drafts, response.get("output"))
        for index in sorted(self._drafts.keys() | items.keys()):
            if index in self._unnamed_calls and index not in items:
                del self._drafts[index]
                events.append(UnmatchedEvent("arguments for an item that is not open"))
                continue
            draft, final = self._drafts.get(index), items.get(index)
            if draft is not None and draft.unencrypted_item is not None:
                final = {**draft.unencrypted_item, **(final or {})}
            events += self._finish_item(index, final, cut=cut)
        self._finished = True
        return [*events, _finish_message(response, self._drafts.values(), self._removals, cut=cut)]

    def _read_whole(self, content: Mapping[str, Any]) -> list[StreamEvent]:
        """Decode a complete response, or an error without an event type. Gateways may send either."""
        if content.get("object") != "response" and not isinstance(content.get("output"), list):
            if content.get("error"):
                raise parse_stream_failure(content["error"])
            return []
        match content.get("status", "completed"):
            case "failed":
                raise parse_stream_failure(content.get("error"))
            case "queued" | "in_progress" | "cancelled":
                raise StreamProtocolError("The provider sent an unfinished answer.")
            case status:
                return self._end_message(content, cut=status == "incomplete")


def _find_text_field(part: PartKind) -> str:
    return part if part in ("refusal", "arguments") else "text"


def _finish_message(
    response: Mapping[str, Any], drafts: Iterable[ItemDraft], removals: Sequence[str], *, cut: bool
) -> MessageFinished:
    """Return the final event of an answer. `response` is the final response, and all drafts are finished.

    `removals` contains the reasons for which the provider removed earlier thinking.
    """
    items = [(draft.kind, draft.finished_item or {}) for draft in drafts]
    refusal = "".join(read_refusal(item) for kind, item in items if kind == "text")
    spoke = any(draft.has_shown_words for draft in drafts if draft.kind == "text")
    calls = any(kind == "tool_use" for kind, _ in items)
    details = response.get("incomplete_details")
    why = read_string(details, "reason") if isinstance(details, dict) else ""
    reason: StopReason = _CUT_REASONS.get(why, "other") if cut else "tool_use" if calls else "end_turn"
    notices = [_describe_removals(removals)] if removals else []
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
    unsealed = not cut and any(kind == "thinking" and not _can_replay(item) for kind, item in items)
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


def _can_replay(reasoning: Mapping[str, Any]) -> bool:
    return bool(reasoning.get("encrypted_content") or reasoning.get("content"))


def _describe_removals(reasons: Sequence[str]) -> str:
    causes = dict.fromkeys(_REMOVAL_REASONS.get(reason, "it no longer applies") for reason in reasons)
    return f"The provider removed some of the model's earlier thinking: {', and '.join(causes)}. The session continues."
