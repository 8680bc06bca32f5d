"""Requests of generateContent: the whole body, headers, address, thinking, and the same bytes every time."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.google_cases import ENDPOINT
from tests.support.google_requests import BUDGET, LEVELS, LITE, NO_THOUGHT, PLAIN, REQUESTS, UNKNOWN, loop
from tests.support.google_wire import ADAPTER, DUMMY, body_of
from thinklsp.providers.base import Endpoint, Thinking
from thinklsp.providers.model_info import ModelInfo

URL = "https://generativelanguage.googleapis.com/v1beta/models/"
READ = {"type": "object", "properties": {"path": {"type": "string"}}}
DECLARED = [
    {"name": "read_file", "description": "Reads a file.", "parametersJsonSchema": READ},
    {
        "name": "list_files",
        "description": "Lists files.",
        "parametersJsonSchema": {"type": "object", "properties": {}},
    },
]


def test_the_whole_body_of_a_plain_request() -> None:
    request = ADAPTER.encode(PLAIN, ENDPOINT)
    assert request.url == f"{URL}gemini-3.8-flash:streamGenerateContent?alt=sse"
    assert bytes(request.body) == json.dumps(
        {
            "systemInstruction": {"parts": [{"text": "You are careful."}]},
            "contents": [{"role": "user", "parts": [{"text": "Hello"}]}],
            "tools": [{"functionDeclarations": DECLARED}],
            "generationConfig": {"maxOutputTokens": 32000, "thinkingConfig": {"thinkingLevel": "HIGH"}},
        },
        separators=(",", ":"),
    ).encode("ascii")


def test_the_contents_of_a_tool_loop() -> None:
    """Thoughts without a signature stay away; everything else goes back as it came."""
    read = {"name": "read_file", "args": {"path": "a"}}
    answered = {"name": "read_file", "response": {"output": "content"}}
    assert body_of(REQUESTS["tool loop"])["contents"] == [
        {"role": "user", "parts": [{"text": "Why?"}]},
        {
            "role": "model",
            "parts": [{"text": "Looking."}, {"functionCall": {"id": "k1", **read}, "thoughtSignature": "Sig1"}],
        },
        {"role": "user", "parts": [{"functionResponse": {"id": "k1", **answered}}]},
        {
            "role": "model",
            "parts": [
                {"text": "So.", "thought": True, "thoughtSignature": "Sig2"},
                {"functionCall": {"id": "k2", **read}, "thoughtSignature": "Sig3"},
                {"functionCall": {"id": "k3", **read}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"id": "k2", **answered}},
                {"functionResponse": {"id": "k3", "name": "read_file", "response": {"error": "no such file"}}},
            ],
        },
    ]


def test_the_least_body() -> None:
    request = replace(PLAIN, system="", tools=(), thinking=Thinking(), max_tokens=None)
    assert body_of(request) == {"contents": [{"role": "user", "parts": [{"text": "Hello"}]}]}


@pytest.mark.parametrize("name", REQUESTS)
def test_same_value_same_bytes(name: str) -> None:
    request = REQUESTS[name]
    again = replace(request, conversation=tuple(request.conversation), tools=tuple(request.tools))
    assert ADAPTER.encode(request, ENDPOINT) == ADAPTER.encode(again, replace(ENDPOINT))


SUMMARY = {"includeThoughts": True}
THINKING: list[tuple[ModelInfo, Thinking, dict[str, Any] | None]] = [
    (LEVELS, Thinking(), None),
    (LEVELS, Thinking(effort="high", summarized=True), None),
    (LEVELS, Thinking("adaptive"), None),
    (LEVELS, Thinking("adaptive", summarized=True), SUMMARY),
    (LEVELS, Thinking("adaptive", effort="minimal"), {"thinkingLevel": "MINIMAL"}),
    (LEVELS, Thinking("adaptive", effort="low", summarized=True), {"thinkingLevel": "LOW", **SUMMARY}),
    (LEVELS, Thinking("adaptive", effort="xhigh"), {"thinkingLevel": "XHIGH"}),
    (UNKNOWN, Thinking("adaptive", effort="medium"), {"thinkingLevel": "MEDIUM"}),
    (BUDGET, Thinking("adaptive"), None),
    (BUDGET, Thinking("adaptive", effort="high"), None),
    (BUDGET, Thinking("adaptive", summarized=True), SUMMARY),
    (BUDGET, Thinking("manual", 2048), {"thinkingBudget": 2048}),
    (BUDGET, Thinking("manual", 2048, "low", summarized=True), {"thinkingBudget": 2048, **SUMMARY}),
    # What is left of a budget that was refused.
    (BUDGET, Thinking("manual"), None),
    (BUDGET, Thinking("off"), {"thinkingBudget": 0}),
    (BUDGET, Thinking("between_tools"), None),
    (LITE, Thinking("adaptive"), {"thinkingBudget": -1}),
    (LITE, Thinking("adaptive", summarized=True), {"thinkingBudget": -1, **SUMMARY}),
    (LITE, Thinking(), None),
    (NO_THOUGHT, Thinking(), None),
    (NO_THOUGHT, Thinking("adaptive"), None),
    # A model with both knobs is turned by one of them.
    (replace(LEVELS, manual=True), Thinking("manual", 4096, "high"), {"thinkingBudget": 4096}),
    (replace(LEVELS, manual=True, on_when_unset=False), Thinking("adaptive", effort="low"), {"thinkingLevel": "LOW"}),
]


@pytest.mark.parametrize(("model", "wish", "fields"), THINKING)
def test_thinking_on_the_wire(model: ModelInfo, wish: Thinking, fields: dict[str, Any] | None) -> None:
    body = body_of(replace(PLAIN, model=model, thinking=wish))
    assert body["generationConfig"] == {"maxOutputTokens": 32000} | ({"thinkingConfig": fields} if fields else {})


BASE_HEADERS = {"content-type": "application/json", "accept": "text/event-stream"}
HEADERS: dict[str, tuple[Endpoint, dict[str, str]]] = {
    "key": (ENDPOINT, {"x-goog-api-key": ENDPOINT.api_key}),
    "no key": (replace(ENDPOINT, api_key=""), {}),
    "bearer": (replace(ENDPOINT, bearer=True), {"authorization": f"Bearer {ENDPOINT.api_key}"}),
    "own headers win": (
        replace(ENDPOINT, headers={"X-Goog-Api-Key": "mine", "Accept": "*/*", "X-Goog-User-Project": "p"}),
        {"x-goog-api-key": "mine", "accept": "*/*", "x-goog-user-project": "p"},
    ),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers(name: str) -> None:
    endpoint, own = HEADERS[name]
    assert ADAPTER.encode(PLAIN, endpoint).headers == BASE_HEADERS | own


ADDRESSES = {
    ("https://generativelanguage.googleapis.com", "gemini-4-argon"): f"{URL}gemini-4-argon",
    ("https://generativelanguage.googleapis.com", "models/gemini-4-argon"): f"{URL}gemini-4-argon",
    (
        "https://gateway.example/google/",
        "a b/é?x#y",
    ): "https://gateway.example/google/v1beta/models/a%20b%2F%C3%A9%3Fx%23y",
}


@pytest.mark.parametrize(("base_url", "model"), ADDRESSES)
def test_addresses(base_url: str, model: str) -> None:
    request = replace(PLAIN, model=replace(LEVELS, id=model))
    url = ADAPTER.encode(request, replace(ENDPOINT, base_url=base_url)).url
    assert url == f"{ADDRESSES[base_url, model]}:streamGenerateContent?alt=sse"


def test_half_a_surrogate_pair_is_replaced_and_whole_ones_are_kept() -> None:
    """Halves are no text to the service: it would refuse the conversation for ever."""
    contents = body_of(REQUESTS["halves of a pair"])["contents"]
    assert contents[0]["parts"] == [{"text": "half: \ufffd, whole: \U0001f600, \u2028"}]


def test_no_request_has_sampling_keys_or_forces_a_tool() -> None:
    for request in REQUESTS.values():
        body = body_of(request)
        assert "toolConfig" not in body
        assert body["generationConfig"].keys() <= {"maxOutputTokens", "thinkingConfig"}
        assert len({"thinkingBudget", "thinkingLevel"} & body["generationConfig"].get("thinkingConfig", {}).keys()) < 2


def test_secrets_are_not_in_repr() -> None:
    request = ADAPTER.encode(replace(PLAIN, conversation=loop()), ENDPOINT)
    for secret in (ENDPOINT.api_key, "Sig1", "Sig3"):
        assert secret in str(request.headers) + bytes(request.body).decode()
        assert secret not in repr(request)


def test_the_stand_in_is_the_documented_one() -> None:
    assert json.dumps(body_of(REQUESTS["tool loop of another model"])).count(DUMMY) == 2
    assert DUMMY not in json.dumps(body_of(REQUESTS["tool loop of another model on 2.5"]))
