"""Samples of the Messages API: recorded streams and the way through our decoder, requests of every shape."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests.support.samples import Recorded, asked, plain_request, read_stream, result, said
from tests.support.signing_rules import without_cache_control
from thinklsp.core.messages import (
    AssistantMessage,
    Conversation,
    OpaqueBlock,
    Origin,
    RedactedThinkingBlock,
    ServerToolBlock,
    TextBlock,
    ThinkingBlock,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.core.usage import Usage
from thinklsp.providers.anthropic import AnthropicAdapter
from thinklsp.providers.base import Endpoint, ModelRequest, Thinking
from thinklsp.providers.catalogue import find_model

ENDPOINT = Endpoint("anthropic", "https://api.anthropic.com", "sk-ant-canary-0123456789")
RECORDED = Recorded("anthropic", ENDPOINT, "claude-opus-5-5")
ADAPTER = AnthropicAdapter()
ORIGIN, FOLDER = RECORDED.origin, RECORDED.folder
cases, expected, stream = RECORDED.cases, RECORDED.expected, RECORDED.stream
raw, sealed, neutral = RECORDED.raw, RECORDED.sealed, RECORDED.neutral


def run(data: bytes, origin: Origin = ORIGIN) -> tuple[AssistantMessage, Usage, str | None]:
    answer = read_stream(ADAPTER, data, origin)
    return answer.message, answer.usage, answer.explanation


def thinking(signature: str, text: str = "", **origin: str) -> ThinkingBlock:
    return ThinkingBlock(text, sealed({"type": "thinking", "thinking": text, "signature": signature}, **origin))


def call(call_id: str, **origin: str) -> ToolUseBlock:
    raw = {"type": "tool_use", "id": call_id, "name": "read_file", "input": {"path": "a"}, "caller": {"type": "direct"}}
    return ToolUseBlock(call_id, "read_file", {"path": "a"}, sealed(raw, **origin))


def text(value: str, **origin: str) -> TextBlock:
    return TextBlock(value, sealed({"type": "text", "text": value}, **origin))


def loop(**origin: str) -> tuple[UserMessage | AssistantMessage, ...]:
    """A question and two steps of a tool loop; thinking and calls were issued by the given origin."""
    redacted = RedactedThinkingBlock(sealed({"type": "redacted_thinking", "data": "Rd1"}, **origin))
    search = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "q"}}
    found = {"type": "web_search_tool_result", "tool_use_id": "srvtoolu_1", "content": []}
    searching = ServerToolBlock("web_search", sealed(search, **origin))
    results = OpaqueBlock("web_search_tool_result", sealed(found, **origin))
    calls = (call("toolu_2", **origin), call("toolu_3", **origin))
    return (
        UserMessage.from_text("Why?"),
        said(thinking("Sig1", **origin), redacted, text("Looking.", **origin), call("toolu_1", **origin)),
        asked(result("toolu_1")),
        said(thinking("Sig2", **origin), searching, results, *calls),
        asked(result("toolu_2"), result("toolu_3", "no such file", is_error=True)),
    )


PLAIN = plain_request(find_model("anthropic", "claude-opus-5-5"))

REQUESTS: dict[str, ModelRequest] = {
    "plain": PLAIN,
    "summaries": replace(PLAIN, thinking=Thinking("adaptive", summarized=True)),
    "nothing said about thinking": replace(PLAIN, thinking=Thinking()),
    "off": replace(PLAIN, model=find_model("anthropic", "claude-opus-4-8"), thinking=Thinking("off")),
    "between tools": replace(
        PLAIN, model=find_model("anthropic", "claude-sonnet-5-5"), thinking=Thinking("between_tools", effort="high")
    ),
    "budget": replace(PLAIN, model=find_model("anthropic", "claude-sonnet-4-5"), thinking=Thinking("manual", 10_000)),
    "no system, no tools": replace(PLAIN, system="", tools=()),
    "tool loop": replace(PLAIN, conversation=loop()),
    "tool loop of another model": replace(PLAIN, conversation=loop(model="claude-opus-5")),
    "lone surrogate": replace(PLAIN, conversation=(UserMessage.from_text("half a pair: \ud83d, and \u2028"),)),
}


def body_of(request: ModelRequest, endpoint: Endpoint = ENDPOINT) -> dict[str, Any]:
    return dict(json.loads(ADAPTER.encode(request, endpoint).body))


def messages_of(conversation: Conversation, **changes: Any) -> list[dict[str, Any]]:
    return list(body_of(replace(PLAIN, conversation=conversation, **changes))["messages"])


unmarked = without_cache_control


def marks(value: Any) -> list[str]:
    """The types of the blocks that carry a cache mark; tools have no type."""
    if isinstance(value, dict):
        own = [value.get("type", "tool")] if "cache_control" in value else []
        return own + [mark for item in value.values() for mark in marks(item)]
    return [mark for item in value for mark in marks(item)] if isinstance(value, list) else []
