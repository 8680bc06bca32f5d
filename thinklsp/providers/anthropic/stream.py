"""Decodes the event stream of the Messages API. Driven by `type` in the data; the event's own name is only a fallback.

Unknown events and deltas are ignored, unknown blocks are kept as they came. A whole message in one piece of JSON,
as some servers answer, takes the same road. No error here repeats what the service sent, except its error messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from thinklsp.core.errors import StreamProtocolError
from thinklsp.core.messages import StopReason
from thinklsp.core.stream import (
    BlockDelta,
    BlockKind,
    BlockStarted,
    BlockStopped,
    Delta,
    FieldsDelta,
    InputJsonDelta,
    ItemDelta,
    MessageFinished,
    MessageStarted,
    SignatureDelta,
    StreamEvent,
    TextDelta,
    ThinkingDelta,
    Unmatched,
)
from thinklsp.core.strict_json import is_shallow, read_json
from thinklsp.core.usage import Usage
from thinklsp.providers.anthropic.errors import failure_in_stream

_STOP_REASONS: dict[str, StopReason] = {
    "end_turn": "end_turn",
    "tool_use": "tool_use",
    "max_tokens": "max_tokens",
    "stop_sequence": "stop_sequence",
    "pause_turn": "pause_turn",
    "refusal": "refusal",
    "model_context_window_exceeded": "context_window",
}
_BLOCK_KINDS: dict[str, BlockKind] = {
    "text": "text",
    "thinking": "thinking",
    "redacted_thinking": "redacted_thinking",
    "tool_use": "tool_use",
}
_TYPE_NAME = re.compile(r"[a-z_]{1,40}")
_NESTING = 100
_ARGUMENT_CHARS = 1024 * 1024


class AnthropicDecoder:
    """Lives with one stream. After the terminal event everything further is ignored."""

    def __init__(self) -> None:
        self._usage: dict[str, Any] = {}
        self._stop_reason: str | None = None
        self._stop_details: Mapping[str, Any] = {}
        self._argument_chars: dict[int, int] = {}
        self._started = False
        self._finished = False

    @property
    def usage(self) -> Usage:
        """The service counts cached input apart; ours is the whole input."""
        plain, read, written = (
            _count(self._usage, key)
            for key in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
        )
        counted = [part for part in (plain, read, written) if part is not None]
        details = self._usage.get("output_tokens_details")
        return Usage(
            input_tokens=sum(counted) if counted else None,
            output_tokens=_count(self._usage, "output_tokens"),
            thinking_tokens=_count(details, "thinking_tokens") if isinstance(details, dict) else None,
            cache_read_tokens=read,
            cache_write_tokens=written,
        )

    def feed(self, event: str, data: str) -> list[StreamEvent]:
        """One server-sent event, or a whole message or error as JSON. Raises ProviderError."""
        if self._finished or data.strip() in ("", "[DONE]"):
            return []
        content = _parse(data)
        match content.get("type", event):
            case "content_block_delta":
                return self._delta(_index(content), _dict(content, "delta"))
            case "message_start":
                return [self._start(_dict(content, "message"))]
            case "content_block_start":
                return [_block_started(_index(content), _dict(content, "content_block"))]
            case "content_block_stop":
                return [BlockStopped(_index(content))]
            case "message_delta":
                self._update(content.get("delta"), content.get("usage"))
                return []
            case "message_stop":
                return [self._finish()]
            case "message":
                return self._whole(content)
            case "error":
                raise failure_in_stream(content)
            case _:
                # Services in between send errors without a type, too.
                if content.get("error"):
                    raise failure_in_stream(content)
                return []

    def finish(self) -> list[StreamEvent]:
        if not self._finished:
            raise StreamProtocolError("The connection ended before the answer was complete.")
        return []

    def _start(self, message: Mapping[str, Any]) -> StreamEvent:
        if self._started:
            raise StreamProtocolError("The service began a second message inside one answer.")
        self._started = True
        self._merge_usage(message.get("usage"))
        return MessageStarted(str(message.get("model") or ""), self.usage)

    def _delta(self, index: int, delta: Mapping[str, Any]) -> list[StreamEvent]:
        known = _known_delta(delta)
        if isinstance(known, InputJsonDelta):
            # Appending is cheap, but the whole is parsed at once at the end.
            size = self._argument_chars[index] = self._argument_chars.get(index, 0) + len(known.partial_json)
            if size > _ARGUMENT_CHARS:
                raise _hopeless("The model wrote tool arguments of more than a million characters.")
        if known is None:
            return [Unmatched(f"a delta of type {_loggable(delta)}", is_new=True)]
        return [BlockDelta(index, known)]

    def _update(self, delta: object, usage: object) -> None:
        """Several may come. Counts are totals and replace earlier ones; what is absent keeps its value."""
        if isinstance(delta, dict) and isinstance(delta.get("stop_reason"), str):
            self._stop_reason = delta["stop_reason"]
        if isinstance(delta, dict) and isinstance(delta.get("stop_details"), dict):
            self._stop_details = delta["stop_details"]
        self._merge_usage(usage)

    def _finish(self) -> StreamEvent:
        if not self._started:
            raise StreamProtocolError("The service ended a message that it had never begun.")
        if self._stop_reason is None:
            raise StreamProtocolError("The service ended the answer without saying why; part of it must be missing.")
        self._finished = True
        reason = _STOP_REASONS.get(self._stop_reason, "other")
        return MessageFinished(reason, self.usage, _explanation(self._stop_details))

    def _whole(self, message: Mapping[str, Any]) -> list[StreamEvent]:
        events = [self._start(message)]
        blocks = message.get("content")
        for index, block in enumerate(blocks if isinstance(blocks, list) else ()):
            if not isinstance(block, dict):
                raise _malformed("a block")
            events += [_block_started(index, block), BlockStopped(index)]
        self._update(message, None)
        return [*events, self._finish()]

    def _merge_usage(self, usage: object) -> None:
        if isinstance(usage, dict):
            self._usage.update({key: value for key, value in usage.items() if value is not None})


def _block_started(index: int, block: Mapping[str, Any]) -> StreamEvent:
    """Calls that the service runs itself stream arguments as our tools do; their results come whole."""
    name = block.get("type")
    if not isinstance(name, str) or not name:
        raise _malformed("a block")
    kind = _BLOCK_KINDS.get(name, "opaque")
    if kind == "tool_use" and not _text(block, "name"):
        raise _malformed("a block")
    if kind == "opaque" and name.endswith("_tool_use") and "input" in block:
        kind = "server_tool"
    return BlockStarted(index, kind, block)


def _known_delta(delta: Mapping[str, Any]) -> Delta | None:
    match delta.get("type"):
        case "text_delta":
            return TextDelta(_text(delta, "text"))
        case "thinking_delta":
            return ThinkingDelta(_text(delta, "thinking"), _count(delta, "estimated_tokens"))
        case "signature_delta":
            return SignatureDelta(_text(delta, "signature"))
        case "input_json_delta":
            return InputJsonDelta(_text(delta, "partial_json"))
        case "citations_delta":
            return ItemDelta("citations", delta["citation"]) if delta.get("citation") else None
        case "compaction_delta":
            return FieldsDelta({key: value for key, value in delta.items() if key != "type"})
        case _:
            return None


def _loggable(delta: Mapping[str, Any]) -> str:
    """Return the type of a delta if it looks like the name of one."""
    name = delta.get("type")
    return name if isinstance(name, str) and _TYPE_NAME.fullmatch(name) else "unknown"


def _explanation(details: Mapping[str, Any]) -> str | None:
    explanation, category = details.get("explanation"), details.get("category")
    if isinstance(explanation, str) and explanation:
        return explanation
    return f"The service stopped the answer (category {category})." if isinstance(category, str) else None


def _parse(data: str) -> Mapping[str, Any]:
    try:
        content = read_json(data, odd_numbers="null")
    except ValueError:
        raise _malformed("an event") from None
    if not isinstance(content, dict) or not is_shallow(content, _NESTING, data):
        raise _malformed("an event")
    return content


def _dict(content: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = content.get(key)
    if not isinstance(value, dict):
        raise _malformed("an event")
    return value


def _index(content: Mapping[str, Any]) -> int:
    value = content.get("index")
    if not isinstance(value, int) or isinstance(value, bool):
        raise _malformed("an event")
    return value


def _text(content: Mapping[str, Any], key: str) -> str:
    value = content.get(key, "")
    if not isinstance(value, str):
        raise _malformed("a piece of a block")
    return value


def _count(content: Mapping[str, Any], key: str) -> int | None:
    value = content.get(key)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _malformed(part: str) -> StreamProtocolError:
    return StreamProtocolError(f"The service sent {part} that cannot be read.")


def _hopeless(sentence: str) -> StreamProtocolError:
    error = StreamProtocolError(sentence)
    error.retryable = False
    return error
