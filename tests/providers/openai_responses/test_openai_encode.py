"""Requests of the Responses API: the whole body, headers, thinking, the cache's key, and the same bytes every time."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.openai_cases import ENDPOINT
from tests.support.openai_requests import PLAIN, REQUESTS, loop, said, text, thinking
from tests.support.openai_wire import ADAPTER, body_of
from thinklsp.core.messages import UserMessage
from thinklsp.providers.base import Endpoint, ModelRequest, Thinking
from thinklsp.providers.catalog import lookup


def test_the_service_is_asked_to_shorten_what_it_reads_where_that_is_wanted() -> None:
    asked = body_of(replace(PLAIN, compact_at=150_000))
    assert asked.pop("context_management") == [{"type": "compaction", "compact_threshold": 150_000}]
    assert asked == body_of(PLAIN)


def test_the_whole_body_of_a_plain_request() -> None:
    request = ADAPTER.encode(PLAIN, ENDPOINT)
    assert request.url == "https://api.openai.com/v1/responses"
    key = body_of(PLAIN)["prompt_cache_key"]
    assert len(key) == 32
    assert bytes(request.body) == json.dumps(
        {
            "model": "gpt-6-sol",
            "stream": True,
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "reasoning": {"effort": "high"},
            "max_output_tokens": 32000,
            "prompt_cache_key": key,
            "parallel_tool_calls": True,
            "tools": [
                {
                    "type": "function",
                    "name": "read_file",
                    "description": "Reads a file.",
                    "strict": False,
                    "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
                },
                {
                    "type": "function",
                    "name": "list_files",
                    "description": "Lists files.",
                    "strict": False,
                    "parameters": {"type": "object", "properties": {}},
                },
            ],
            "input": [
                {
                    "type": "message",
                    "role": "developer",
                    "content": [{"type": "input_text", "text": "You are careful."}],
                },
                {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
            ],
        },
        separators=(",", ":"),
    ).encode("ascii")


def test_what_is_not_there_is_not_sent() -> None:
    body = body_of(replace(PLAIN, system=" ", tools=(), max_tokens=None, thinking=Thinking()))
    assert list(body) == ["model", "stream", "store", "prompt_cache_key", "input"]
    assert len(body["input"]) == 1


@pytest.mark.parametrize("name", REQUESTS)
def test_same_value_same_bytes(name: str) -> None:
    request = REQUESTS[name]
    again = replace(request, conversation=tuple(request.conversation), tools=tuple(request.tools))
    assert ADAPTER.encode(request, ENDPOINT) == ADAPTER.encode(again, replace(ENDPOINT))


THINKING: list[tuple[Thinking, dict[str, Any] | None]] = [
    (Thinking(), None),
    (Thinking(effort="max", summarized=True), None),
    (Thinking("off"), {"effort": "none"}),
    (Thinking("off", effort="low", summarized=True), {"effort": "none"}),
    (Thinking("adaptive"), None),
    (Thinking("adaptive", drop_mismatched=True), None),
    (Thinking("adaptive", effort="minimal"), {"effort": "minimal"}),
    (Thinking("adaptive", summarized=True), {"summary": "auto"}),
    (Thinking("adaptive", summarized=True, summary="concise"), {"summary": "concise"}),
    (Thinking("adaptive", summary="concise"), None),
    (Thinking("adaptive", effort="max", summarized=True), {"effort": "max", "summary": "auto"}),
]


@pytest.mark.parametrize(("wish", "field"), THINKING)
def test_thinking_on_the_wire(wish: Thinking, field: dict[str, Any] | None) -> None:
    assert body_of(replace(PLAIN, thinking=wish)).get("reasoning") == field


def test_sealed_thinking_is_asked_for_where_there_can_be_any() -> None:
    mute = replace(PLAIN.model, adaptive=False, efforts=())
    assert "include" in body_of(replace(PLAIN, thinking=Thinking("adaptive")))
    assert "include" in body_of(replace(PLAIN, thinking=Thinking("off")))
    assert "include" not in body_of(replace(PLAIN, model=mute, thinking=Thinking("adaptive")))
    # The form that stays once the service has said that the model does not think.
    assert "include" not in body_of(replace(PLAIN, thinking=Thinking()))


BASE_HEADERS = {"content-type": "application/json", "accept": "text/event-stream"}
HEADERS: dict[str, tuple[Endpoint, dict[str, str]]] = {
    "key": (ENDPOINT, {"authorization": f"Bearer {ENDPOINT.api_key}"}),
    "bearer": (replace(ENDPOINT, bearer=True), {"authorization": f"Bearer {ENDPOINT.api_key}"}),
    "no key": (replace(ENDPOINT, api_key=""), {}),
    "own headers win": (
        replace(ENDPOINT, headers={"Authorization": "Basic mine", "OpenAI-Organization": "org_1"}),
        {"authorization": "Basic mine", "openai-organization": "org_1"},
    ),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers(name: str) -> None:
    endpoint, own = HEADERS[name]
    assert ADAPTER.encode(PLAIN, endpoint).headers == BASE_HEADERS | own


def test_a_base_url_with_path_and_slash() -> None:
    endpoint = replace(ENDPOINT, base_url="https://gateway.example/openai/v1/")
    assert ADAPTER.encode(PLAIN, endpoint).url == "https://gateway.example/openai/v1/responses"


def key_of(request: ModelRequest) -> Any:
    return body_of(request)["prompt_cache_key"]


def test_the_key_of_the_cache_is_that_of_the_session() -> None:
    key = key_of(PLAIN)
    grown = (*PLAIN.conversation, said(text("Hi.")), UserMessage.of("More"))
    same = (
        replace(PLAIN, conversation=grown),
        replace(PLAIN, thinking=Thinking("off"), max_tokens=None),
        replace(PLAIN, tools=()),
    )
    other = (
        replace(PLAIN, model=lookup("openai", "gpt-6-luna")),
        replace(PLAIN, system="You are bold."),
        replace(PLAIN, conversation=(UserMessage.of("Hello!"),)),
        replace(PLAIN, conversation=()),
    )
    assert {key_of(request) for request in same} == {key}
    assert len({key, *map(key_of, other)}) == 1 + len(other)
    assert body_of(PLAIN, replace(ENDPOINT, api_key="sk-another"))["prompt_cache_key"] == key


def test_history_only_grows() -> None:
    """What stood in one request stands at the head of the next one, byte for byte."""
    again = (said(text("Done.", "2")), *loop(model="gpt-5.5"), said(thinking("9"), text("So.")), UserMessage.of("And?"))
    conversation = (*loop(), *again)
    before: list[Any] = []
    for count in range(1, len(conversation) + 1, 2):
        items = body_of(replace(PLAIN, conversation=conversation[:count]))["input"]
        assert items[: len(before)] == before
        before = items


def test_half_a_character_pair_is_replaced_since_services_refuse_it() -> None:
    sent = bytes(ADAPTER.encode(REQUESTS["lone surrogate"], ENDPOINT).body)
    assert json.loads(sent)["input"][1]["content"][0]["text"] == "half a pair: \ufffd, and \u2028"


def test_secrets_are_not_in_repr() -> None:
    request = ADAPTER.encode(replace(PLAIN, conversation=loop()), ENDPOINT)
    for secret in (ENDPOINT.api_key, "gAAAsecret1"):
        assert secret in str(request.headers) + bytes(request.body).decode()
        assert secret not in repr(request)
