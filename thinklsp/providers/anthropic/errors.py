"""Functions that convert Messages API errors to `ProviderError`s.

Errors inside a stream have no HTTP status and are therefore classified by their type.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from thinklsp.core.errors import ProviderError
from thinklsp.providers.base import ThinkingForm
from thinklsp.providers.budget_errors import find_budget_error
from thinklsp.providers.failures import (
    ErrorReport,
    ThinkingCountsRefused,
    ThinkingFormRefused,
    build_context_error,
    build_credit_error,
    build_effort_error,
    build_plain_report,
    build_spend_limit_error,
    build_thinking_error,
    build_thinking_form_error,
    classify_by_status,
    find_cache_hint_error,
    find_output_fault,
    has_any,
    is_earlier_thinking_rejected,
    is_thinking_rejected,
)

_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "billing_error": 402,
    "permission_error": 403,
    "not_found_error": 404,
    "conflict_error": 409,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
_TOO_LONG = ("prompt is too long", "exceed context limit")
# Maps the error text for a rejected form of thinking to a form that the model accepts.
_REFUSED_FORMS: Mapping[str, ThinkingForm] = {
    '"type": "between_tools"} instead of': "between_tools",
    "adaptive thinking is not supported on this model": "unset",
    '"thinking.type.enabled" is not supported': "adaptive",
    '"thinking.type.disabled" is not supported': "adaptive",
    '"thinking.type.between_tools" is not supported': "off",
}
# Error texts from compatible servers that support only some forms of thinking. These servers report an unknown type or
# an unknown field.
_UNKNOWN_FORM = ("thinking: input tag", "thinking.adaptive.", "thinking.between_tools.")
# Error texts for a rejected effort. The last two come from gateways that use other providers' field names.
_EFFORT = ("output_config", "effort parameter", "reasoning.effort", "reasoning_effort")
# A part of the token count beta's name, which appears in the error if the provider rejects the beta.
_COUNTS_BETA = "thinking-token-count"
_PREFIX_CHANGED = "bound to a different conversation"


def parse_stream_failure(content: Mapping[str, Any]) -> ProviderError:
    """Return the error for an error event, or for an error object in a response with status 200."""
    error = content.get("error")
    kind = error.get("type") if isinstance(error, dict) else None
    return classify(read_report(_STATUS_OF_TYPE.get(str(kind), 500), content, "", None))


def read_report(status: int, content: Mapping[str, Any], plain: str, wait: float | None) -> ErrorReport:
    error = content.get("error")
    if not isinstance(error, dict):
        return build_plain_report(status, content, plain, wait)
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, dict) else error.get("code")
    return ErrorReport(
        status, str(error.get("message") or ""), str(code or ""), wait, kind=str(error.get("type") or "")
    )


def classify(report: ErrorReport) -> ProviderError:
    if (common_error := find_budget_error(report) or find_output_fault(report)) is not None:
        return common_error
    if report.status in (400, 422):
        return _classify_bad_request(report)
    if report.status == 429 and report.wait_seconds is None and report.code == "enforced_spend_limit_reached":
        return build_spend_limit_error(report)
    return classify_by_status(report)


def _classify_bad_request(report: ErrorReport) -> ProviderError:
    text = report.message.lower()
    if has_any(_TOO_LONG, text):
        return build_context_error(report)
    if is_earlier_thinking_rejected(text):
        return build_thinking_error(prefix_changed=_PREFIX_CHANGED in text)
    for fragment, instead in _REFUSED_FORMS.items():
        if fragment in text:
            return build_thinking_form_error(report, instead)
    if is_thinking_rejected(text) or has_any(_UNKNOWN_FORM, text):
        return ThinkingFormRefused(
            f"The provider does not recognize this form of thinking: change `thinking.mode`.{report.quotation}", "unset"
        )
    if (hint_error := find_cache_hint_error(report)) is not None:
        return hint_error
    if _COUNTS_BETA in text:
        return ThinkingCountsRefused(f"The provider does not count tokens while the model thinks.{report.quotation}")
    if has_any(_EFFORT, text):
        return build_effort_error(report)
    if "credit balance is too low" in text:
        return build_credit_error(report)
    if "reached your specified api usage limits" in text:
        return build_spend_limit_error(report)
    return classify_by_status(report)
