"""Functions that convert generateContent errors to `ProviderError`s.

Errors inside a stream have no HTTP status and are therefore classified by their code.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from thinklsp.core.errors import Overloaded, ProviderError
from thinklsp.providers.base import ThinkingForm
from thinklsp.providers.budget_errors import find_budget_error
from thinklsp.providers.failures import (
    ErrorReport,
    build_context_error,
    build_daily_quota_error,
    build_effort_error,
    build_key_error,
    build_no_tools_error,
    build_plain_report,
    build_thinking_error,
    build_thinking_form_error,
    classify_by_status,
    find_output_fault,
    has_any,
    is_earlier_thinking_rejected,
)

_STATUS_OF_NAME = {
    "INVALID_ARGUMENT": 400,
    "FAILED_PRECONDITION": 400,
    "OUT_OF_RANGE": 400,
    "UNAUTHENTICATED": 401,
    "PERMISSION_DENIED": 403,
    "NOT_FOUND": 404,
    "ABORTED": 409,
    "RESOURCE_EXHAUSTED": 429,
    "CANCELLED": 499,
    "INTERNAL": 500,
    "UNAVAILABLE": 503,
    "DEADLINE_EXCEEDED": 504,
}
_CANCELLED_STATUS = 499
_BAD_KEY = ("api key not valid", "api key expired", "api_key_invalid")
_TOO_LONG = ("exceeds the maximum number of tokens", "input token count", "request payload size exceeds")
_LEVEL = ("thinking level", "thinking_level", "thinkinglevel")
# Maps the error text for a rejected form of thinking to a form that the model accepts. The first match is used.
_REFUSED_FORMS: Mapping[str, ThinkingForm] = {
    "thinking is not enabled for this model": "unset",
    "does not support thinking": "unset",
    "include_thoughts is only enabled when thinking is": "unset",
    "budget 0 is invalid": "adaptive",
    "only works in thinking mode": "adaptive",
    "thinking budget": "adaptive",
    "thinking_budget": "adaptive",
    "thinkingbudget": "adaptive",
}
# Matches the error text of models that do not support tools, such as models that generate only images.
_NO_TOOLS = re.compile(r"(?i)function calling is not (?:enabled|supported)(?: for (?:models/)?([\w.-]*\w))?")
# A string that is part of the name of every daily limit.
_DAILY_LIMIT = "PerDay"
_DELAY = re.compile(r"(\d+(?:\.\d+)?)s")


def parse_stream_failure(content: Mapping[str, Any]) -> ProviderError:
    """Return the error for an error object in a response with status 200."""
    return classify(read_report(_find_status(content.get("error")), content, "", None))


def _find_status(error: object) -> int:
    """Return the HTTP status that corresponds to an error's code or status name."""
    if not isinstance(error, dict):
        return 500
    code = error.get("code")
    if isinstance(code, int) and 400 <= code < 600:
        return code
    return _STATUS_OF_NAME.get(str(error.get("status")), 500)


def read_report(status: int, content: Mapping[str, Any], plain: str, wait: float | None) -> ErrorReport:
    error = content.get("error")
    if not isinstance(error, dict):
        return build_plain_report(status, content, plain, wait)
    details = error.get("details")
    facts = [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []
    own_wait = _parse_retry_delay(facts)
    return ErrorReport(
        status,
        str(error.get("message") or ""),
        _find_reason(facts),
        wait if own_wait is None else own_wait,
        kind=str(error.get("type") or ""),
    )


def _find_reason(facts: Sequence[Mapping[str, Any]]) -> str:
    """Return the reason for an error.

    A daily limit takes precedence over other reasons, because a retry after a short delay does not help.
    """
    if any(_DAILY_LIMIT in str(fact.get("violations")) for fact in facts):
        return _DAILY_LIMIT
    return next((fact["reason"] for fact in facts if isinstance(fact.get("reason"), str)), "")


def _parse_retry_delay(facts: Sequence[Mapping[str, Any]]) -> float | None:
    """Parse the retry delay in seconds, which Gemini sends in the body instead of a header."""
    for fact in facts:
        match = _DELAY.fullmatch(str(fact.get("retryDelay")))
        if match:
            return float(match[1])
    return None


def classify(report: ErrorReport) -> ProviderError:
    if (common_error := find_budget_error(report) or find_output_fault(report)) is not None:
        return common_error
    if report.status == 400:
        return _classify_bad_request(report)
    if report.status == _CANCELLED_STATUS:
        return Overloaded(f"The provider aborted the request ({report.status}).{report.quotation}")
    if report.status == 429 and report.code == _DAILY_LIMIT:
        return build_daily_quota_error(report)
    return classify_by_status(report)


def _classify_bad_request(report: ErrorReport) -> ProviderError:
    text = report.message.lower()
    if report.code == "API_KEY_INVALID" or has_any(_BAD_KEY, text):
        return build_key_error(report)
    if has_any(_TOO_LONG, text):
        return build_context_error(report)
    if is_earlier_thinking_rejected(text):
        return build_thinking_error()
    if (match := _NO_TOOLS.search(report.message)) is not None:
        return build_no_tools_error(match[1] or "This model", report)
    if has_any(_LEVEL, text):
        return build_effort_error(report)
    for fragment, instead in _REFUSED_FORMS.items():
        if fragment in text:
            return build_thinking_form_error(report, instead)
    return classify_by_status(report)
