"""Decodes the event stream of the Responses API. Driven by `type` in the data; the event's own name is only a fallback.

Every output item is a block under its own `output_index`; items may be interleaved, and indexes have gaps. Unknown
events are ignored, unknown items kept as they came. A whole response in one piece of JSON takes the same road, and so
do items that appear only in the final response. No error here repeats what the service sent, except its error messages.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thinklsp.core.errors import StreamProtocolError
from thinklsp.core.stream import MessageStarted, StreamEvent, Unmatched
from thinklsp.core.strict_json import is_shallow, read_json
from thinklsp.core.usage import Usage
from thinklsp.providers.openai_responses.errors import failure_in_stream
from thinklsp.providers.openai_responses.items import ItemDraft, PartKind, kind_of, string
from thinklsp.providers.openai_responses.outcome import final_items, message_finished, neutral_usage, removals_in

# The event without its last word -> what it is a piece of, the type of the item, and what counts the parts.
_PIECES: Mapping[str, tuple[PartKind, str, str]] = {
    "response.output_text": ("output_text", "message", "content_index"),
    "response.refusal": ("refusal", "message", "content_index"),
    "response.reasoning_summary_text": ("summary_text", "reasoning", "summary_index"),
    "response.reasoning_text": ("reasoning_text", "reasoning", "content_index"),
    "response.function_call_arguments": ("arguments", "function_call", "content_index"),
}
_WHOLE_PARTS = ("response.content_part.done", "response.reasoning_summary_part.done")
_NESTING = 100


class OpenAiResponsesDecoder:
    """Lives with one stream. After the terminal event everything further is ignored."""

    def __init__(self) -> None:
        self._drafts: dict[int, ItemDraft] = {}
        self._removals: list[str] = []
        self._speakers: set[int] = set()
        # Calls whose arguments came first. They become blocks once their names are known.
        self._unnamed: set[int] = set()
        self._response_id = ""
        self._started = False
        self._finished = False
        self.usage = Usage()

    def feed(self, event: str, data: str) -> list[StreamEvent]:
        """One server-sent event, or a whole response or error as JSON. Raises ProviderError."""
        if self._finished or data.strip() in ("", "[DONE]"):
            return []
        content = _parse(event, data)
        self._count(content)
        match content.get("type", event):
            case "response.created" | "response.queued" | "response.in_progress":
                return self._begin(_dict(content, "response"))
            case "response.output_item.added":
                # Some services in between announce nothing, which leaves a gap.
                return self._open(_index(content), _dict(content, "item"))[1] if content.get("item") else []
            case "response.output_item.done":
                return self._done(_index(content), _dict(content, "item"))
            case "response.completed":
                return self._end(_dict(content, "response"), cut=False)
            case "response.incomplete":
                return self._end(_dict(content, "response"), cut=True)
            case "response.failed":
                raise failure_in_stream(_dict(content, "response").get("error"))
            case "error":
                raise failure_in_stream(content.get("error") or content)
            case str() as name if name in _WHOLE_PARTS:
                return self._whole_part(content)
            case str() as name if name.startswith("response."):
                return self._piece(name, content)
            case _:
                return self._whole(content)

    def finish(self) -> list[StreamEvent]:
        if not self._finished:
            raise StreamProtocolError("The connection ended before the answer was complete.")
        return []

    def _count(self, content: Mapping[str, Any]) -> None:
        """The figures stand in the response, which a failed or final event has inside it."""
        response = content.get("response", content)
        usage = response.get("usage") if isinstance(response, dict) else None
        if isinstance(usage, dict):
            self.usage = neutral_usage(usage)

    def _begin(self, response: Mapping[str, Any]) -> list[StreamEvent]:
        """The response as it stands, which is told several times."""
        self._removals = removals_in(response.get("input_transformations")) or self._removals
        told = string(response, "id")
        if self._response_id and told and told != self._response_id:
            raise StreamProtocolError("The service began a second message inside one answer.")
        self._response_id = self._response_id or told
        if self._started:
            return []
        self._started = True
        return [MessageStarted(string(response, "model"), Usage())]

    def _open(
        self, index: int, item: Mapping[str, Any], *, by_piece: bool = False
    ) -> tuple[ItemDraft, list[StreamEvent]]:
        """The draft under this index, and the events that it takes where it is new. `by_piece`: nothing but its type is
        known of the item."""
        draft = self._drafts.get(index)
        if draft is not None:
            if draft.kind != kind_of(item):
                raise StreamProtocolError("The service made one part of the answer into another.")
            is_named = index in self._unnamed
            self._unnamed.discard(index)
            return draft, [draft.started()] if is_named else []
        if not string(item, "type"):
            raise _malformed("a block")
        draft = self._drafts[index] = ItemDraft(index, item)
        # Servers may begin with the first item.
        events = self._begin({})
        if by_piece and draft.kind == "tool_use":
            self._unnamed.add(index)
            return draft, events
        return draft, [*events, draft.started()]

    def _piece(self, name: str, content: Mapping[str, Any]) -> list[StreamEvent]:
        stem, _, end = name.rpartition(".")
        if stem not in _PIECES or end not in ("delta", "done"):
            return []
        part, item_type, counter = _PIECES[stem]
        text = _text(content, "delta" if end == "delta" else _field(part))
        return self._take(content, part, item_type, counter, text, whole=end == "done")

    def _whole_part(self, content: Mapping[str, Any]) -> list[StreamEvent]:
        told = _dict(content, "part")
        for part, item_type, counter in _PIECES.values():
            if told.get("type") == part:
                return self._take(content, part, item_type, counter, _text(told, _field(part)), whole=True)
        return []

    def _take(
        self, content: Mapping[str, Any], part: PartKind, item_type: str, counter: str, text: str, *, whole: bool
    ) -> list[StreamEvent]:
        """A piece of an item, or one of its parts whole. Pieces that come first open the item themselves."""
        index = _index(content)
        known = self._drafts.get(index)
        draft, events = self._open(index, {"type": item_type}, by_piece=True) if known is None else (known, [])
        if draft.kind != kind_of({"type": item_type}):
            return [Unmatched(f"a piece of type {part} for an item of kind {draft.kind}")]
        if draft.whole is not None:
            return events
        number = content.get(counter)
        take = draft.settle if whole else draft.add
        events += take(part, number if isinstance(number, int) else 0, text, apart=self._is_apart(draft))
        return self._heard(draft, events)

    def _done(self, index: int, item: Mapping[str, Any]) -> list[StreamEvent]:
        """LiteLLM gives Claude's sealed thinking only in the final response, so unsealed thinking stays open."""
        draft, events = self._open(index, item)
        if draft.kind != "thinking" or draft.whole is not None or item.get("encrypted_content"):
            return [*events, *self._stop(index, item)]
        draft.unsealed = item
        return events

    def _stop(self, index: int, item: Mapping[str, Any] | None, *, cut: bool = False) -> list[StreamEvent]:
        """The item in its final form, None where the service never sent it. A second one changes nothing."""
        draft, events = (self._drafts[index], []) if item is None else self._open(index, item)
        if draft.whole is not None:
            return []
        events += draft.stop(item, cut=cut, apart=self._is_apart(draft))
        return self._heard(draft, events)

    def _is_apart(self, draft: ItemDraft) -> bool:
        return len(self._speakers) > (draft.index in self._speakers)

    def _heard(self, draft: ItemDraft, events: list[StreamEvent]) -> list[StreamEvent]:
        if draft.kind == "text" and draft.heard:
            self._speakers.add(draft.index)
        return events

    def _end(self, response: Mapping[str, Any], *, cut: bool) -> list[StreamEvent]:
        events = self._begin(response)
        items = final_items(self._drafts, response.get("output"))
        for index in sorted(self._drafts.keys() | items.keys()):
            if index in self._unnamed and index not in items:
                del self._drafts[index]
                events.append(Unmatched("arguments for an item that is not open"))
                continue
            draft, final = self._drafts.get(index), items.get(index)
            if draft is not None and draft.unsealed is not None:
                final = {**draft.unsealed, **(final or {})}
            events += self._stop(index, final, cut=cut)
        self._finished = True
        return [*events, message_finished(response, self._drafts.values(), self._removals, cut=cut)]

    def _whole(self, content: Mapping[str, Any]) -> list[StreamEvent]:
        """No event: a response in one piece, or an error without a type, as services in between send them."""
        if content.get("object") != "response" and not isinstance(content.get("output"), list):
            if content.get("error"):
                raise failure_in_stream(content["error"])
            return []
        match content.get("status", "completed"):
            case "completed" | "incomplete" as status:
                return self._end(content, cut=status == "incomplete")
            case "failed":
                raise failure_in_stream(content.get("error"))
            case _:
                raise StreamProtocolError("The service sent an answer that it has not finished.")


def _parse(event: str, data: str) -> Mapping[str, Any]:
    try:
        content = read_json(data, odd_numbers="null")
    except ValueError:
        content = data
    if event == "error" and isinstance(content, str):
        # Some servers tell an error as plain text.
        return {"type": "error", "error": content}
    if not isinstance(content, dict) or not is_shallow(content, _NESTING, data):
        raise _malformed("an event")
    return content


def _field(part: PartKind) -> str:
    return part if part in ("refusal", "arguments") else "text"


def _dict(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = content.get(key)
    if not isinstance(value, dict):
        raise _malformed("an event")
    return value


def _index(content: Mapping[str, Any]) -> int:
    value = content.get("output_index")
    if not isinstance(value, int) or isinstance(value, bool):
        raise _malformed("an event")
    return value


def _text(content: Mapping[str, Any], key: str) -> str:
    """Some gateways send null where there is nothing."""
    value = content.get(key)
    if not isinstance(value, str | None):
        raise _malformed("a piece of a block")
    return value or ""


def _malformed(part: str) -> StreamProtocolError:
    return StreamProtocolError(f"The service sent {part} that cannot be read.")
