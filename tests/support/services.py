"""Every service that the product speaks to, played by the simulator, as the outside sees them: a host, a key, a model.

`Service` stands where the signing provider stands in `outside.start`: it judges what arrives and knows what is secret.
"""

from __future__ import annotations

import json
import re
import secrets
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from tests.stand_ins.anthropic.service import AnthropicDialect
from tests.stand_ins.chat.service import ChatDialect
from tests.stand_ins.dialect import Dialect, ReceivedRequest, StreamedReply, WholeReply
from tests.stand_ins.google.service import GoogleDialect
from tests.stand_ins.http_server import RecordedRequest, Simulator
from tests.stand_ins.openai.service import OpenAiDialect
from tests.support.canary import Canary, Leak
from tests.support.hosts import Received, SseServer, Step
from tests.support.samples import read_stream
from tests.support.signing_server import SigningServer
from thinklsp.agent.model_call import CallEvent, HttpModelCaller
from thinklsp.agent.request_fallbacks import RequestFallbacks
from thinklsp.core.errors import ProviderError
from thinklsp.core.messages import AssistantMessage, Conversation, ToolResultBlock, UserMessage, ensure_unique_call_ids
from thinklsp.core.stream_events import MessageFinished, StreamEvent
from thinklsp.core.usage import Usage
from thinklsp.engine.connections import apply_server_capabilities, build_endpoint, select_adapter
from thinklsp.http.retry import RetryPolicy
from thinklsp.http.transport import Transport
from thinklsp.offline.scenario import Scenario, load_scenario
from thinklsp.offline.script import Script
from thinklsp.providers.base import Adapter, Endpoint, HttpRequest, ModelRequest, Thinking
from thinklsp.providers.catalogue import ModelInfo, find_model
from thinklsp.settings.access import Access
from thinklsp.settings.model import Provider
from thinklsp.tools.registry import TOOLS, build_tool_specs

EVERYWHERE = Path(__file__).parents[1] / "fixtures" / "scenarios" / "everywhere.toml"
# Names under which services send what only they may read.
_SEALED = frozenset({"signature", "data", "encrypted_content", "thoughtSignature"})
_LEAST = 100


@dataclass(frozen=True)
class Way:
    """A provider and one of its models. `address` follows the host in the variable `host`; `key` None: no key needed.

    `summaries`: readable thinking can be asked for. `counts_thinking`: the service tells how many tokens it took.
    `learned`: that it takes no thinking back is learned from its first refusal.

    The others say what a gateway changes on the way, so that no client can have it otherwise. `refusal`: what the user
    reads when the model refuses. `notices`: what the user is told in a turn with tools. `reorders`: a request that
    returns text and calls of one answer is refused once. `separators`: U+2028 in a text arrives. `parallel`: several
    calls in one answer arrive as several.
    """

    provider: str
    model: str
    host: str
    key: str | None
    address: str = ""
    summaries: bool = True
    counts_thinking: bool = True
    learned: bool = False
    refusal: str = "Stopped by a safety system."
    notices: tuple[str, ...] = ()
    reorders: bool = False
    separators: bool = True
    parallel: bool = True

    def environment(self, base_url: str) -> dict[str, str]:
        key = {} if self.key is None else {self.key: KEYS[self.provider]}
        return {self.host: base_url + self.address, **key}


