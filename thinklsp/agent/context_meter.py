"""The context meter, which estimates the size of requests in tokens.

The token counts in the provider's answers calibrate the estimate.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import assert_never
from weakref import ref

from thinklsp.core.images import estimate_image_tokens, list_images
from thinklsp.core.messages import (
    ContentBlock,
    Conversation,
    IdentityMemo,
    ImageBlock,
    Message,
    OpaqueBlock,
    RedactedThinkingBlock,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    UserBlock,
    find_compaction_origin,
)
from thinklsp.core.usage import Usage
from thinklsp.providers.base import ModelRequest
from thinklsp.providers.model_info import ModelInfo

# Code and prose use three to four bytes per token. An estimate that is too high is safer than one that is too low.
_TOKENS_PER_BYTE = 1 / 3
_MIN_RATIO, _MAX_RATIO = 0.1, 1.5
# The estimated size of a block in bytes, without its text.
BLOCK_OVERHEAD_BYTES = 16
# Smaller requests do not calibrate the estimate, because the provider's own instructions are too large a share of their
# tokens.
_MIN_CALIBRATION_BYTES = 2_000
MAX_COMPACTION_FAILURES = 3

_SIZES: IdentityMemo[int] = IdentityMemo()


@dataclass(frozen=True, slots=True)
class _CountedRequest:
    """The last request whose tokens the provider counted, with the usage of its answer.

    `messages` does not keep the messages in memory: the session may leave the cache before its meter.
    """

    model: str
    messages: tuple[ref[Message], ...]
    input_tokens: int
    usage: Usage

    def is_start_of(self, conversation: Conversation) -> bool:
        """Return True if the conversation begins with the messages of this request."""
        return len(conversation) >= len(self.messages) and all(
            counted() is message for counted, message in zip(self.messages, conversation, strict=False)
        )


class ContextMeter:
    """The context meter of a session. The engine shares it between the session's turns but does not store it.

    `failures` is the number of consecutive failed compactions. After three failures, thinklsp compacts the session only
    on command.
    """

    def __init__(self) -> None:
        self.failures = 0
        self._ratio = _TOKENS_PER_BYTE
        self._counted_request: _CountedRequest | None = None
        self._rejected_tokens: dict[str, int] = {}

    @property
    def has_given_up(self) -> bool:
        return self.failures >= MAX_COMPACTION_FAILURES

    def record_usage(self, request: ModelRequest, usage: Usage) -> None:
        """Record the usage that the provider reported for a request."""
        images = list_images(request.conversation[_find_visible_start(request) :])
        tokens, size = usage.input_tokens, _measure_request(request) - sum(map(_measure_block, images))
        if tokens is None or (size >= _MIN_CALIBRATION_BYTES and tokens < size * _MIN_RATIO):
            # Some servers do not count cached tokens, so counts that are too low are ignored.
            return
        self._counted_request = _CountedRequest(request.model.id, tuple(map(ref, request.conversation)), tokens, usage)
        # Providers count images very differently, so requests with images do not calibrate the estimate.
        if size >= _MIN_CALIBRATION_BYTES and not images:
            self._ratio = min(_MAX_RATIO, tokens / size)

    def record_rejection(self, request: ModelRequest) -> None:
        """Record that a request was rejected as too long."""
        tokens = self.estimate_tokens(request)
        self._rejected_tokens[request.model.id] = min(tokens, self._rejected_tokens.get(request.model.id, tokens))

    def find_window(self, model: ModelInfo) -> int | None:
        """Return the length of the longest prompt in tokens, or None if it is unknown.

        If the catalogue does not know it, the shortest rejected request counts.
        """
        return model.input_window or self._rejected_tokens.get(model.id)

    def estimate_tokens(self, request: ModelRequest) -> int:
        """Estimate the number of tokens in the next request.

        If an earlier request was counted, only the messages after it are estimated.
        """
        known = self._find_counted_prefix(request)
        if known is None:
            return self.convert_to_tokens(_measure_request(request))
        added = request.conversation[len(known.messages) :]
        if added and added[0].role == "assistant":
            return known.input_tokens + (known.usage.output_tokens or 0) + self.count_tokens(added[1:])
        return known.input_tokens + self.count_tokens(added)

    def estimate_next_usage(self, request: ModelRequest) -> Usage:
        """Estimate the input usage of the next request, including tokens in the provider's prompt cache."""
        tokens, known = self.estimate_tokens(request), self._find_counted_prefix(request)
        if known is None:
            return Usage(tokens, 0, cache_write_tokens=tokens)
        read, written = known.usage.cache_read_tokens or 0, known.usage.cache_write_tokens
        added = None if written is None else tokens - known.input_tokens
        return Usage(tokens, 0, cache_read_tokens=read + (written or 0), cache_write_tokens=added)

    def _find_counted_prefix(self, request: ModelRequest) -> _CountedRequest | None:
        """Return the last counted request if `request` continues its conversation, or None."""
        known = self._counted_request
        if known is None or known.model != request.model.id or _find_visible_start(request) >= len(known.messages):
            return None
        return known if known.is_start_of(request.conversation) else None

    def count_tokens(self, messages: Iterable[Message]) -> int:
        return self.convert_to_tokens(measure_messages(messages))

    def estimate_fixed_tokens(self, request: ModelRequest) -> int:
        """Estimate the number of tokens in the system prompt and the tools."""
        return self.convert_to_tokens(_measure_fixed_parts(request))

    def convert_to_tokens(self, size: int) -> int:
        return round(size * self._ratio)

    def convert_to_bytes(self, tokens: int) -> int:
        return round(tokens / self._ratio)


def measure_messages(messages: Iterable[Message]) -> int:
    """Return the size of the readable parts of messages. Only the provider can measure hidden thinking."""
    return sum(_measure_message(message) for message in messages)


def _measure_message(message: Message) -> int:
    """Return the size of a message. The size is cached, because every step measures the whole conversation."""
    size = _SIZES.find(message)
    if size is None:
        size = _SIZES.store(message, sum(BLOCK_OVERHEAD_BYTES + _measure_block(block) for block in message.blocks))
    return size


def measure_text(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))


def _measure_block(block: ContentBlock | UserBlock) -> int:
    match block:
        case TextBlock() | ThinkingBlock() | ToolResultBlock():
            return measure_text(block.text)
        case ImageBlock():
            return round(estimate_image_tokens(block) / _TOKENS_PER_BYTE)
        case ToolUseBlock():
            return len(block.name) + measure_text(json.dumps(block.input or {}, ensure_ascii=False, default=str))
        case RedactedThinkingBlock() | ServerToolBlock() | OpaqueBlock():
            return 0
        case _:
            assert_never(block)


def _measure_request(request: ModelRequest) -> int:
    return _measure_fixed_parts(request) + measure_messages(request.conversation[_find_visible_start(request) :])


def _find_visible_start(request: ModelRequest) -> int:
    """Return the index of the first message that the model still reads after a compaction by the provider."""
    for index in reversed(range(len(request.conversation))):
        origin = find_compaction_origin(request.conversation[index])
        if origin is not None and (origin.provider, origin.model) == (request.model.provider, request.model.id):
            return index
    return 0


def _measure_fixed_parts(request: ModelRequest) -> int:
    return measure_text(request.system) + sum(map(_measure_tool, request.tools))


@lru_cache(maxsize=256)
def _measure_tool(tool: ToolSpec) -> int:
    return measure_text(tool.description) + len(json.dumps(tool.input_schema, default=str)) + BLOCK_OVERHEAD_BYTES
