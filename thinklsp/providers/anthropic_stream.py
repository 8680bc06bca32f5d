"""The decoder for the Messages API's event stream.

The `type` field in the data selects the event. The event's name is used only if there is no `type` field. Unknown
events and deltas are ignored, and unknown blocks are kept unchanged. The decoder also accepts a complete message as
JSON, which some servers send.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from thinklsp.core.errors import StreamProtocolError
from thinklsp.core.messages import StopReason
from thinklsp.core.stream_events import (
    BlockDelta,
    BlockKind,
    BlockStarted,
    BlockStopped,
    Delta,
    FieldsDelta,
    InputJsonDelta,
    ItemDelta,
    MessageFinished,
    SignatureDelta,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    UnmatchedEvent,
)
from thinklsp.core.usage import Usage
from thinklsp.providers.base import StreamDecoder
from thinklsp.providers.decoding import (
    build_malformed_error,
    check_argument_size,
    explain_unknown_ending,
    merge_non_null,
    read_count,
    read_index,
    read_object,
    read_text,
)
from thinklsp.providers.failures import classify_event

_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "pause_turn": "pause_turn",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_window",
    # The words of gateways that do not translate them.
    "stop": "end_turn",
    "tool_calls": "tool_use",
    "length": "max_tokens",
}
_BLOCK_KINDS: dict[str, BlockKind] = {
    "text": "text",
    "thinking": "thinking",
    "redacted_thinking": "redacted_thinking",
    "tool_use": "tool_use",
}
_TYPE_NAME = re.compile(r"[a-z_]{1,40}")


class AnthropicDecoder(StreamDecoder):
    """A decoder for the Messages API's event stream."""

    def __init__(self) -> None:
        super().__init__()
        self._usage: dict[str, Any] = {}
        self._stop_reason: str | None = None
        self._stop_details: Mapping[str, Any] = {}
        self._argument_chars: dict[int, int] = {}
        self._message_id = ""

    @property
    def usage(self) -> Usage:
        """The answer's usage so far.

        The provider counts cached input separately, but `Usage` includes it in the input.
        """
        plain, cache_read, cache_write = (
            read_count(self._usage, key)
            for key in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        )
        counted = [part for part in (plain, cache_read, cache_write) if part is not None]
        return Usage(
            input_tokens=sum(counted) if counted else None,
            output_tokens=read_count(self._usage, "output_tokens"),
            thinking_tokens=read_count(self._usage.get("output_tokens_details"), "thinking_tokens"),
            cache_read_tokens=cache_read,
            cache_write_tokens=cache_write,
        )

    def _decode(self, event: str, content: Mapping[str, Any]) -> list[StreamEvent]:
        match content.get("type", event):
            case "content_block_delta":
                return self._read_delta(read_index(content, "index"), read_object(content, "delta"))
            case "message_start":
                return self._start(read_object(content, "message"))
            case "content_block_start":
                return [_start_block(read_index(content, "index"), read_object(content, "content_block"))]
            case "content_block_stop":
                return [BlockStopped(read_index(content, "index"))]
            case "message_delta":
                self._update(content.get("delta"), content.get("usage"))
                return []
            case "message_stop":
                return [self._finish()]
            case "message":
                return self._read_whole_message(content)
            case "error":
                raise classify_event("anthropic", content)
            case _:
                # Gateways may send errors without a type.
                if content.get("error"):
                    raise classify_event("anthropic", content)
                return []

    def _start(self, message: Mapping[str, Any]) -> list[StreamEvent]:
        """Start the message. Some gateways send its start twice, with the same ID."""
        message_id = read_text(message, "id")
        if self._started and not (message_id and message_id == self._message_id):
            raise StreamProtocolError("The provider started a second message within the same answer.")
        merge_non_null(self._usage, message.get("usage"))
        self._message_id = message_id
        return self._begin(str(message.get("model") or ""), self.usage)

    def _read_delta(self, index: int, delta: Mapping[str, Any]) -> list[StreamEvent]:
        parsed = _parse_delta(delta)
        if isinstance(parsed, InputJsonDelta):
            size = self._argument_chars[index] = self._argument_chars.get(index, 0) + len(parsed.partial_json)
            check_argument_size(size)
        if parsed is None:
            return [UnmatchedEvent(f"a delta of type {_describe_delta(delta)}", is_unknown_kind=True)]
        return [BlockDelta(index, parsed)]

    def _update(self, delta: object, usage: object) -> None:
        """Update the stop reason and the usage, which may arrive several times.

        Token counts are totals and replace earlier counts. A missing field keeps its value.
        """
        if isinstance(delta, dict) and isinstance(delta.get("stop_reason"), str):
            self._stop_reason = delta["stop_reason"]
        if isinstance(delta, dict) and isinstance(delta.get("stop_details"), dict):
            self._stop_details = delta["stop_details"]
        merge_non_null(self._usage, usage)

    def _finish(self) -> StreamEvent:
        if not self._started:
            raise StreamProtocolError("The provider ended a message that it never started.")
        if self._stop_reason is None:
            raise StreamProtocolError(
                "The provider ended the answer without a stop reason; part of the answer is missing."
            )
        reason = _STOP_REASONS.get(self._stop_reason, "other")
        notices = (explain_unknown_ending(self._stop_reason),) if reason == "other" else ()
        self._finished = True
        return MessageFinished(reason, self.usage, _explain_stop(self._stop_details), notices)

    def _read_whole_message(self, message: Mapping[str, Any]) -> list[StreamEvent]:
        events = self._start(message)
        blocks = message.get("content")
        for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
            if not isinstance(block, dict):
                raise build_malformed_error("a block")
            events += [_start_block(index, block), BlockStopped(index)]
        self._update(message, None)
        return [*events, self._finish()]


