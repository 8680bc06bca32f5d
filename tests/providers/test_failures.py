"""Failures of all families: class, retry, sentence, what may be sent instead, and nothing secret in it."""

from __future__ import annotations

import json
import re
import time
from typing import Any

import pytest

from tests.providers.failure_rows import BLOB, EFFORT, EVERYWHERE, FAILURES, OVER, SIGNATURE, Row, chat, told
from tests.providers.families import FAMILIES
from tests.support import chat_samples
from thinklsp.core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    ProviderError,
    RateLimited,
)
from thinklsp.core.text_safety import mask
from thinklsp.http.retry import CallHistory, RetryPolicy, plan_retry
from thinklsp.providers.chat_adapter import OpenAiChatAdapter
from thinklsp.providers.chat_servers import resolve_server
from thinklsp.providers.error_reports import parse_retry_after
from thinklsp.providers.failures import BudgetExceeded, OutputTooLong, RequestRefused

ROWS = [(family, row) for family, rows in FAILURES.items() for row in (*rows, *EVERYWHERE)]


def fail(family: str, status: int, body: Any, headers: dict[str, str] | None = None, model: str = "") -> ProviderError:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    return FAMILIES[family].adapter.parse_failure(status, headers or {}, content, model)


def is_of_kind(error: ProviderError, kind: type[ProviderError] | str) -> bool:
    """A kind that is a word is the remedy of a rejected request."""
    return getattr(error, "remedy", None) == kind if isinstance(kind, str) else type(error) is kind


@pytest.mark.parametrize(("family", "row"), ROWS, ids=[f"{family} {row.id}" for family, row in ROWS])
def test_failures_are_classified(family: str, row: Row) -> None:
    error = fail(family, row.status, row.body, dict(row.headers))
    assert is_of_kind(error, row.kind)
    assert row.contains in str(error)
    assert error.retryable is (row.retry is not False)
    assert error.retry_after == (None if isinstance(row.retry, bool) else row.retry)
    assert getattr(error, "instead", None) == (row.instead or ("unset" if isinstance(error, RequestRefused) else None))
    assert not any(part in str(error) for part in ("<", BLOB, SIGNATURE))


@pytest.mark.parametrize("family", FAMILIES)
def test_limit_that_forbids_a_retry_says_when_it_ends(family: str) -> None:
    for kind, error in (("rate_limit_error", RateLimited), ("billing_error", BudgetExceeded)):
        failure = fail(family, 429, told("No.", kind), {"x-should-retry": "false", "retry-after": "18000"})
        assert type(failure) is error
        plan = plan_retry(RetryPolicy(), failure, history=CallHistory(), has_content=False, jitter=0.5)
        assert plan == "Try again in 5 hours."


def test_budget_that_ends_in_mid_stream() -> None:
    body: dict[str, Any] = {**told(OVER, "budget_exceeded"), "type": "error"}
    for family in ("chat", "openai", "anthropic"):
        with pytest.raises(BudgetExceeded, match="Your budget at this service"):
            FAMILIES[family].samples.run(chat_samples.as_events(body))


