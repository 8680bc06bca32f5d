"""Functions that convert Chat Completions errors to `ProviderError`s with messages that tell the user what to do.

Servers use different formats and statuses for the same error. All errors are therefore matched by text fragments,
whether they arrive as HTTP responses, as events inside a stream, or as bodies with status 200.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from thinklsp.core.errors import AuthenticationFailed, BadRequest, Overloaded, ProviderError
from thinklsp.core.text_safety import make_excerpt
from thinklsp.providers.budget_errors import find_budget_error
from thinklsp.providers.decoding import parse_json_object
from thinklsp.providers.failures import (
    ErrorReport,
    ThinkingRejected,
    build_context_error,
    build_credit_error,
    build_effort_error,
    build_no_tools_error,
    build_thinking_error,
    build_thinking_form_error,
    classify_by_status,
    find_cache_hint_error,
    find_output_fault,
    has_any,
    is_earlier_thinking_rejected,
    is_thinking_rejected,
    read_words,
)

# Maps the `code` or `type` of an error inside a stream to the usual HTTP status for that error.
_STATUS_OF_NAME = {
    "badrequesterror": 400,
    "context_length_exceeded": 400,
    "exceed_context_size_error": 400,
    "invalid_request_error": 400,
    "authentication_error": 401,
    "invalid_api_key": 401,
    "insufficient_quota": 429,
    "permission_error": 403,
    "model_not_found": 404,
    "not_found_error": 404,
    "notfounderror": 404,
    "rate_limit_error": 429,
    "rate_limit_exceeded": 429,
    "not_supported_error": 501,
    "overloaded_error": 503,
    "service_unavailable": 503,
    "unavailable_error": 503,
}
_TOO_LONG = (
    "context_length_exceeded",
    "exceed_context_size",
    "exceeds the available context size",
    "maximum context length",
    "maximum model length",
    "max context length",
    "exceeds the context length",
    "greater than the context length",
    "context the overflows",
    "exceeded model token limit",
    "prompt is too long",
    "exceed context limit",
    "`max_new_tokens` must be <=",
)
_NO_MODEL = re.compile(
    r"model_not_found|model not exist|not found the model|not a valid model|no models loaded|no endpoints found for"
    r"|\bmodel \S+ (?:is |was )?(?:not found|does not exist)|\bmodel \S+, try pulling|invalid model name"
)
_NO_TOOLS = ("does not support tools", "does not support tool", "support tool use", "does not support function calling")
_NO_CREDIT = ("insufficient_quota", "insufficient balance", "exceeded_current_quota")
_UNKNOWN_KEY = (
    "extra inputs are not permitted",
    "extra_forbidden",
    "unknown parameter",
    "unsupported parameter",
    "unrecognized request argument",
    "additional properties",
    "unknown field",
    "unknown name",
    "is unsupported",
)
_REASONING_FIELD = re.compile(r"\breasoning(?:_content|_details)\b|\bmessages\b.*\breasoning\b", re.DOTALL)
_THINKING_FIELD = re.compile(
    r"\breasoning(?:[_.]effort)?\b|\bthinking\b|\bchat_template_kwargs\b|\bthinking_token_budget\b"
)
_EFFORT = re.compile(r"\breasoning(?:[_. ]effort| value)\b")
_LEVEL_REFUSED = ("invalid", "unsupported", "not support", "must be", "should be")
_OFF_REFUSED = re.compile(r"""(?:does not support|value:?|'input':|"input":) ?['"]none['"]""")
_QUOTED_MODEL = re.compile(r"""\bmodel ["'`]([^"'`]+)["'`]""")
_OLLAMA = "ollama"
_TRY_PULLING = "try pulling"
_LOADING = re.compile(r"\bloading (?:the )?model\b|\bmodel\b.*\b(?:is|still|currently|being) load(?:ing|ed)\b")
_LOADING_SECONDS = 10.0
_MODEL_WITHOUT_TOOLS = re.compile(r"(\S+) does not support tool")


def has_error(content: Mapping[str, Any]) -> bool:
    """Return whether a stream chunk, or a complete response with status 200, is an error."""
    return bool(content.get("error")) or "error" in (content.get("object"), content.get("type"))


def parse_stream_failure(content: Mapping[str, Any]) -> ProviderError:
    """Return the error for a stream chunk, or for a complete response with status 200."""
    _, names = _read_message(content)
    statuses = (int(name) if name.isdigit() else _STATUS_OF_NAME.get(name, 0) for name in names)
    return classify(read_report(next((status for status in statuses if 400 <= status < 600), 500), content, "", None))


def read_report(status: int, content: Mapping[str, Any], plain: str, wait: float | None) -> ErrorReport:
    message, names = _read_message(content)
    return ErrorReport(status, message or plain, " ".join(names), wait)


