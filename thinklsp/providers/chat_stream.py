"""The decoder for streamed and complete Chat Completions answers.

An answer becomes a single message that contains thinking, text and tool calls in this order, even if they arrive in a
different order. The decoder accepts missing and repeated fields.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from thinklsp.core.errors import Overloaded, StreamProtocolError
from thinklsp.core.messages import StopReason
from thinklsp.core.stream_events import (
    ArgumentBuffer,
    BlockDelta,
    BlockStarted,
    BlockStopped,
    FieldsDelta,
    InputJsonDelta,
    MessageFinished,
    StreamEvent,
    TextBuffer,
    TextDelta,
    UnmatchedEvent,
)
from thinklsp.core.usage import Usage
from thinklsp.providers.base import StreamDecoder
from thinklsp.providers.chat_reasoning import (
    ReasoningDecoder,
    TextPiece,
    ThinkTagSplitter,
    extract_text,
    split_unopened,
)
from thinklsp.providers.chat_servers import ChatServer, is_claude
from thinklsp.providers.decoding import (
    build_malformed_error,
    explain_unknown_ending,
    merge_non_null,
    read_count,
)
from thinklsp.providers.failures import classify_event

# The maximum length of arguments that are checked for completeness. The check parses all arguments again for each
# piece, which is slow for longer arguments.
_MAX_CHECKED_CHARS = 64 * 1024
_STANDARD_FIELDS = frozenset({"index", "id", "type", "function"})


class _Call:
    """A tool call that arrives in pieces."""

    __slots__ = ("arguments", "extras", "id", "index", "name")

    def __init__(self, index: int) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self.arguments = ArgumentBuffer()
        self.extras: dict[str, Any] = {}

    def add_piece(self, piece: _Piece) -> None:
        self.id = self.id or piece.id
        self.name = self.name or piece.name
        if piece.arguments:
            self.arguments.append(piece.arguments)
        self.extras.update(piece.extras)

    def is_followed_by(self, piece: _Piece) -> bool:
        """Return whether a piece without an ID starts another call.

        Another call starts only if the arguments are complete, and if the piece has a name and does not repeat them.
        """
        if piece.id or not (piece.name and self.name) or self.arguments.size > _MAX_CHECKED_CHARS:
            return False
        arguments = _parse_object(str(self.arguments))
        if arguments is None or piece.name != self.name:
            return arguments is not None
        # The empty object is a placeholder.
        is_placeholder = not arguments and piece.index is not None
        return bool(piece.arguments) and not is_placeholder and arguments != _parse_object(piece.arguments)

    def build_events(self) -> list[StreamEvent]:
        """Return all events of the call except the start event. The arguments are sent in a single event."""
        arguments = str(self.arguments)
        raw = {"id": self.id, "type": "function", "function": {"name": self.name, "arguments": arguments}}
        events: list[StreamEvent] = [BlockDelta(self.index, FieldsDelta({"id": self.id, "name": self.name}))]
        if arguments.strip() not in ("", "null"):
            events.append(BlockDelta(self.index, InputJsonDelta(arguments)))
        return [*events, BlockStopped(self.index, raw | self.extras)]


class _Piece:
    """An entry of `delta.tool_calls` with validated fields. `index` is None if the entry has no index."""

    __slots__ = ("arguments", "extras", "id", "index", "name")

    def __init__(self, entry: Mapping[str, Any]) -> None:
        function = entry.get("function")
        function = function if isinstance(function, dict) else {}
        index, call_id, name = entry.get("index"), entry.get("id"), function.get("name")
        self.index = index if isinstance(index, int) and not isinstance(index, bool) else None
        self.id = str(call_id) if isinstance(call_id, str | int) else ""
        self.name = name if isinstance(name, str) else ""
        self.arguments = _read_arguments(function.get("arguments"))
        # Keep non-standard fields, because some providers use them for signatures.
        self.extras = {key: value for key, value in entry.items() if key not in _STANDARD_FIELDS and value is not None}


class ToolCallAssembler:
    """An assembler for the tool calls in a stream.

    Calls become blocks in the order in which they start. The first block has the index `first`.
    """

    def __init__(self, first: int) -> None:
        self._first = first
        self._calls: list[_Call] = []
        self._by_index: dict[int, _Call] = {}
        self._by_id: dict[str, _Call] = {}

    def __bool__(self) -> bool:
        return bool(self._calls)

    def add_entries(self, entries: list[Any], *, whole: bool) -> list[StreamEvent]:
        """Add the `tool_calls` entries in a delta. If `whole` is true, each entry is a complete call."""
        count = len(self._calls)
        unmatched: list[StreamEvent] = []
        for position, entry in enumerate(entries):
            if entry is None:
                continue
            if not isinstance(entry, dict):
                raise build_malformed_error("a tool call")
            piece = _Piece(entry)
            if not (piece.id or piece.name or piece.arguments or piece.extras):
                continue
            call = self._begin_call(piece) if whole else self._find_call(piece, position)
            if call is None:
                unmatched.append(UnmatchedEvent("arguments for a call that is not open"))
                continue
            call.add_piece(piece)
            if piece.id:
                self._by_id.setdefault(piece.id, call)
        new_calls = self._calls[count:]
        return [
            *unmatched,
            *(BlockStarted(call.index, "tool_use", {"id": call.id, "name": call.name}) for call in new_calls),
        ]

    def stop(self, *, cut: bool) -> list[StreamEvent]:
        """End all calls. If `cut` is true, the answer is incomplete, so calls without a name are not an error."""
        if not cut and any(not call.name for call in self._calls):
            raise StreamProtocolError("The provider sent a tool call without a name.")
        return [event for call in self._calls for event in call.build_events()]

    def _begin_call(self, piece: _Piece) -> _Call:
        call = _Call(self._first + len(self._calls))
        self._calls.append(call)
        if piece.index is not None:
            self._by_index[piece.index] = call
        return call

    def _find_call(self, piece: _Piece, position: int) -> _Call | None:
        """Return the call that a piece belongs to, or None if the start of the call is missing."""
        if piece.index is not None:
            current = self._by_index.get(piece.index)
        elif piece.id:
            current = self._by_id.get(piece.id)
        else:
            # If a delta contains several entries, an entry with a name starts a separate call.
            current = self._calls[-1] if self._calls and not (position and piece.name) else None
        if current is None:
            return self._begin_call(piece) if piece.id or piece.name else None
        if piece.id and current.id and piece.id != current.id:
            return self._by_id.get(piece.id) or self._begin_call(piece)
        return self._begin_call(piece) if current.is_followed_by(piece) else current


def _parse_object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _read_arguments(value: object) -> str:
    """Return the arguments as JSON text, even if the server sends an object."""
    if isinstance(value, str):
        return value
    return json.dumps(value) if isinstance(value, dict) else ""


_THINKING, _TEXT, _FIRST_CALL = 0, 1, 2
# The known stop reasons in lower case. An answer that ends with another one may be incomplete.
_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end_turn",
    "stop_sequence": "end_turn",
    "end_turn": "end_turn",
    "complete": "end_turn",
    "completed": "end_turn",
    "eos": "end_turn",
    "eos_token": "end_turn",
    "tool_use": "end_turn",
    "tool_call": "end_turn",
    "tool_calls": "end_turn",
    "function_call": "end_turn",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "max_output_tokens": "max_tokens",
    "model_length": "max_tokens",
    "model_context_window_exceeded": "context_window",
    "content_filter": "refusal",
    "sensitive": "refusal",
    "safety": "refusal",
    "refusal": "refusal",
    "guardrail_intervened": "refusal",
}
# If several stop reasons arrive, the last one is used, unless an earlier one marked the answer as incomplete.
_FINAL_REASONS = frozenset(word for word, reason in _STOP_REASONS.items() if reason != "end_turn")
_NO_CAPACITY_REASON = "insufficient_system_resource"
# Matches a tool call in the text, which means that the server does not parse the model's output.
_UNPARSED_CALL = re.compile(r"^\s*(?:<tool_call>|\[TOOL_CALLS\]|<function=|<\|tool_call|<｜tool▁call)", re.MULTILINE)
_THINK_TAG_NOTICE = (
    "The answer begins with `<think>`, so the server leaves thinking in the text: set `think_tags = true` under "
    "`[providers.openai-compatible]` in your config.toml, or configure the server's reasoning parser."
)
_ALL_THINKING_NOTICE = (
    "The server sent the whole answer as thinking, without text or tool calls. If this happens again, check "
)
_CALL_AS_TEXT_NOTICE = "The model's tool call arrived as plain text: check "


class ChatDecoder(StreamDecoder):
    """A decoder for a Chat Completions answer."""

    def __init__(self, server: ChatServer) -> None:
        super().__init__()
        self._server = server
        self._reasoning = ReasoningDecoder(_THINKING)
        self._calls = ToolCallAssembler(_FIRST_CALL)
        self._splitter = ThinkTagSplitter() if server.think_tags else None
        self._pieces = TextBuffer()
        self._refusal = TextBuffer()
        self._usage: dict[str, Any] = {}
        self._reason: str | None = None
        self._is_claude = False

    @property
    def usage(self) -> Usage:
        return _parse_usage(self._usage)

    def _decode(self, event: str, content: Mapping[str, Any]) -> list[StreamEvent]:
        merge_non_null(self._usage, content.get("usage"))
        if event == "error" or content.get("error") or "error" in (content.get("object"), content.get("type")):
            raise classify_event("chat", content)
        model = str(content.get("model") or "")
        self._is_claude = is_claude(model) if not self._started else self._is_claude
        events = self._begin(model)
        choices = content.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index") in (0, None) and not self._finished:
                events += self._read_choice(choice)
        return events

    def finish(self) -> list[StreamEvent]:
        return super().finish() if self._finished or self._reason is None else self._finish()

    def _read_choice(self, choice: Mapping[str, Any]) -> list[StreamEvent]:
        merge_non_null(self._usage, choice.get("usage"))
        delta, message = choice.get("delta"), choice.get("message")
        whole = not isinstance(delta, dict) and isinstance(message, dict)
        part = message if whole else delta
        # Ignore a complete message at the end of a stream, because it only repeats the streamed content.
        is_new = not whole or not (self._pieces or self._calls or self._reasoning.has_started)
        events = self._read_part(part, whole=whole) if isinstance(part, dict) and is_new else []
        if isinstance(reason := choice.get("finish_reason"), str) and reason and self._reason not in _FINAL_REASONS:
            self._reason = reason.lower()
        return [*events, *self._finish()] if whole else events

    def _read_part(self, part: Mapping[str, Any], *, whole: bool) -> list[StreamEvent]:
        events = self._reasoning.decode_delta(part)
        events += self._read_content(part.get("content"))
        if isinstance(refusal := part.get("refusal"), str) and refusal:
            self._refusal.append(refusal)
        if isinstance(calls := part.get("tool_calls"), list):
            events += self._calls.add_entries(calls, whole=whole)
        elif isinstance(call := part.get("function_call"), dict):
            events += self._calls.add_entries([{"function": call}], whole=whole)
        return events

    def _read_content(self, content: object) -> list[StreamEvent]:
        """Decode the content, which is a string or a list of typed parts that may include thinking."""
        if isinstance(content, str):
            return self._add_text(content)
        events: list[StreamEvent] = []
        for part in content if isinstance(content, list) else ():
            if isinstance(part, str):
                events += self._add_text(part)
            elif isinstance(part, dict) and part.get("type") == "thinking":
                events += self._reasoning.add_part(part)
            elif isinstance(part, dict):
                events += self._add_text(extract_text(part.get("text")))
        return events

    def _add_text(self, text: str) -> list[StreamEvent]:
        return self._emit_pieces(self._splitter.feed(text) if self._splitter else [TextPiece("text", text)])

    def _emit_pieces(self, pieces: list[TextPiece]) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        for piece in pieces:
            if piece.kind == "thinking":
                events += self._reasoning.add_text("think_tags", piece.text)
            elif piece.text:
                if not self._pieces:
                    events.append(BlockStarted(_TEXT, "text", {}))
                self._pieces.append(piece.text)
                events.append(BlockDelta(_TEXT, TextDelta(piece.text)))
        return events

    def _end_stream(self) -> list[StreamEvent]:
        if self._reason is None and not (self._pieces or self._calls or self._refusal):
            raise StreamProtocolError("The provider ended the answer before it sent any content.")
        return self._finish()

    def _finish(self) -> list[StreamEvent]:
        if self._reason == _NO_CAPACITY_REASON:
            raise Overloaded("The provider has no capacity for this request at the moment.")
        is_unknown = self._reason is not None and self._reason not in _STOP_REASONS
        notices: tuple[str, ...] = (explain_unknown_ending(self._reason or ""),) if is_unknown else ()
        events = self._emit_pieces(self._splitter.finish()) if self._splitter else []
        events += self._stop_blocks()
        events += self._calls.stop(cut=self._reason in _FINAL_REASONS)
        self._finished = True
        reason = self._resolve_stop_reason()
        if reason == "end_turn":
            notices = _find_parser_notices(self._server, str(self._pieces), has_thinking=self._reasoning.has_started)
        # Claude accepts earlier thinking only with its signature.
        unsealed = self._is_claude and self._reasoning.has_started and not self._reasoning.can_hold_signature
        explanation = str(self._refusal) or "The provider's content filter stopped the answer."
        explained = explanation if reason == "refusal" else None
        return [*events, MessageFinished(reason, self.usage, explained, notices, unsealed)]

    def _stop_blocks(self) -> list[StreamEvent]:
        """End the thinking block and the text block. Thinking without an opening tag is moved out of the text."""
        text = str(self._pieces)
        # If the stream contained an opening tag or a thinking field, a closing tag is ordinary text.
        parts = (
            split_unopened(text)
            if self._splitter and not self._splitter.has_opened and not self._reasoning.has_started
            else None
        )
        if parts is None:
            closing: list[StreamEvent] = [BlockStopped(_TEXT, {"content": text})] if text else []
            return [*self._reasoning.stop(), *closing]
        thought, answer = parts
        events = self._reasoning.emit_whole_block("think_tags", thought) if thought else []
        self._pieces = TextBuffer(answer)
        return [*events, BlockStopped(_TEXT, {"content": answer}, answer)]

    def _resolve_stop_reason(self) -> StopReason:
        if self._refusal:
            return "refusal"
        reason = _STOP_REASONS.get(self._reason or "stop", "other")
        # Some servers send `stop` or no stop reason even though the model called tools.
        return "tool_use" if self._calls and reason in ("end_turn", "other") else reason


def _find_parser_notices(server: ChatServer, text: str, *, has_thinking: bool) -> tuple[str, ...]:
    """Return notices about output that the server should have parsed.

    If `has_thinking` is true but the answer has no text, the server may lack a reasoning parser.
    """
    if text.lstrip().startswith("<think>") and not server.think_tags:
        return (_THINK_TAG_NOTICE,)
    if not server.parsers:
        return ()
    if has_thinking and not text.strip():
        return (f"{_ALL_THINKING_NOTICE}{server.parsers}.",)
    return (f"{_CALL_AS_TEXT_NOTICE}{server.parsers}.",) if _UNPARSED_CALL.search(text) else ()


def _parse_usage(usage: Mapping[str, Any]) -> Usage:
    """Parse token counts. Missing or invalid counts become None. Totals include cached input and thinking."""
    prompt, completion = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    cached = read_count(prompt, "cached_tokens")
    return Usage(
        input_tokens=read_count(usage, "prompt_tokens"),
        output_tokens=read_count(usage, "completion_tokens"),
        thinking_tokens=read_count(completion, "reasoning_tokens"),
        cache_read_tokens=read_count(usage, "prompt_cache_hit_tokens") if cached is None else cached,
        cache_write_tokens=read_count(prompt, "cache_write_tokens"),
        cost_usd=_parse_dollars(usage.get("cost")),
    )


def _parse_dollars(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value < float("inf") else None
