"""What a chat request costs in tokens, whether it fits into the window, and the usage figures of each server.

Estimates, but steady ones. Servers cache prefixes unasked, so every message is a place up to which one can be kept;
those of Claude are cached only up to a mark.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping
from typing import Any, NoReturn

from thinklsp.simulator.chat.errors import Failure, Refused, invalid
from thinklsp.simulator.chat.flavours import Flavour
from thinklsp.simulator.chat.messages import Conversation, Message, text_of
from thinklsp.simulator.chat.options import Options
from thinklsp.simulator.prompt_cache import Item, text_tokens

_IMAGE_TOKENS = 1200
_MARK = "cache_control"


def items(body: Mapping[str, Any], conversation: Conversation) -> tuple[Item, ...]:
    """The request as cacheable units: tools, then messages."""
    key = str(body["model"])
    result: list[Item] = []
    needs_mark = "claude" in key
    for content, tokens, is_marked in _units(body, conversation):
        key = hashlib.sha256(f"{key}{content}".encode("utf-8", "surrogatepass")).hexdigest()
        result.append(Item(key, tokens, "5m" if is_marked or not needs_mark else None))
    return tuple(result)


def _units(body: Mapping[str, Any], conversation: Conversation) -> Iterator[tuple[str, int, bool]]:
    """Yield each unit, its tokens, and whether it is marked for the cache. A mark changes nothing in the unit."""
    for tool in body.get("tools") or ():
        content = json.dumps(tool)
        yield content, 3 + text_tokens(content), _MARK in tool
    for message in conversation.messages:
        parts = message["content"] if isinstance(message.get("content"), list) else []
        is_marked = _MARK in message or any(_MARK in part for part in parts)
        text_only = all(part["type"] == "text" for part in parts)
        unit = {**message, "content": text_of(message)} if text_only else message
        yield json.dumps(unit), 3 + _message_tokens(message), is_marked


def _message_tokens(message: Message) -> int:
    """What the model reads of a message; seals cost nothing."""
    content = message.get("content")
    images = sum(part["type"] == "image_url" for part in content) if isinstance(content, list) else 0
    reasoning = message.get("reasoning") or message.get("reasoning_content")
    texts = [text_of(message), reasoning if isinstance(reasoning, str) else ""]
    texts += [call["function"]["name"] + call["function"]["arguments"] for call in message.get("tool_calls") or ()]
    return images * _IMAGE_TOKENS + sum(map(text_tokens, texts))


def check_window(total: int, window: int, flavour: Flavour, options: Options) -> None:
    """Raises Refused where the prompt, or the prompt with the answer that it asks for, is longer than the window."""
    if total > window:
        _too_long(total, window, flavour)
    asked = options.max_tokens
    if flavour.fits and asked is not None and total + asked > window:
        invalid(
            f"'max_tokens' or 'max_completion_tokens' is too large: {asked}. This model's maximum context length is "
            f"{window} tokens and your request has {total} input tokens ({asked} > {window} - {total}).",
            "max_tokens",
        )


def _too_long(total: int, window: int, flavour: Flavour) -> NoReturn:
    if flavour.envelope == "llama.cpp":
        message = (
            f"request ({total} tokens) exceeds the available context size ({window} tokens), try increasing the "
            "context size or enable context shift"
        )
        counts = {"n_prompt_tokens": total, "n_ctx": window}
        raise Refused(Failure(400, message, "exceed_context_size_error", more=counts))
    invalid(
        f"This model's maximum context length is {window} tokens. However, your messages resulted in {total} tokens. "
        "Please reduce the length of the messages.",
        "messages",
        "context_length_exceeded",
    )
