"""Failures of the Messages API as our errors, with sentences that a user can act on.

The same table serves HTTP statuses and errors that arrive in mid-stream under status 200, which go by their type.
Wording of the service is matched on short fragments, since it is documented to change.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from thinklsp.core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    ProviderError,
    RateLimited,
)
from thinklsp.providers.base import ThinkingForm
from thinklsp.providers.service_errors import (
    ThinkingFormRefused,
    ThinkingRejected,
    excerpt,
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
_BOUND = "bound to a different conversation"
_FOREIGN_THINKING = ("invalid `signature` in `thinking` block", "cannot be modified", _BOUND)


@dataclass(frozen=True, slots=True)
class _Report:
    """What the service said, brought into one form. `said` ends as part of a sentence and may be empty."""

    status: int
    message: str
    code: str
    wait: float | None

    @property
    def said(self) -> str:
        line = excerpt(self.message)
        return f" The service says: {line}" if line else ""


def failure_of_answer(status: int, headers: Mapping[str, str], body: bytes) -> ProviderError:
    """An HTTP answer that is no stream."""
    content = json_object(body)
    error = content.get("error")
    plain = "" if content else body[:10_000].decode("utf-8", "replace")
    failure = _classify(_report(status, error, plain, retry_after(headers)))
    override = should_retry(headers)
    if override is not None:
        failure.retryable = override
    return failure


def failure_in_stream(content: Mapping[str, Any]) -> ProviderError:
    """An error event, or an error object that came with status 200."""
    error = content.get("error")
    kind = error.get("type") if isinstance(error, dict) else None
    return _classify(_report(_STATUS_OF_TYPE.get(str(kind), 500), error, "", None))


def _report(status: int, error: object, plain: str, wait: float | None) -> _Report:
    """Some services in between send the error as a bare string."""
    if not isinstance(error, dict):
        return _Report(status, error if isinstance(error, str) else plain, "", wait)
    details = error.get("details")
    code = details.get("error_code") if isinstance(details, dict) else None
    return _Report(status, str(error.get("message") or ""), str(code or ""), wait)


def _classify(report: _Report) -> ProviderError:
    match report.status:
        case 401:
            return AuthenticationFailed(
                "The service refused the API key (401): check where the key comes from (environment variable, keyring "
                f"or command) and that it belongs to this service.{report.said}"
            )
        case 403:
            return AuthenticationFailed(f"The API key is not allowed to do this (403).{report.said}")
        case 402:
            return _no_credit(report)
        case 404:
            return BadRequest(
                f"The service does not know this model or address (404): check `model` and the base URL.{report.said}"
            )
        case 413:
            return ContextWindowExceeded(
                "The conversation is larger than the service takes in one request (413): compact it or begin a new one."
            )
        case 429:
            return _rate_limited(report)
        case 408 | 409:
            return Overloaded(
                f"The service could not finish the request ({report.status}).{report.said}", retry_after=report.wait
            )
        case status if status >= 500:
            return _overloaded(report)
        case status if status < 400:
            return BadRequest(
                f"The address answered, but not with a message ({status}): check the base URL.{report.said}"
            )
        case _:
            return _bad_request(report)


def _bad_request(report: _Report) -> ProviderError:
    text = report.message.lower()
    if any(fragment in text for fragment in _TOO_LONG):
        return ContextWindowExceeded(
            f"The conversation is longer than the model can read: compact it or begin a new one.{report.said}"
        )
    if any(fragment in text for fragment in _FOREIGN_THINKING):
        rejected = ThinkingRejected(
            "The service no longer takes the earlier thinking of this conversation: compact it or begin a new one."
        )
        rejected.bound = _BOUND in text
        return rejected
    for fragment, instead in _REFUSED_FORMS.items():
        if fragment in text:
            return ThinkingFormRefused(
                f"The model does not take thinking as it was asked for: change thinking.mode.{report.said}", instead
            )
    if "credit balance is too low" in text:
        return _no_credit(report)
    if "reached your specified api usage limits" in text:
        return _spend_limit(report)
    return BadRequest(f"The service refused the request ({report.status}).{report.said}")


def _no_credit(report: _Report) -> ProviderError:
    return BadRequest(
        f"The account behind the API key has no credit left ({report.status}): add credit in the service's console."
    )


def _spend_limit(report: _Report) -> ProviderError:
    limit = RateLimited(
        f"The account has reached its spend limit ({report.status}): raise it in the service's console or wait until "
        f"it is reset.{report.said}"
    )
    limit.retryable = False
    return limit


def _rate_limited(report: _Report) -> ProviderError:
    if report.wait is None and report.code == "enforced_spend_limit_reached":
        return _spend_limit(report)
    return RateLimited(
        f"The service's rate limit for this account is reached (429).{report.said}", retry_after=report.wait
    )


def _overloaded(report: _Report) -> ProviderError:
    cause = "is overloaded" if report.status in (503, 529) else "has a problem of its own"
    return Overloaded(
        f"The service {cause} ({report.status}): try again in a few minutes.{report.said}", retry_after=report.wait
    )
