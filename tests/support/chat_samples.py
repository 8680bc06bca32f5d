"""Samples of chat completions: recorded streams and the way through our decoder, requests of every shape."""

from __future__ import annotations

import json
import tomllib
from dataclasses import asdict, replace
from importlib.resources import files
from typing import Any

from tests.support.samples import TOOLS, Answer, Recorded, asked, read_stream, result, said
from thinklsp.core.messages import (
    ContentBlock,
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
from thinklsp.providers.base import Endpoint, ModelRequest, Thinking
from thinklsp.providers.catalogue import ModelInfo, find_model
from thinklsp.providers.chat_adapter import OpenAiChatAdapter
from thinklsp.providers.chat_servers import ChatServer, resolve_server

ENDPOINT = Endpoint("openai-compatible", "http://localhost:11434/v1", "sk-canary-0123456789")
MODEL = "qwen3:8b"
RECORDED = Recorded("openai_chat", ENDPOINT, MODEL)
ORIGIN, FOLDER = RECORDED.origin, RECORDED.folder
cases, expected, stream = RECORDED.cases, RECORDED.expected, RECORDED.stream
raw, sealed = RECORDED.raw, RECORDED.sealed


_SERVERS = tomllib.loads((files("thinklsp.providers") / "chat_servers.toml").read_text("utf-8"))
# In the order of the file, so `generic` is the first.
KINDS = tuple(_SERVERS)
HOSTED = frozenset(kind for kind, row in _SERVERS.items() if row.get("hosts"))


def server(kind: str = "generic", *, think_tags: bool = False, echo: str | None = None) -> ChatServer:
    return resolve_server("", kind=kind, echo=echo, think_tags=think_tags)


def server_of(case: str) -> ChatServer:
    wanted = expected(case)
    return server(wanted.get("server", "generic"), think_tags=wanted.get("think_tags", False))


def run(data: bytes, kind: ChatServer | None = None, origin: Origin = ORIGIN, *, fits: bool = True) -> Answer:
    """Return the outcome of a stream. `fits`: none of it may be left out."""
    answer = read_stream(OpenAiChatAdapter(kind or server()), data, origin)
    assert not (fits and answer.unmatched)
    return answer


def as_events(*contents: Any, end: str = "data: [DONE]\n\n") -> bytes:
    return ("".join(f"data: {json.dumps(content)}\n\n" for content in contents) + end).encode()


def chunk(delta: dict[str, Any] | None = None, reason: str | None = None, **more: Any) -> dict[str, Any]:
    """One chunk of a stream with one choice."""
    choice = {"index": 0, "delta": delta or {}, "finish_reason": reason}
    return {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice], **more}


def neutral(answer: Answer) -> dict[str, Any]:
    """In the form of the `.json` files, where what is null or empty is left out."""
    usage = {key: value for key, value in asdict(answer.usage).items() if value is not None}
    found = RECORDED.neutral_answer(answer) | {"usage": usage}
    return {key: value for key, value in found.items() if value or key in ("blocks", "kinds")}


def model(model_id: str = MODEL) -> ModelInfo:
    """What is known about a model on a server of one's own: little."""
    found = find_model("openai-compatible", model_id)
    return replace(found, display="asked", images=True)


PLAIN = ModelRequest(model(), "You are careful.", TOOLS, (UserMessage.from_text("Hello"),), Thinking(), None)


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
    function = {"name": "read_file", "arguments": arguments}
    wire = {"id": call_id if wire_id is None else wire_id, "type": "function", "function": function, **(extras or {})}
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


def loop(field: str = "reasoning", **origin: str) -> Conversation:
    """A question and two steps of a tool loop, issued by the given origin."""
    return (
        UserMessage.from_text("Why?"),
        said(thinking("Hm", field, **origin), text("Looking.", **origin), call("call_1", **origin)),
        asked(result("call_1")),
        said(thinking("So", field, **origin), call("call_2", **origin), call("call_3", **origin)),
        asked(result("call_2"), result("call_3", "no such file", is_error=True), TextBlock("Go on")),
    )


A = UserMessage.from_text("a")
REQUESTS: dict[str, ModelRequest] = {
    "plain": PLAIN,
    "effort": replace(PLAIN, thinking=Thinking("adaptive", effort="high"), max_tokens=8000),
    "no system, no tools": replace(PLAIN, system="", tools=()),
    "tool loop": replace(PLAIN, conversation=loop()),
    "tool loop of another model": replace(PLAIN, conversation=loop(model="other")),
    "details": replace(PLAIN, conversation=(A, said(details(), call("c")), asked(result("c")))),
    "foreign everything": replace(
        PLAIN, conversation=(A, said(*foreign_thinking(), foreign_call("toolu_1")), asked(result("toolu_1")))
    ),
    "lone surrogate": replace(PLAIN, conversation=(UserMessage.from_text("half a pair: \ud83d, and \u2028"),)),
}


def body_of(request: ModelRequest, kind: ChatServer | None = None, endpoint: Endpoint = ENDPOINT) -> dict[str, Any]:
    return dict(json.loads(OpenAiChatAdapter(kind or server()).encode(request, endpoint).body))


def messages_of(conversation: Conversation, kind: ChatServer | None = None, model_id: str = MODEL) -> list[Any]:
    """Without the system's message."""
    request = replace(PLAIN, model=model(model_id), system="", conversation=conversation)
    return list(body_of(request, kind)["messages"])
