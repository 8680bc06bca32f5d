"""Decodes chat completions, streamed or whole. One message: thinking, then text, then calls, whenever each arrived.

What a server leaves out or repeats is met where it can be without guessing at content. No error here repeats what the
service sent, except its error messages.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from thinklsp.core.errors import Overloaded, StreamProtocolError
from thinklsp.core.messages import StopReason
from thinklsp.core.pieces import Pieces
from thinklsp.core.stream import (
    BlockDelta,
    BlockStarted,
    BlockStopped,
    MessageFinished,
    MessageStarted,
    StreamEvent,
    TextDelta,
)
from thinklsp.core.strict_json import is_shallow, read_json
from thinklsp.core.usage import Usage
from thinklsp.providers.openai_chat.cache_marks import is_claude
from thinklsp.providers.openai_chat.errors import failure_in_stream, holds_error
from thinklsp.providers.openai_chat.reasoning import Reasoning
from thinklsp.providers.openai_chat.servers import ChatServer
from thinklsp.providers.openai_chat.think_tags import Piece, ThinkTagSplitter, split_unopened
from thinklsp.providers.openai_chat.tool_calls import ToolCalls

_THINKING, _TEXT, _FIRST_CALL = 0, 1, 2
_STOP_REASONS: dict[str, StopReason] = {
    "stop": "end_turn",
    "tool_calls": "end_turn",
    "function_call": "end_turn",
    "length": "max_tokens",
    "max_tokens": "max_tokens",
    "model_length": "max_tokens",
    "content_filter": "refusal",
}
# The last reason counts, but none takes it back that the answer is incomplete.
_FINAL = frozenset({"length", "max_tokens", "model_length", "content_filter"})
_BROKEN = frozenset({"error", "abort"})
_NO_ROOM = "insufficient_system_resource"
_NESTING = 100
# Signs that a server does not parse the output of its model.
_WRITTEN_CALL = re.compile(r"^\s*(?:<tool_call>|\[TOOL_CALLS\]|<function=|<\|tool_call|<｜tool▁call)", re.MULTILINE)
_TAGS = (
    "The answer begins with <think>, so the server leaves the thinking in the text: set think_tags = true under "
    "[providers.openai-compatible] in your config.toml, or configure the server's reasoning parser."
)
_ALL_THINKING = (
    "The server sent the whole answer as thinking, without text or tool calls. If that happens again, check "
)
_CALL_AS_TEXT = "The model's tool call came as plain text: check "


class ChatDecoder:
    """Lives with one stream. After the terminal event everything further is ignored."""

    def __init__(self, server: ChatServer) -> None:
        self._server = server
        self._reasoning = Reasoning(_THINKING)
        self._calls = ToolCalls(_FIRST_CALL)
        self._tags = ThinkTagSplitter() if server.think_tags else None
        self._pieces = Pieces()
        self._refusal = Pieces()
        self._usage: dict[str, Any] = {}
        self._reason: str | None = None
        self._is_claude = False
        self._started = False
        self._finished = False

    @property
    def usage(self) -> Usage:
        return _parse_usage(self._usage)

    def feed(self, event: str, data: str) -> list[StreamEvent]:
        """One server-sent event, or a whole answer or error as JSON. Raises ProviderError."""
        data = data.strip()
        if self._finished or not data:
            return []
        if data.startswith("[DONE]"):
            return self._done()
        content = _parse(data, is_error=event == "error")
        self._count(content.get("usage"))
        if event == "error" or holds_error(content):
            raise failure_in_stream(content)
        events = self._begin(content)
        choices = content.get("choices")
        for choice in choices if isinstance(choices, list) else ():
            if isinstance(choice, dict) and choice.get("index") in (0, None) and not self._finished:
                events += self._choice(choice)
        return events

    def finish(self) -> list[StreamEvent]:
        """The connection has ended. That is the end of the answer only if the server has said why it stopped."""
        if self._finished:
            return []
        if self._reason is None:
            raise StreamProtocolError("The connection ended before the answer was complete.")
        return self._finish()

    def _begin(self, content: Mapping[str, Any]) -> list[StreamEvent]:
        if self._started:
            return []
        self._started = True
        model = str(content.get("model") or "")
        self._is_claude = is_claude(model)
        return [MessageStarted(model, Usage())]

    def _count(self, usage: object) -> None:
        """It may come with any chunk or with all of them; the last figures count."""
        if isinstance(usage, dict):
            self._usage.update({key: value for key, value in usage.items() if value is not None})

    def _choice(self, choice: Mapping[str, Any]) -> list[StreamEvent]:
        self._count(choice.get("usage"))
        delta, message = choice.get("delta"), choice.get("message")
        whole = not isinstance(delta, dict) and isinstance(message, dict)
        part = message if whole else delta
        # A message behind its own pieces only repeats them.
        is_new = not whole or not (self._pieces or self._calls or self._reasoning.seen)
        events = self._part(part, whole=whole) if isinstance(part, dict) and is_new else []
        self._stop(choice.get("finish_reason"))
        return [*events, *self._finish()] if whole else events

    def _part(self, part: Mapping[str, Any], *, whole: bool) -> list[StreamEvent]:
        events = self._reasoning.take(part)
        events += self._content(part.get("content"))
        if isinstance(refusal := part.get("refusal"), str) and refusal:
            self._refusal.append(refusal)
        if isinstance(calls := part.get("tool_calls"), list):
            events += self._calls.take(calls, whole=whole)
        elif isinstance(call := part.get("function_call"), dict):
            events += self._calls.take([{"function": call}], whole=whole)
        return events

    def _content(self, content: object) -> list[StreamEvent]:
        """A string, or a list of typed parts of which thinking is one."""
        if isinstance(content, str):
            return self._say(content)
        events: list[StreamEvent] = []
        for part in content if isinstance(content, list) else ():
            if isinstance(part, str):
                events += self._say(part)
            elif isinstance(part, dict) and part.get("type") == "thinking":
                events += self._reasoning.tell("content", _text_of(part.get("thinking")))
            elif isinstance(part, dict):
                events += self._say(_text_of(part.get("text")))
        return events

    def _say(self, text: str) -> list[StreamEvent]:
        return self._sort(self._tags.feed(text) if self._tags else [Piece("text", text)])

    def _sort(self, pieces: list[Piece]) -> list[StreamEvent]:
        events: list[StreamEvent] = []
        for piece in pieces:
            if piece.kind == "thinking":
                events += self._reasoning.tell("think_tags", piece.text)
            elif piece.text:
                if not self._pieces:
                    events.append(BlockStarted(_TEXT, "text", {}))
                self._pieces.append(piece.text)
                events.append(BlockDelta(_TEXT, TextDelta(piece.text)))
        return events

    def _stop(self, reason: object) -> None:
        if isinstance(reason, str) and reason and self._reason not in _FINAL:
            self._reason = reason

    def _done(self) -> list[StreamEvent]:
        if self._reason is None and not (self._pieces or self._calls or self._refusal):
            raise StreamProtocolError("The service ended the answer before it had said anything.")
        return self._finish()

    def _finish(self) -> list[StreamEvent]:
        if self._reason == _NO_ROOM:
            raise Overloaded("The service has no room for this request at the moment: try again in a few minutes.")
        if self._reason in _BROKEN:
            raise Overloaded("The service broke the answer off without saying why: try again.")
        events = self._sort(self._tags.finish()) if self._tags else []
        events += self._stop_blocks()
        events += self._calls.stop(cut=self._reason in _FINAL)
        self._finished = True
        reason = self._stop_reason()
        notices: tuple[str, ...] = ()
        if reason == "end_turn":
            notices = _find_parser_notices(self._server, str(self._pieces), thought=self._reasoning.seen)
        # Claude takes thinking back with its signature only.
        unsealed = self._is_claude and self._reasoning.seen and not self._reasoning.is_sealed
        return [*events, MessageFinished(reason, self.usage, self._explanation(reason), notices, unsealed)]

    def _stop_blocks(self) -> list[StreamEvent]:
        """The thinking and the text; the latter may turn out to hold the former."""
        text = str(self._pieces)
        # Where a tag was opened, or thinking came in a field of its own, a closing tag is part of what is said.
        parts = split_unopened(text) if self._tags and not self._tags.opened and not self._reasoning.seen else None
        if parts is None:
            closing: list[StreamEvent] = [BlockStopped(_TEXT, {"content": text})] if text else []
            return [*self._reasoning.stop(), *closing]
        thought, answer = parts
        events = self._reasoning.whole("think_tags", thought) if thought else []
        self._pieces = Pieces(answer)
        return [*events, BlockStopped(_TEXT, {"content": answer}, answer)]

    def _stop_reason(self) -> StopReason:
        if self._refusal:
            return "refusal"
        reason = _STOP_REASONS.get(self._reason or "stop", "other")
        # Some servers say `stop`, or nothing, although the model has called tools.
        return "tool_use" if self._calls and reason in ("end_turn", "other") else reason

    def _explanation(self, reason: StopReason) -> str | None:
        if reason != "refusal":
            return None
        return str(self._refusal) or "The service's content filter stopped the answer."


def _text_of(value: object) -> str:
    """The text of a part: a string, or parts of its own."""
    if isinstance(value, list):
        return "".join(text for part in value if isinstance(part, dict) and isinstance(text := part.get("text"), str))
    return value if isinstance(value, str) else ""


def _parse(data: str, *, is_error: bool) -> Mapping[str, Any]:
    """An error may be plain text, or the only member of a list."""
    try:
        content = read_json(data, odd_numbers="null")
    except ValueError:
        content = {"error": data} if is_error else None
    if isinstance(content, list) and len(content) == 1:
        content = content[0]
    if is_error and isinstance(content, str):
        content = {"error": content}
    if not isinstance(content, dict) or not is_shallow(content, _NESTING, data):
        raise StreamProtocolError("The service sent an event that cannot be read.")
    return content


def _find_parser_notices(server: ChatServer, text: str, *, thought: bool) -> tuple[str, ...]:
    """Return notices about output that the server did not parse, for an answer that ended normally without a tool call.

    `thought`: the answer has thinking.
    """
    if text.lstrip().startswith("<think>") and not server.think_tags:
        return (_TAGS,)
    if not server.parsers:
        return ()
    if thought and not text.strip():
        return (f"{_ALL_THINKING}{server.parsers}.",)
    return (f"{_CALL_AS_TEXT}{server.parsers}.",) if _WRITTEN_CALL.search(text) else ()


def _parse_usage(usage: Mapping[str, Any]) -> Usage:
    """Parse token counts; a missing or impossible figure is None. Totals include cached input and thinking."""
    prompt, completion = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    cached = _parse_count(prompt, "cached_tokens")
    return Usage(
        input_tokens=_parse_count(usage, "prompt_tokens"),
        output_tokens=_parse_count(usage, "completion_tokens"),
        thinking_tokens=_parse_count(completion, "reasoning_tokens"),
        cache_read_tokens=_parse_count(usage, "prompt_cache_hit_tokens") if cached is None else cached,
        cache_write_tokens=_parse_count(prompt, "cache_write_tokens"),
        cost_usd=_parse_dollars(usage.get("cost")),
    )


def _parse_count(content: object, key: str) -> int | None:
    value = content.get(key) if isinstance(content, dict) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _parse_dollars(value: object) -> float | None:
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value < float("inf") else None
