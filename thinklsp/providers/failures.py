"""What every service means by an HTTP status, as our errors, with sentences that a user can act on.

What a service says in words of its own stands in its `errors` module, which looks first and asks here for the rest.
"""

from __future__ import annotations

from dataclasses import dataclass

from thinklsp.core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    ProviderError,
    RateLimited,
)
from thinklsp.providers.service_errors import ThinkingRejected, excerpt


@dataclass(frozen=True, slots=True)
class Report:
    """What the service said, brought into one form. `code` is its own name for the error, `wait` in seconds.

    `said` is a sentence with a blank before it, or empty.
    """

    status: int
    message: str
    code: str
    wait: float | None

    @property
    def said(self) -> str:
        line = excerpt(self.message)
        return f" The service says: {line}{'' if line[-1] in '.!?…' else '.'}" if line else ""


def failure_by_status(report: Report) -> ProviderError:
    match report.status:
        case 401:
            return AuthenticationFailed(
                "The service refused the API key (401): check where the key comes from (environment variable, keyring "
                f"or command) and that it belongs to this service.{report.said}"
            )
        case 403:
            return AuthenticationFailed(f"The API key is not allowed to do this (403).{report.said}")
        case 402:
            return no_credit(report)
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
            return BadRequest(f"The service refused the request ({report.status}).{report.said}")


def too_long(report: Report) -> ContextWindowExceeded:
    return ContextWindowExceeded(
        f"The conversation is longer than the model can read: compact it or begin a new one.{report.said}"
    )


def thinking_rejected(*, bound: bool = False, never: bool = False) -> ThinkingRejected:
    error = ThinkingRejected(
        "The service no longer takes the earlier thinking of this conversation: compact it or begin a new one."
    )
    error.bound, error.never = bound, never
    return error


def no_credit(report: Report) -> ProviderError:
    return BadRequest(
        f"The account behind the API key has no credit left ({report.status}): add credit in the service's console."
    )


def spend_limit(report: Report) -> ProviderError:
    limit = RateLimited(
        f"The account has reached its spend limit ({report.status}): raise it in the service's console or wait until "
        f"it is reset.{report.said}"
    )
    limit.retryable = False
    return limit


def spent_for_today(report: Report) -> ProviderError:
    limit = RateLimited(
        f"The account's quota of the day for this model is used up ({report.status}): choose another model, raise the "
        f"quota in the service's console, or wait until tomorrow.{report.said}"
    )
    limit.retryable = False
    return limit


def _rate_limited(report: Report) -> ProviderError:
    return RateLimited(
        f"The service's rate limit for this account is reached (429).{report.said}", retry_after=report.wait
    )


def _overloaded(report: Report) -> ProviderError:
    cause = "is overloaded" if report.status in (503, 529) else "has a problem of its own"
    return Overloaded(
        f"The service {cause} ({report.status}): try again in a few minutes.{report.said}", retry_after=report.wait
    )
