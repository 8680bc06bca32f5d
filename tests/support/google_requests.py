"""Model requests of every shape that the Google encoder has a rule for, and what they are made of."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.support.google_cases import ENDPOINT, MODEL
from thinklsp.core.messages import (
    AssistantMessage,
    ContentBlock,
    Conversation,
    OpaqueBlock,
    OpaqueState,
    Origin,
    TextBlock,
    ThinkingBlock,
    ToolResultBlock,
    ToolSpec,
    ToolUseBlock,
    UserMessage,
)
from thinklsp.providers.base import ModelRequest, Thinking
from thinklsp.providers.catalog import lookup

LEVELS = lookup("google", MODEL)
BUDGET = lookup("google", "gemini-2.5-flash")
LITE = lookup("google", "gemini-2.5-flash-lite")
NO_THOUGHT = lookup("google", "gemini-2.5-flash-image")
UNKNOWN = lookup("google", "gemini-5-neon")

TOOLS = (
    ToolSpec("read_file", "Reads a file.", {"type": "object", "properties": {"path": {"type": "string"}}}),
    ToolSpec("list_files", "Lists files.", {"type": "object", "properties": {}}),
)


def sealed(raw: Mapping[str, Any], model: str = MODEL, **changes: str) -> OpaqueState:
    origin: Origin = replace(ENDPOINT.origin(model), **changes)
    return OpaqueState(json.dumps(raw), origin)


def signed(raw: dict[str, Any], signature: str) -> dict[str, Any]:
    return raw | ({"thoughtSignature": signature} if signature else {})


def text(value: str, signature: str = "", **origin: str) -> TextBlock:
    return TextBlock(value, sealed(signed({"text": value}, signature), **origin))


def thought(value: str, signature: str = "", **origin: str) -> ThinkingBlock:
    return ThinkingBlock(value, sealed(signed({"text": value, "thought": True}, signature), **origin))


def call(
    call_id: str, signature: str = "", *, name: str = "read_file", wire_id: str | None = "", **origin: str
) -> ToolUseBlock:
    """`wire_id`: what the service called it, None where it gave no id; as a rule our name for it."""
    wire = {} if wire_id is None else {"id": wire_id or call_id}
    function: dict[str, Any] = {"functionCall": {**wire, "name": name, "args": {"path": "a"}}}
    return ToolUseBlock(call_id, name, {"path": "a"}, sealed(signed(function, signature), **origin))


def signature_alone(signature: str, **origin: str) -> OpaqueBlock:
    return OpaqueBlock("thoughtSignature", sealed({"text": "", "thoughtSignature": signature}, **origin))


def paused(token: str, **origin: str) -> OpaqueBlock:
    return OpaqueBlock("continuation", sealed({"type": "continuation", "continuationToken": token}, **origin))


def result(call_id: str, value: str = "content", *, is_error: bool = False) -> ToolResultBlock:
    return ToolResultBlock(call_id, value, is_error)


def said(*blocks: ContentBlock) -> AssistantMessage:
    return AssistantMessage(blocks)


def asked(*blocks: ToolResultBlock | TextBlock) -> UserMessage:
    return UserMessage(blocks)


def loop(**origin: str) -> Conversation:
    """A question and two steps of a tool loop, the second with two calls; all was issued by the given origin."""
    return (
        UserMessage.of("Why?"),
        said(thought("Hm.", **origin), text("Looking.", **origin), call("k1", "Sig1", **origin)),
        asked(result("k1")),
        said(thought("So.", "Sig2", **origin), call("k2", "Sig3", **origin), call("k3", **origin)),
        asked(result("k2"), result("k3", "no such file", is_error=True)),
    )


PLAIN = ModelRequest(
    LEVELS,
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
    "off": replace(PLAIN, model=BUDGET, thinking=Thinking("off")),
    "budget": replace(PLAIN, model=BUDGET, thinking=Thinking("manual", 10_000, summarized=True)),
    "dynamic": replace(PLAIN, model=LITE, thinking=Thinking("adaptive")),
    "unknown model": replace(PLAIN, model=UNKNOWN, max_tokens=None),
    "no system, no tools": replace(PLAIN, system="", tools=()),
    "tool loop": replace(PLAIN, conversation=loop()),
    "tool loop of another model": replace(PLAIN, conversation=loop(model="gemini-4-argon")),
    "tool loop of another model on 2.5": replace(PLAIN, model=BUDGET, conversation=loop()),
    "paused": replace(PLAIN, conversation=(UserMessage.of("a"), said(text("x"), paused("dG9rZW4=")))),
    "halves of a pair": replace(PLAIN, conversation=(UserMessage.of("half: \ud83d, whole: \ud83d\ude00, \u2028"),)),
}
