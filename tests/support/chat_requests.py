"""Model requests of every shape that the encoder of chat completions has a rule for."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from tests.support.chat_cases import ENDPOINT, MODEL, server
from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    Conversation,
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
from thinklsp.providers.base import Endpoint, ModelRequest, Thinking
from thinklsp.providers.model_info import ModelInfo
from thinklsp.providers.openai_chat.adapter import OpenAiChatAdapter
from thinklsp.providers.openai_chat.servers import ChatServer

TOOLS = (
    ToolSpec("read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),
    ToolSpec("list_files", "Lists files.", {"type": "object", "properties": {}}),
)


def model(model_id: str = MODEL) -> ModelInfo:
    """What is known about a model on a server of one's own: little."""
    return ModelInfo(
        "openai-compatible",
        model_id,
        known=False,
        context_window=None,
        output_cap=None,
        adaptive=True,
        manual=False,
        on_when_unset=True,
        efforts=("low", "medium", "high"),
        default_effort=None,
        forced_tool="yes",
        interleaved="always",
        prefix_bound=False,
        off="off",
    )


PLAIN = ModelRequest(model(), "You are careful.", TOOLS, (UserMessage.of("Hello"),), Thinking(), None)


def sealed(raw: dict[str, Any], model_id: str = MODEL, **changes: str) -> OpaqueState:
    origin: Origin = replace(ENDPOINT.origin(model_id), **changes)
    return OpaqueState(json.dumps(raw), origin)


def thinking(text: str, field: str = "reasoning", **origin: str) -> ThinkingBlock:
    return ThinkingBlock(text, sealed({field: text}, **origin))


def details(text: str = "Hm", **origin: str) -> ThinkingBlock:
    entries = [
        {"type": "reasoning.text", "text": text, "signature": "Sig1", "index": 0},
        {"type": "reasoning.encrypted", "data": "Enc1", "index": 0},
    ]
    return ThinkingBlock(text, sealed({"reasoning_details": entries}, **origin))


def call(
    call_id: str, arguments: str = '{"path": "a"}', wire_id: str | None = None, extras: Any = None, **origin: str
) -> ToolUseBlock:
    """An issued call; arguments that do not parse have no input."""
    wire = {
        "id": call_id if wire_id is None else wire_id,
        "type": "function",
        "function": {"name": "read_file", "arguments": arguments},
        **(extras or {}),
    }
    try:
        value = json.loads(arguments or "{}")
    except ValueError:
        value = None
    return ToolUseBlock(call_id, "read_file", value, sealed(wire, **origin))


def foreign_call(call_id: str, path: str = "a") -> ToolUseBlock:
    raw = {"type": "tool_use", "id": call_id, "name": "read_file", "input": {"path": path}, "caller": "Secret"}
    return ToolUseBlock(call_id, "read_file", {"path": path}, sealed(raw, "claude-opus-5-5", provider="anthropic"))


def foreign_thinking() -> tuple[ContentBlock, ...]:
    """What another service sealed: all of it stays away."""
    other = {"provider": "anthropic", "host": "https://api.anthropic.com"}
    return (
        ThinkingBlock("Secret", sealed({"type": "thinking", "thinking": "Secret", "signature": "SigX"}, **other)),
        RedactedThinkingBlock(sealed({"type": "redacted_thinking", "data": "Secret"}, **other)),
        ServerToolBlock("web_search", sealed({"type": "server_tool_use", "id": "Secret"}, **other)),
        OpaqueBlock("new", sealed({"type": "new", "x": "Secret"}, **other)),
    )


def text(value: str, **origin: str) -> TextBlock:
    return TextBlock(value, sealed({"content": value}, **origin))


def result(call_id: str, value: str = "content", *, is_error: bool = False) -> ToolResultBlock:
    return ToolResultBlock(call_id, value, is_error)


def said(*blocks: ContentBlock) -> AssistantMessage:
    return AssistantMessage(blocks)


def asked(*blocks: ToolResultBlock | TextBlock) -> UserMessage:
    return UserMessage(blocks)


def loop(field: str = "reasoning", **origin: str) -> Conversation:
    """A question and two steps of a tool loop, issued by the given origin."""
    return (
        UserMessage.of("Why?"),
        said(thinking("Hm", field, **origin), text("Looking.", **origin), call("call_1", **origin)),
        asked(result("call_1")),
        said(thinking("So", field, **origin), call("call_2", **origin), call("call_3", **origin)),
        asked(result("call_2"), result("call_3", "no such file", is_error=True), TextBlock("Go on")),
    )


REQUESTS: dict[str, ModelRequest] = {
    "plain": PLAIN,
    "effort": replace(PLAIN, thinking=Thinking("adaptive", effort="high"), max_tokens=8000),
    "no system, no tools": replace(PLAIN, system="", tools=()),
    "tool loop": replace(PLAIN, conversation=loop()),
    "tool loop of another model": replace(PLAIN, conversation=loop(model_id="other")),
    "details": replace(PLAIN, conversation=(UserMessage.of("a"), said(details(), call("c")), asked(result("c")))),
    "foreign everything": replace(
        PLAIN,
        conversation=(
            UserMessage.of("a"),
            said(*foreign_thinking(), foreign_call("toolu_1")),
            asked(result("toolu_1")),
        ),
    ),
    "lone surrogate": replace(PLAIN, conversation=(UserMessage.of("half a pair: \ud83d, and \u2028"),)),
}


def body_of(request: ModelRequest, kind: ChatServer | None = None, endpoint: Endpoint = ENDPOINT) -> dict[str, Any]:
    value: dict[str, Any] = json.loads(bytes(OpenAiChatAdapter(kind or server()).encode(request, endpoint).body))
    return value


def messages_of(
    conversation: Conversation, kind: ChatServer | None = None, model_id: str = MODEL
) -> list[dict[str, Any]]:
    """Without the system's message."""
    request = replace(PLAIN, model=model(model_id), system="", conversation=conversation)
    messages: list[dict[str, Any]] = body_of(request, kind)["messages"]
    return messages