def _start_block(index: int, block: Mapping[str, Any]) -> StreamEvent:
    """Return the start event for a block.

    A call of a tool that runs on the provider's side becomes a `server_tool` block, because its arguments are streamed.
    The tool's result arrives complete and becomes an `opaque` block.
    """
    name = block.get("type")
    if not isinstance(name, str) or not name:
        raise build_malformed_error("a block")
    kind = _BLOCK_KINDS.get(name, "opaque")
    if kind == "tool_use" and not read_text(block, "name"):
        raise build_malformed_error("a block")
    if kind == "opaque" and name.endswith("_tool_use") and "input" in block:
        kind = "server_tool"
    return BlockStarted(index, kind, block)


def _parse_delta(delta: Mapping[str, Any]) -> Delta | None:
    match delta.get("type"):
        case "text_delta":
            return TextDelta(read_text(delta, "text"))
        case "thinking_delta":
            return ThinkingDelta(read_text(delta, "thinking"), read_count(delta, "estimated_tokens"))
        case "signature_delta":
            return SignatureDelta(read_text(delta, "signature"))
        case "input_json_delta":
            return InputJsonDelta(read_text(delta, "partial_json"))
        case "citations_delta":
            return ItemDelta("citations", delta["citation"]) if delta.get("citation") else None
        case "compaction_delta":
            return FieldsDelta({key: value for key, value in delta.items() if key != "type"})
        case _:
            return None


def _describe_delta(delta: Mapping[str, Any]) -> str:
    """Return the delta's type, or `unknown` if the type does not look like an identifier."""
    name = delta.get("type")
    return name if isinstance(name, str) and _TYPE_NAME.fullmatch(name) else "unknown"


def _explain_stop(details: Mapping[str, Any]) -> str | None:
    explanation, category = details.get("explanation"), details.get("category")
    if isinstance(explanation, str) and explanation:
        return explanation
    return f"The provider stopped the answer (category {category})." if isinstance(category, str) else None
