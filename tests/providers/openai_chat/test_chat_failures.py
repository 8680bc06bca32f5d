"""Failures of compatible servers: class, retry, sentence, and nothing secret in it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

import pytest

from tests.support.chat_cases import ENDPOINT, as_events, run, server
from thinklsp.core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    ProviderError,
    RateLimited,
)
from thinklsp.providers.openai_chat.adapter import OpenAiChatAdapter
from thinklsp.providers.openai_chat.servers import ChatServer, server_for
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


def said(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


# FastAPI's own form, as servers made with it answer a request that does not validate.
EXTRA = {
    "detail": [
        {
            "type": "extra_forbidden",
            "loc": ["body", "messages", 1, "reasoning"],
            "msg": "Extra inputs are not permitted",
        }
    ]
}
NESTED = {"code": 400, "metadata": {"raw": json.dumps(said("prompt is too long: 9 > 8")), "provider_name": "P"}}
TOO_LONG: dict[str, Any] = {
    "llama.cpp": said(
        "request (9 tokens) exceeds the available context size (8 tokens), try increasing it",
        code=400,
        type="exceed_context_size_error",
    ),
    "vLLM": said("This model's maximum context length is 8 tokens. However, you requested 9.", type="BadRequestError"),
    "vLLM, old": {"object": "error", "message": "The prompt is longer than the maximum model length of 8", "code": 400},
    "Ollama": said("prompt too long; exceeded max context length by 1 tokens"),
    "Ollama, other": {"error": "the input length exceeds the context length"},
    "LM Studio": {"error": "The number of tokens to keep is greater than the context length"},
    "OpenAI": said("Your input is too much.", code="context_length_exceeded", type="invalid_request_error"),
    "Moonshot": said("Invalid request: Your request exceeded model token limit: 8", type="invalid_request_error"),
    "OpenRouter": said("Provider returned error", **NESTED),
}
NO_MODEL: dict[str, tuple[int, Any, str]] = {
    "Ollama": (404, said('model "qwen9" not found, try pulling it first', type="api_error"), "ollama pull qwen9"),
    "llama.cpp's router": (404, said("model 'nosuch' not found", type="not_found_error"), "with `model`. The service"),
    "LiteLLM": (
        400,
        said("/chat/completions: Invalid model name passed in model=x. Call `/v1/models`"),
        "no such model",
    ),
    "OpenAI": (404, said("The model `gpt-9` does not exist", code="model_not_found"), "no model gpt-9"),
    "vLLM": (404, {"object": "error", "message": "The model `m` does not exist.", "code": 404}, "no model m"),
    "DeepSeek": (400, said("Model Not Exist", type="invalid_request_error"), "no such model"),
    "OpenRouter": (400, said("x/y is not a valid model ID", code=400), "x/y is not"),
    "OpenRouter, gone": (404, said("No endpoints found for x/y.", code=404), "no such model"),
    "Moonshot": (404, said("Not found the model k9 or Permission denied", type="resource_not_found_error"), "no such"),
    "LM Studio": (400, {"error": "No models loaded. Please load a model"}, "no such model"),
}
FORM_REFUSED: dict[str, Any] = {
    "Ollama": said('"gemma3" does not support thinking'),
    "OpenRouter": said("Reasoning is mandatory for this endpoint and cannot be disabled."),
    "OpenAI, no such key": said("Unsupported parameter: 'reasoning_effort' is not supported with this model."),
    "OpenAI, off": said("Unsupported value: 'reasoning_effort' does not support 'none' with this model. Use 'low'."),
    "older OpenAI": said("Unrecognized request argument supplied: chat_template_kwargs"),
    "strict server": {"detail": [{"loc": ["body", "thinking"], "msg": "Extra inputs are not permitted"}]},
    "strict server, nested": {"detail": [{"loc": ["body", "reasoning"], "msg": "Extra inputs are not permitted"}]},
    "vLLM": said("thinking_token_budget: Extra inputs are not permitted"),
}
EFFORT_REFUSED: dict[str, Any] = {
    "Ollama": said('invalid reasoning value: "xhigh" (must be "minimal", "low", "medium", "high", "max" or "none")'),
    "OpenAI": said(
        "Unsupported value: 'reasoning_effort' does not support 'xhigh'. Supported values are: 'none', 'low'.",
        code="unsupported_value",
    ),
    "strict server": {
        "detail": [
            {"loc": ["body", "reasoning_effort"], "msg": "Input should be 'low', 'medium' or 'high'", "input": "max"}
        ]
    },
}
NOT_BACK: dict[str, Any] = {
    "strict server": EXTRA,
    "Groq": said("'messages.1' : property 'reasoning_content' is unsupported", type="invalid_request_error"),
    "OpenAI": said("Unknown parameter: 'messages[1].reasoning_details'."),
}
CASES = [
    Case("401", 401, said("Invalid API Key"), AuthenticationFailed, "THINKLSP_COMPATIBLE_API_KEY"),
    Case("401 without a body", 401, b"", AuthenticationFailed, "THINKLSP_COMPATIBLE_API_KEY"),
    Case("403", 403, said("flagged"), AuthenticationFailed, "not allowed"),
    Case("402", 402, said("Insufficient Balance"), BadRequest, "no credit"),
    Case("402 of OpenRouter", 402, said("This request requires more credits", code=402), BadRequest, "no credit"),
    Case("quota", 429, said("You exceeded your current quota", code="insufficient_quota"), BadRequest, "no credit"),
    Case("quota of Moonshot", 429, said("x", type="exceeded_current_quota_error"), BadRequest, "no credit"),
    Case("404 of another address", 404, b"404 page not found", BadRequest, "ends in /v1"),
    Case("405 of a web page", 405, b"<html>No</html>", BadRequest, "check the base URL, which usually ends in /v1"),
    Case("413", 413, b"<html>Too large</html>", ContextWindowExceeded, "compact"),
    Case("429", 429, said("slow", type="rate_limit_error"), RateLimited, "slow", True),
    Case("429 with a time", 429, said("slow"), RateLimited, "rate limit", True, 7.5, {"retry-after": "7.5"}),
    Case("429 in a list", 429, [{"error": {"message": "Quota"}}], RateLimited, "Quota", True),
    Case("500", 500, said("CUDA error", type="server_error"), Overloaded, "CUDA error", True),
    Case("501", 501, said("not here", type="not_supported_error"), BadRequest, "cannot do", False),
    Case("502 HTML", 502, b"<!DOCTYPE html><b>Bad gateway</b>", Overloaded, "(502)", True),
    Case("503 loading", 503, said("Loading model"), Overloaded, "still loading its model", True, 10.0),
    Case("bare string", 400, {"error": "boom"}, BadRequest, "boom"),
    Case("detail", 400, {"detail": "boom"}, BadRequest, "boom"),
    Case("no body", 418, b"", BadRequest, "(418)"),
    Case("broken JSON", 400, b'{"error": {"message": "cut', BadRequest, "(400)"),
    Case("odd shapes", 400, {"error": {"type": ["x"], "message": ["a"], "code": None}}, BadRequest, "(400)"),
    Case("204", 204, b"", BadRequest, "check the base URL"),
    Case("told to retry", 400, said("x"), BadRequest, "x", True, None, {"x-should-retry": "true"}),
    Case("told not to", 503, said("x"), Overloaded, "x", False, None, {"x-should-retry": "false"}),
    Case(
        "no tools on Ollama",
        400,
        said("registry.ollama.ai/library/gemma3:4b does not support tools"),
        BadRequest,
        "gemma3:4b cannot call tools",
    ),
    Case("no tools on OpenRouter", 404, said("No endpoints found that support tool use."), BadRequest, "call tools"),
    Case(
        "no tools on vLLM",
        400,
        said('"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        BadRequest,
        "start it with --enable-auto-tool-choice and --tool-call-parser",
    ),
    Case("no tools on llama.cpp", 500, said("tools param requires --jinja flag"), BadRequest, "start it with --jinja"),
    Case(
        "Responses only",
        400,
        said("Function tools with reasoning_effort are not supported for m in /v1/chat/completions. Use /v1/responses"),
        BadRequest,
        "set provider to openai",
    ),
    Case(
        "DeepSeek's demand",
        400,
        said("The reasoning_content in the thinking mode must be passed back to the API."),
        ThinkingRejected,
        "earlier thinking",
    ),
    *(
        Case(
            f"sealed, behind a gateway: {words}",
            400,
            said("Provider returned error", code=400, metadata={"raw": json.dumps(said(words))}),
            ThinkingRejected,
            "earlier thinking",
        )
        for words in (
            "messages.1.content.0: Invalid `signature` in `thinking` block",
            "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
            "Corrupted thought signature.",
            "Function call is missing a thought_signature in functionCall parts.",
            "The encrypted content gAAA could not be verified.",
        )
    ),
    Case("a key of something else", 400, said("Unknown parameter: 'tools[0].strict'."), BadRequest, "strict"),
    *(Case(f"too long, {name}", 400, body, ContextWindowExceeded, "compact") for name, body in TOO_LONG.items()),
    *(Case(f"no model, {name}", code, body, BadRequest, part) for name, (code, body, part) in NO_MODEL.items()),
    *(Case(f"form, {name}", 400, body, ThinkingFormRefused, "thinking.mode") for name, body in FORM_REFUSED.items()),
    *(Case(f"level, {name}", 400, body, EffortRefused, "change effort") for name, body in EFFORT_REFUSED.items()),
    *(Case(f"not back, {name}", 400, body, ThinkingRejected, 'reasoning = "none"') for name, body in NOT_BACK.items()),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_failure(case: Case) -> None:
    """P-D14: LiteLLM's words for a model that it does not know are among those of NO_MODEL."""
    body = case.body if isinstance(case.body, bytes) else json.dumps(case.body).encode()
    error = OpenAiChatAdapter(server()).failure(case.status, case.headers, body)
    assert type(error) is case.kind
    assert case.contains in str(error)
    assert (error.retryable, error.retry_after) == (case.retryable, case.retry_after)
    assert "<" not in str(error)
    if isinstance(error, ThinkingFormRefused):
        assert error.instead == "unset"


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
    error = OpenAiChatAdapter(server()).failure(status, {}, json.dumps(said(message)).encode())
    assert (getattr(error, "loading", False), error.retry_after) == (loading, 10.0 if loading else None)


