"""Encoded requests of the Messages API, taken apart again."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests.support.anthropic_cases import ENDPOINT
from tests.support.anthropic_requests import PLAIN
from thinklsp.core.messages import Conversation
from thinklsp.providers.anthropic.adapter import AnthropicAdapter
from thinklsp.providers.base import Endpoint, ModelRequest

ADAPTER = AnthropicAdapter()


def body_of(request: ModelRequest, endpoint: Endpoint = ENDPOINT) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(bytes(ADAPTER.encode(request, endpoint).body))
    return value


def messages_of(conversation: Conversation, **changes: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = body_of(replace(PLAIN, conversation=conversation, **changes))["messages"]
    return messages


def unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: unmarked(item) for key, item in value.items() if key != "cache_control"}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


def marks(value: Any) -> list[str]:
    """The types of the blocks that carry a cache mark; tools have no type."""
    if isinstance(value, dict):
        own = [value.get("type", "tool")] if "cache_control" in value else []
        return own + [mark for item in value.values() for mark in marks(item)]
    return [mark for item in value for mark in marks(item)] if isinstance(value, list) else []
