"""Requests of the Messages API: replay, order, cache marks, headers, thinking, and the same bytes every time."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from tests.support.anthropic_cases import ENDPOINT
from tests.support.anthropic_requests import PLAIN, REQUESTS, loop
from tests.support.anthropic_wire import ADAPTER, body_of, marks
from thinklsp.providers.base import Endpoint, ModelRequest, Thinking
from thinklsp.providers.catalog import lookup

MARK = {"cache_control": {"type": "ephemeral"}}


def test_the_whole_body_of_a_plain_request() -> None:
    request = ADAPTER.encode(PLAIN, ENDPOINT)
    assert request.url == "https://api.anthropic.com/v1/messages"
    assert bytes(request.body) == json.dumps(
        {
            "model": "claude-opus-5-5",
            "max_tokens": 32000,
            "stream": True,
            "thinking": {"type": "adaptive", "display": "omitted"},
            "output_config": {"effort": "high"},
            "system": [{"type": "text", "text": "You are careful.", **MARK}],
            "tools": [
                {
                    "name": "read_file",
                    "description": "Reads a file.",
                    "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
                },
                {
                    "name": "list_files",
                    "description": "Lists files.",
                    "input_schema": {"type": "object", "properties": {}},
                    **MARK,
                },
            ],
            "messages": [{"role": "user", "content": [{"type": "text", "text": "Hello", **MARK}]}],
        },
        separators=(",", ":"),
    ).encode("ascii")


@pytest.mark.parametrize("name", REQUESTS)
def test_same_value_same_bytes(name: str) -> None:
    request = REQUESTS[name]
    again = replace(request, conversation=tuple(request.conversation), tools=tuple(request.tools))
    assert ADAPTER.encode(request, ENDPOINT) == ADAPTER.encode(again, replace(ENDPOINT))


THINKING: list[tuple[Thinking, dict[str, Any]]] = [
    (Thinking(), {}),
    (Thinking(effort="max"), {"output_config": {"effort": "max"}}),
    (Thinking("off"), {"thinking": {"type": "disabled"}}),
    (Thinking("between_tools"), {"thinking": {"type": "between_tools"}}),
    (Thinking("adaptive"), {"thinking": {"type": "adaptive", "display": "omitted"}}),
    (Thinking("adaptive", summarized=True), {"thinking": {"type": "adaptive", "display": "summarized"}}),
    (
        Thinking("adaptive", drop_mismatched=True),
        {
            "thinking": {
                "type": "adaptive",
                "display": "omitted",
                "block_binding": {"prefix_mismatch_behavior": "drop_block"},
            }
        },
    ),
    (
        Thinking("manual", 2048, "low"),
        {
            "thinking": {"type": "enabled", "budget_tokens": 2048, "display": "omitted"},
            "output_config": {"effort": "low"},
        },
    ),
]


@pytest.mark.parametrize(("wish", "fields"), THINKING)
def test_thinking_on_the_wire(wish: Thinking, fields: dict[str, Any]) -> None:
    body = body_of(replace(PLAIN, thinking=wish))
    assert {key: body[key] for key in ("thinking", "output_config") if key in body} == fields


BASE_HEADERS = {
    "content-type": "application/json",
    "accept": "text/event-stream",
    "anthropic-version": "2023-06-01",
}
BUDGET = replace(PLAIN, thinking=Thinking("manual", 10_000))
INTERLEAVED = "interleaved-thinking-2025-05-14"
OAUTH = "oauth-2025-04-20"
COUNTS = "thinking-token-count-2026-05-13"
HEADERS: dict[str, tuple[ModelRequest, Endpoint, dict[str, str]]] = {
    "key": (PLAIN, ENDPOINT, {"x-api-key": ENDPOINT.api_key, "anthropic-beta": COUNTS}),
    "no key": (PLAIN, replace(ENDPOINT, api_key=""), {"anthropic-beta": COUNTS}),
    "nothing to count without thinking": (
        replace(PLAIN, thinking=Thinking("off")),
        ENDPOINT,
        {"x-api-key": ENDPOINT.api_key},
    ),
    "counts were refused": (
        replace(PLAIN, thinking_counts=False),
        ENDPOINT,
        {"x-api-key": ENDPOINT.api_key},
    ),
    "a gateway is not asked for counts": (
        PLAIN,
        replace(ENDPOINT, base_url="https://gateway.example"),
        {"x-api-key": ENDPOINT.api_key},
    ),
    "the simulator is": (
        PLAIN,
        replace(ENDPOINT, provider="simulator", base_url="http://127.0.0.1:9"),
        {"x-api-key": ENDPOINT.api_key, "anthropic-beta": COUNTS},
    ),
    "bearer": (
        PLAIN,
        replace(ENDPOINT, bearer=True),
        {"authorization": f"Bearer {ENDPOINT.api_key}", "anthropic-beta": f"{OAUTH},{COUNTS}"},
    ),
    "own headers win, betas are joined": (
        replace(BUDGET, model=lookup("anthropic", "claude-opus-4-5")),
        replace(
            ENDPOINT,
            bearer=True,
            headers={"Anthropic-Version": "2026-10-21", "Anthropic-Beta": f"mine, {OAUTH}", "X-Team": "a"},
        ),
        {
            "authorization": f"Bearer {ENDPOINT.api_key}",
            "anthropic-version": "2026-10-21",
            "anthropic-beta": f"{OAUTH},{INTERLEAVED},{COUNTS},mine",
            "x-team": "a",
        },
    ),
    **{
        f"interleaved {model}": (
            replace(BUDGET, model=lookup("anthropic", model)),
            ENDPOINT,
            {
                "x-api-key": ENDPOINT.api_key,
                "anthropic-beta": f"{INTERLEAVED},{COUNTS}" if needed else COUNTS,
            },
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
    "no tools, nothing to interleave": (
        replace(BUDGET, model=lookup("anthropic", "claude-opus-4-5"), tools=()),
        ENDPOINT,
        {"x-api-key": ENDPOINT.api_key, "anthropic-beta": COUNTS},
    ),
    "thinking that fits no more is dropped": (
        replace(PLAIN, thinking=Thinking("adaptive", drop_mismatched=True)),
        ENDPOINT,
        {"x-api-key": ENDPOINT.api_key, "anthropic-beta": f"thinking-binding-controls-2026-08-01,{COUNTS}"},
    ),
    "adaptive needs no header": (
        replace(PLAIN, model=lookup("anthropic", "claude-sonnet-4-6")),
        ENDPOINT,
        {"x-api-key": ENDPOINT.api_key, "anthropic-beta": COUNTS},
    ),
}


@pytest.mark.parametrize("name", HEADERS)
def test_headers(name: str) -> None:
    request, endpoint, own = HEADERS[name]
    """A-4: token counts are asked for where they are known to be given."""
    assert ADAPTER.encode(request, endpoint).headers == BASE_HEADERS | own


def test_a_base_url_with_path_and_slash() -> None:
    endpoint = replace(ENDPOINT, base_url="https://gateway.example/anthropic/")
    assert ADAPTER.encode(PLAIN, endpoint).url == "https://gateway.example/anthropic/v1/messages"


def test_cache_marks() -> None:
    body = body_of(replace(PLAIN, conversation=loop()))
    assert marks(body) == ["text", "tool", "tool_result", "tool_result"]
    assert marks(body["messages"][0]) == []
    assert "cache_control" in body["messages"][4]["content"][-1]
    assert marks(body_of(replace(PLAIN, system="", tools=()))) == ["text"]


def test_half_a_character_pair_is_replaced_since_services_refuse_it() -> None:
    request = REQUESTS["lone surrogate"]
    sent = bytes(ADAPTER.encode(request, ENDPOINT).body)
    assert json.loads(sent)["messages"][0]["content"][0]["text"] == "half a pair: \ufffd, and \u2028"


def test_secrets_are_not_in_repr() -> None:
    request = ADAPTER.encode(replace(PLAIN, conversation=loop()), ENDPOINT)
    for secret in (ENDPOINT.api_key, "Sig1", "Rd1"):
        assert secret in str(request.headers) + bytes(request.body).decode()
        assert secret not in repr(request)
