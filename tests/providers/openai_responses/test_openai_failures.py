"""Failures of the Responses API: class, retry, sentence, what may be sent instead, and nothing secret in it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.openai_cases import as_events, run
from thinklsp.core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    ProviderError,
    RateLimited,
)
from thinklsp.providers.openai_responses.adapter import OpenAiResponsesAdapter
from thinklsp.providers.service_errors import CompactionRefused, EffortRefused, ThinkingFormRefused, ThinkingRejected


@dataclass(frozen=True)
class Case:
    """`instead`: the form of thinking that may pass."""

    id: str
    status: int
    body: Any
    kind: type[ProviderError]
    contains: str
    retryable: bool
    retry_after: float | None = None
    headers: dict[str, str] = field(default_factory=dict)
    instead: str | None = None


def envelope(
    message: str, code: str | None = None, param: str | None = None, kind: str = "invalid_request_error"
) -> Any:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


LONG = "Your input exceeds the context window of this model. Please adjust your input and try again."
BLOB = "gAAAAABpQwErTyUiOpAsDfGhJkLzXcVbNm1234567890=="
GONE = (
    "Item with id 'rs_68a1' not found. Items are not persisted when `store` is set to false. Try again with `store` "
    "set to true, or remove this item from your input."
)
VERIFY = (
    "Your organization must be verified to generate reasoning summaries. Please go to: "
    "https://platform.openai.com/settings/organization/general and click on Verify Organization."
)
QUOTA = "You exceeded your current quota, please check your plan and billing details."
NO_EFFORT = "Unsupported parameter: 'reasoning.effort' is not supported with this model."
EFFORT = "reasoning.effort"
NO_COMPACTION = "Unsupported parameter: 'context_management' is not supported with this model."
CASES = [
    Case(
        "401",
        401,
        envelope("Incorrect API key provided", "invalid_api_key"),
        AuthenticationFailed,
        "check where",
        False,
    ),
    Case("403", 403, envelope("Country not supported"), AuthenticationFailed, "not allowed", False),
    Case("404", 404, envelope("The model 'gpt-x' does not exist", "model_not_found"), BadRequest, "gpt-x", False),
    Case("400", 400, envelope("Invalid 'tools'"), BadRequest, "Invalid 'tools'", False),
    Case("409", 409, envelope("busy"), Overloaded, "busy", True),
    Case("422", 422, {"detail": "body.input: field required"}, BadRequest, "field required", False),
    Case("422 with a list", 422, {"detail": [{"loc": ["body"], "msg": "x"}]}, BadRequest, "(422)", False),
    Case("413", 413, b"<html>Too large</html>", ContextWindowExceeded, "compact", False),
    Case("too long by code", 400, envelope("x", "context_length_exceeded"), ContextWindowExceeded, "compact", False),
    Case("too long by words", 400, envelope(LONG), ContextWindowExceeded, "compact", False),
    Case(
        "too long for a local server",
        400,
        {"error": {"code": 400, "message": "the request exceeds the available context size", "type": "x"}},
        ContextWindowExceeded,
        "compact",
        False,
    ),
    Case(
        "no credit", 429, envelope(QUOTA, "insufficient_quota", kind="insufficient_quota"), BadRequest, "credit", False
    ),
    Case("no credit by type", 429, envelope(QUOTA, None, kind="insufficient_quota"), BadRequest, "add credit", False),
    Case("hard limit", 400, envelope("x", "billing_hard_limit_reached"), RateLimited, "spend limit", False),
    Case(
        "429", 429, envelope("Rate limit reached", "rate_limit_exceeded", kind="tokens"), RateLimited, "reached", True
    ),
    Case(
        "429 tells a time in words",
        429,
        envelope("Rate limit reached for gpt-6-sol. Please try again in 250ms.", "rate_limit_exceeded"),
        RateLimited,
        "rate limit",
        True,
        0.25,
    ),
    Case(
        "429 tells a time by header",
        429,
        envelope("Please try again in 20s.", "rate_limit_exceeded"),
        RateLimited,
        "rate limit",
        True,
        1.5,
        {"retry-after-ms": "1500", "retry-after": "9"},
    ),
    Case(
        "429 that no time heals",
        429,
        envelope(
            "Request too large for gpt-6-sol on tokens per min (TPM): Limit 1, Requested 2.", "rate_limit_exceeded"
        ),
        RateLimited,
        "request alone",
        False,
    ),
    Case("500", 500, envelope("The server had an error", "server_error"), Overloaded, "problem of its own", True),
    Case("502 HTML", 502, b"<!DOCTYPE html><b>Bad gateway</b>", Overloaded, "(502)", True),
    Case("503 text", 503, b"upstream down", Overloaded, "upstream down", True),
    Case("bare string", 400, {"error": "boom"}, BadRequest, "boom", False),
    Case("flat", 400, {"object": "error", "message": "boom", "code": 400}, BadRequest, "boom", False),
    Case("no body", 418, b"", BadRequest, "(418)", False),
    Case("broken JSON", 400, b'{"error": {"message": "cut', BadRequest, "(400)", False),
    Case(
        "odd shapes", 400, {"error": {"type": 1, "message": ["a"], "param": 7, "code": {}}}, BadRequest, "(400)", False
    ),
    Case("told to retry", 400, envelope("x"), BadRequest, "x", True, None, {"x-should-retry": "true"}),
    Case("told not to", 500, envelope("x"), Overloaded, "x", False, None, {"x-should-retry": "false"}),
    *(
        Case(f"thinking: {message[:24]}", status, envelope(message, code, "input"), ThinkingRejected, "earlier", False)
        for status, message, code in (
            (400, f"The encrypted content {BLOB} could not be verified.", "invalid_encrypted_content"),
            (400, "The encrypted content for item rs_1 could not be verified. Reason: could not be parsed.", None),
            (400, "Item 'rs_1' of type 'reasoning' was provided without its required following item.", None),
            (400, "Item 'msg_1' of type 'message' was provided without its required 'reasoning' item: 'rs_1'.", None),
            (404, GONE, None),
            (400, GONE, None),
        )
    ),
    Case("no output", 400, envelope("No tool output found for function call call_1."), BadRequest, "call_1", False),
    *(
        Case(f"effort: {message[:30]}", 400, envelope(message, code, param), EffortRefused, "change `effort`", False)
        for message, code, param in (
            (
                "Unsupported value: 'xhigh' is not supported with the 'gpt-5' model. Supported: 'none', 'low'.",
                "unsupported_value",
                EFFORT,
            ),
            (
                "Unsupported value: 'reasoning.effort' does not support 'max' with this model.",
                "unsupported_value",
                None,
            ),
            ("Invalid value: 'max'. Supported values are: 'low' and 'high'.", "invalid_value", EFFORT),
        )
    ),
    *(
        Case(
            f"off: {message[:34]}",
            400,
            envelope(message, "unsupported_value", EFFORT),
            ThinkingFormRefused,
            "cannot stop thinking",
            False,
            instead="adaptive",
        )
        for message in (
            "Unsupported value: 'none' is not supported with the 'gpt-6-astra' model. Supported values are: 'low'.",
            "Unsupported value: 'reasoning.effort' does not support 'none' with this model.",
        )
    ),
    *(
        Case(
            f"no thinking: {message[:30]} {code}",
            400,
            envelope(message, code, param),
            ThinkingFormRefused,
            "does not take thinking",
            False,
            instead="unset",
        )
        for message, code, param in (
            (NO_EFFORT, "unsupported_parameter", EFFORT),
            (NO_EFFORT, None, None),
            ("Unsupported parameter: 'reasoning' is not supported with this model.", None, "reasoning"),
            ("Encrypted content is not supported with this model.", None, "include"),
        )
    ),
    *(
        Case(f"shortening: {code}", 400, envelope(message, code, param), CompactionRefused, "compaction.by", False)
        for message, code, param in (
            (NO_COMPACTION, "unsupported_parameter", "context_management"),
            (NO_COMPACTION, None, None),
            ("Must be below the context window.", "invalid_value", "context_management[0].compact_threshold"),
        )
    ),
    Case(
        "summaries",
        400,
        envelope(VERIFY, "unsupported_value", "reasoning.summary"),
        BadRequest,
        "thinking.display",
        False,
    ),
    Case("summaries by words", 400, envelope(VERIFY), BadRequest, "thinking.display", False),
    Case(
        "streams",
        400,
        envelope("Your organization must be verified to stream this model.", None, "stream"),
        BadRequest,
        "must be verified to stream",
        False,
    ),
]


def failure(case: Case) -> ProviderError:
    body = case.body if isinstance(case.body, bytes) else json.dumps(case.body).encode()
    return OpenAiResponsesAdapter().failure(case.status, case.headers, body)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_failure(case: Case) -> None:
    error = failure(case)
    assert type(error) is case.kind
    assert case.contains in str(error)
    assert (error.retryable, error.retry_after) == (case.retryable, case.retry_after)
    assert getattr(error, "instead", None) == case.instead
    assert "<" not in str(error)
    assert BLOB not in str(error)


IN_STREAM: dict[str, tuple[Any, type[ProviderError], bool]] = {
    "server_error": ({"code": "server_error"}, Overloaded, True),
    "overloaded": ({"code": "server_is_overloaded"}, Overloaded, True),
    "slow_down": ({"code": "slow_down"}, Overloaded, True),
    "timeout": ({"code": "vector_store_timeout"}, Overloaded, True),
    "rate limit": ({"code": "rate_limit_exceeded"}, RateLimited, True),
    "rate limit by type": ({"code": None, "type": "tokens"}, RateLimited, True),
    "quota": ({"code": "insufficient_quota"}, BadRequest, False),
    "key": ({"type": "authentication_error"}, AuthenticationFailed, False),
    "prompt": ({"code": "invalid_prompt"}, BadRequest, False),
    "policy": ({"code": "misalignment_policy_violation"}, BadRequest, False),
    "residency": ({"code": "data_residency_mismatch"}, AuthenticationFailed, False),
    "image": ({"code": "empty_image_file"}, BadRequest, False),
    "number": ({"code": 429}, RateLimited, True),
    "number as text": ({"code": "401"}, AuthenticationFailed, False),
    "no status": ({"code": 7, "type": "9999"}, Overloaded, True),
    "odd": ({"code": ["x"], "type": True, "message": 5}, Overloaded, True),
    "effort": ({"code": "unsupported_value", "param": EFFORT, "message": "value: 'max'"}, EffortRefused, False),
    "nothing": ({}, Overloaded, True),
}


@pytest.mark.parametrize("name", IN_STREAM)
def test_failure_in_mid_stream(name: str) -> None:
    told, kind, retryable = IN_STREAM[name]
    forms = (
        {"message": "x", **told, "type": "error"} if "type" not in told else None,
        {"type": "error", "error": {"message": "x", **told}},
        {"type": "response.failed", "response": {"error": {"message": "x", **told}}},
        {"object": "response", "status": "failed", "error": {"message": "x", **told}},
    )
    for form in filter(None, forms):
        with pytest.raises(ProviderError) as caught:
            run(as_events(form))
        assert type(caught.value) is kind, form
        assert caught.value.retryable is retryable


@pytest.mark.parametrize("secret", ["sk-proj-abcdefgh-ijkl", "Bearer abc.def.ghi", BLOB])
def test_secrets_in_messages_are_masked(secret: str) -> None:
    for body in (envelope(f"bad: {secret} here"), f"bad: {secret} here"):
        content = body.encode() if isinstance(body, str) else json.dumps(body).encode()
        error = OpenAiResponsesAdapter().failure(400, {}, content)
        assert "[hidden]" in str(error)
        assert secret not in str(error)