def _read_message(content: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return an error's message, and a list that contains its code and its type."""
    error = content.get("error") or content
    if not isinstance(error, dict):
        return error if isinstance(error, str) else json.dumps(error), []
    names = [str(error[key]).lower() for key in ("code", "type") if isinstance(error.get(key), str | int)]
    message = error.get("message") or error.get("detail") or ""
    cause = _read_cause(error.get("metadata"))
    return " ".join(part for part in (read_words(message) or str(message), cause) if part), names


def _read_cause(metadata: object) -> str:
    """Return the error message of the provider behind a gateway.

    The gateway's own message states only that the provider failed.
    """
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    if not isinstance(raw, str):
        return ""
    inner = parse_json_object(raw)
    return _read_message(inner)[0] if inner else raw


def classify(report: ErrorReport, server: str = "") -> ProviderError:
    """Return the error for a report. `server` is a kind of server from servers.toml."""
    if (common_error := find_budget_error(report) or find_output_fault(report)) is not None:
        return common_error
    if report.status == 401:
        return AuthenticationFailed(
            "The server requires a valid API key (401): set `THINKLSP_COMPATIBLE_API_KEY`, or check the key that is "
            f"configured for this server.{report.quotation}"
        )
    text = f"{report.message} {report.code}".lower()
    failure = _classify_thinking(report, text) or _classify_model(report, text, server)
    if failure is None and has_any(_NO_CREDIT, text):
        return build_credit_error(report)
    return failure or find_cache_hint_error(report) or _classify_by_status(report)


def _classify_thinking(report: ErrorReport, text: str) -> ProviderError | None:
    """Return the error if the server rejected earlier thinking or the thinking settings, or None otherwise."""
    if is_earlier_thinking_rejected(text):
        return build_thinking_error()
    if has_any(_UNKNOWN_KEY, text):
        if _REASONING_FIELD.search(text):
            error = ThinkingRejected(
                'The server rejects the model\'s earlier thinking: set `reasoning = "none"` under '
                f"`[providers.openai-compatible]` in your config.toml.{report.quotation}"
            )
            error.never_accepted = True
            return error
        return build_thinking_form_error(report, "unset") if _THINKING_FIELD.search(text) else None
    if is_thinking_rejected(text):
        return build_thinking_form_error(report, "unset")
    if _EFFORT.search(text) and has_any(_LEVEL_REFUSED, text):
        if "/v1/responses" in text:
            message = "This model supports tools only in the Responses API: set `provider` to `openai`."
            return BadRequest(f"{message}{report.quotation}")
        if _OFF_REFUSED.search(text):
            return build_thinking_form_error(report, "unset")
        return build_effort_error(report)
    return None


def _classify_model(report: ErrorReport, text: str, server: str) -> ProviderError | None:
    """Return the error if the model is missing, is still loading, or lacks a feature, or None otherwise."""
    if has_any(_TOO_LONG, text):
        return build_context_error(report, " On your own server, you can also raise the context length.")
    if has_any(_NO_TOOLS, text):
        return build_no_tools_error(_extract_model_name(_MODEL_WITHOUT_TOOLS, report, "This model"), report)
    if _NO_MODEL.search(text):
        name = _extract_model_name(_QUOTED_MODEL, report, "")
        is_ollama = _TRY_PULLING in text or server == _OLLAMA
        fetch = f" or download it first (`ollama pull {name}`)" if name and is_ollama else ""
        missing = f"no model {name}" if name else "no such model"
        return BadRequest(f"The server has {missing}: choose another model with `model`{fetch}.{report.quotation}")
    for flags in ("--jinja", "--enable-auto-tool-choice and --tool-call-parser"):
        if flags in text:
            message = f"The server was started without support for tools: start it with {flags}."
            return BadRequest(f"{message}{report.quotation}")
    if report.status == 503 and _LOADING.search(text):
        loading = Overloaded(
            f"The server is still loading its model (503).{report.quotation}",
            retry_after=report.wait_seconds or _LOADING_SECONDS,
        )
        loading.loading = True
        return loading
    return None


def _classify_by_status(report: ErrorReport) -> ProviderError:
    if report.status == 404:
        return BadRequest(
            "The server does not recognize this address or model (404): check `model` and the base URL, which usually "
            f"ends in `/v1`.{report.quotation}"
        )
    if report.status == 405:
        return BadRequest(
            "The server has no chat API at this address (405): check the base URL, which usually ends in `/v1`."
            f"{report.quotation}"
        )
    if report.status == 501:
        return BadRequest(f"The server does not support this request (501).{report.quotation}")
    return classify_by_status(report)


def _extract_model_name(pattern: re.Pattern[str], report: ErrorReport, otherwise: str) -> str:
    """Return the masked model name from the error message, or `otherwise` if the message contains no model name."""
    match = pattern.search(report.message)
    return make_excerpt(match[1].rsplit("/library/", 1)[-1][:200], report.model) if match else otherwise
