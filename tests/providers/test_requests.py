"""Requests of all families: whole bodies, addresses, headers, thinking, caches, and the same bytes every time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.generated import ADVICE
from tests.providers.families import FAMILIES
from tests.support import anthropic_samples, chat_samples, openai_samples
from tests.support.chat_samples import KINDS
from tests.support.google_samples import BUDGET, LEVELS, LITE, NO_THOUGHT
from tests.support.openai_samples import body_of as openai_body
from tests.support.openai_samples import text, thinking
from tests.support.samples import said
from thinklsp.core.messages import UserMessage
from thinklsp.providers.base import HttpRequest, ModelRequest, Thinking
from thinklsp.providers.catalogue import ModelInfo, find_model

Json = dict[str, Any]


def encode(family: str, changes: Mapping[str, Any], endpoint: Mapping[str, Any] | None = None) -> HttpRequest:
    samples = FAMILIES[family].samples
    request = replace(samples.PLAIN, **changes)
    return FAMILIES[family].adapter.encode(request, replace(samples.ENDPOINT, **endpoint or {}))


def encode_body(family: str, **changes: Any) -> Json:
    body: Json = json.loads(encode(family, changes).body)
    return body


READ: Json = {"type": "object", "properties": {"path": {"type": "string"}}}
LIST: Json = {"type": "object", "properties": {}}
MARK = {"cache_control": {"type": "ephemeral"}}
NAMES = ({"name": "read_file", "description": "Reads a file."}, {"name": "list_files", "description": "Lists files."})
KEY = openai_body(openai_samples.PLAIN)["prompt_cache_key"]
BODIES: Mapping[str, Json] = {
    "anthropic": {
        "model": "claude-opus-5-5",
        "max_tokens": 32000,
        "stream": True,
        "thinking": {"type": "adaptive", "display": "omitted"},
        "output_config": {"effort": "high"},
        "system": [{"type": "text", "text": "You are careful.", **MARK}],
        "tools": [NAMES[0] | {"input_schema": READ}, NAMES[1] | {"input_schema": LIST} | MARK],
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello", **MARK}]}],
    },
    "openai": {
        "model": "gpt-6-sol",
        "stream": True,
        "store": False,
        "include": ["reasoning.encrypted_content"],
        "reasoning": {"effort": "high"},
        "max_output_tokens": 32000,
        "prompt_cache_key": KEY,
        "parallel_tool_calls": True,
        "tools": [
            {"type": "function", **names, "strict": False, "parameters": schema}
            for names, schema in zip(NAMES, (READ, LIST), strict=True)
        ],
        "input": [
            {"type": "message", "role": role, "content": [{"type": "input_text", "text": words}]}
            for role, words in (("developer", "You are careful."), ("user", "Hello"))
        ],
    },
    "google": {
        "systemInstruction": {"parts": [{"text": "You are careful."}]},
        "contents": [{"role": "user", "parts": [{"text": "Hello"}]}],
        "tools": [
            {
                "functionDeclarations": [
                    NAMES[0] | {"parametersJsonSchema": READ},
                    NAMES[1] | {"parametersJsonSchema": LIST},
                ]
            }
        ],
        "generationConfig": {"maxOutputTokens": 32000, "thinkingConfig": {"thinkingLevel": "HIGH"}},
    },
    "chat": {
        "model": "qwen3:8b",
        "stream": True,
        "stream_options": {"include_usage": True},
        "max_tokens": 4096,
        "reasoning_effort": "high",
        "tools": [
            {"type": "function", "function": NAMES[0] | {"parameters": READ}},
            {"type": "function", "function": NAMES[1] | {"parameters": LIST}},
        ],
        "messages": [{"role": "system", "content": "You are careful."}, {"role": "user", "content": "Hello"}],
    },
}


@pytest.mark.parametrize("family", BODIES)
def test_the_whole_body_of_a_plain_request(family: str) -> None:
    changes = {"thinking": Thinking("adaptive", effort="max"), "max_tokens": 4096} if family == "chat" else {}
    expected = json.dumps(BODIES[family], separators=(",", ":")).encode("ascii")
    assert encode(family, changes).body == expected
    assert len(KEY) == 32


def test_what_is_not_there_is_not_sent() -> None:
    nothing = {"system": "", "tools": (), "max_tokens": None, "thinking": Thinking()}
    assert encode_body("google", **nothing) == {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}
    body = encode_body("openai", **nothing | {"system": " "})
    assert list(body) == ["model", "stream", "store", "prompt_cache_key", "input"]
    assert len(body["input"]) == 1
    # A server with one model needs no name for it.
    assert "model" not in encode_body("chat", model=chat_samples.model(""))


GOOGLE_URL = "https://generativelanguage.googleapis.com"
URLS: list[tuple[str, str | None, str | None, str]] = [
    ("anthropic", None, None, "https://api.anthropic.com/v1/messages"),
    ("anthropic", "https://gateway.example/x/", None, "https://gateway.example/x/v1/messages"),
    ("openai", None, None, "https://api.openai.com/v1/responses"),
    ("openai", "https://gateway.example/openai/v1/", None, "https://gateway.example/openai/v1/responses"),
    ("chat", None, None, "http://localhost:11434/v1/chat/completions"),
    ("chat", "https://openrouter.ai/api/v1/", None, "https://openrouter.ai/api/v1/chat/completions"),
    ("google", None, None, f"{GOOGLE_URL}/v1beta/models/gemini-3.8-flash"),
    ("google", None, "gemini-4-argon", f"{GOOGLE_URL}/v1beta/models/gemini-4-argon"),
    ("google", None, "models/gemini-4-argon", f"{GOOGLE_URL}/v1beta/models/gemini-4-argon"),
    ("google", "https://g.example/x/", "a b/é?x#y", "https://g.example/x/v1beta/models/a%20b%2F%C3%A9%3Fx%23y"),
]


@pytest.mark.parametrize(("family", "base_url", "model", "url"), URLS)
def test_base_url_and_model_become_an_address(family: str, base_url: str | None, model: str | None, url: str) -> None:
    changes = {"model": replace(LEVELS, id=model)} if model else {}
    end = ":streamGenerateContent?alt=sse" if family == "google" else ""
    assert encode(family, changes, {"base_url": base_url} if base_url else {}).url == url + end


SECRETS = {name: family.samples.ENDPOINT.api_key for name, family in FAMILIES.items()}
BASE_HEADERS = {"content-type": "application/json", "accept": "text/event-stream"}
BEARERS = {name: {"authorization": f"Bearer {secret}"} for name, secret in SECRETS.items()}
X_KEY = {"x-api-key": SECRETS["anthropic"]}
MANUAL = {"thinking": Thinking("manual", 10_000)}
COUNTS, OAUTH = "thinking-token-count-2026-05-13", "oauth-2025-04-20"
COUNTED = {"anthropic-beta": COUNTS}
INTERLEAVED = "interleaved-thinking-2025-05-14"
BINDING = "thinking-binding-controls-2026-08-01"


def claude(model: str) -> Json:
    return {"model": find_model("anthropic", model)}


OPUS = claude("claude-opus-4-5")
SIMULATOR = {"provider": "simulator", "base_url": "http://127.0.0.1:9"}
# Family, changes of the request, changes of the endpoint, and the headers that follow from them.
HEADERS: Mapping[str, tuple[str, Json, Json, dict[str, str]]] = {
    "key": ("anthropic", {}, {}, X_KEY | COUNTED),
    "no key": ("anthropic", {}, {"api_key": ""}, COUNTED),
    "nothing to count without thinking": ("anthropic", {"thinking": Thinking("off")}, {}, X_KEY),
    "counts were refused": ("anthropic", {"thinking_counts": False}, {}, X_KEY),
    "a gateway is not asked for counts": ("anthropic", {}, {"base_url": "https://gateway.example"}, X_KEY),
    "the simulator is": ("anthropic", {}, SIMULATOR, X_KEY | COUNTED),
    "bearer": ("anthropic", {}, {"bearer": True}, {**BEARERS["anthropic"], "anthropic-beta": f"{OAUTH},{COUNTS}"}),
    "own headers win, betas are joined": (
        "anthropic",
        MANUAL | OPUS,
        {
            "bearer": True,
            "headers": {"Anthropic-Version": "2026-10-21", "Anthropic-Beta": f"mine, {OAUTH}", "X-Team": "a"},
        },
        {
            **BEARERS["anthropic"],
            "anthropic-version": "2026-10-21",
            "anthropic-beta": f"{OAUTH},{INTERLEAVED},{COUNTS},mine",
            "x-team": "a",
        },
    ),
    **{
        f"interleaved {model}": (
            "anthropic",
            MANUAL | claude(model),
            {},
            X_KEY | {"anthropic-beta": f"{INTERLEAVED},{COUNTS}" if needed else COUNTS},
        )
        for model, needed in {
            "claude-opus-4-5-20251101": True,
            "claude-sonnet-4-5": True,
            "claude-sonnet-4-6": True,
            "claude-opus-4-6": False,
            "claude-haiku-4-5": False,
            "claude-mythos-preview": False,
        }.items()
    },
    "no tools, nothing to interleave": ("anthropic", MANUAL | OPUS | {"tools": ()}, {}, X_KEY | COUNTED),
    "thinking that fits no more is dropped": (
        "anthropic",
        {"thinking": Thinking("adaptive", drop_mismatched=True)},
        {},
        X_KEY | {"anthropic-beta": f"{BINDING},{COUNTS}"},
    ),
    "adaptive needs no header": ("anthropic", claude("claude-sonnet-4-6"), {}, X_KEY | COUNTED),
    "key of OpenAI": ("openai", {}, {}, BEARERS["openai"]),
    "bearer of OpenAI": ("openai", {}, {"bearer": True}, BEARERS["openai"]),
    "no key of OpenAI": ("openai", {}, {"api_key": ""}, {}),
    "own headers win at OpenAI": (
        "openai",
        {},
        {"headers": {"Authorization": "Basic mine", "OpenAI-Organization": "org_1"}},
        {"authorization": "Basic mine", "openai-organization": "org_1"},
    ),
    "key of Google": ("google", {}, {}, {"x-goog-api-key": SECRETS["google"]}),
    "no key of Google": ("google", {}, {"api_key": ""}, {}),
    "bearer of Google": ("google", {}, {"bearer": True}, BEARERS["google"]),
    "own headers win at Google": (
        "google",
        {},
        {"headers": {"X-Goog-Api-Key": "mine", "Accept": "*/*", "X-Goog-User-Project": "p"}},
        {"x-goog-api-key": "mine", "accept": "*/*", "x-goog-user-project": "p"},
    ),
    "key of a compatible server": ("chat", {}, {}, BEARERS["chat"]),
    "no key of a compatible server": ("chat", {}, {"api_key": ""}, {}),
    "own headers win at a compatible server": (
        "chat",
        {},
        {"headers": {"Authorization": "Basic x", "X-Team": "a"}},
        {"authorization": "Basic x", "x-team": "a"},
    ),
    "own accept": ("chat", {}, {"api_key": "", "headers": {"Accept": "*/*"}}, {"accept": "*/*"}),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers_follow_from_endpoint_and_request(name: str) -> None:
    family, changes, endpoint, own = HEADERS[name]
    base = BASE_HEADERS | ({"anthropic-version": "2023-06-01"} if family == "anthropic" else {})
    assert encode(family, changes, endpoint).headers == base | own


ADAPTIVE = {"type": "adaptive", "display": "omitted"}
ENABLED = {"type": "enabled", "budget_tokens": 2048, "display": "omitted"}
DROPPING = {"block_binding": {"prefix_mismatch_behavior": "drop_block"}}
SUMMARY = {"includeThoughts": True}
CLAUDE, GPT = anthropic_samples.PLAIN.model, openai_samples.PLAIN.model
BOTH_KNOBS = replace(LEVELS, manual=True)
THINKING: list[tuple[ModelInfo, Thinking, Json]] = [
    (CLAUDE, Thinking(), {}),
    (CLAUDE, Thinking(effort="max"), {"output_config": {"effort": "max"}}),
    (CLAUDE, Thinking("between_tools"), {"thinking": {"type": "between_tools"}}),
    (CLAUDE, Thinking("adaptive"), {"thinking": ADAPTIVE}),
    (CLAUDE, Thinking("adaptive", summarized=True), {"thinking": ADAPTIVE | {"display": "summarized"}}),
    (CLAUDE, Thinking("adaptive", drop_mismatched=True), {"thinking": ADAPTIVE | DROPPING}),
    (CLAUDE, Thinking("manual", 2048, "low"), {"thinking": ENABLED, "output_config": {"effort": "low"}}),
    (GPT, Thinking(effort="max", summarized=True), {}),
    (GPT, Thinking("off", effort="low", summarized=True), {"effort": "none"}),
    (GPT, Thinking("adaptive", drop_mismatched=True), {}),
    (GPT, Thinking("adaptive", effort="minimal"), {"effort": "minimal"}),
    (GPT, Thinking("adaptive", summarized=True), {"summary": "auto"}),
    (GPT, Thinking("adaptive", summarized=True, summary="concise"), {"summary": "concise"}),
    (GPT, Thinking("adaptive", summary="concise"), {}),
    (GPT, Thinking("adaptive", effort="max", summarized=True), {"effort": "max", "summary": "auto"}),
    (LEVELS, Thinking(), {}),
    (LEVELS, Thinking(effort="high", summarized=True), {}),
    (LEVELS, Thinking("adaptive", summarized=True), SUMMARY),
    (LEVELS, Thinking("adaptive", effort="minimal"), {"thinkingLevel": "MINIMAL"}),
    (LEVELS, Thinking("adaptive", effort="low", summarized=True), {"thinkingLevel": "LOW", **SUMMARY}),
    (BUDGET, Thinking("adaptive", effort="high"), {}),
    (BUDGET, Thinking("adaptive", summarized=True), SUMMARY),
    (BUDGET, Thinking("manual", 2048), {"thinkingBudget": 2048}),
    (BUDGET, Thinking("manual", 2048, "low", summarized=True), {"thinkingBudget": 2048, **SUMMARY}),
    # What is left of a budget that was refused.
    (BUDGET, Thinking("manual"), {}),
    (BUDGET, Thinking("between_tools"), {}),
    (LITE, Thinking("adaptive"), {"thinkingBudget": -1}),
    (LITE, Thinking("adaptive", summarized=True), {"thinkingBudget": -1, **SUMMARY}),
    (NO_THOUGHT, Thinking("adaptive"), {}),
    # A model with both knobs is turned by one of them.
    (BOTH_KNOBS, Thinking("manual", 4096, "high"), {"thinkingBudget": 4096}),
    (replace(BOTH_KNOBS, on_when_unset=False), Thinking("adaptive", effort="low"), {"thinkingLevel": "LOW"}),
]


@pytest.mark.parametrize(("model", "wish", "fields"), THINKING)
def test_thinking_becomes_fields_of_the_body(model: ModelInfo, wish: Thinking, fields: Json) -> None:
    """The fields of compatible servers depend on their kind, and stand in `test_chat_servers`."""
    body = encode_body(model.provider, model=model, thinking=wish)
    match model.provider:
        case "anthropic":
            assert {key: body[key] for key in ("thinking", "output_config") if key in body} == fields
        case "openai":
            assert body.get("reasoning") == (fields or None)
        case _:
            config = {"thinkingConfig": fields} if fields else {}
            assert body["generationConfig"] == {"maxOutputTokens": 32000, **config}


def test_sealed_thinking_is_asked_for_where_there_can_be_any() -> None:
    assert "include" in encode_body("openai", thinking=Thinking("adaptive"))
    assert "include" in encode_body("openai", thinking=Thinking("off"))
    mute = replace(GPT, adaptive=False, efforts=())
    assert "include" not in encode_body("openai", model=mute, thinking=Thinking("adaptive"))
    # The form that stays once the service has said that the model does not think.
    assert "include" not in encode_body("openai", thinking=Thinking())


def test_compaction_by_the_service_is_requested_when_chosen() -> None:
    body = encode_body("openai", compact_at=150_000)
    assert body.pop("context_management") == [{"type": "compaction", "compact_threshold": 150_000}]
    assert body == encode_body("openai")


def test_cache_marks_stand_at_the_last_blocks() -> None:
    marks = anthropic_samples.marks
    body = encode_body("anthropic", conversation=anthropic_samples.loop())
    assert marks(body) == ["text", "tool", "tool_result", "tool_result"]
    assert marks(body["messages"][0]) == []
    assert "cache_control" in body["messages"][4]["content"][-1]
    assert marks(encode_body("anthropic", system="", tools=())) == ["text"]


def test_the_key_of_the_cache_is_that_of_the_session() -> None:
    plain = openai_samples.PLAIN
    grown = (*plain.conversation, said(text("Hi.")), UserMessage.from_text("More"))
    same: list[Json] = [{"conversation": grown}, {"thinking": Thinking("off"), "max_tokens": None}, {"tools": ()}]
    other: list[Json] = [
        {"model": find_model("openai", "gpt-6-luna")},
        {"system": "You are bold."},
        {"conversation": (UserMessage.from_text("Hello!"),)},
        {"conversation": ()},
    ]
    assert {encode_body("openai", **changes)["prompt_cache_key"] for changes in same} == {KEY}
    assert len({KEY, *(encode_body("openai", **changes)["prompt_cache_key"] for changes in other)}) == 1 + len(other)
    assert openai_body(plain, replace(openai_samples.ENDPOINT, api_key="sk-another"))["prompt_cache_key"] == KEY


def test_history_only_grows() -> None:
    """What stood in one request stands at the head of the next one, so that the service finds it in its cache."""
    loop = openai_samples.loop
    end = UserMessage.from_text("And?")
    conversation = (*loop(), said(text("Done.", "2")), *loop(model="gpt-5.5"), said(thinking("9"), text("So.")), end)
    before: list[Any] = []
    for count in range(1, len(conversation) + 1, 2):
        items = encode_body("openai", conversation=conversation[:count])["input"]
        assert items[: len(before)] == before
        before = items
    messages = (*chat_samples.loop(), *chat_samples.loop("reasoning_content"))
    whole = encode_body("chat", conversation=messages)["messages"]
    for count in (1, 3, 5, 8):
        part = encode_body("chat", conversation=messages[:count])["messages"]
        # The last user message may still grow.
        assert whole[: len(part) - 1] == part[:-1]


def build_golden(kind: str) -> dict[str, object]:
    """Return the request bodies of one tool loop for a kind of server, one for each form of thinking."""
    wishes = {
        "nothing said": Thinking(),
        "off": Thinking("off"),
        "medium": Thinking("adaptive", effort="medium"),
        "max": Thinking("adaptive", effort="max"),
        "budget": Thinking("manual", 4096, "low"),
    }
    request = replace(chat_samples.PLAIN, tools=(), conversation=chat_samples.loop(), max_tokens=1000)
    server = chat_samples.server(kind)
    bodies = {name: chat_samples.body_of(replace(request, thinking=wish), server) for name, wish in wishes.items()}
    messages = [body.pop("messages") for body in bodies.values()]
    assert messages == messages[:1] * len(wishes)
    return {"bodies": bodies, "messages": messages[0]}


@pytest.mark.parametrize("kind", KINDS)
def test_golden_bodies_of_each_kind(kind: str) -> None:
    path = chat_samples.FOLDER / "requests" / f"{kind}.json"
    bodies = build_golden(kind)
    assert path.is_file(), ADVICE
    assert bodies == json.loads(path.read_text("utf-8")), ADVICE


REQUESTS = [(family, name) for family in FAMILIES for name in FAMILIES[family].samples.REQUESTS]


@pytest.mark.parametrize(("family", "name"), REQUESTS)
def test_same_value_same_bytes(family: str, name: str) -> None:
    samples, adapter = FAMILIES[family].samples, FAMILIES[family].adapter
    request = samples.REQUESTS[name]
    again = replace(request, conversation=tuple(request.conversation), tools=tuple(request.tools))
    assert adapter.encode(request, samples.ENDPOINT) == adapter.encode(again, replace(samples.ENDPOINT))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_repr_of_a_request_shows_no_secret(family: str) -> None:
    samples = FAMILIES[family].samples
    sample: ModelRequest = samples.REQUESTS["details" if family == "chat" else "tool loop"]
    request = FAMILIES[family].adapter.encode(sample, samples.ENDPOINT)
    for secret in (SECRETS[family], *FAMILIES[family].secrets):
        assert secret in str(request.headers) + request.body.decode()
        assert secret not in repr(request)
        assert secret not in repr(sample)