IN_STREAM: dict[str, list[tuple[Any, type[ProviderError] | str]]] = {
    "openai": [
        ({"code": "server_error"}, Overloaded),
        ({"code": "server_is_overloaded"}, Overloaded),
        ({"code": "slow_down"}, Overloaded),
        ({"code": "vector_store_timeout"}, Overloaded),
        ({"code": "rate_limit_exceeded"}, RateLimited),
        ({"code": None, "type": "tokens"}, RateLimited),
        ({"code": "insufficient_quota"}, BadRequest),
        ({"type": "authentication_error"}, AuthenticationFailed),
        ({"code": "invalid_prompt"}, BadRequest),
        ({"code": "misalignment_policy_violation"}, BadRequest),
        ({"code": "data_residency_mismatch"}, AuthenticationFailed),
        ({"code": "empty_image_file"}, BadRequest),
        ({"code": 429}, RateLimited),
        ({"code": "401"}, AuthenticationFailed),
        ({"code": 7, "type": "9999"}, Overloaded),
        ({"code": ["x"], "type": True, "message": 5}, Overloaded),
        ({"code": "unsupported_value", "param": EFFORT, "message": "value: 'max'"}, "effort"),
        ({}, Overloaded),
    ],
    "chat": [
        ({"code": 429, "message": "x"}, RateLimited),
        ({"code": "429", "message": "x"}, RateLimited),
        ({"code": "rate_limit_exceeded", "message": "x"}, RateLimited),
        ({"code": None, "type": "rate_limit_error"}, RateLimited),
        ({"code": 401, "message": "x"}, AuthenticationFailed),
        ({"type": "authentication_error"}, AuthenticationFailed),
        ({"type": "invalid_request_error", "message": "x"}, BadRequest),
        ({"type": "BadRequestError", "message": "x"}, BadRequest),
        ({"type": "not_supported_error"}, BadRequest),
        ({"code": 402, "message": "x"}, BadRequest),
        ({"code": 7, "message": "x"}, Overloaded),
        ({"code": "server_error"}, Overloaded),
        ({"code": True, "message": "x"}, Overloaded),
        ("x", Overloaded),
        (["x"], Overloaded),
    ],
}


@pytest.mark.parametrize(
    ("family", "error", "kind"), [(family, *row) for family, rows in IN_STREAM.items() for row in rows]
)
def test_failures_in_mid_stream_are_classified(family: str, error: Any, kind: type[ProviderError] | str) -> None:
    forms = [{"error": error}]
    if family == "openai":
        error = {"message": "x", **error}
        forms = [
            {"type": "error", "error": error},
            {"type": "response.failed", "response": {"error": error}},
            {"object": "response", "status": "failed", "error": error},
            *([] if "type" in error else [error | {"type": "error"}]),
        ]
    for form in forms:
        with pytest.raises(ProviderError) as caught:
            FAMILIES[family].samples.run(FAMILIES[family].samples.as_events(form))
        assert is_of_kind(caught.value, kind), form
        assert caught.value.retryable is (kind in (Overloaded, RateLimited))


BY_WORDS = (ContextWindowExceeded, OutputTooLong)
MIDWAY = [
    row
    for row in FAILURES["chat"]
    if (isinstance(row.kind, str) or row.kind in BY_WORDS) and isinstance(row.body, dict)
]


@pytest.mark.parametrize("row", MIDWAY, ids=lambda row: row.id)
def test_the_same_words_mean_the_same_in_mid_stream(row: Row) -> None:
    body = row.body if {"error", "object"} & row.body.keys() else {"error": row.body}
    with pytest.raises(ProviderError, match=re.escape(row.contains)) as caught:
        chat_samples.run(chat_samples.as_events(body))
    assert is_of_kind(caught.value, row.kind)


@pytest.mark.parametrize(
    ("status", "message", "loading"),
    [
        (503, "Loading model", True),
        (503, "Model qwen3 is currently loading", True),
        (503, "The model is still being loaded, try again", True),
        (503, "Service unavailable", False),
        (400, "Loading model", False),
    ],
)
def test_a_server_that_loads_its_model_is_worth_waiting_for(status: int, message: str, loading: bool) -> None:
    error = fail("chat", status, chat(message))
    assert (getattr(error, "loading", False), error.retry_after) == (loading, 10.0 if loading else None)


@pytest.mark.parametrize("kind", ["ollama", "llama.cpp"])
def test_only_ollama_is_said_to_fetch_a_model(kind: str) -> None:
    """The router of llama.cpp uses the same words."""
    adapter = OpenAiChatAdapter(resolve_server("http://localhost:1/v1", kind=kind, echo=None, think_tags=False))
    body = json.dumps(chat("model 'qwen9:32b' not found", type="not_found_error")).encode()
    sentence = str(adapter.parse_failure(404, {}, body))
    assert ("ollama pull qwen9:32b" in sentence) is ("ollama" in sentence) is (kind == "ollama")


