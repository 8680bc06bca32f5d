"""The simulator refuses what the service refuses, in its words; what each model takes is a table."""

from __future__ import annotations

import json
from typing import Any

import pytest
from simulator_refusals import ADAPTIVE, BETWEEN, CACHE, CALL, MANUAL, OFF, REFUSALS, RESULT, TEXT, USER, Refusal, said

from tests.support.simulator_talk import HEADERS, TOOLS, Talk, request
from thinklsp.simulator.dialect import Received, Whole

# One row per model: thinking unasked, adaptive, manual, disabled, effort levels, forced tools without manual thinking.
MODELS = {
    "claude-fable-5": (True, True, False, False, "low medium high xhigh max", True),
    "claude-mythos-5": (True, True, False, False, "low medium high xhigh max", True),
    "claude-fable-5-1": (True, True, False, False, "low medium high xhigh max", False),
    "claude-fable-5-2": (True, True, False, False, "low medium high xhigh max", False),
    "claude-mythos-5-1": (True, True, False, False, "low medium high xhigh max", False),
    "claude-mythos-5-2": (True, True, False, False, "low medium high xhigh max", False),
    "claude-mythos-preview": (True, True, True, False, "", True),
    "claude-opus-5-5": (True, True, False, False, "low medium high xhigh max", False),
    "claude-opus-5": (True, True, False, True, "low medium high xhigh max", True),
    "claude-opus-4-8": (False, True, False, True, "low medium high xhigh max", True),
    "claude-opus-4-7": (False, True, False, True, "low medium high xhigh max", True),
    "claude-sonnet-5-5": (True, True, False, False, "low medium high xhigh max", False),
    "claude-sonnet-5": (True, True, False, True, "low medium high xhigh max", True),
    "claude-haiku-5-5": (True, True, False, True, "low medium high xhigh max", True),
    "claude-opus-4-6": (False, True, True, True, "low medium high max", True),
    "claude-sonnet-4-6": (False, True, True, True, "low medium high max", True),
    "claude-opus-4-5": (False, False, True, True, "low medium high", True),
    "claude-opus-4-5-20251101": (False, False, True, True, "low medium high", True),
    "claude-sonnet-4-5": (False, False, True, True, "", True),
    "claude-sonnet-4-5-20250929": (False, False, True, True, "", True),
    "claude-haiku-4-5": (False, False, True, True, "", True),
    "claude-haiku-4-5-20251001": (False, False, True, True, "", True),
}


@pytest.mark.parametrize("model", MODELS)
def test_each_model_takes_what_its_row_says_and_says_so(model: str) -> None:
    unasked, adaptive, manual, disabled, efforts, forced = MODELS[model]
    talk = Talk()

    def status(**changes: Any) -> int:
        return talk.ask(request("plain", model, **changes))[0]

    kinds = [block["type"] for block in talk.good(request("plain", model))["content"]]
    assert ("thinking" in kinds) is unasked
    assert status(thinking=ADAPTIVE) == (200 if adaptive else 400)
    assert status(thinking=MANUAL) == (200 if manual else 400)
    assert status(thinking=OFF) == (200 if disabled else 400)
    assert status(thinking=BETWEEN) == (200 if model == "claude-sonnet-5-5" else 400)
    for choice in ({"type": "any"}, {"type": "tool", "name": "read_file"}):
        assert status(tool_choice=choice) == (200 if forced else 400)
        if manual:
            assert status(tool_choice=choice, thinking=MANUAL) == 400
    for effort in ("low", "medium", "high", "xhigh", "max"):
        assert status(output_config={"effort": effort}) == (200 if effort in efforts.split() else 400)
    reply = talk.reply(b"", path=f"/v1/models/{model}", method="GET")
    assert isinstance(reply, Whole)
    told = json.loads(reply.body)["capabilities"]
    types = {name: flag["supported"] for name, flag in told["thinking"]["types"].items()}
    between = model == "claude-sonnet-5-5"
    assert types == {"adaptive": adaptive, "enabled": manual, "disabled": disabled, "between_tools": between}
    levels = {name for name, flag in told["effort"].items() if name != "supported" and flag["supported"]}
    assert levels == set(efforts.split())


