"""Failures of the Messages API as our errors, with sentences that a user can act on.

The same table serves HTTP statuses and errors that arrive in mid-stream under status 200, which go by their type.
Wording of the service is matched on short fragments, since it is documented to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from thinklsp.core.errors import ProviderError
from thinklsp.providers.base import ThinkingForm
from thinklsp.providers.failures import (
    Report,
    cache_hint_refused,
    failure_by_status,
    no_credit,
    refuses_earlier_thinking,
    refuses_thinking,
    spend_limit,
    thinking_rejected,
    too_long,
)
from thinklsp.providers.service_errors import (
    EffortRefused,
    ThinkingCountsRefused,
    ThinkingFormRefused,
    json_object,
    retry_after,
    should_retry,
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
# What the service says about a form of thinking -> the form that the model takes instead.
_REFUSED_FORMS: Mapping[str, ThinkingForm] = {
    '"type": "between_tools"} instead of': "between_tools",
    "adaptive thinking is not supported on this model": "unset",
    '"thinking.type.enabled" is not supported': "adaptive",
    '"thinking.type.disabled" is not supported': "adaptive",
    '"thinking.type.between_tools" is not supported': "off",
}
# What services that speak this dialect say where they know only some of the forms: the tag, or a field in it.
_UNKNOWN_FORM = ("thinking: input tag", "thinking.adaptive.", "thinking.between_tools.")
# The last two: gateways that translate for other services use those services' names.
_EFFORT = ("output_config", "effort parameter", "reasoning.effort", "reasoning_effort")
# Part of the name of the beta.
_COUNTS = "thinking-token-count"
_BOUND = "bound to a different conversation"


def failure_of_answer(status: int, headers: Mapping[str, str], body: bytes, model: str = "") -> ProviderError:
    """Classify an HTTP answer that is not a stream. `model`: the id that the request asked for."""
    content = json_object(body)
    error = content.get("error")
    plain = "" if content else body[:10_000].decode("utf-8", "replace")
    failure = _classify(replace(_report(status, error, plain, retry_after(headers)), model=model))
    override = should_retry(headers)
    if override is not None:
        failure.retryable = override
    return failure


def failure_in_stream(content: Mapping[str, Any]) -> ProviderError:
    """An error event, or an error object that came with status 200."""
    error = content.get("error")
    kind = error.get("type") if isinstance(error, dict) else None
    return _classify(_report(_STATUS_OF_TYPE.get(str(kind), 500), error, "", None))


def _report(status: int, error: object, plain: str, wait: float | None) -> Report:
    """Some services in between send the error as a bare string."""
    if not isinstance(error, dict):
        return Report(status, error if isinstance(error, str) else plain, "", wait)
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, dict) else None
    return Report(status, str(error.get("message") or ""), str(code or ""), wait)


def _classify(report: Report) -> ProviderError:
    if report.status in (400, 422):
        return _bad_request(report)
    if report.status == 429 and report.wait is None and report.code == "enforced_spend_limit_reached":
        return spend_limit(report)
    return failure_by_status(report)


def _bad_request(report: Report) -> ProviderError:
    text = report.message.lower()
    if any(fragment in text for fragment in _TOO_LONG):
        return too_long(report)
    if refuses_earlier_thinking(text):
        return thinking_rejected(bound=_BOUND in text)
    for fragment, instead in _REFUSED_FORMS.items():
        if fragment in text:
            return ThinkingFormRefused(
                f"The model does not take thinking as it was asked for: change thinking.mode.{report.said}", instead
            )
    if refuses_thinking(text) or any(fragment in text for fragment in _UNKNOWN_FORM):
        return ThinkingFormRefused(
            f"The service does not know this way to ask for thinking: change thinking.mode.{report.said}", "unset"
        )
    if (refused := cache_hint_refused(report)) is not None:
        return refused
    if _COUNTS in text:
        return ThinkingCountsRefused(f"The service does not count tokens while the model thinks.{report.said}")
    if any(fragment in text for fragment in _EFFORT):
        return EffortRefused(f"The model does not take this effort: change `effort`.{report.said}")
    if "credit balance is too low" in text:
        return no_credit(report)
    if "reached your specified api usage limits" in text:
        return spend_limit(report)
    return failure_by_status(report)
