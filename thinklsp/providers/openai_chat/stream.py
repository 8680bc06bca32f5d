"""The decoder for streamed and complete Chat Completions answers.

An answer becomes a single message that contains thinking, text and tool calls in this order, even if they arrive in a
different order. The decoder accepts missing and repeated fields.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from thinklsp.core.errors import Overloaded, StreamProtocolError
from thinklsp.core.messages import StopReason
from thinklsp.core.stream_events import (
    BlockDelta,
    BlockStarted,
    BlockStopped,
    MessageFinished,
    MessageStarted,
    StreamEvent,
    TextBuffer,
    TextDelta,
)
from thinklsp.core.usage import Usage
from thinklsp.providers.decoding import (
    build_cut_off_error,
    explain_unknown_ending,
    merge_non_null,
    parse_event,
    read_count,
)
from thinklsp.providers.openai_chat.errors import has_error, parse_stream_failure
from thinklsp.providers.openai_chat.reasoning import (
    ReasoningDecoder,
    TextPiece,
    ThinkTagSplitter,
    extract_text,
    split_unopened,
)
from thinklsp.providers.openai_chat.servers import ChatServer, is_claude
from thinklsp.providers.openai_chat.tool_calls import ToolCallAssembler

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


class ChatDecoder:
    """A decoder for a Chat Completions answer."""

    def __init__(self, server: ChatServer) -> None:
        self._server = server
        self._reasoning = ReasoningDecoder(_THINKING)
        self._calls = ToolCallAssembler(_FIRST_CALL)
        self._splitter = ThinkTagSplitter() if server.think_tags else None
        self._pieces = TextBuffer()
        self._refusal = TextBuffer()
        self._usage: dict[str, Any] = {}
        self._reason: str | None = None
        self._is_claude = False
        self._started = False
        self._finished = False

    @property
    def usage(self) -> Usage:
        return _parse_usage(self._usage)

    def feed(self, event: str, data: str) -> list[StreamEvent]:
        """Decode the data of a server-sent event, or a complete JSON answer. Raise ProviderError for an error."""
        data = data.strip()
        if self._finished or not data:
            return []
        if data.startswith("[DONE]"):
            return self._end_stream()
        content = parse_event(event, data)
        merge_non_null(self._usage, content.get("usage"))
        if event == "error" or has_error(content):
            raise parse_stream_failure(content)
        events = self._begin(content)
        choices = content.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index") in (0, None) and not self._finished:
                events += self._read_choice(choice)
        return events

    def finish(self) -> list[StreamEvent]:
        """Handle the end of the connection. Raise StreamProtocolError if no stop reason has arrived."""
        if self._finished:
            return []
        if self._reason is None:
            raise build_cut_off_error()
        return self._finish()

    def _begin(self, content: Mapping[str, Any]) -> list[StreamEvent]:
        if self._started:
            return []
        self._started = True
        model = str(content.get("model") or "")
        self._is_claude = is_claude(model)
        return [MessageStarted(model, Usage())]

    def _read_choice(self, choice: Mapping[str, Any]) -> list[StreamEvent]:
        merge_non_null(self._usage, choice.get("usage"))
        delta, message = choice.get("delta"), choice.get("message")
        whole = not isinstance(delta, dict) and isinstance(message, dict)
        part = message if whole else delta
        # Ignore a complete message at the end of a stream, because it only repeats the streamed content.
        is_new = not whole or not (self._pieces or self._calls or self._reasoning.has_started)
        events = self._read_part(part, whole=whole) if isinstance(part, dict) and is_new else []
        self._store_reason(choice.get("finish_reason"))
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

    def _store_reason(self, reason: object) -> None:
        if isinstance(reason, str) and reason and self._reason not in _FINAL_REASONS:
            self._reason = reason.lower()

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
        return [*events, MessageFinished(reason, self.usage, self._explain_refusal(reason), notices, unsealed)]

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

    def _explain_refusal(self, reason: StopReason) -> str | None:
        if reason != "refusal":
            return None
        return str(self._refusal) or "The provider's content filter stopped the answer."


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
