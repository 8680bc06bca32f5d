"""HTTP failures of the Messages API: class, retry, sentence, and nothing secret in it."""

from __future__ import annotations

import json
from base64 import b64encode
from dataclasses import dataclass, field
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from thinklsp.core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    ProviderError,
    RateLimited,
)
from thinklsp.providers.anthropic.adapter import AnthropicAdapter
from thinklsp.providers.google.adapter import GoogleAdapter
from thinklsp.providers.openai_chat.adapter import OpenAiChatAdapter
from thinklsp.providers.openai_chat.servers import server_for
from thinklsp.providers.openai_responses.adapter import OpenAiResponsesAdapter
from thinklsp.providers.service_errors import (
    CacheHintRefused,
    EffortRefused,
    ThinkingFormRefused,
    ThinkingRejected,
    excerpt,
    mask,
    retry_after,
)


@dataclass(frozen=True)
class Case:
    id: str
    status: int
    body: Any
    kind: type[ProviderError]
    contains: str
    retryable: bool
    retry_after: float | None = None
    headers: dict[str, str] = field(default_factory=dict)


def envelope(kind: str, message: str, **details: str) -> dict[str, Any]:
    error: dict[str, Any] = {"type": kind, "message": message}
    return {"type": "error", "error": {**error, **({"details": details} if details else {})}, "request_id": "req_1"}


