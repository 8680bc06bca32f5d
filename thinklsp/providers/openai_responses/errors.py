"""Functions that convert Responses API errors to `ProviderError`s.

Errors inside a stream have no HTTP status and are therefore classified by their code and type.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from thinklsp.core.errors import BadRequest, ProviderError, RateLimited
from thinklsp.providers.budget_errors import find_budget_error
from thinklsp.providers.failures import (
    CompactionRefused,
    ErrorReport,
    ThinkingFormRefused,
    build_context_error,
    build_credit_error,
    build_effort_error,
    build_plain_report,
    build_spend_limit_error,
    build_thinking_error,
    classify_by_status,
    find_cache_hint_error,
    find_output_fault,
    has_any,
    is_earlier_thinking_rejected,
)

# Maps the code or type of an error inside a stream to an HTTP status.
_STATUS_OF_CODE = {
    "authentication_error": 401,
    "invalid_api_key": 401,
    "permission_error": 403,
    "data_residency_mismatch": 403,
    "not_found_error": 404,
    "model_not_found": 404,
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "insufficient_quota": 429,
    "tokens": 429,
    "requests": 429,
    "server_error": 500,
    "vector_store_timeout": 504,
    "server_is_overloaded": 503,
    "overloaded_error": 503,
    "slow_down": 503,
}
_REQUEST_ERROR = re.compile(r"invalid|unsupported|image|policy|violation|context_length|billing")
_TOO_LONG = ("context window", "maximum context length", "available context size")
_REFUSED_VALUE = re.compile(r"value: '([a-z]+)'|does not support '([a-z]+)'")


def parse_stream_failure(error: object) -> ProviderError:
    """Return the error for an error event or for a failed response. The fields of an error event may be nested."""
    fields = error if isinstance(error, dict) else {}
    statuses = (_find_status(fields.get(key)) for key in ("code", "type"))
    status = next((status for status in statuses if status is not None), 500)
    return classify(read_report(status, {"error": error}, "", None))


def _find_status(name: object) -> int | None:
    if isinstance(name, str) and not name.isdecimal():
        return _STATUS_OF_CODE.get(name) or (400 if _REQUEST_ERROR.search(name) else None)
    number = int(name) if isinstance(name, str) and len(name) == 3 else name
    return number if isinstance(number, int) and 400 <= number < 600 else None


def read_report(status: int, content: Mapping[str, Any], plain: str, wait: float | None) -> ErrorReport:
    """Parse an error. Compatible servers use the key `error`, the key `detail`, or no key at all."""
    error = next((content[key] for key in ("error", "detail") if content.get(key)), content)
    if not isinstance(error, dict):
        return build_plain_report(status, content, plain, wait)
    message = str(error.get("message") or plain)
    code, param = str(error.get("code") or error.get("type") or ""), str(error.get("param") or "")
    return ErrorReport(status, message, code, wait, param=param, kind=str(error.get("type") or ""))


def classify(report: ErrorReport) -> ProviderError:
    if (common_error := find_budget_error(report) or find_output_fault(report)) is not None:
        return common_error
    text = report.message.lower()
    if report.code == "context_length_exceeded":
        return build_context_error(report)
    if report.code in ("insufficient_quota", "billing_not_active"):
        return build_credit_error(report)
    if report.code == "billing_hard_limit_reached":
        return build_spend_limit_error(report)
    if report.status == 429 and "request too large" in text:
        return _build_request_size_error(report)
    if report.code == "invalid_encrypted_content":
        return build_thinking_error()
    # Some servers respond with status 404 if an item in the conversation is missing.
    if report.status in (400, 404, 422):
        return _classify_bad_request(report, text)
    return classify_by_status(report)


def _classify_bad_request(report: ErrorReport, text: str) -> ProviderError:
    param = report.param
    # Check for compaction errors first, because their text may also mention the context window.
    if param.startswith("context_management") or "'context_management" in text:
        return CompactionRefused(
            "The provider does not offer compaction for this model: "
            f"set `compaction.by` to `thinklsp`.{report.quotation}"
        )
    if has_any(_TOO_LONG, text):
        return build_context_error(report)
    if is_earlier_thinking_rejected(text):
        return build_thinking_error()
    if (hint_error := find_cache_hint_error(report)) is not None:
        return hint_error
    if param == "reasoning.summary" or "reasoning summaries" in text or "reasoning.summary" in text:
        return BadRequest(
            "The provider offers no readable thinking summaries for this account or this model: set "
            "`thinking.display` to `status`, or verify the organization in the provider's console."
            f"{report.quotation}"
        )
    if param == "reasoning.effort" or "reasoning.effort" in text:
        return _classify_effort_error(report, text)
    if param.startswith("reasoning") or "encrypted content is not supported" in text:
        return _build_no_thinking_error(report)
    return classify_by_status(report)


def _classify_effort_error(report: ErrorReport, text: str) -> ProviderError:
    """Return the error for a rejected effort, or for a model that does not support thinking."""
    if "unsupported parameter" in text or report.code == "unsupported_parameter":
        return _build_no_thinking_error(report)
    match = _REFUSED_VALUE.search(text)
    if match is not None and "none" in match.groups():
        return ThinkingFormRefused(
            f"The model cannot turn thinking off: set `thinking.mode` to `auto`.{report.quotation}", "adaptive"
        )
    return build_effort_error(report)


def _build_no_thinking_error(report: ErrorReport) -> ProviderError:
    return ThinkingFormRefused(
        f"The model rejected this form of thinking: set `effort` and `thinking.mode` to `auto`.{report.quotation}",
        "unset",
    )


def _build_request_size_error(report: ErrorReport) -> ProviderError:
    """Return the error for a request that is larger than the account's per-minute limit. Waiting does not help."""
    return RateLimited(
        "The request exceeds the account's rate limit on its own (429): compact the conversation, start a new "
        f"session, or raise the limit in the provider's console.{report.quotation}",
        retryable=False,
    )
