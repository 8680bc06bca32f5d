"""What every service means by an HTTP status, as our errors, with sentences that a user can act on.

What a service says in words of its own stands in its `errors` module, which looks first and asks here for the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from thinklsp.core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    ProviderError,
    RateLimited,
)
from thinklsp.providers.service_errors import CacheHintRefused, ThinkingRejected, excerpt

# Phrases by which services refuse earlier thinking: it is missing, changed, damaged, or another service's. A gateway
# passes on the phrases of every service behind it, so all dialects look for all of them. Sources: the vendors'
# documentation of errors, and LiteLLM 1.106 in front of Claude, GPT and Gemini.
_EARLIER_THINKING = re.compile(
    r"invalid `?signature`? in `?thinking|thinking`? blocks .*cannot be modified|bound to a different conversation"
    r"|expected `?thinking`? or `?redacted_thinking|must be passed back"
    r"|encrypted[ _]content\b.*could not be verified|invalid_encrypted_content"
    r"|was provided without its required|item with id '[^']*' not found"
    r"|thought[_ ]?signature|continuation[_ ]token",
    re.DOTALL,
)
# Phrases by which a service says that the model cannot think, or cannot stop, as it was asked to.
_NO_THINKING = (
    "does not support thinking",
    "does not support reasoning",
    "thinking is not supported",
    "reasoning is not supported",
    "reasoning is mandatory",
)
_CACHE_HINTS = re.compile(r"prompt_cache_key|cache_control")
_REFUSED_FIELD = (
    "not support",
    "not permitted",
    "unsupported",
    "unknown",
    "unrecognized",
    "unexpected",
    "extra_forbidden",
    "additional properties",
)


@dataclass(frozen=True, slots=True)
class Report:
    """What the service said, brought into one form. `code` is its own name for the error, `wait` in seconds, `model`
    the id that the request asked for.

    `said` is a sentence with a blank before it, or empty.
    """

    status: int
    message: str
    code: str
    wait: float | None
    model: str = ""

    @property
    def said(self) -> str:
        line = excerpt(self.message, self.model)
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
        case 400 | 422:
            refused = BadRequest(f"The service refused the request ({report.status}).{report.said}")
            refused.unexplained = True
            return refused
        case _:
            return BadRequest(f"The service refused the request ({report.status}).{report.said}")


def refuses_earlier_thinking(text: str) -> bool:
    """Whether an error's text, in lower case, says that the thinking in the conversation is not accepted."""
    return _EARLIER_THINKING.search(text) is not None


def refuses_thinking(text: str) -> bool:
    """Whether an error's text, in lower case, says that the model does not think in the way that was asked for."""
    return any(phrase in text for phrase in _NO_THINKING)


def cache_hint_refused(report: Report) -> CacheHintRefused | None:
    """Return the error for a refused `prompt_cache_key` or `cache_control`, None if something else was refused."""
    text = report.message.lower()
    if _CACHE_HINTS.search(text) is None or not any(phrase in text for phrase in _REFUSED_FIELD):
        return None
    return CacheHintRefused(f"The service does not accept hints for its prompt cache.{report.said}")


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
