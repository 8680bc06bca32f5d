"""Model requests of every shape that the encoder of the Responses API has a rule for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests.support.openai_cases import ENDPOINT
from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    OpaqueBlock,
    OpaqueState,
    Origin,
    StopReason,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.providers.base import ModelRequest, Thinking
from thinklsp.providers.catalog import lookup

MODEL = "gpt-6-sol"
TOOLS = (
    ToolSpec("read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),
    ToolSpec("list_files", "Lists files.", {"type": "object", "properties": {}}),
)


def sealed(raw: dict[str, Any], model: str = MODEL, **changes: str) -> OpaqueState:
    origin: Origin = replace(ENDPOINT.origin(model), **changes)
    return OpaqueState(json.dumps(raw), origin)


def thinking(name: str, summary: str = "", *, secret: str = "gAAAsecret", **origin: str) -> ThinkingBlock:
    parts = [{"type": "summary_text", "text": summary}] if summary else []
    raw = {"id": f"rs_{name}", "type": "reasoning", "summary": parts, "encrypted_content": f"{secret}{name}"}
    return ThinkingBlock(summary, sealed(raw, **origin))


def call(call_id: str, *, arguments: str = '{"path": "a"}', wire_id: str | None = None, **origin: str) -> ToolUseBlock:
    """The arguments have a space that no encoder of ours would write."""
    raw = {
        "id": f"fc_{call_id}",
        "type": "function_call",
        "status": "completed",
        "call_id": call_id if wire_id is None else wire_id,
        "name": "read_file",
        "arguments": arguments,
    }
    return ToolUseBlock(call_id, "read_file", {"path": "a"}, sealed(raw, **origin))


def text(value: str, name: str = "1", *, phase: str = "final_answer", **origin: str) -> TextBlock:
    raw = {
        "id": f"msg_{name}",
        "type": "message",
        "role": "assistant",
        "status": "completed",
        "phase": phase,
        "content": [{"type": "output_text", "text": value, "annotations": [], "logprobs": []}],
    }
    return TextBlock(value, sealed(raw, **origin))


def opaque(raw: dict[str, Any], **origin: str) -> OpaqueBlock:
    return OpaqueBlock(raw["type"], sealed(raw, **origin))


def result(call_id: str, value: str = "content", *, is_error: bool = False) -> ToolResultBlock:
    return ToolResultBlock(call_id, value, is_error)


def said(*blocks: ContentBlock, stop: StopReason = "end_turn") -> AssistantMessage:
    return AssistantMessage(blocks, stop)


def asked(*blocks: ToolResultBlock | TextBlock) -> UserMessage:
    return UserMessage(blocks)


SEARCH = {"id": "ws_1", "type": "web_search_call", "status": "completed", "action": {"type": "search", "query": "q"}}


def loop(**origin: str) -> tuple[UserMessage | AssistantMessage, ...]:
    """A question and two steps of a tool loop; everything that the model said was issued by the given origin."""
    return (
        UserMessage.of("Why?"),
        said(
            thinking("1", "I look.", **origin),
            text("Looking.", phase="commentary", **origin),
            thinking("2", **origin),
            call("call_1", **origin),
            stop="tool_use",
        ),
        asked(result("call_1")),
        said(
            thinking("3", **origin),
            opaque(SEARCH, **origin),
            call("call_2", **origin),
            call("call_3", **origin),
            stop="tool_use",
        ),
        asked(result("call_2"), result("call_3", "no such file", is_error=True)),
    )


PLAIN = ModelRequest(
    lookup("openai", MODEL),
    "You are careful.",
    TOOLS,
    (UserMessage.of("Hello"),),
    Thinking("adaptive", effort="high"),
    32_000,
)

REQUESTS: dict[str, ModelRequest] = {
    "plain": PLAIN,
    "summaries": replace(PLAIN, thinking=Thinking("adaptive", effort="low", summarized=True)),
    "the service's own effort": replace(PLAIN, thinking=Thinking("adaptive")),
    "nothing said about thinking": replace(PLAIN, thinking=Thinking()),
    "off": replace(PLAIN, thinking=Thinking("off")),
    "no system, no tools, no limit": replace(PLAIN, system="", tools=(), max_tokens=None),
    "tool loop": replace(PLAIN, conversation=loop()),
    "tool loop of another model": replace(PLAIN, conversation=loop(model="gpt-5.5")),
    "a cut answer": replace(
        PLAIN,
        conversation=(UserMessage.of("a"), said(thinking("1"), text("Half"), stop="max_tokens"), UserMessage.of("b")),
    ),
    "lone surrogate": replace(PLAIN, conversation=(UserMessage.of("half a pair: \ud83d, and \u2028"),)),
}
