"""Streams as the simulated services write them, one of every kind of service, for tests that bend them."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import urlsplit

from tests.support.dialects import Place
from thinklsp.core.messages import Conversation, UserMessage
from thinklsp.providers.base import ModelRequest, Thinking
from thinklsp.settings import Provider
from thinklsp.simulator.dialect import Dialect, Received, Send, Streamed
from thinklsp.tools.registry import TOOLS, tool_specs

SIDES: dict[str, tuple[Provider, str]] = {
    "anthropic": ("anthropic", "claude-opus-5-5"),
    "openai": ("openai", "gpt-6-sol"),
    "google": ("google", "gemini-4-argon"),
    "google, with a budget": ("google", "gemini-2.5-pro"),
    "deepseek": ("openai-compatible", "deepseek-flash"),
    "openrouter": ("openai-compatible", "anthropic/claude-opus-5.5"),
    "ollama": ("openai-compatible", "gpt-oss:20b"),
    "lm studio": ("openai-compatible", "lmstudio-qwen3-4b"),
}
ODD = "a\u2028b\u2029c\u0085d\x0b\x0c\x1c 🙂 é"
CALLS: list[dict[str, Any]] = [
    {"thinking": f"Hm, {ODD}"},
    {"text": f"Text, {ODD}."},
    {"tool": "read_file", "input": {"path": f"{ODD}.py"}},
    {"tool": "list_files"},
]
A = UserMessage.of("a")


def request_of(where: Place, conversation: Conversation = (A,)) -> ModelRequest:
    form = Thinking("adaptive" if where.model.adaptive else "manual", summarized=True)
    return ModelRequest(where.model, "Be good.", tool_specs(TOOLS), conversation, form, 8000)


def streamed(where: Place, *blocks: dict[str, Any], **step: Any) -> bytes:
    """What the service answers with these blocks."""
    return streamed_by(where.dialect({"step": [{"block": [*blocks], **step}]}), where)


def streamed_by(dialect: Dialect, where: Place) -> bytes:
    wire = where.encode(request_of(where))
    url = urlsplit(wire.url)
    reply = dialect.reply(Received("POST", url.path, url.query, wire.headers, bytes(wire.body)))
    assert isinstance(reply, Streamed)
    return b"".join(frame.data for frame in reply.frames if isinstance(frame, Send))


def events_of(data: bytes) -> list[bytes]:
    return [event for event in re.split(rb"(?<=\n\n)", data) if event]