INVALID = "invalid_request_error"
SPEND = {"error_code": "enforced_spend_limit_reached"}
PREFIX = (
    "messages.1.content.0: Invalid `signature` in `thinking` block. The block is bound to a different conversation."
)
CASES = [
    Case("401", 401, envelope("authentication_error", "invalid x-api-key"), AuthenticationFailed, "check where", False),
    Case("403", 403, envelope("permission_error", "no access"), AuthenticationFailed, "not allowed", False),
    Case("402", 402, envelope("billing_error", "pay"), BadRequest, "no credit", False),
    Case("404", 404, envelope("not_found_error", "model: claude-x"), BadRequest, "model: claude-x", False),
    Case("409", 409, envelope("conflict_error", "busy"), Overloaded, "busy", True),
    Case("408", 408, "", Overloaded, "408", True),
    Case("400", 400, envelope(INVALID, "max_tokens: too large"), BadRequest, "max_tokens: too large", False),
    Case("422", 422, {"error": {"message": "no"}}, BadRequest, "(422)", False),
    Case("too long", 400, envelope(INVALID, "prompt is too long: 1 > 0"), ContextWindowExceeded, "compact", False),
    Case("too long, shouted", 400, envelope(INVALID, "PROMPT IS TOO LONG"), ContextWindowExceeded, "compact", False),
    Case(
        "no room for the answer",
        400,
        envelope(INVALID, "input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000"),
        ContextWindowExceeded,
        "compact",
        False,
    ),
    Case("no credit", 400, envelope(INVALID, "Your credit balance is too low"), BadRequest, "add credit", False),
    Case(
        "spend limit 400",
        400,
        envelope(INVALID, "You have reached your specified API usage limits. Wait."),
        RateLimited,
        "spend limit",
        False,
    ),
    Case("prefix", 400, envelope(INVALID, PREFIX), ThinkingRejected, "earlier thinking", False),
    Case(
        "signature",
        400,
        envelope(INVALID, "messages.1.content.0: Invalid `signature` in `thinking` block"),
        ThinkingRejected,
        "earlier thinking",
        False,
    ),
    *(
        Case(f"effort, {words}", 400, envelope(INVALID, words), EffortRefused, "change `effort`", False)
        for words in (
            "output_config.effort 'xhigh' is not supported when thinking is disabled on this model.",
            "This model does not support the effort parameter.",
            "output_config: Extra inputs are not permitted",
            "litellm.BadRequestError: plain-local doesn't support `reasoning.effort`",
            "litellm.UnsupportedParamsError: openai does not support parameters: ['reasoning_effort']",
        )
    ),
    *(
        Case(f"form, {words}", 400, envelope(INVALID, words), ThinkingFormRefused, "thinking.mode", False)
        for words in (
            'Hosted_vllmException - {"error": {"message": "\\"plain-local\\" does not support thinking"}}',
            "thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags",
            "thinking.adaptive.display: Extra inputs are not permitted",
            '"thinking.type.enabled" is not supported for this model. Use "output_config.effort" to control thinking.',
        )
    ),
    Case("413 of a proxy", 413, b"<html>Too large</html>", ContextWindowExceeded, "compact", False),
    Case("429", 429, envelope("rate_limit_error", "slow"), RateLimited, "slow", True),
    Case(
        "429 with a time",
        429,
        envelope("rate_limit_error", "slow"),
        RateLimited,
        "rate limit",
        True,
        7.5,
        {"retry-after": "7.5"},
    ),
    Case("429 spend", 429, envelope("rate_limit_error", "cap", **SPEND), RateLimited, "spend limit", False),
    Case(
        "429 spend with a time is a rate limit",
        429,
        envelope("rate_limit_error", "cap", **SPEND),
        RateLimited,
        "rate limit",
        True,
        3.0,
        {"retry-after": "3"},
    ),
    Case("500", 500, envelope("api_error", "Internal server error"), Overloaded, "problem of its own", True),
    Case("502 HTML", 502, b"<!DOCTYPE html><b>Bad gateway</b>", Overloaded, "(502)", True),
    Case("503 text", 503, b"upstream down", Overloaded, "upstream down", True),
    Case("504", 504, envelope("timeout_error", "late"), Overloaded, "late", True),
    Case("529", 529, envelope("overloaded_error", "Overloaded"), Overloaded, "is overloaded", True),
    Case("bare string", 400, {"error": "boom"}, BadRequest, "boom", False),
    Case("no body", 418, b"", BadRequest, "(418)", False),
    Case("broken JSON", 400, b'{"error": {"message": "cut', BadRequest, "(400)", False),
    Case("204", 204, b"", BadRequest, "check the base URL", False),
    Case("told to retry", 400, envelope(INVALID, "x"), BadRequest, "x", True, None, {"x-should-retry": "true"}),
    Case(
        "told not to", 529, envelope("overloaded_error", "x"), Overloaded, "x", False, None, {"x-should-retry": "false"}
    ),
    Case("says nothing", 529, envelope("overloaded_error", "x"), Overloaded, "x", True, None, {"x-should-retry": "?"}),
    Case("odd shapes", 400, {"error": {"type": 1, "message": ["a"], "details": "d"}}, BadRequest, "(400)", False),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_failure(case: Case) -> None:
    """P-D6: LiteLLM refuses effort and thinking in its own words or in those of the service behind it."""
    body = case.body if isinstance(case.body, bytes) else json.dumps(case.body).encode()
    error = AnthropicAdapter().failure(case.status, case.headers, body)
    assert type(error) is case.kind
    assert case.contains in str(error)
    assert (error.retryable, error.retry_after) == (case.retryable, case.retry_after)
    assert "<" not in str(error)


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
def test_retry_after(headers: dict[str, str], seconds: float | None) -> None:
    assert retry_after(headers) == seconds


SIGNATURE = "EqQBCkYICxgCKkDcan4ryQzJ1+xy/9Z=="


@pytest.mark.parametrize(
    "secret",
    [
        "sk-ant-api03-abcdefgh-ijkl",
        "sk-proj_ABCDEFGH12345678",
        "AIzaSyA1234567890abcdefgh",
        "Bearer abc.def.ghi",
        "bearer  tokentokentoken",
        "0123456789abcdef0123456789abcdef",
        SIGNATURE,
        SIGNATURE.replace("+", "-").replace("/", "_"),
        "x" * 200 + "Y" + "z" * 6000,
    ],
)
def test_secrets_in_messages_are_masked(secret: str) -> None:
    for body in ({"error": {"message": f"bad: {secret} here"}}, f"bad: {secret} here"):
        error = AnthropicAdapter().failure(
            400, {}, body.encode() if isinstance(body, str) else json.dumps(body).encode()
        )
        assert "[hidden]" in str(error)
        assert not any(secret[i : i + 12] in str(error) for i in range(max(1, len(secret) - 12)) if " " not in secret)
        assert secret not in str(error)


@pytest.mark.parametrize("between", ["\0", "\u200b", "\u2060", "\x1b"])
def test_what_nobody_sees_hides_no_secret(between: str) -> None:
    """An answer in UTF-16, say, that is read as UTF-8."""
    said = excerpt(between.join(f"bad: {SIGNATURE} and sk-ant-api03-abcdefgh-ijkl"))
    assert said == "bad: [hidden] and [hidden]"


@pytest.mark.parametrize(
    "plain",
    [
        "thinking.block_binding.prefix_mismatch_behavior",
        "claude-sonnet-4-5-20250929",
        "thinking-binding-controls-2026-08-01",
        "ANTHROPIC_BASE_URL_OF_THE_SERVICE",
        "messages.1.content.0: tool_use ids were found without tool_result blocks immediately after",
        "Qwen/Qwen3-Coder-480B-A35B-Instruct",
        "litellm.ContextWindowExceededError: context_window_fallbacks=None",
        "java.lang.IllegalArgumentException",
    ],
)
def test_ordinary_words_are_not_masked(plain: str) -> None:
    """P-D9: names of models and of classes were hidden as if they were keys."""
    assert mask(plain) == plain


@pytest.mark.parametrize("model", ["accounts/deepseekV3instruct20250101", "MixedCaseModel20250101Distilled70B"])
def test_the_model_that_was_asked_for_is_never_masked(model: str) -> None:
    """P-D9, by the sentence that a person reads."""
    body = json.dumps({"error": {"message": f"no model={model} but {SIGNATURE}"}}).encode()
    error = AnthropicAdapter().failure(400, {}, body, model)
    assert model in str(error)
    assert SIGNATURE[:24] not in str(error)
    assert mask(model) == "[hidden]" or "/" in model


@given(st.binary(min_size=48, max_size=90), st.sampled_from(["", "a", "claude-opus-5-5", "Qwen/Qwen3-Coder-480B"]))
def test_random_keys_are_masked_whatever_the_model_is_called(secret: bytes, model: str) -> None:
    """Sixty-four characters of base64 without a short part in a row."""
    run = b64encode(secret).decode("ascii").replace("/", "a").rstrip("=")
    if run.isupper() or run.islower() or run.isdigit():
        return
    assert run not in mask(f"key {run} end", model)


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
def test_every_dialect_knows_the_refusals_of_thinking_of_all_services(words: str) -> None:
    """P-D2: a gateway hands on what the service behind it says."""
    body = json.dumps({"error": {"message": words, "type": INVALID}}).encode()
    chat = server_for("http://localhost:1/v1", kind=None, echo=None, think_tags=False)
    for adapter in (AnthropicAdapter(), GoogleAdapter(), OpenAiResponsesAdapter(), OpenAiChatAdapter(chat)):
        assert isinstance(adapter.failure(400, {}, body), ThinkingRejected), adapter


def test_every_dialect_knows_a_refused_cache_hint() -> None:
    """P-D5."""
    words = "litellm.UnsupportedParamsError: gemini does not support parameters: ['prompt_cache_key']"
    body = json.dumps({"error": {"message": words}}).encode()
    chat = server_for("http://localhost:1/v1", kind=None, echo=None, think_tags=False)
    for adapter in (AnthropicAdapter(), OpenAiResponsesAdapter(), OpenAiChatAdapter(chat)):
        assert isinstance(adapter.failure(400, {}, body), CacheHintRefused), adapter


def test_excerpts_are_short_single_printable_lines() -> None:
    assert excerpt("a\n\n b\x1b[31m\u202e c\x00") == "a b[31m c"
    assert len(excerpt("word " * 500)) == 300
    assert excerpt("  <html>secret</html>") == ""
