"""The conversation as messages of chat completions: what goes back, under which name, and in which order.

Thinking goes back only to the server and model that gave it, and never as tags in the text. Every call is followed by
its result before anything else is said, whatever the history looks like; ids stand once in a conversation.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from hashlib import sha256
from itertools import groupby
from typing import Any, assert_never

from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    Conversation,
    Origin,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.providers.openai_chat.reasoning import BLOCKS, DETAILS, FIELDS
from thinklsp.providers.openai_chat.servers import ChatServer
from thinklsp.providers.written import WrittenParts

WRITTEN = WrittenParts()
_EMPTY = "(no text)"
_FAILED = "Error: "
_NO_RESULT = "Error: there is no result; the call was not carried out."
_FOREIGN = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_ID = 40
_LONGEST_NAME = 64
_DIGEST = 12

_Wire = dict[str, Any]


def wire_messages(conversation: Conversation, origin: Origin, server: ChatServer) -> list[_Wire]:
    """Neighbours of one role become one message; none is empty."""
    replay = _Replay(origin, server)
    messages: list[_Wire] = []
    for role, group in groupby(conversation, key=lambda message: message.role):
        if role == "assistant":
            messages.append(replay.answer([message for message in group if isinstance(message, AssistantMessage)]))
        else:
            messages += replay.question([message for message in group if isinstance(message, UserMessage)])
    return [*messages, *replay.results(())]


class _Replay:
    """Owned by one encoding."""

    def __init__(self, origin: Origin, server: ChatServer) -> None:
        self._origin = origin
        self._server = server
        self._ids: set[str] = set()
        # Neutral and wire id of the calls that wait for their results.
        self._waiting: list[tuple[str, str]] = []

    def answer(self, messages: Sequence[AssistantMessage]) -> _Wire:
        calls = [block for message in messages for block in message.blocks if isinstance(block, ToolUseBlock)]
        names = [self._claim(block.id, str(self._opened(block).get("id") or "") or _fit(block.id)) for block in calls]
        key = (self._origin, self._server.echo, self._server.demands_reasoning, tuple(names), messages[1:])
        return WRITTEN.encode(messages[0], key, lambda: self._answer(messages, calls, names))

    def _answer(self, messages: Sequence[AssistantMessage], calls: list[ToolUseBlock], names: list[str]) -> _Wire:
        texts = ["".join(map(self._text, message.blocks)) for message in messages]
        content = "\n\n".join(text for text in texts if text)
        if not calls and not content.strip():
            content = _EMPTY
        wire: _Wire = {"role": "assistant", "content": content or None, **self._reasoning(messages)}
        if calls:
            wire["tool_calls"] = [self._call(block, name) for block, name in zip(calls, names, strict=True)]
            if self._server.demands_reasoning and not any(name in wire for name in FIELDS):
                wire["reasoning_content"] = ""
        return wire

    def question(self, messages: Sequence[UserMessage]) -> list[_Wire]:
        blocks = [block for message in messages for block in message.blocks]
        wire = self.results([block for block in blocks if isinstance(block, ToolResultBlock)])
        texts = [block.text for block in blocks if isinstance(block, TextBlock) and block.text.strip()]
        if texts or not wire:
            wire.append({"role": "user", "content": "\n\n".join(texts) or _EMPTY})
        return wire

    def results(self, blocks: Iterable[ToolResultBlock]) -> list[_Wire]:
        """One message for each call that waits. Results that answer none would be refused and are left out."""
        found = {block.tool_use_id: block for block in reversed(tuple(blocks))}
        waiting, self._waiting = self._waiting, []
        return [_result(found.get(call_id), wire_id) for call_id, wire_id in waiting]

    def _call(self, block: ToolUseBlock, wire_id: str) -> _Wire:
        """Own calls go back as they came, but for arguments that no server could read."""
        raw = self._opened(block)
        function = raw.get("function")
        if isinstance(function, dict):
            is_readable = block.input is not None and str(function.get("arguments")).lstrip().startswith("{")
            function = function if is_readable else {**function, "arguments": "{}"}
        else:
            arguments = json.dumps(block.input or {}, ensure_ascii=False)
            function = {"name": _fit(block.name, _LONGEST_NAME), "arguments": arguments}
        return raw | {"id": wire_id, "type": "function", "function": function}

    def _claim(self, call_id: str, wished: str) -> str:
        """Some servers give the same ids in every answer, and others refuse such a conversation."""
        name, number = wished, 1
        if name in self._ids:
            name = _fit(call_id)
        while name in self._ids:
            number += 1
            name = _fit(f"{wished}-{number}")
        self._ids.add(name)
        self._waiting.append((call_id, name))
        return name

    def _reasoning(self, messages: Sequence[AssistantMessage]) -> _Wire:
        fields: _Wire = {}
        for message in messages:
            for block in message.blocks:
                if isinstance(block, ThinkingBlock):
                    _join(fields, self._echoed(block))
        return fields

    def _echoed(self, block: ThinkingBlock) -> _Wire:
        """Own thinking under the name that the server's rule gives it; empty for everything else."""
        raw = self._opened(block)
        match self._server.echo:
            case "none":
                return {}
            case "auto" | "reasoning_details":
                names = FIELDS if self._server.echo == "auto" else (DETAILS, BLOCKS)
                return {name: raw[name] for name in names if name in raw}
            case "reasoning" | "reasoning_content":
                return {self._server.echo: block.text} if raw and block.text else {}
            case _:
                assert_never(self._server.echo)

    def _opened(self, block: ThinkingBlock | ToolUseBlock) -> _Wire:
        if block.raw is None or not block.raw.belongs_to(self._origin):
            return {}
        state = block.raw
        return WRITTEN.encode(block, self._origin, lambda: json.loads(state.open_for(self._origin)))

    def _text(self, block: ContentBlock) -> str:
        """Blank text of others says nothing; one's own stays, so that the server finds its words in its cache."""
        if not isinstance(block, TextBlock):
            return ""
        is_own = block.raw is not None and block.raw.belongs_to(self._origin)
        return block.text if is_own or block.text.strip() else ""


def _join(fields: _Wire, more: _Wire) -> None:
    """Thinking of neighbouring answers: details in order, texts one below the other."""
    for name, value in more.items():
        if name not in fields:
            fields[name] = value
        elif isinstance(value, list):
            fields[name] = [*fields[name], *value]
        else:
            fields[name] = f"{fields[name]}\n\n{value}"


def _result(block: ToolResultBlock | None, wire_id: str) -> _Wire:
    def made() -> _Wire:
        return {"role": "tool", "tool_call_id": wire_id, "content": _result_text(block)}

    return made() if block is None else WRITTEN.encode(block, wire_id, made)


def _result_text(block: ToolResultBlock | None) -> str:
    """The dialect has no mark for errors, so the text says it."""
    if block is None:
        return _NO_RESULT
    return f"{_FAILED}{block.text}" if block.is_error else block.text


def _fit(name: str, longest: int = _LONGEST_ID) -> str:
    """Ids and names of other services may hold characters that a server refuses, or be too long for it."""
    fit = _FOREIGN.sub("_", name) or "_"
    if len(fit) <= longest:
        return fit
    digest = sha256(name.encode("utf-8", "surrogatepass")).hexdigest()[:_DIGEST]
    return f"{fit[: longest - _DIGEST - 1]}-{digest}"