@pytest.mark.parametrize("case", REFUSALS, ids=lambda case: case.id)
def test_refused(case: Refusal) -> None:
    message = Talk().refused(request("plain", case.model, **case.changes), **case.headers)
    if case.whole:
        assert message == case.message
    else:
        assert case.message in message


ACCEPTED = [
    ("defaults", "claude-opus-4-8", {"temperature": 1, "top_p": None}, {}),
    ("sampling-4-6", "claude-opus-4-6", {"temperature": 0.2, "top_k": 5}, {}),
    ("prefill-4-5", "claude-sonnet-4-5", {"messages": said("plain", "Sure,")}, {}),
    (
        "budget-over-max-tokens",
        "claude-opus-4-5",
        {"thinking": {"type": "enabled", "budget_tokens": 20000}},
        {"anthropic_beta": "interleaved-thinking-2025-05-14"},
    ),
    ("off-high", "claude-opus-5", {"thinking": OFF, "output_config": {"effort": "high"}}, {}),
    ("off-max-sonnet-5", "claude-sonnet-5", {"thinking": OFF, "output_config": {"effort": "max"}}, {}),
    (
        "beta-key",
        "claude-opus-5",
        {"context_management": {"edits": []}},
        {"anthropic_beta": "context-management-2025-06-27"},
    ),
    ("four-breakpoints", "claude-opus-5", {"tools": [{**t, **CACHE} for t in TOOLS], **CACHE}, {}),
    ("text-after-result", "claude-opus-5", {"messages": said("loop", [CALL], [RESULT, TEXT])}, {}),
    ("oauth", "claude-opus-5", {}, {"x_api_key": "", "authorization": "Bearer token"}),
    (
        "own-effort",
        "claude-opus-5-5",
        {"messages": [USER, {"role": "system", "content": [], "output_config": {"effort": "low"}}, USER]},
        {"anthropic_beta": "mid-conversation-output-config-2026-07-01"},
    ),
    ("newest", "claude-opus-5-5", {}, {"anthropic_version": "2026-10-21"}),
]


@pytest.mark.parametrize(("model", "changes", "headers"), [case[1:] for case in ACCEPTED], ids=[c[0] for c in ACCEPTED])
def test_accepted(model: str, changes: dict[str, Any], headers: dict[str, str]) -> None:
    Talk().good(request("plain", model, **changes), **headers)


@pytest.mark.parametrize(
    ("headers", "path", "body", "status", "kind", "message"),
    [
        ({"x_api_key": ""}, "/v1/messages", request(), 401, "authentication_error", "x-api-key"),
        ({"x_api_key": "", "authorization": "Basic x"}, "/v1/messages", request(), 401, "authentication_error", ""),
        ({}, "/v1/messages", request(model="claude-9"), 404, "not_found_error", "model: claude-9"),
        ({}, "/v1/other", request(), 404, "not_found_error", ""),
        ({}, "/v1/messages", b"{", 400, "invalid_request_error", "not valid JSON"),
        ({}, "/v1/messages", b'{"x":' + 900 * b"[" + 900 * b"]" + b"}", 400, "invalid_request_error", ""),
        ({}, "/v1/messages", b"[]", 400, "invalid_request_error", "JSON object"),
        ({}, "/v1/messages", {"model": "claude-opus-5"}, 400, "invalid_request_error", "max_tokens: Field required"),
        (
            {},
            "/v1/messages/count_tokens",
            request(),
            400,
            "invalid_request_error",
            "max_tokens: Extra inputs are not permitted",
        ),
    ],
)
def test_refused_before_the_body_counts(
    headers: dict[str, str], path: str, body: Any, status: int, kind: str, message: str
) -> None:
    answered, error = Talk().ask(body, path=path, **headers)
    assert (answered, error["error"]["type"]) == (status, kind)
    assert message in error["error"]["message"]


def test_a_missing_version_is_refused() -> None:
    headers = {name: value for name, value in HEADERS.items() if name != "anthropic-version"}
    reply = Talk().dialect.reply(Received("POST", "/v1/messages", "", headers, json.dumps(request()).encode()))
    assert isinstance(reply, Whole)
    assert reply.status == 400
    assert "anthropic-version: header is required" in reply.body.decode()
