"""Requests of chat completions: the whole body per kind of server, headers, and the same bytes every time."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.support.chat_cases import ENDPOINT, FOLDER, server
from tests.support.chat_requests import PLAIN, REQUESTS, body_of, details, loop, model
from thinklsp.providers.base import Endpoint, Thinking
from thinklsp.providers.openai_chat.adapter import OpenAiChatAdapter
from thinklsp.providers.openai_chat.servers import kinds

ADAPTER = OpenAiChatAdapter(server())


def test_the_whole_body_of_a_plain_request() -> None:
    request = ADAPTER.encode(replace(PLAIN, thinking=Thinking("adaptive", effort="max"), max_tokens=4096), ENDPOINT)
    assert request.url == "http://localhost:11434/v1/chat/completions"
    assert bytes(request.body) == json.dumps(
        {
            "model": "qwen3:8b",
            "stream": True,
            "stream_options": {"include_usage": True},
            "max_tokens": 4096,
            "reasoning_effort": "high",
            "tools": [
                {
                    "type": "function",
                    "function": {
                        "name": "read_file",
                        "description": "Reads a file.",
                        "parameters": {"type": "object", "properties": {"path": {"type": "string"}}},
                    },
                },
                {
                    "type": "function",
                    "function": {
                        "name": "list_files",
                        "description": "Lists files.",
                        "parameters": {"type": "object", "properties": {}},
                    },
                },
            ],
            "messages": [
                {"role": "system", "content": "You are careful."},
                {"role": "user", "content": "Hello"},
            ],
        },
        separators=(",", ":"),
    ).encode("ascii")


def golden(kind: str) -> dict[str, object]:
    """One tool loop as each kind of server is sent it, after every form of thinking."""
    wishes = {
        "nothing said": Thinking(),
        "off": Thinking("off"),
        "medium": Thinking("adaptive", effort="medium"),
        "max": Thinking("adaptive", effort="max"),
        "budget": Thinking("manual", 4096, "low"),
    }
    request = replace(PLAIN, tools=(), conversation=loop(), max_tokens=1000)
    bodies = {name: body_of(replace(request, thinking=wish), server(kind)) for name, wish in wishes.items()}
    messages = [body.pop("messages") for body in bodies.values()]
    assert messages == messages[:1] * len(wishes)
    return {"bodies": bodies, "messages": messages[0]}


@pytest.mark.parametrize("kind", kinds())
def test_golden_bodies_of_each_kind(kind: str) -> None:
    wanted = json.loads((FOLDER / "requests" / f"{kind}.json").read_text("utf-8"))
    assert golden(kind) == wanted


@pytest.mark.parametrize("name", REQUESTS)
def test_same_value_same_bytes(name: str) -> None:
    request = REQUESTS[name]
    again = replace(request, conversation=tuple(request.conversation), tools=tuple(request.tools))
    assert ADAPTER.encode(request, ENDPOINT) == OpenAiChatAdapter(server()).encode(again, replace(ENDPOINT))


def test_a_longer_conversation_begins_with_the_same_messages() -> None:
    """So that the server finds what it has read before in its cache."""
    conversation = (*loop(), *loop("reasoning_content"))
    whole = body_of(replace(PLAIN, conversation=conversation))["messages"]
    for end in (1, 3, 5, 8):
        part = body_of(replace(PLAIN, conversation=conversation[:end]))["messages"]
        # The last user message may still grow.
        assert whole[: len(part) - 1] == part[:-1]


BASE_HEADERS = {"content-type": "application/json", "accept": "text/event-stream"}


@pytest.mark.parametrize(
    ("endpoint", "own"),
    [
        (ENDPOINT, {"authorization": f"Bearer {ENDPOINT.api_key}"}),
        (replace(ENDPOINT, api_key=""), {}),
        (
            replace(ENDPOINT, headers={"Authorization": "Basic x", "X-Team": "a"}),
            {"authorization": "Basic x", "x-team": "a"},
        ),
        (replace(ENDPOINT, api_key="", headers={"Accept": "*/*"}), {"accept": "*/*"}),
    ],
    ids=["key", "no key", "own headers win", "own accept"],
)
def test_headers(endpoint: Endpoint, own: dict[str, str]) -> None:
    assert ADAPTER.encode(PLAIN, endpoint).headers == BASE_HEADERS | own


def test_a_base_url_with_path_and_slash() -> None:
    endpoint = replace(ENDPOINT, base_url="https://openrouter.ai/api/v1/")
    assert ADAPTER.encode(PLAIN, endpoint).url == "https://openrouter.ai/api/v1/chat/completions"


def test_a_server_with_one_model_needs_no_name_for_it() -> None:
    assert "model" not in body_of(replace(PLAIN, model=model("")))


def test_half_a_character_pair_is_replaced_since_services_refuse_it() -> None:
    sent = bytes(ADAPTER.encode(REQUESTS["lone surrogate"], ENDPOINT).body)
    assert json.loads(sent)["messages"][1]["content"] == "half a pair: \ufffd, and \u2028"


def test_secrets_are_not_in_repr() -> None:
    request = ADAPTER.encode(REQUESTS["details"], ENDPOINT)
    for secret in (ENDPOINT.api_key, "Sig1", "Enc1"):
        assert secret in str(request.headers) + bytes(request.body).decode()
        assert secret not in repr(request)
        assert secret not in repr(details())