NOW = {"date": "Fri, 20 Nov 2026 10:00:00 GMT"}


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "30"}, 30),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "1.5"}, 1.5),
        ({"retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 1.5),
        ({"retry-after-ms": "soon", "retry-after": "9"}, 9),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": ""}, None),
        ({"retry-after": "Fri, 20 Nov 2026 10:01:30 GMT", **NOW}, 90),
        ({"retry-after": "Fri, 20 Nov 2026 09:59:00 GMT", **NOW}, None),
        ({"retry-after": "Fri, 20 Nov 2026 10:01:30 GMT"}, None),
        ({"retry-after": "Fri, 20 Nov 2026 10:01:30 GMT", "date": "yesterday"}, None),
        ({"retry-after": "Fri, 20 Nov 2026 10:01:30", **NOW}, None),
        ({"retry-after": "Fri, 99 Nov 2026 10:01:30 GMT", **NOW}, None),
    ],
)
def test_retry_after_becomes_seconds(headers: dict[str, str], seconds: float | None) -> None:
    assert parse_retry_after(headers) == seconds


SECRETS = [
    "sk-ant-api03-abcdefgh-ijkl",
    "sk-proj-abcdefgh-ijkl",
    "sk-proj_ABCDEFGH12345678",
    "AIzaSyA1234567890abcdefgh",
    "Bearer abc.def.ghi",
    "bearer  tokentokentoken",
    "0123456789abcdef0123456789abcdef",
    SIGNATURE,
    SIGNATURE.replace("+", "-").replace("/", "_"),
    "x" * 200 + "Y" + "z" * 6000,
]


@pytest.mark.parametrize("secret", SECRETS)
@pytest.mark.parametrize("family", FAMILIES)
def test_secrets_in_messages_are_masked(family: str, secret: str) -> None:
    key = secret.rpartition(" ")[2]
    for body in (json.dumps({"error": {"message": f"bad: {secret} here"}}), f"bad: {secret} here"):
        error = str(fail(family, 400, body.encode()))
        assert "[hidden]" in error
        assert not any(key[i : i + 12] in error for i in range(max(1, len(key) - 12)))
    assert key not in str(fail(family, 404, {"error": {"message": f'model "{secret}" not found'}}))


@pytest.mark.parametrize("model", ["accounts/deepseekV3instruct20250101", "MixedCaseModel20250101Distilled70B"])
def test_the_model_that_was_asked_for_is_never_masked(model: str) -> None:
    error = str(fail("anthropic", 400, {"error": {"message": f"no model={model} but {SIGNATURE}"}}, model=model))
    assert model in error
    assert SIGNATURE[:24] not in error
    assert mask(model) == "[hidden]" or "/" in model


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    "words",
    [
        "Item 'rs_1' of type 'reasoning' was provided without its required following item.",
        "Invalid thought signature.",
        "messages.1.content.0.type: Expected `thinking` or `redacted_thinking`, but found `text`",
        "The encrypted content gAAA could not be verified.",
        "Function call is missing a thought_signature in functionCall parts.",
        "The `reasoning_content` in the thinking mode must be passed back to the API.",
    ],
)
def test_every_family_knows_all_refusals_of_thinking(words: str, family: str) -> None:
    """A gateway hands on what the service behind it says."""
    error = fail(family, 400, {"error": {"message": words, "type": "invalid_request_error"}})
    assert is_of_kind(error, "bare")


@pytest.mark.parametrize("family", ["anthropic", "openai", "chat"])
def test_a_refused_cache_hint_is_recognized(family: str) -> None:
    words = "litellm.UnsupportedParamsError: gemini does not support parameters: ['prompt_cache_key']"
    assert is_of_kind(fail(family, 400, {"error": {"message": words}}), "cache")


@pytest.mark.timing
@pytest.mark.parametrize("word", ["x", "messages ", "model ", "blocks thinking blocks ", "unknown parameter "])
def test_long_text_is_classified_quickly(word: str) -> None:
    began = time.process_time()
    fail("chat", 400, {"error": {"message": word * 20_000}})
    assert time.process_time() - began < 0.1
