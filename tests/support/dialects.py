"""The four dialects side by side: address, adapter and simulator of each, for tests that say the same of all of them.

Nothing is spoken over a network here: what an adapter encodes goes to the simulated service as a value, and its answer
through the reader of streams and the adapter's decoder back into a message.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from tests.stand_ins.anthropic.service import AnthropicDialect
from tests.stand_ins.chat.service import ChatDialect
from tests.stand_ins.dialect import Dialect, ReceivedRequest, SendBytes, StreamedReply, WholeReply
from tests.stand_ins.google.service import GoogleDialect
from tests.stand_ins.openai.service import OpenAiDialect
from tests.support.samples import read_stream
from thinklsp.agent.request_fallbacks import RequestFallbacks
from thinklsp.core.errors import ProviderError
from thinklsp.core.messages import AssistantMessage, Conversation, ToolResultBlock, UserMessage, ensure_unique_call_ids
from thinklsp.core.stream_events import MessageFinished, StreamEvent
from thinklsp.core.usage import Usage
from thinklsp.engine.connections import apply_server_capabilities, build_endpoint, select_adapter
from thinklsp.offline.scenario import Scenario
from thinklsp.offline.script import Script
from thinklsp.providers.base import Adapter, Endpoint, HttpRequest, ModelRequest, Thinking
from thinklsp.providers.catalogue import ModelInfo, find_model
from thinklsp.settings.access import Access
from thinklsp.settings.model import Provider
from thinklsp.tools.registry import TOOLS, build_tool_specs

PROVIDERS: Mapping[Provider, tuple[str, Callable[[Script], Dialect]]] = {
    "anthropic": ("https://api.anthropic.com", AnthropicDialect),
    "openai": ("https://api.openai.com/v1", OpenAiDialect),
    "google": ("https://generativelanguage.googleapis.com", GoogleDialect),
    "openai-compatible": ("http://localhost:9/v1", ChatDialect),
}
# Models that the simulator plays as one kind of server each -> what the user says of that server.
SERVERS: Mapping[str, Mapping[str, Any]] = {
    **{name: {"server": "deepseek"} for name in ("deepseek-flash", "deepseek-v4-pro", "deepseek-reasoner")},
    "qwen3-8b": {"server": "llama.cpp"},
    "gpt-oss:20b": {"server": "ollama"},
    "vllm-qwen3-32b": {"server": "vllm"},
    "lmstudio-qwen3-4b": {"server": "lm-studio"},
    "anthropic/claude-opus-5.5": {"server": "openrouter"},
    "compatible-moonshot": {"server": "moonshot"},
    "compatible-openai": {"server": "openai"},
    "strict-1": {"reasoning": "none"},
    "compatible-1": {},
    "plain-1": {},
}


@dataclass(frozen=True)
class Place:
    """One model where it is served."""

    provider: Provider
    model: ModelInfo
    access: Access

    @property
    def adapter(self) -> Adapter:
        return select_adapter(self.provider, self.access)

    @property
    def endpoint(self) -> Endpoint:
        return build_endpoint(self.access)

    def dialect(self, *turns: Mapping[str, Any]) -> Dialect:
        return PROVIDERS[self.provider][1](Script(Scenario.model_validate({"turn": turns})))

    def encode(self, request: ModelRequest) -> HttpRequest:
        return self.adapter.encode(request, self.endpoint)


def place(provider: Provider, model_id: str) -> Place:
    own: Mapping[str, Any] = SERVERS.get(model_id, {}) if provider == "openai-compatible" else {}
    access = Access(provider, PROVIDERS[provider][0], "sk-canary-0123456789", "a test", "a test", **own)
    return Place(provider, apply_server_capabilities(find_model(provider, model_id), access, None), access)


@dataclass(frozen=True)
class Answer:
    """`notices`: what was said to the user on the way here."""

    message: AssistantMessage
    usage: Usage
    end: MessageFinished
    events: tuple[StreamEvent, ...] = ()
    notices: tuple[str, ...] = ()


def read(where: Place, data: bytes | Iterable[bytes]) -> Answer:
    """Raises what decoder and accumulator raise."""
    found = read_stream(where.adapter, data, where.endpoint.build_origin(where.model.id))
    assert not found.unmatched
    return Answer(found.message, found.usage, found.end, found.events)


def ask(where: Place, dialect: Dialect, request: ModelRequest, remedies: RequestFallbacks | None = None) -> Answer:
    """Return the service's answer, with `remedies` after the agent's fallbacks. Raises the error of a refusal."""
    sent = request if remedies is None else remedies.adjust_request(request)
    notices: list[str] = []
    while True:
        wire = where.encode(sent)
        url = urlsplit(wire.url)
        reply = dialect.build_reply(ReceivedRequest("POST", url.path, url.query, wire.headers, bytes(wire.body)))
        if isinstance(reply, StreamedReply):
            answer = read(where, b"".join(frame.data for frame in reply.frames if isinstance(frame, SendBytes)))
            return replace(answer, notices=tuple(notices))
        error = refusal(where, reply)
        mended = None if remedies is None else remedies.find_fallback(error, request, sent)
        if mended is None:
            raise error
        sent, said = mended
        notices.append(said)


def refusal(where: Place, reply: WholeReply) -> ProviderError:
    headers = {name.lower(): text for name, text in reply.headers.items()}
    return where.adapter.parse_failure(reply.status, headers, reply.body)


def play(
    where: Place,
    dialect: Dialect,
    request: ModelRequest,
    prompts: Sequence[str],
    remedies: RequestFallbacks | None = None,
) -> list[Answer]:
    """Every prompt, each with the tool loop that it comes to, in one conversation."""
    answers: list[Answer] = []
    for prompt in prompts:
        request = replace(request, conversation=(*request.conversation, UserMessage.from_text(prompt)))
        while True:
            answer = ask(where, dialect, request, remedies)
            message = ensure_unique_call_ids(answer.message, request.conversation)
            answers.append(replace(answer, message=message))
            results = tuple(ToolResultBlock(call.id, f"of {call.name}") for call in message.tool_uses)
            added = (message, UserMessage(results)) if results else (message,)
            request = replace(request, conversation=request.conversation + added)
            if not results and message.stop_reason != "pause_turn":
                break
    return answers


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
A = UserMessage.from_text("a")


def request_of(where: Place, conversation: Conversation = (A,)) -> ModelRequest:
    form = Thinking("adaptive" if where.model.adaptive else "manual", summarized=True)
    return ModelRequest(where.model, "Be good.", build_tool_specs(TOOLS), conversation, form, 8000)


def streamed(where: Place, *blocks: dict[str, Any], **step: Any) -> bytes:
    """What the service answers with these blocks."""
    return streamed_by(where.dialect({"step": [{"block": [*blocks], **step}]}), where)


def streamed_by(dialect: Dialect, where: Place) -> bytes:
    wire = where.encode(request_of(where))
    url = urlsplit(wire.url)
    reply = dialect.build_reply(ReceivedRequest("POST", url.path, url.query, wire.headers, bytes(wire.body)))
    assert isinstance(reply, StreamedReply)
    return b"".join(frame.data for frame in reply.frames if isinstance(frame, SendBytes))


def events_of(data: bytes) -> list[bytes]:
    return [event for event in re.split(rb"(?<=\n\n)", data) if event]
