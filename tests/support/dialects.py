"""The four dialects side by side: address, adapter and simulator of each, for tests that say the same of all of them.

Nothing is spoken over a network here: what an adapter encodes goes to the simulated service as a value, and its answer
through the reader of streams and the adapter's decoder back into a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from thinklsp.agent.remedies import Remedies
from thinklsp.core.accumulator import MessageAccumulator
from thinklsp.core.calls import with_unique_calls
from thinklsp.core.errors import ProviderError
from thinklsp.core.messages import AssistantMessage, ToolResultBlock, UserMessage
from thinklsp.core.stream import MessageFinished, StreamEvent
from thinklsp.core.usage import Usage
from thinklsp.engine.adapters import adapter_for, endpoint_of, on_server
from thinklsp.http.sse import SseDecoder
from thinklsp.providers.base import Adapter, Endpoint, HttpRequest, ModelRequest
from thinklsp.providers.catalog import lookup
from thinklsp.providers.model_info import ModelInfo
from thinklsp.settings import Access, Provider
from thinklsp.simulator.anthropic.service import AnthropicDialect
from thinklsp.simulator.chat.service import ChatDialect
from thinklsp.simulator.dialect import Dialect, Received
from thinklsp.simulator.frames import Send, Streamed, Whole
from thinklsp.simulator.google.service import GoogleDialect
from thinklsp.simulator.openai.service import OpenAiDialect
from thinklsp.simulator.scenario import Scenario
from thinklsp.simulator.script import Script

PROVIDERS: Mapping[Provider, tuple[str, Callable[[Script], Dialect]]] = {
    "anthropic": ("https://api.anthropic.com", AnthropicDialect),
    "openai": ("https://api.openai.com/v1", OpenAiDialect),
    "google": ("https://generativelanguage.googleapis.com", GoogleDialect),
    "openai-compatible": ("http://localhost:9/v1", ChatDialect),
}
# Models that the simulator plays as one kind of server each -> what the user says of that server.
SERVERS: Mapping[str, Mapping[str, Any]] = {
    "deepseek-flash": {"server": "deepseek"},
    "deepseek-v4-pro": {"server": "deepseek"},
    "deepseek-reasoner": {"server": "deepseek"},
    "qwen3-8b": {"server": "llama.cpp"},
    "gpt-oss:20b": {"server": "ollama"},
    "vllm-qwen3-32b": {"server": "vllm"},
    "lmstudio-qwen3-4b": {"server": "lm-studio"},
    "anthropic/claude-opus-5.5": {"server": "openrouter"},
    "compatible-1": {},
    "compatible-moonshot": {"server": "moonshot"},
    "compatible-openai": {"server": "openai"},
    "strict-1": {"reasoning": "none"},
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
        return adapter_for(self.provider, self.access)

    @property
    def endpoint(self) -> Endpoint:
        return endpoint_of(self.access)

    def dialect(self, *turns: Mapping[str, Any]) -> Dialect:
        return PROVIDERS[self.provider][1](Script(Scenario.model_validate({"turn": turns})))

    def encode(self, request: ModelRequest) -> HttpRequest:
        return self.adapter.encode(request, self.endpoint)


def place(provider: Provider, model_id: str) -> Place:
    own: Mapping[str, Any] = SERVERS.get(model_id, {}) if provider == "openai-compatible" else {}
    access = Access(provider, PROVIDERS[provider][0], "sk-canary-0123456789", "a test", "a test", **own)
    return Place(provider, on_server(lookup(provider, model_id), access, None), access)


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
    sse, decoder = SseDecoder(), where.adapter.decoder()
    accumulator = MessageAccumulator(where.endpoint.origin(where.model.id))
    chunks = [data] if isinstance(data, bytes) else [*data]
    sent = [*(event for chunk in chunks for event in sse.feed(chunk)), *sse.finish()]
    events = [event for one in sent for event in decoder.feed(one.event, one.data)]
    events += decoder.finish()
    for event in events:
        accumulator.apply(event)
    assert not accumulator.unmatched
    (end,) = [event for event in events if isinstance(event, MessageFinished)]
    return Answer(accumulator.message(), accumulator.usage, end, tuple(events))


def ask(where: Place, dialect: Dialect, request: ModelRequest, remedies: Remedies | None = None) -> Answer:
    """The answer of the service. With `remedies`, what can be mended is asked again as the agent does it. Raises the
    ProviderError that a refusal comes to."""
    sent = request if remedies is None else remedies.applied(request)
    notices: list[str] = []
    while True:
        wire = where.encode(sent)
        url = urlsplit(wire.url)
        reply = dialect.reply(Received("POST", url.path, url.query, wire.headers, bytes(wire.body)))
        if isinstance(reply, Streamed):
            answer = read(where, b"".join(frame.data for frame in reply.frames if isinstance(frame, Send)))
            return replace(answer, notices=tuple(notices))
        error = refusal(where, reply)
        mended = None if remedies is None else remedies.after(error, request, sent)
        if mended is None:
            raise error
        sent, said = mended
        notices.append(said)


def refusal(where: Place, reply: Whole) -> ProviderError:
    return where.adapter.failure(reply.status, {name.lower(): text for name, text in reply.headers.items()}, reply.body)


def play(
    where: Place,
    dialect: Dialect,
    request: ModelRequest,
    prompts: Sequence[str],
    remedies: Remedies | None = None,
) -> list[Answer]:
    """Every prompt, each with the tool loop that it comes to, in one conversation."""
    answers: list[Answer] = []
    for prompt in prompts:
        request = replace(request, conversation=(*request.conversation, UserMessage.of(prompt)))
        while True:
            answer = ask(where, dialect, request, remedies)
            message = with_unique_calls(answer.message, request.conversation)
            answers.append(replace(answer, message=message))
            results = tuple(ToolResultBlock(call.id, f"of {call.name}") for call in message.tool_uses)
            added = (message, UserMessage(results)) if results else (message,)
            request = replace(request, conversation=request.conversation + added)
            if not results and message.stop_reason != "pause_turn":
                break
    return answers
