"""Error bodies of the four families, and what an adapter makes of each."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from thinklsp.core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    ProviderError,
    RateLimited,
)
from thinklsp.providers.failures import BudgetExceeded, OutputTooLong


@dataclass(frozen=True)
class Row:
    """`kind`: the error, or the remedy of a RequestRefused. `contains`: a part of the sentence. `retry`: whether to
    retry, or the seconds to wait before that. `instead`: the form of thinking that may pass."""

    status: int
    body: Any
    kind: type[ProviderError] | str
    contains: str
    retry: bool | float = False
    headers: Mapping[str, str] = field(default_factory=dict)
    instead: str | None = None

    @property
    def id(self) -> str:
        return f"{self.status} {self.kind if isinstance(self.kind, str) else self.kind.__name__} {self.contains}"


SENTENCES: Mapping[type[ProviderError] | str, str] = {
    ContextWindowExceeded: "compact",
    OutputTooLong: "lower `maxTokens`, or compact",
    "bare": "earlier thinking",
    "drop": "earlier thinking",
    "form": "thinking.mode",
    "effort": "change `effort`",
    "compaction": "compaction.by",
}


def refused(kind: type[ProviderError] | str, *bodies: Any, instead: str | None = None) -> list[Row]:
    """Make the rows of bodies that are told apart by their words alone."""
    return [Row(400, body, kind, SENTENCES[kind], instead=instead) for body in bodies]


SIGNATURE = "EqQBCkYICxgCKkDcan4ryQzJ1+xy/9Z=="
BLOB = "gAAAAABpQwErTyUiOpAsDfGhJkLzXcVbNm1234567890=="

BAD_SIGNATURE = "messages.1.content.0: Invalid `signature` in `thinking` block"


def told(message: str, kind: str | None, code: object = None) -> dict[str, Any]:
    """Write an error as gateways do."""
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


OVER = "Budget has been exceeded! Current cost: 14.2, Max budget: 10.0"
# LiteLLM with and without its own words and types, Claude apps gateway, and a gateway that says to retry.
BUDGETS: list[tuple[int, Any, dict[str, str]]] = [
    (429, told(OVER, "budget_exceeded", "429"), {}),
    (429, told("Ask Berta for more.", "budget_exceeded", "429"), {}),
    (400, told(OVER, None, "400"), {}),
    (401, told(OVER, "auth_error", 401), {}),
    (400, told("ExceededBudget: End User=anna over budget. Spend=2, Budget=1", "auth_error"), {}),
    (429, told("LiteLLM User: anna, exceeded budget for model=m", None, "429"), {}),
    (429, told("No deployments available - crossed budget: Exceeded budget", None), {}),
    (429, {"error": "Max budget limit reached."}, {}),
    (429, told("spend limit reached (daily; resets 2026-11-27 00:00 UTC)", "billing_error"), {}),
    (429, told(OVER, "budget_exceeded"), {"x-should-retry": "true"}),
    (403, told("Your team is over budget.", "budget_exceeded"), {}),
]
EVERYWHERE = [
    *(
        Row(status, body, BudgetExceeded, f"Your budget at this service is used up ({status}): ", headers=headers)
        for status, body, headers in BUDGETS
    ),
    Row(400, told("thinking.budget_tokens: budget exceeded the maximum", None), BadRequest, "the maximum"),
    Row(500, told("Budget has been exceeded!", None), Overloaded, "internal error", True),
    Row(402, told("Pay first.", "billing_error"), BadRequest, "no credit left", headers={"x-should-retry": "true"}),
    Row(413, b"<html>Too large</html>", ContextWindowExceeded, "compact"),
    Row(502, b"<!DOCTYPE html><b>Bad gateway</b>", Overloaded, "(502)", True),
    Row(503, b"upstream down", Overloaded, "upstream down", True),
    Row(400, {"error": "boom"}, BadRequest, "boom"),
    Row(418, b"", BadRequest, "(418)"),
    Row(400, b'{"error": {"message": "cut', BadRequest, "(400)"),
    Row(204, b"", BadRequest, "check the base URL"),
    Row(400, {"error": {"message": "x"}}, BadRequest, "x", True, {"x-should-retry": "true"}),
    Row(500, {"error": {"message": "x"}}, Overloaded, "x", False, {"x-should-retry": "false"}),
]


def anthropic(message: str, kind: str = "invalid_request_error", **details: str) -> dict[str, Any]:
    error: dict[str, Any] = {"type": kind, "message": message}
    return {"type": "error", "error": {**error, **({"details": details} if details else {})}, "request_id": "req_1"}


SPEND = anthropic("cap", "rate_limit_error", error_code="enforced_spend_limit_reached")
SLOW = anthropic("slow", "rate_limit_error")
# LiteLLM refuses effort and thinking in its own words or in those of the service behind it.
ANTHROPIC = [
    Row(401, anthropic("invalid x-api-key", "authentication_error"), AuthenticationFailed, "the source"),
    Row(403, anthropic("no access", "permission_error"), AuthenticationFailed, "not allowed"),
    Row(402, anthropic("pay", "billing_error"), BadRequest, "no credit"),
    Row(404, anthropic("model: claude-x", "not_found_error"), BadRequest, "model: claude-x"),
    Row(409, anthropic("busy", "conflict_error"), Overloaded, "busy", True),
    Row(408, "", Overloaded, "408", True),
    Row(400, anthropic("max_tokens: too large"), BadRequest, "max_tokens: too large"),
    Row(422, {"error": {"message": "no"}}, BadRequest, "(422)"),
    *refused(
        ContextWindowExceeded,
        anthropic("prompt is too long: 1 > 0"),
        anthropic("PROMPT IS TOO LONG"),
        anthropic("input length and `max_tokens` exceed context limit: 210000 + 32000 > 200000"),
    ),
    *refused(OutputTooLong, anthropic("input length and `max_tokens` exceed context limit: 190000 + 32000 > 200000")),
    Row(400, anthropic("Your credit balance is too low"), BadRequest, "add credit"),
    Row(400, anthropic("You have reached your specified API usage limits. Wait."), RateLimited, "spend limit"),
    *refused(
        "bare",
        anthropic(BAD_SIGNATURE),
    ),
    *refused("drop", anthropic(f"{BAD_SIGNATURE}. The block is bound to a different conversation.")),
    *refused(
        "effort",
        anthropic("output_config.effort 'xhigh' is not supported when thinking is disabled on this model."),
        anthropic("This model does not support the effort parameter."),
        anthropic("output_config: Extra inputs are not permitted"),
        anthropic("litellm.BadRequestError: plain-local doesn't support `reasoning.effort`"),
        anthropic("litellm.UnsupportedParamsError: openai does not support parameters: ['reasoning_effort']"),
    ),
    *refused(
        "form",
        anthropic('Hosted_vllmException - {"error": {"message": "\\"plain-local\\" does not support thinking"}}'),
        anthropic("thinking: Input tag 'adaptive' found using 'type' does not match any of the expected tags"),
        anthropic("thinking.adaptive.display: Extra inputs are not permitted"),
        instead="unset",
    ),
    *refused(
        "form",
        anthropic(
            '"thinking.type.enabled" is not supported for this model. Use "output_config.effort" to control thinking.'
        ),
        instead="adaptive",
    ),
    Row(429, SLOW, RateLimited, "slow", True),
    Row(429, SLOW, RateLimited, "rate limit", 7.5, {"retry-after": "7.5"}),
    Row(429, SPEND, RateLimited, "spend limit"),
    Row(429, SPEND, RateLimited, "rate limit", 3.0, {"retry-after": "3"}),
    Row(500, anthropic("Internal server error", "api_error"), Overloaded, "internal error", True),
    Row(504, anthropic("late", "timeout_error"), Overloaded, "late", True),
    Row(529, anthropic("Overloaded", "overloaded_error"), Overloaded, "is overloaded", True),
    Row(529, anthropic("x", "overloaded_error"), Overloaded, "x", True, {"x-should-retry": "?"}),
    Row(400, {"error": {"type": 1, "message": ["a"], "details": "d"}}, BadRequest, "(400)"),
]


def openai(
    message: str, code: str | None = None, param: str | None = None, kind: str = "invalid_request_error"
) -> dict[str, Any]:
    return {"error": {"message": message, "type": kind, "param": param, "code": code}}


GONE = openai(
    "Item with id 'rs_68a1' not found. Items are not persisted when `store` is set to false. Try again with `store` "
    "set to true, or remove this item from your input.",
    param="input",
)
VERIFY = (
    "Your organization must be verified to generate reasoning summaries. Please go to: "
    "https://platform.openai.com/settings/organization/general and click on Verify Organization."
)
VERIFY_STREAM = "Your organization must be verified to stream this model."
QUOTA = "You exceeded your current quota, please check your plan and billing details."
LIMIT = "rate_limit_exceeded"
EFFORT = "reasoning.effort"
XHIGH = "Unsupported value: 'xhigh' is not supported with the 'gpt-5' model. Supported: 'none', 'low'."
NO_OFF = "cannot turn thinking off"
NO_EFFORT = "Unsupported parameter: 'reasoning.effort' is not supported with this model."
NO_COMPACTION = "Unsupported parameter: 'context_management' is not supported with this model."
WAIT = "Rate limit reached for gpt-6-sol. Please try again in 250ms."
SOON = {"retry-after-ms": "1500", "retry-after": "9"}
BY_MINUTE = "Request too large for gpt-6-sol on tokens per min (TPM): Limit 1, Requested 2."
OPENAI = [
    Row(401, openai("Incorrect API key provided", "invalid_api_key"), AuthenticationFailed, "check the source"),
    Row(403, openai("Country not supported"), AuthenticationFailed, "not allowed"),
    Row(404, openai("The model 'gpt-x' does not exist", "model_not_found"), BadRequest, "gpt-x"),
    Row(400, openai("Invalid 'tools'"), BadRequest, "Invalid 'tools'"),
    Row(409, openai("busy"), Overloaded, "busy", True),
    Row(422, {"detail": "body.input: field required"}, BadRequest, "field required"),
    Row(422, {"detail": [{"loc": ["body"], "msg": "x"}]}, BadRequest, "(422)"),
    *refused(
        ContextWindowExceeded,
        openai("x", "context_length_exceeded"),
        openai("Your input exceeds the context window of this model. Please adjust your input and try again."),
        {"error": {"code": 400, "message": "the request exceeds the available context size", "type": "x"}},
    ),
    Row(429, openai(QUOTA, "insufficient_quota", kind="insufficient_quota"), BadRequest, "credit"),
    Row(429, openai(QUOTA, kind="insufficient_quota"), BadRequest, "add credit"),
    Row(400, openai("x", "billing_hard_limit_reached"), RateLimited, "spend limit"),
    Row(429, openai("Rate limit reached", LIMIT, kind="tokens"), RateLimited, "reached", True),
    Row(429, openai(WAIT, LIMIT), RateLimited, "rate limit", 0.25),
    Row(429, openai("Please try again in 20s.", LIMIT), RateLimited, "rate limit", 1.5, SOON),
    # No time heals this one.
    Row(429, openai(BY_MINUTE, LIMIT), RateLimited, "rate limit on its own"),
    Row(500, openai("The server had an error", "server_error"), Overloaded, "internal error", True),
    Row(400, {"object": "error", "message": "boom", "code": 400}, BadRequest, "boom"),
    Row(400, {"error": {"type": 1, "message": ["a"], "param": 7, "code": {}}}, BadRequest, "(400)"),
    *refused(
        "bare",
        openai(f"The encrypted content {BLOB} could not be verified.", "invalid_encrypted_content", "input"),
        openai("The encrypted content for item rs_1 could not be verified. Reason: could not be parsed."),
        openai("Item 'rs_1' of type 'reasoning' was provided without its required following item."),
        openai("Item 'msg_1' of type 'message' was provided without its required 'reasoning' item: 'rs_1'."),
        GONE,
    ),
    Row(404, GONE, "bare", "earlier"),
    Row(400, openai("No tool output found for function call call_1."), BadRequest, "call_1"),
    *refused(
        "effort",
        openai(XHIGH, "unsupported_value", EFFORT),
        openai("Unsupported value: 'reasoning.effort' does not support 'max' with this model.", "unsupported_value"),
        openai("Invalid value: 'max'. Supported values are: 'low' and 'high'.", "invalid_value", EFFORT),
    ),
    *(
        Row(400, openai(words, "unsupported_value", EFFORT), "form", NO_OFF, instead="adaptive")
        for words in (
            "Unsupported value: 'none' is not supported with the 'gpt-6-astra' model. Supported values are: 'low'.",
            "Unsupported value: 'reasoning.effort' does not support 'none' with this model.",
        )
    ),
    *(
        Row(400, body, "form", "rejected this form of thinking", instead="unset")
        for body in (
            openai(NO_EFFORT, "unsupported_parameter", EFFORT),
            openai(NO_EFFORT),
            openai("Unsupported parameter: 'reasoning' is not supported with this model.", None, "reasoning"),
            openai("Encrypted content is not supported with this model.", None, "include"),
        )
    ),
    *refused(
        "compaction",
        openai(NO_COMPACTION, "unsupported_parameter", "context_management"),
        openai(NO_COMPACTION),
        openai("Must be below the context window.", "invalid_value", "context_management[0].compact_threshold"),
    ),
    Row(400, openai(VERIFY, "unsupported_value", "reasoning.summary"), BadRequest, "thinking.display"),
    Row(400, openai(VERIFY), BadRequest, "thinking.display"),
    Row(400, openai(VERIFY_STREAM, None, "stream"), BadRequest, "must be verified to stream"),
]


def chat(message: str, **more: Any) -> dict[str, Any]:
    return {"error": {"message": message, **more}}


def validation(place: list[Any], message: str, **more: str) -> dict[str, Any]:
    """The form in which servers made with FastAPI answer a request that does not validate."""
    return {"detail": [{"loc": ["body", *place], "msg": message, **more}]}


EXTRA = "Extra inputs are not permitted"
TOO_LARGE = "request (9 tokens) exceeds the available context size (8 tokens), try increasing it"
CHAT_XHIGH = "Unsupported value: 'reasoning_effort' does not support 'xhigh'. Supported values are: 'none', 'low'."
RAW = json.dumps(chat("prompt is too long: 9 > 8"))
GEMMA = "gemma3:4b"
NO_MODEL, NOT_FOUND = "no such model", "Not found the model k9 or Permission denied"
NO_TOOLS_IN_VLLM = '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'
ONLY_RESPONSES = (
    "Function tools with reasoning_effort are not supported for m in /v1/chat/completions. Use /v1/responses"
)
CHAT = [
    Row(401, chat("Invalid API Key"), AuthenticationFailed, "THINKLSP_COMPATIBLE_API_KEY"),
    Row(401, b"", AuthenticationFailed, "THINKLSP_COMPATIBLE_API_KEY"),
    Row(403, chat("flagged"), AuthenticationFailed, "not allowed"),
    Row(402, chat("Insufficient Balance"), BadRequest, "no credit"),
    Row(402, chat("This request requires more credits", code=402), BadRequest, "no credit"),
    Row(429, chat("You exceeded your current quota", code="insufficient_quota"), BadRequest, "no credit"),
    Row(429, chat("x", type="exceeded_current_quota_error"), BadRequest, "no credit"),
    Row(404, b"404 page not found", BadRequest, "ends in `/v1`"),
    Row(405, b"<html>No</html>", BadRequest, "and the base URL, which usually ends in `/v1`"),
    Row(429, chat("slow", type="rate_limit_error"), RateLimited, "slow", True),
    Row(429, chat("slow"), RateLimited, "rate limit", 7.5, {"retry-after": "7.5"}),
    Row(429, [{"error": {"message": "Quota"}}], RateLimited, "Quota", True),
    Row(500, chat("CUDA error", type="server_error"), Overloaded, "CUDA error", True),
    Row(501, chat("not here", type="not_supported_error"), BadRequest, "does not support this request"),
    Row(503, chat("Loading model"), Overloaded, "still loading its model", 10.0),
    Row(400, {"detail": "boom"}, BadRequest, "boom"),
    Row(400, {"error": {"type": ["x"], "message": ["a"], "code": None}}, BadRequest, "(400)"),
    Row(
        400,
        chat(f"registry.ollama.ai/library/{GEMMA} does not support tools"),
        BadRequest,
        f"{GEMMA} cannot call tools",
    ),
    Row(404, chat("No endpoints found that support tool use."), BadRequest, "call tools"),
    Row(400, chat(NO_TOOLS_IN_VLLM), BadRequest, "start it with --enable-auto-tool-choice and --tool-call-parser"),
    Row(500, chat("tools param requires --jinja flag"), BadRequest, "start it with --jinja"),
    Row(400, chat(ONLY_RESPONSES), BadRequest, "set `provider` to `openai`"),
    *refused(
        "bare",
        chat("The reasoning_content in the thinking mode must be passed back to the API."),
        *(
            chat("Provider returned error", code=400, metadata={"raw": json.dumps(chat(words))})
            for words in (
                BAD_SIGNATURE,
                "`thinking` or `redacted_thinking` blocks in the latest assistant message cannot be modified.",
                "Corrupted thought signature.",
                "Function call is missing a thought_signature in functionCall parts.",
                "The encrypted content gAAA could not be verified.",
            )
        ),
    ),
    Row(400, chat("Unknown parameter: 'tools[0].strict'."), BadRequest, "strict"),
    *refused(
        ContextWindowExceeded,
        chat(TOO_LARGE, code=400, type="exceed_context_size_error"),
        chat("This model's maximum context length is 8 tokens. However, you requested 9.", type="BadRequestError"),
        {"object": "error", "message": "The prompt is longer than the maximum model length of 8", "code": 400},
        chat("prompt too long; exceeded max context length by 1 tokens"),
        {"error": "the input length exceeds the context length"},
        {"error": "The number of tokens to keep is greater than the context length"},
        chat("Your input is too much.", code="context_length_exceeded", type="invalid_request_error"),
        chat("Invalid request: Your request exceeded model token limit: 8", type="invalid_request_error"),
        chat("Provider returned error", code=400, metadata={"raw": RAW, "provider_name": "P"}),
    ),
    Row(404, chat('model "qwen9" not found, try pulling it first', type="api_error"), BadRequest, "ollama pull qwen9"),
    Row(404, chat("model 'nosuch' not found", type="not_found_error"), BadRequest, "with `model`. The provider"),
    Row(400, chat("/chat/completions: Invalid model name passed in model=x. Call `/v1/models`"), BadRequest, NO_MODEL),
    Row(404, chat("The model `gpt-9` does not exist", code="model_not_found"), BadRequest, "no model gpt-9"),
    Row(404, {"object": "error", "message": "The model `m` does not exist.", "code": 404}, BadRequest, "no model m"),
    Row(400, chat("Model Not Exist", type="invalid_request_error"), BadRequest, NO_MODEL),
    Row(400, chat("x/y is not a valid model ID", code=400), BadRequest, "x/y is not"),
    Row(404, chat("No endpoints found for x/y.", code=404), BadRequest, NO_MODEL),
    Row(404, chat(NOT_FOUND, type="resource_not_found_error"), BadRequest, "no such"),
    Row(400, {"error": "No models loaded. Please load a model"}, BadRequest, NO_MODEL),
    *refused(
        "form",
        chat('"gemma3" does not support thinking'),
        chat("Reasoning is mandatory for this endpoint and cannot be disabled."),
        chat("Unsupported parameter: 'reasoning_effort' is not supported with this model."),
        chat("Unsupported value: 'reasoning_effort' does not support 'none' with this model. Use 'low'."),
        chat("Unrecognized request argument supplied: chat_template_kwargs"),
        validation(["thinking"], EXTRA),
        validation(["reasoning"], EXTRA),
        chat("thinking_token_budget: Extra inputs are not permitted"),
        instead="unset",
    ),
    *refused(
        "effort",
        chat('invalid reasoning value: "xhigh" (must be "minimal", "low", "medium", "high", "max" or "none")'),
        chat(CHAT_XHIGH, code="unsupported_value"),
        validation(["reasoning_effort"], "Input should be 'low', 'medium' or 'high'", input="max"),
    ),
    *(
        Row(400, body, "never", 'reasoning = "none"')
        for body in (
            validation(["messages", 1, "reasoning"], EXTRA, type="extra_forbidden"),
            chat("'messages.1' : property 'reasoning_content' is unsupported", type="invalid_request_error"),
            chat("Unknown parameter: 'messages[1].reasoning_details'."),
        )
    ),
]


def google(message: str, status: str = "INVALID_ARGUMENT", *details: Any) -> dict[str, Any]:
    error = {"code": 0, "message": message, "status": status}
    return {"error": error | ({"details": list(details)} if details else {})}


RPC = "type.googleapis.com/google.rpc."
BAD_KEY = {"@type": f"{RPC}ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}


def quota(limit: str) -> dict[str, Any]:
    return {"@type": f"{RPC}QuotaFailure", "violations": [{"quotaId": limit, "quotaValue": "250"}]}


def wait(delay: Any) -> dict[str, Any]:
    return {"@type": f"{RPC}RetryInfo", "retryDelay": delay}


def limited(*details: Any) -> dict[str, Any]:
    return google(QUOTA, "RESOURCE_EXHAUSTED", *details)


MINUTE = quota("GenerateRequestsPerMinutePerProjectPerModel-FreeTier")
DAY = quota("GenerateRequestsPerDayPerProjectPerModel-FreeTier")
LOCATION = "User location is not supported for the API use."
IMAGE = "gemini-2.5-flash-image cannot call tools, which thinklsp needs: choose another model with `model`."
MINIMAL = "Thinking level MINIMAL is not supported for this model. Please retry with other thinking level."
MISSING = (
    "Function call is missing a thought_signature in functionCall parts. This is required for tools to work correctly, "
    "and missing thought_signature may lead to degraded model performance. Additional data, function call "
    "`default_api:read_file` , position 2. Please refer to https://ai.google.dev/gemini-api/docs/thought-signatures"
)
GOOGLE = [
    Row(400, google("no", "INVALID_ARGUMENT", BAD_KEY), AuthenticationFailed, "source of the key"),
    Row(400, google("API key not valid. Please pass a valid API key."), AuthenticationFailed, "(400)"),
    Row(400, google("API key expired. Please renew the API key."), AuthenticationFailed, "renew"),
    Row(401, google("no", "UNAUTHENTICATED"), AuthenticationFailed, "rejected the API key (401)"),
    Row(403, google("leaked", "PERMISSION_DENIED"), AuthenticationFailed, "not allowed"),
    Row(404, google("models/gemini-9 is not found for API version v1beta", "NOT_FOUND"), BadRequest, "models/gemini-9"),
    Row(400, google("Function calling is not enabled for models/gemini-2.5-flash-image"), BadRequest, IMAGE),
    Row(400, google("Function calling is not supported."), BadRequest, "This model cannot call tools"),
    Row(400, google("* GenerateContentRequest.contents: empty"), BadRequest, "contents: empty"),
    Row(400, google(LOCATION, "FAILED_PRECONDITION"), BadRequest, "User location"),
    *refused(
        ContextWindowExceeded,
        google("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."),
        google("Request payload size exceeds the limit: 1 bytes."),
    ),
    *refused(
        "bare",
        google(MISSING),
        google("Function call `x` in the `1.` content block is missing a `thought_signature`."),
        google("Invalid thought signature"),
        google("Corrupted thought signature."),
        google(f"Invalid value at 'contents[1].parts[0].thought_signature' (TYPE_BYTES), \"{SIGNATURE}\""),
        google("The continuation token is expired."),
    ),
    Row(400, google(MINIMAL), "effort", "MINIMAL"),
    *refused(
        "effort",
        google("Invalid JSON payload received. Unknown name \"thinkingLevel\" at 'generation_config.thinking_config'"),
    ),
    Row(429, limited(), RateLimited, "rate limit", True),
    Row(429, limited(MINUTE, wait("17s")), RateLimited, "quota", 17.0),
    Row(429, limited(wait("34.074824224s")), RateLimited, "quota", 34.074824224),
    # The wait that is told beside it is that of the limit of the minute.
    Row(429, limited(DAY, wait("17s")), RateLimited, "This model's daily quota is used up"),
    Row(429, limited(MINUTE, DAY, wait("17s")), RateLimited, "wait until tomorrow"),
    Row(429, [limited(DAY)], RateLimited, "choose another model"),
    Row(429, limited(wait("soon"), wait(None), "x"), RateLimited, "quota", True),
    Row(429, limited(), RateLimited, "quota", 9.0, {"retry-after": "9"}),
    Row(429, limited(wait("0s")), RateLimited, "quota", 0.0, {"retry-after": "9"}),
    Row(499, google("The operation was cancelled.", "CANCELLED"), Overloaded, "cancelled", True),
    Row(500, google("An internal error has occurred.", "INTERNAL"), Overloaded, "internal error", True),
    Row(503, google("The model is overloaded.", "UNAVAILABLE", wait("3s")), Overloaded, "(503)", 3.0),
    Row(504, google("Deadline expired.", "DEADLINE_EXCEEDED"), Overloaded, "Deadline", True),
    Row(503, [google("Busy.", "UNAVAILABLE", wait("3s"))], Overloaded, "Busy.", 3.0),
    Row(503, [], Overloaded, "(503)", True),
    Row(400, {"error": {"code": "x", "message": ["a"], "details": {"a": 1}}}, BadRequest, "(400)"),
    *refused(
        "form",
        google("Budget 0 is invalid. This model only works in thinking mode."),
        google("The thinking budget 50000 is invalid. Please choose a value between 128 and 32768."),
        google("thinking_budget is out of range; supported values are integers from 512 to 24576."),
        instead="adaptive",
    ),
    *refused(
        "form",
        google("Thinking is not enabled for this model"),
        google("Thinking_config.include_thoughts is only enabled when thinking is enabled."),
        instead="unset",
    ),
]

FAILURES = {"anthropic": ANTHROPIC, "openai": OPENAI, "google": GOOGLE, "chat": CHAT}
