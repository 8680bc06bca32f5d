"""Model requests of every shape that the Anthropic encoder has a rule for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests.support.anthropic_cases import ENDPOINT
from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    OpaqueBlock,
    OpaqueState,
    Origin,
    RedactedThinkingBlock,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.providers.base import ModelRequest, Thinking
from thinklsp.providers.catalog import lookup

TOOLS = (
    ToolSpec("read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),
    ToolSpec("list_files", "Lists files.", {"type": "object", "properties": {}}),
)


def sealed(raw: dict[str, Any], model: str = "claude-opus-5-5", **changes: str) -> OpaqueState:
    origin: Origin = replace(ENDPOINT.origin(model), **changes)
    return OpaqueState(json.dumps(raw), origin)


def thinking(signature: str, text: str = "", **origin: str) -> ThinkingBlock:
    return ThinkingBlock(text, sealed({"type": "thinking", "thinking": text, "signature": signature}, **origin))


def call(call_id: str, **origin: str) -> ToolUseBlock:
    raw = {"type": "tool_use", "id": call_id, "name": "read_file", "input": {"path": "a"}, "caller": {"type": "direct"}}
    return ToolUseBlock(call_id, "read_file", {"path": "a"}, sealed(raw, **origin))


def text(value: str, **origin: str) -> TextBlock:
    return TextBlock(value, sealed({"type": "text", "text": value}, **origin))


def result(call_id: str, value: str = "content", *, is_error: bool = False) -> ToolResultBlock:
    return ToolResultBlock(call_id, value, is_error)


def said(*blocks: ContentBlock) -> AssistantMessage:
    return AssistantMessage(blocks)


def asked(*blocks: ToolResultBlock | TextBlock) -> UserMessage:
    return UserMessage(blocks)


def loop(**origin: str) -> tuple[UserMessage | AssistantMessage, ...]:
    """A question and two steps of a tool loop; thinking and calls were issued by the given origin."""
    redacted = RedactedThinkingBlock(sealed({"type": "redacted_thinking", "data": "Rd1"}, **origin))
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    return (
        UserMessage.of("Why?"),
        said(thinking("Sig1", **origin), redacted, text("Looking.", **origin), call("toolu_1", **origin)),
        asked(result("toolu_1")),
        said(
            thinking("Sig2", **origin),
            ServerToolBlock("web_search", sealed(search, **origin)),
            OpaqueBlock("web_search_tool_result", sealed(found, **origin)),
            call("toolu_2", **origin),
            call("toolu_3", **origin),
        ),
        asked(result("toolu_2"), result("toolu_3", "no such file", is_error=True)),
    )


PLAIN = ModelRequest(
    lookup("anthropic", "claude-opus-5-5"),
    "You are careful.",
    TOOLS,
    (UserMessage.of("Hello"),),
    Thinking("adaptive", effort="high"),
    32_000,
)

REQUESTS: dict[str, ModelRequest] = {
    "plain": PLAIN,
    "summaries": replace(PLAIN, thinking=Thinking("adaptive", summarized=True)),
    "nothing said about thinking": replace(PLAIN, thinking=Thinking()),
    "off": replace(PLAIN, model=lookup("anthropic", "claude-opus-4-8"), thinking=Thinking("off")),
    "between tools": replace(
        PLAIN, model=lookup("anthropic", "claude-sonnet-5-5"), thinking=Thinking("between_tools", effort="high")
    ),
    "budget": replace(PLAIN, model=lookup("anthropic", "claude-sonnet-4-5"), thinking=Thinking("manual", 10_000)),
    "no system, no tools": replace(PLAIN, system="", tools=()),
    "tool loop": replace(PLAIN, conversation=loop()),
    "tool loop of another model": replace(PLAIN, conversation=loop(model="claude-opus-5")),
    "lone surrogate": replace(PLAIN, conversation=(UserMessage.of("half a pair: \ud83d, and \u2028"),)),
}
