"""HTTP failures of generateContent: class, retry, sentence, and nothing secret in it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

import pytest

from thinklsp.core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    ProviderError,
    RateLimited,
)
from thinklsp.providers.base import ThinkingForm
from thinklsp.providers.google.adapter import GoogleAdapter
from thinklsp.providers.service_errors import EffortRefused, ThinkingFormRefused, ThinkingRejected


@dataclass(frozen=True)
class Case:
    id: str
    status: int
    body: Any
    kind: type[ProviderError]
    contains: str
    retryable: bool = False
    retry_after: float | None = None
    headers: dict[str, str] = field(default_factory=dict)


def said(message: str, status: str = "INVALID_ARGUMENT", *details: Any) -> dict[str, Any]:
    error = {"code": 0, "message": message, "status": status}
    return {"error": error | ({"details": list(details)} if details else {})}


RPC = "type.googleapis.com/google.rpc."
BAD_KEY = {"@type": f"{RPC}ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}


def quota(limit: str) -> dict[str, Any]:
    return {"@type": f"{RPC}QuotaFailure", "violations": [{"quotaId": limit, "quotaValue": "250"}]}


MINUTE = quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier")
DAY = quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier")
EXHAUSTED = "You exceeded your current quota, please check your plan and billing details."
MISSING = (
    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, "
    "and missing thought_signature may lead to degraded model performance. Additional data, function call "
    "`default_api:read_file` , position 2. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures"
)
SIGNATURE = "EqQBCkYICxgCKkDcan4ryQzJ1+xy/9Z=="


def wait(delay: Any) -> dict[str, Any]:
    return {"@type": f"{RPC}RetryInfo", "retryDelay": delay}


def limited(*details: Any) -> dict[str, Any]:
    return said(EXHAUSTED, "RESOURCE_EXHAUSTED", *details)


CASES = [
    Case("key by reason", 400, said("no", "INVALID_ARGUMENT", BAD_KEY), AuthenticationFailed, "where the key comes"),
    Case("key by words", 400, said("API key not valid. Please pass a valid API key."), AuthenticationFailed, "(400)"),
    Case("key expired", 400, said("API key expired. Please renew the API key."), AuthenticationFailed, "renew"),
    Case("401", 401, said("no", "UNAUTHENTICATED"), AuthenticationFailed, "refused the API key (401)"),
    Case("403", 403, said("leaked", "PERMISSION_DENIED"), AuthenticationFailed, "not allowed"),
    Case(
        "404",
        404,
        said("models/gemini-9 is not found for API version v1beta", "NOT_FOUND"),
        BadRequest,
        "models/gemini-9",
    ),
    Case(
        "no tools",
        400,
        said("Function calling is not enabled for models/gemini-2.5-flash-image"),
        BadRequest,
        "gemini-2.5-flash-image cannot call tools, which thinklsp needs: choose another with `model`. The service says",
    ),
    Case(
        "no tools, no name", 400, said("Function calling is not supported."), BadRequest, "This model cannot call tools"
    ),
    Case("400", 400, said("* GenerateContentRequest.contents: empty"), BadRequest, "contents: empty"),
    Case(
        "precondition",
        400,
        said("User location is not supported for the API use.", "FAILED_PRECONDITION"),
        BadRequest,
        "User location",
    ),
    Case(
        "too long",
        400,
        said("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
        ContextWindowExceeded,
        "compact",
    ),
    Case("too large", 400, said("Request payload size exceeds the limit: 1 bytes."), ContextWindowExceeded, "compact"),
    Case("413 of a proxy", 413, b"<html>Too large</html>", ContextWindowExceeded, "compact"),
    Case("signature missing", 400, said(MISSING), ThinkingRejected, "earlier thinking"),
    Case(
        "signature missing, in ticks",
        400,
        said("Function call `x` in the `1.` content block is missing a `thought_signature`."),
        ThinkingRejected,
        "earlier thinking",
    ),
    Case("signature invalid", 400, said("Invalid thought signature"), ThinkingRejected, "earlier thinking"),
    Case("signature corrupted", 400, said("Corrupted thought signature."), ThinkingRejected, "earlier thinking"),
    Case(
        "signature no base64",
        400,
        said(f"Invalid value at 'contents[1].parts[0].thought_signature' (TYPE_BYTES), \"{SIGNATURE}\""),
        ThinkingRejected,
        "earlier thinking",
    ),
    Case("token expired", 400, said("The continuation token is expired."), ThinkingRejected, "earlier thinking"),
    Case(
        "level",
        400,
        said("Thinking level MINIMAL is not supported for this model. Please retry with other thinking level."),
        EffortRefused,
        "MINIMAL",
    ),
    Case(
        "level unknown to the route",
        400,
        said("Invalid JSON payload received. Unknown name \"thinkingLevel\" at 'generation_config.thinking_config'"),
        EffortRefused,
        "setting effort",
    ),
    Case("429", 429, limited(), RateLimited, "rate limit", True),
    Case("429 with a time", 429, limited(MINUTE, wait("17s")), RateLimited, "quota", True, 17.0),
    Case("429 with a fraction", 429, limited(wait("34.074824224s")), RateLimited, "quota", True, 34.074824224),
    # The wait that is told beside it is that of the limit of the minute.
    Case("429 of the day", 429, limited(DAY, wait("17s")), RateLimited, "quota of the day for this model is used up"),
    Case("429 of day and minute", 429, limited(MINUTE, DAY, wait("17s")), RateLimited, "wait until tomorrow"),
    Case("429 of the day in a list", 429, [limited(DAY)], RateLimited, "choose another model"),
    Case("429 with nonsense", 429, limited(wait("soon"), wait(None), "x"), RateLimited, "quota", True),
    Case("429 header", 429, limited(), RateLimited, "quota", True, 9.0, {"retry-after": "9"}),
    Case("429 both", 429, limited(wait("0s")), RateLimited, "quota", True, 0.0, {"retry-after": "9"}),
    Case("499", 499, said("The operation was cancelled.", "CANCELLED"), Overloaded, "cancelled", True),
    Case("500", 500, said("An internal error has occurred.", "INTERNAL"), Overloaded, "problem of its own", True),
    Case("503", 503, said("The model is overloaded.", "UNAVAILABLE", wait("3s")), Overloaded, "(503)", True, 3.0),
    Case("504", 504, said("Deadline expired.", "DEADLINE_EXCEEDED"), Overloaded, "Deadline", True),
    Case("in a list", 503, [said("Busy.", "UNAVAILABLE", wait("3s"))], Overloaded, "Busy.", True, 3.0),
    Case("empty list", 503, [], Overloaded, "(503)", True),
    Case("502 HTML", 502, b"<!DOCTYPE html><b>Bad gateway</b>", Overloaded, "(502)", True),
    Case("503 text", 503, b"upstream down", Overloaded, "upstream down", True),
    Case("bare string", 400, {"error": "boom"}, BadRequest, "boom"),
    Case("no body", 418, b"", BadRequest, "(418)"),
    Case("broken JSON", 400, b'[{"error": {"message": "cut', BadRequest, "(400)"),
    Case("204", 204, b"", BadRequest, "check the base URL"),
    Case("odd shapes", 400, {"error": {"code": "x", "message": ["a"], "details": {"a": 1}}}, BadRequest, "(400)"),
]


def failure(status: int, body: Any, headers: dict[str, str] | None = None) -> ProviderError:
    return GoogleAdapter().failure(
        status, headers or {}, body if isinstance(body, bytes) else json.dumps(body).encode()
    )


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_failure(case: Case) -> None:
    error = failure(case.status, case.body, case.headers)
    assert type(error) is case.kind
    assert case.contains in str(error)
    assert (error.retryable, error.retry_after) == (case.retryable, case.retry_after)
    assert "<" not in str(error)
    assert SIGNATURE not in str(error)


FORMS: dict[str, ThinkingForm] = {
    "Budget 0 is invalid. This model only works in thinking mode.": "adaptive",
    "The thinking budget 50000 is invalid. Please choose a value between 128 and 32768.": "adaptive",
    "thinking_budget is out of range; supported values are integers from 512 to 24576.": "adaptive",
    "Thinking is not enabled for this model": "unset",
    "Thinking_config.include_thoughts is only enabled when thinking is enabled.": "unset",
}


@pytest.mark.parametrize("message", FORMS)
def test_a_refused_form_of_thinking_says_what_may_pass_instead(message: str) -> None:
    error = failure(400, said(message))
    assert isinstance(error, ThinkingFormRefused)
    assert error.instead == FORMS[message]
    assert "thinking.mode" in str(error)


@pytest.mark.parametrize("secret", ["AIzaSyA1234567890abcdefgh", "ya29.Bearer abc", SIGNATURE])
def test_secrets_in_messages_are_masked(secret: str) -> None:
    for body in (said(f"bad: Bearer {secret} here"), f"bad: Bearer {secret} here".encode()):
        assert "[hidden]" in str(failure(400, body))
        assert secret.split(maxsplit=1)[0] not in str(failure(400, body))