KEYS = {
    "anthropic": "sk-ant-canary-Zq8wLr2vTn5xKc9pBd4fMh7j",
    "openai": "sk-proj-canary-Hy3kPw6sQx1mVb8nRt5gJd2c",
    "google": "AIzaCanaryUe4rWz7yNk2pLq9sXv6bTm3fGc8h",
    "openai-compatible": "local-canary-Fo5dKs8gLw2jQn7tXr4bVm9z",
}
_COMPATIBLE = ("THINKLSP_COMPATIBLE_BASE_URL", "THINKLSP_COMPATIBLE_API_KEY", "/v1")
WAYS: Mapping[str, Way] = {
    "anthropic": Way("anthropic", "claude-opus-5-5", "ANTHROPIC_BASE_URL", "ANTHROPIC_API_KEY"),
    "openai": Way("openai", "gpt-6-sol", "OPENAI_BASE_URL", "OPENAI_API_KEY", "/v1"),
    "google": Way("google", "gemini-4-argon", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"),
    "google, with a budget": Way("google", "gemini-2.5-pro", "GOOGLE_GEMINI_BASE_URL", "GEMINI_API_KEY"),
    "deepseek": Way("openai-compatible", "deepseek-reasoner", *_COMPATIBLE),
    "openrouter": Way("openai-compatible", "anthropic/claude-opus-5.5", *_COMPATIBLE),
    "llama.cpp": Way("openai-compatible", "qwen3-8b", _COMPATIBLE[0], None, "/v1", counts_thinking=False),
    "ollama": Way("openai-compatible", "gpt-oss:20b", _COMPATIBLE[0], None, "/v1", counts_thinking=False),
    "lm studio": Way("openai-compatible", "lmstudio-qwen", _COMPATIBLE[0], None, "/v1", counts_thinking=False),
    "strict gateway": Way("openai-compatible", "strict-1", *_COMPATIBLE, counts_thinking=False, learned=True),
    "no thinking": Way("openai-compatible", "plain-1", *_COMPATIBLE, summaries=False, counts_thinking=False),
}


class Service:
    """`async with Service() as service:`; all ways lead to it."""

    def __init__(self, scenario: Scenario | None = None) -> None:
        self.simulator = Simulator(scenario or load_scenario(str(EVERYWHERE)), on_finished=self._judge)
        self.key = KEYS["anthropic"]
        self.violations: list[str] = []
        self._told_strictly = False

    async def __aenter__(self) -> Self:
        await self.simulator.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.simulator.__aexit__()

    @property
    def url(self) -> str:
        return self.simulator.base_url

    @property
    def requests(self) -> list[RecordedRequest]:
        """What models were asked; that a server was asked for its list of them is left out."""
        return [request for request in self.simulator.requests if request.method == "POST"]

    def environment(self) -> dict[str, str]:
        """Every way is open."""
        return {name: value for way in WAYS.values() for name, value in way.environment(self.url).items()}

    def secrets(self) -> dict[str, str]:
        """The keys, and everything sealed that has come back so far."""
        sealed = {text for request in self.requests for text in sealed_in(request.body)}
        return {f"{name} key": key for name, key in KEYS.items()} | {f"sealed {n}": t for n, t in enumerate(sealed)}

    def _judge(self, request: RecordedRequest) -> None:
        """Note what the service refused by itself. The doctor's question has no body, and asks to be refused."""
        if not request.raw:
            return
        if request.status is not None and request.status >= 400 and request.played is None:
            if request.body.get("model", "").startswith("strict") and not self._told_strictly:
                # What this server takes can only be learned by asking, once.
                self._told_strictly = True
                return
            said = json.dumps(request.body, ensure_ascii=False)[-3000:]
            self.violations.append(f"{request.status} for {request.method} {request.path}: …{said}")


def sealed_in(value: Any) -> Iterator[str]:
    """Opaque state in a request: long texts under the names that services give them."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name in _SEALED and isinstance(item, str) and len(item) >= _LEAST:
                yield item
            else:
                yield from sealed_in(item)
    elif isinstance(value, list):
        for item in value:
            yield from sealed_in(item)


# Where a service finds its own key.
_OWN_HEADERS = ("x-api-key", "authorization", "x-goog-api-key")


class SeveralServices:
    """Services in place of one provider in `outside.start`. `here` is the present host; `move` changes it."""

    def __init__(self, *script: Any) -> None:
        self.first = SigningServer(f"sk-ant-canary-{secrets.token_hex(24)}", *script)
        self.second = SigningServer(f"sk-ant-canary-{secrets.token_hex(24)}")
        self.others = Service()
        self.here = self.first
        self.services = (self.first, self.second, self.others)

    async def __aenter__(self) -> Self:
        for each in self.services:
            await each.__aenter__()
        return self

    async def __aexit__(self, *_: object) -> None:
        for each in reversed(self.services):
            await each.__aexit__()

    @property
    def violations(self) -> list[str]:
        return [violation for each in self.services for violation in each.violations]

    def environment(self) -> dict[str, str]:
        return self.others.environment() | self.here.environment()

    def move(self) -> dict[str, str]:
        """The environment of a server that knows the other host from now on."""
        self.here = self.second if self.here is self.first else self.first
        return self.environment()

    @property
    def key(self) -> str:
        return self.here.key

    def secrets(self) -> dict[str, str]:
        """By the name of who issued them: `first, signature 0`."""
        owners = {"first": self.first, "second": self.second, "others": self.others}
        return {f"{owner}, {name}": text for owner, each in owners.items() for name, text in each.secrets().items()}

    def leaks(self) -> list[Leak]:
        """What a service was sent that belongs to another one; or a key, its own too, but in its header."""
        canary = Canary(self.secrets())
        heard = [(owner, text) for owner, texts in self._heard().items() for text in texts]
        leaks = [leak for owner, text in heard for leak in canary.search(text.encode(), f"a request to {owner}")]
        return [
            leak
            for leak in leaks
            if leak.secret.endswith("key") or not leak.where.endswith(leak.secret.partition(",")[0])
        ]

    def _heard(self) -> dict[str, set[str]]:
        """By service: each message of a request once, as most of a request is what the last one was."""
        signed = {"first": self.first, "second": self.second}
        heard = {
            owner: {text for seen in each.requests for text in _parts(seen.body, seen.headers)}
            for owner, each in signed.items()
        }
        others = self.others.simulator.requests
        heard["others"] = {text for seen in others for text in _parts(seen.body or {}, seen.headers)}
        return heard


def _parts(body: Any, headers: Mapping[str, str]) -> Iterator[str]:
    yield json.dumps([value for name, value in headers.items() if name.lower() not in _OWN_HEADERS])
    for name, value in body.items():
        for part in value if isinstance(value, list) else [value]:
            yield json.dumps([name, part])


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
        reply = dialect.build_reply(ReceivedRequest("POST", url.path, url.query, wire.headers, wire.body))
        if isinstance(reply, StreamedReply):
            answer = read(where, reply.body)
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
    reply = dialect.build_reply(ReceivedRequest("POST", url.path, url.query, wire.headers, wire.body))
    assert isinstance(reply, StreamedReply)
    return reply.body


def events_of(data: bytes) -> list[bytes]:
    return [event for event in re.split(rb"(?<=\n\n)", data) if event]


async def call_model(
    adapter: Adapter,
    endpoint: Endpoint,
    plays: Sequence[Sequence[Step]],
    request: ModelRequest | Callable[[str], ModelRequest],
    *,
    path: str = "",
    tries: int = 1,
) -> tuple[list[CallEvent], list[Received]]:
    """Return the events of a call, and the requests that the server received. Waits between tries take no time.

    `request`: also one that is made for the address of the server. `path`: of the base URL.
    """

    async def at_once(_: float) -> None:
        """What is waited for is not what is tested."""

    async with SseServer(plays) as server:
        transport = Transport()
        here = replace(endpoint, base_url=f"{server.url}{path}")
        policy = RetryPolicy(max_tries=tries)
        caller = HttpModelCaller(adapter, here, transport, policy=policy, rng=lambda: 0.0, sleep=at_once)
        made = request if isinstance(request, ModelRequest) else request(server.url)
        try:
            async with aclosing(caller.stream(made)) as events:
                return [event async for event in events], server.received
        finally:
            await transport.aclose()


def join_answer(provider: Provider, data: bytes) -> Any:
    """Return the answer that a service would give without a stream, from the bytes of its stream."""
    lines = [line.removeprefix("data: ") for line in data.decode().split("\n") if line.startswith("data: {")]
    return _JOINS[provider]([json.loads(line) for line in lines])


def _join_messages(events: list[Any]) -> Any:
    message, partial = events[0]["message"], defaultdict[int, str](str)
    for event in events:
        delta = event.get("delta", {})
        match event["type"]:
            case "content_block_start":
                message["content"].append(event["content_block"])
            case "content_block_delta" if delta["type"] == "input_json_delta":
                partial[event["index"]] += delta["partial_json"]
            case "content_block_delta":
                _append(message["content"][event["index"]], delta, "text", "thinking", "signature")
            case "message_delta":
                message |= delta
                message["usage"] |= event["usage"]
    for index, text in partial.items():
        message["content"][index]["input"] = json.loads(text or "{}")
    return message


def _join_completions(chunks: list[Any]) -> Any:
    message: dict[str, Any] = {"role": "assistant", "content": None}
    calls: list[Any] = []
    details: dict[Any, Any] = {}
    ending: dict[str, Any] = {}
    for chunk in chunks:
        for choice in chunk["choices"]:
            delta = choice["delta"]
            ending |= {"finish_reason": choice["finish_reason"]} if choice["finish_reason"] else {}
            _append(message, delta, "content", "reasoning", "reasoning_content", "refusal")
            for detail in delta.get("reasoning_details") or ():
                first = details.setdefault((detail["type"], detail["index"]), detail)
                if first is not detail:
                    first |= {key: value for key, value in detail.items() if key not in ("text", "summary")}
                    _append(first, detail, "text", "summary")
            for piece in delta.get("tool_calls") or ():
                known = next((call for call in calls if call["id"] == piece.get("id")), None)
                if known is None and piece.get("id"):
                    calls.append({key: value for key, value in piece.items() if key != "index"})
                else:
                    _append((known or calls[piece.get("index", -1)])["function"], piece["function"], "arguments")
    message |= {"tool_calls": calls} if calls else {}
    message |= {"reasoning_details": [*details.values()]} if details else {}
    return {**chunks[-1], "object": "chat.completion", "choices": [{"index": 0, "message": message, **ending}]}


def _append(target: dict[str, Any], delta: Any, *names: str) -> None:
    for name in names:
        if delta.get(name):
            target[name] = (target.get(name) or "") + delta[name]


def _join_contents(chunks: list[Any]) -> Any:
    last = chunks[-1]
    if "candidates" not in last:
        return last
    parts = [part for chunk in chunks for part in chunk["candidates"][0]["content"].get("parts", ())]
    return {**last, "candidates": [{**last["candidates"][0], "content": {"role": "model", "parts": parts}}]}


_JOINS: Mapping[Provider, Callable[[list[Any]], Any]] = {
    "anthropic": _join_messages,
    "openai": lambda events: events[-1]["response"],
    "google": _join_contents,
    "openai-compatible": _join_completions,
}
