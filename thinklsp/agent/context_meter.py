"""How much of the model's window a request takes, and what it will read. Estimates, set right by every figure that the
provider gives."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never

from thinklsp.core.memo import IdentityMemo
from thinklsp.core.messages import (
    ContentBlock,
    Conversation,
    Message,
    OpaqueBlock,
    RedactedThinkingBlock,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    shortened_by,
)
from thinklsp.core.usage import Usage
from thinklsp.providers.base import ModelRequest

# Code and prose come to three or four bytes a token; to guess too many tokens does less harm than too few.
_TOKENS_PER_BYTE = 1 / 3
_LEAST_RATIO, _MOST_RATIO = 0.1, 1.5
# What every block takes apart from its text.
_FRAME = 16
# Of smaller requests the unseen parts, such as a service's own instructions, are too great a share.
_TELLING = 2_000
MOST_FAILURES = 3

_SIZES: IdentityMemo[int] = IdentityMemo()


@dataclass(frozen=True, slots=True)
class _Known:
    """A request that the provider has counted, and its answer."""

    model: str
    conversation: Conversation
    input_tokens: int
    usage: Usage


class ContextMeter:
    """One per session, owned by the engine and handed to its turns; it lives as long as the process.

    `failures`: compactions in a row that came to nothing. After three none is tried without the user's word.
    """

    def __init__(self) -> None:
        self.failures = 0
        self._ratio = _TOKENS_PER_BYTE
        self._known: _Known | None = None

    @property
    def gave_up(self) -> bool:
        return self.failures >= MOST_FAILURES

    def learn(self, request: ModelRequest, usage: Usage) -> None:
        """The provider has said how many tokens a request was."""
        tokens, size = usage.input_tokens, _request_bytes(request)
        if tokens is None or (size >= _TELLING and tokens < size * _LEAST_RATIO):
            # Some servers leave out what they had in their cache.
            return
        self._known = _Known(request.model.id, request.conversation, tokens, usage)
        if size >= _TELLING:
            self._ratio = min(_MOST_RATIO, tokens / size)

    def projected(self, request: ModelRequest) -> int:
        """Tokens of a request that has not been sent: what is known of its beginning, and an estimate of the rest."""
        known = self._beginning(request)
        if known is None:
            return self.tokens_in(_request_bytes(request))
        added = request.conversation[len(known.conversation) :]
        if added and added[0].role == "assistant":
            return known.input_tokens + (known.usage.output_tokens or 0) + self.tokens(added[1:])
        return known.input_tokens + self.tokens(added)

    def next_input(self, request: ModelRequest) -> Usage:
        """What a request will read: what the service has cached of the one before it, and the rest anew."""
        tokens, known = self.projected(request), self._beginning(request)
        if known is None:
            return Usage(tokens, 0, cache_write_tokens=tokens)
        read, written = known.usage.cache_read_tokens or 0, known.usage.cache_write_tokens
        added = None if written is None else tokens - known.input_tokens
        return Usage(tokens, 0, cache_read_tokens=read + (written or 0), cache_write_tokens=added)

    def _beginning(self, request: ModelRequest) -> _Known | None:
        """The request that was counted last, where this one begins with it."""
        known = self._known
        if known is None or known.model != request.model.id or _shortened_at(request) >= len(known.conversation):
            return None
        return known if request.conversation[: len(known.conversation)] == known.conversation else None

    def tokens(self, messages: Iterable[Message]) -> int:
        return self.tokens_in(bytes_of(messages))

    def frame(self, request: ModelRequest) -> int:
        """Tokens of what is not conversation: the system prompt and the tools."""
        return self.tokens_in(_frame_bytes(request))

    def tokens_in(self, size: int) -> int:
        return round(size * self._ratio)

    def bytes_in(self, tokens: int) -> int:
        return round(tokens / self._ratio)


def bytes_of(messages: Iterable[Message]) -> int:
    """What can be read of them. Hidden thinking is counted by the provider alone."""
    return sum(_message_bytes(message) for message in messages)


def _message_bytes(message: Message) -> int:
    """Counted once: a loop asks for the whole conversation at every step."""
    size = _SIZES.find(message)
    if size is None:
        size = _SIZES.keep(message, sum(_FRAME + _block_bytes(block) for block in message.blocks))
    return size


def text_bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _block_bytes(block: ContentBlock | ToolResultBlock) -> int:
    match block:
        case TextBlock() | ThinkingBlock() | ToolResultBlock():
            return text_bytes(block.text)
        case ToolUseBlock():
            return len(block.name) + text_bytes(json.dumps(block.input or {}, ensure_ascii=False, default=str))
        case RedactedThinkingBlock() | ServerToolBlock() | OpaqueBlock():
            return 0
        case _:
            assert_never(block)


def _request_bytes(request: ModelRequest) -> int:
    return _frame_bytes(request) + bytes_of(request.conversation[_shortened_at(request) :])


def _shortened_at(request: ModelRequest) -> int:
    """Where the part of the conversation begins that the model still reads."""
    for index in reversed(range(len(request.conversation))):
        origin = shortened_by(request.conversation[index])
        if origin is not None and (origin.provider, origin.model) == (request.model.provider, request.model.id):
            return index
    return 0


def _frame_bytes(request: ModelRequest) -> int:
    return text_bytes(request.system) + sum(map(_tool_bytes, request.tools))


@lru_cache(maxsize=256)
def _tool_bytes(tool: ToolSpec) -> int:
    return text_bytes(tool.description) + len(json.dumps(tool.input_schema, default=str)) + _FRAME
