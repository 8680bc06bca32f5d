"""What a request costs in tokens, and what of it the prompt cache already holds. Estimates, but steady ones.

The service caches whole prefixes by itself, in steps of 128 tokens once a prompt has 1024.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any

from thinklsp.simulator.openai.conversation import Conversation, kind, side, still_read
from thinklsp.simulator.openai.options import Options
from thinklsp.simulator.openai.replay import Replay, bare
from thinklsp.simulator.prompt_cache import InputUsage, Item, text_tokens
from thinklsp.simulator.scenario import UsageOverride

CACHE_MINIMUM = 1024
_STEP = 128
_IMAGE_TOKENS = 1200
# The service promises half an hour and may keep a prefix for longer.
_LIFETIME = "1h"


def items(body: Mapping[str, Any], conversation: Conversation, options: Options, replay: Replay) -> tuple[Item, ...]:
    """The request as cacheable units, in the order in which the model reads it."""
    key = ""
    result: list[Item] = []
    for content, tokens, kept in _units(body, conversation, options, replay):
        key = hashlib.sha256(f"{key}{content}".encode("utf-8", "surrogatepass")).hexdigest()
        result.append(Item(key, tokens, _LIFETIME if kept else None))
    return tuple(result)


def figures(spent: InputUsage, output: int, reasoning: int, given: UsageOverride, options: Options) -> dict[str, Any]:
    """The usage of a response. Scripted figures replace estimated ones."""
    whole = spent.total if given.input_tokens is None else given.input_tokens
    cached = spent.read // _STEP * _STEP if given.cache_read_tokens is None else given.cache_read_tokens
    written = sum(spent.written.values()) if options.traits.reports_writes else 0
    written = written if given.cache_write_tokens is None else given.cache_write_tokens
    output = output if given.output_tokens is None else given.output_tokens
    reasoning = min(reasoning, output) if given.thinking_tokens is None else given.thinking_tokens
    return {
        "input_tokens": whole,
        "input_tokens_details": {"cached_tokens": min(cached, whole), "cache_write_tokens": written},
        "output_tokens": output,
        "output_tokens_details": {"reasoning_tokens": reasoning},
        "total_tokens": whole + output,
    }


def _units(
    body: Mapping[str, Any], conversation: Conversation, options: Options, replay: Replay
) -> Iterator[tuple[str, int, bool]]:
    """Content, tokens, and whether the prompt may be cached up to there."""
    effort, key, form = options.effort, body.get("prompt_cache_key"), body.get("text")
    opening = json.dumps([options.traits.id, effort, key, form])
    implicit = options.caches
    for tool in body.get("tools") or ():
        yield opening + json.dumps(tool), _tokens(tool), implicit
    instructions = body.get("instructions")
    told = (f"instructions {instructions}", text_tokens(instructions) + 3) if instructions else None
    if told is not None and not options.traits.bound:
        yield opening + told[0], told[1], implicit
    begins = still_read(conversation.items)
    for index, item in enumerate(conversation.items):
        if index < begins and side(item) != "frame":
            continue
        if kind(item) == "reasoning":
            if index in replay.tokens:
                yield f"reasoning {item.get('encrypted_content') or item.get('id')}", replay.tokens[index], implicit
            continue
        yield opening + json.dumps(bare(item)), _tokens(bare(item)), implicit or _breaks(item)
    if told is not None and options.traits.bound:
        # The newest models read the instructions of a turn behind everything else.
        yield told[0], told[1], False


def _tokens(value: Mapping[str, Any]) -> int:
    content = value.get("content")
    if not isinstance(content, list):
        return 3 + text_tokens(json.dumps(value, ensure_ascii=False))
    rest = [part for part in content if not (isinstance(part, dict) and part.get("type") == "input_image")]
    counted = text_tokens(json.dumps({**value, "content": rest}, ensure_ascii=False))
    return 3 + counted + _IMAGE_TOKENS * (len(content) - len(rest))


def _breaks(item: Mapping[str, Any]) -> bool:
    content = item.get("content")
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("prompt_cache_breakpoint") for part in content
    )