BY_WORDS = (ContextWindowExceeded, ThinkingFormRefused, EffortRefused, ThinkingRejected)
MIDWAY = [case for case in CASES if issubclass(case.kind, BY_WORDS) and isinstance(case.body, dict)]


@pytest.mark.parametrize("case", MIDWAY, ids=lambda case: case.id)
def test_the_same_words_mean_the_same_in_mid_stream(case: Case) -> None:
    body = case.body if {"error", "object"} & case.body.keys() else {"error": case.body}
    with pytest.raises(case.kind, match=re.escape(case.contains)):
        run(as_events(body))


@pytest.mark.parametrize(
    ("error", "kind"),
    [
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
)
def test_an_error_in_mid_stream_has_the_status_that_it_names(error: Any, kind: type[ProviderError]) -> None:
    with pytest.raises(ProviderError) as caught:
        run(as_events({"error": error}))
    assert type(caught.value) is kind


@pytest.mark.parametrize("secret", [ENDPOINT.api_key, "EqQBCkYICxgCKkDcan4ryQzJ1+xy/9Z==", "Bearer abc.def.ghi"])
def test_secrets_in_messages_are_masked(secret: str) -> None:
    for shape in (said(f"bad: {secret} here"), {"error": f"bad: {secret}"}, f"bad: {secret}"):
        body = shape if isinstance(shape, str) else json.dumps(shape)
        error = OpenAiChatAdapter(server()).failure(400, {}, body.encode())
        assert secret not in str(error)
        assert "[hidden]" in str(error)
    shown = OpenAiChatAdapter(server()).failure(404, {}, json.dumps(said(f'model "{secret}" not found')).encode())
    assert secret not in str(shown)


def test_only_ollama_is_said_to_fetch_a_model() -> None:
    """P-D10: the router of llama.cpp uses the same words."""
    body = json.dumps(said("model 'qwen9:32b' not found", type="not_found_error")).encode()
    sentences = {
        kind: str(OpenAiChatAdapter(_of_kind(kind)).failure(404, {}, body)) for kind in ("ollama", "llama.cpp")
    }
    assert "ollama pull qwen9:32b" in sentences["ollama"]
    assert "ollama" not in sentences["llama.cpp"]


def _of_kind(kind: str) -> ChatServer:
    return server_for("http://localhost:1/v1", kind=kind, echo=None, think_tags=False)
