"""Functions that convert provider errors to `ProviderError`s with messages that tell the user what to do.

Each API's `errors` module first checks for that API's own error texts and then uses this module. Error texts are
matched by short fragments, because providers may change the exact wording.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from thinklsp.core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    ProviderError,
    RateLimited,
    StreamProtocolError,
)
from thinklsp.core.text_safety import make_excerpt
from thinklsp.providers.base import ThinkingForm
from thinklsp.providers.decoding import parse_json_object
from thinklsp.providers.output_room import OutputTooLong, find_output_room
from thinklsp.providers.retry_delays import find_reset, is_day_limit, parse_retry_after, parse_wait, should_retry

# Error texts for earlier thinking that is missing, changed, damaged or from another provider. Gateways pass on the
# error texts of many providers, so these texts are checked for every API. They come from the providers' error
# documentation and from LiteLLM 1.106.
_EARLIER_THINKING = re.compile(
    r"invalid `?signature`? in `?thinking|thinking`? blocks .*cannot be modified|bound to a different conversation"
    r"|expected `?thinking`? or `?redacted_thinking|must be passed back"
    r"|encrypted[ _]content\b.*could not be verified|invalid_encrypted_content"
    r"|was provided without its required|item with id '[^']*' not found"
    r"|thought[_ ]?signature|continuation[_ ]token",
    re.DOTALL,
)
# Error texts for models that do not support the requested thinking mode, such as models without thinking.
_NO_THINKING = (
    "does not support thinking",
    "does not support reasoning",
    "thinking is not supported",
    "reasoning is not supported",
    "reasoning is mandatory",
)
# Error texts for output of the model that the provider could not read, which it reports like a fault of the request.
_OUTPUT_FAULT = re.compile(
    r"tool_use_failed|json_validate_failed|output_parse_failed|tool call validation failed|error parsing tool call"
)
# Matches the error text for a model that the account may not use at all.
_NO_QUOTA = re.compile(r"\blimit: 0(?![\d.]*\d)")
_CACHE_HINTS = re.compile(r"prompt_cache_key|cache_control")
_NOT_FOUND = 404
_REJECTED_FIELD = (
    "not support",
    "not permitted",
    "unsupported",
    "unknown",
    "unrecognized",
    "unexpected",
    "extra_forbidden",
    "additional properties",
)


class ThinkingRejected(BadRequest):
    """The error raised when a provider rejects earlier thinking in the conversation.

    The request may succeed without the earlier thinking. `prefix_changed` is true if messages before the thinking have
    changed. `never_accepted` is true if the provider rejects all earlier thinking.
    """

    prefix_changed = False
    never_accepted = False


class OutputRejected(StreamProtocolError):
    """The error raised when the provider could not read the model's output. The model can do better if told why."""


class CompactionRefused(BadRequest):
    """The error raised when a provider does not support compaction for the model."""


class CacheHintRefused(BadRequest):
    """The error raised when a provider rejects prompt cache hints."""


class ThinkingCountsRefused(BadRequest):
    """The error raised when a provider cannot report token counts while the model is thinking."""


class EffortRefused(BadRequest):
    """The error raised when a model rejects the requested effort, or any effort."""


class ThinkingFormRefused(BadRequest):
    """The error raised when a model rejects the requested form of thinking.

    `instead` is the form of thinking to use in the next request.
    """

    def __init__(self, message: str, instead: ThinkingForm) -> None:
        super().__init__(message)
        self.instead: ThinkingForm = instead


class BudgetExceeded(RateLimited):
    """The error raised when a budget is used up. `retry_after` is the time until it is reset, if the service says."""

    retryable = False


@dataclass(frozen=True, slots=True)
class ErrorReport:
    """A provider error in a common format.

    `code` is the provider's own name for the error, and `kind` is the error's `type`, if it has one. `model` is the
    requested model ID. `param` is the request field that the provider rejects. `wait_seconds` is the delay that the
    provider asked for.
    """

    status: int
    message: str
    code: str
    wait_seconds: float | None = None
    model: str = ""
    param: str = ""
    kind: str = ""

    @property
    def quotation(self) -> str:
        """The provider's message as a sentence that can be appended to another sentence, or an empty string."""
        line = make_excerpt(self.message, self.model)
        return f" The provider says: {line}{'' if line[-1] in '.!?…' else '.'}" if line else ""


ReportReader = Callable[[int, Mapping[str, Any], str, float | None], ErrorReport]
"""Builds a report from the HTTP status, the JSON object or plain text, and the retry delay in seconds."""


def classify_response(
    status: int,
    headers: Mapping[str, str],
    body: bytes,
    model: str,
    read_report: ReportReader,
    classify: Callable[[ErrorReport], ProviderError],
) -> ProviderError:
    """Return the error for a non-streaming HTTP response."""
    content = parse_json_object(body)
    plain = "" if content else body[:10_000].decode("utf-8", "replace")
    report = replace(read_report(status, content, plain, parse_retry_after(headers)), model=model)
    if report.wait_seconds is None and is_day_limit(report.message):
        report = replace(report, wait_seconds=find_reset(content, headers))
    failure = classify(report)
    override = should_retry(headers)
    # A retry does not help before the budget is raised or paid.
    if override is not None and status != 402 and not isinstance(failure, BudgetExceeded):
        failure.retryable = override
    return failure


def name_address(error: ProviderError, status: int, url: str, model: str) -> ProviderError:
    """Add the address and the model to the error if the address or the model was not found."""
    if status == _NOT_FOUND:
        error.args = (f"{error} The request for {model or 'no model'} went to {url}.",)
    return error


def build_plain_report(status: int, content: Mapping[str, Any], plain: str, wait_seconds: float | None) -> ErrorReport:
    """Return the report for a response without an error object, for example one with a plain text from a gateway."""
    texts = (read_words(content.get(key)) for key in ("error", "detail", "message"))
    return ErrorReport(status, next(filter(None, texts), plain), "", wait_seconds)


def read_words(value: object) -> str:
    """Return an error text, or the texts of a list of errors, as FastAPI sends it. Return "" for anything else."""
    if isinstance(value, list):
        return "; ".join(_read_item(item) if isinstance(item, dict) else str(item) for item in value)
    return value if isinstance(value, str) else ""


def _read_item(item: Mapping[str, Any]) -> str:
    """Return the text of an error in a list, behind the name of the field that it is about."""
    place, text = item.get("loc"), str(item.get("msg") or item.get("message") or item)
    return f"{'.'.join(map(str, place))}: {text}" if isinstance(place, list) else text


def classify_by_status(report: ErrorReport) -> ProviderError:
    """Return the error that corresponds to the HTTP status."""
    match report.status:
        case 401:
            return build_key_error(report)
        case 403:
            return AuthenticationFailed(f"The API key is not allowed to do this (403).{report.quotation}")
        case 402:
            return build_credit_error(report)
        case 404:
            return BadRequest(
                "The provider does not recognize this model or address (404): "
                f"check `model` and the base URL.{report.quotation}"
            )
        case 413:
            return ContextWindowExceeded(
                "The conversation is too large for one request to this provider (413): compact it or start a new "
                "session."
            )
        case 429:
            return _build_rate_limit_error(report)
        case 408 | 409:
            return Overloaded(
                f"The provider could not complete the request ({report.status}).{report.quotation}",
                retry_after=report.wait_seconds,
            )
        case status if status >= 500:
            return _build_overload_error(report)
        case status if status < 400:
            return BadRequest(f"The response was not a model answer ({status}): check the base URL.{report.quotation}")
        case _:
            rejection = BadRequest(f"The provider rejected the request ({report.status}).{report.quotation}")
            rejection.unexplained = report.status in (400, 422)
            return rejection


def build_key_error(report: ErrorReport) -> AuthenticationFailed:
    """Return the error for an API key that the provider rejected."""
    return AuthenticationFailed(
        f"The provider rejected the API key ({report.status}): check the source of the key (environment variable, "
        f"keyring or command) and that the key belongs to this provider.{report.quotation}"
    )


def is_earlier_thinking_rejected(text: str) -> bool:
    """Return whether a lowercase error text rejects earlier thinking in the conversation."""
    return _EARLIER_THINKING.search(text) is not None


def is_thinking_rejected(text: str) -> bool:
    """Return whether a lowercase error text states that the model does not support the requested thinking mode."""
    return has_any(_NO_THINKING, text)


def has_any(fragments: Iterable[str], text: str) -> bool:
    """Return whether the text contains any of the fragments."""
    return any(fragment in text for fragment in fragments)


def find_cache_hint_error(report: ErrorReport) -> CacheHintRefused | None:
    """Return the error for a rejected `prompt_cache_key` or `cache_control` field.

    Return None if the error does not concern these fields.
    """
    text = report.message.lower()
    if _CACHE_HINTS.search(text) is None or not has_any(_REJECTED_FIELD, text):
        return None
    return CacheHintRefused(f"The provider does not accept prompt cache hints.{report.quotation}")


def build_context_error(report: ErrorReport, advice: str = "") -> ContextWindowExceeded:
    """Return the error for a request that exceeds the model's context window. `advice` is one more sentence."""
    if (left := find_output_room(report.message)) is not None:
        return OutputTooLong(
            "The conversation and `maxTokens` together exceed the model's context window: lower `maxTokens`, or "
            f"compact the conversation.{advice}{report.quotation}",
            left,
        )
    return ContextWindowExceeded(
        "The conversation exceeds the model's context window: compact it or start a new session."
        f"{advice}{report.quotation}"
    )


def build_thinking_form_error(report: ErrorReport, instead: ThinkingForm) -> ThinkingFormRefused:
    """Return the error for a rejected form of thinking. `instead` is the form to use in the next request."""
    return ThinkingFormRefused(
        f"The model rejected this form of thinking: change `thinking.mode`.{report.quotation}", instead
    )


def build_effort_error(report: ErrorReport) -> EffortRefused:
    """Return the error for a rejected effort."""
    return EffortRefused(f"The model rejected this effort: change `effort`.{report.quotation}")


def build_no_tools_error(name: str, report: ErrorReport) -> BadRequest:
    """Return the error for a model that cannot call tools."""
    return BadRequest(
        f"{name} cannot call tools, which thinklsp needs: choose another model with `model`.{report.quotation}"
    )


def build_thinking_error(*, prefix_changed: bool = False, never_accepted: bool = False) -> ThinkingRejected:
    """Return the error for earlier thinking that the provider rejected."""
    error = ThinkingRejected(
        "The provider rejected the earlier thinking in this conversation: compact it or start a new session."
    )
    error.prefix_changed, error.never_accepted = prefix_changed, never_accepted
    return error


def build_credit_error(report: ErrorReport) -> ProviderError:
    """Return the error for an account without credit."""
    return BadRequest(
        f"The API key's account has no credit left ({report.status}): add credit in the provider's console."
        f"{report.quotation}"
    )


def build_spend_limit_error(report: ErrorReport) -> ProviderError:
    """Return the error for an account that has reached its spend limit."""
    return RateLimited(
        f"The account has reached its spend limit ({report.status}): raise the limit in the provider's console or "
        f"wait until it is reset.{report.quotation}",
        retryable=False,
    )


def build_daily_quota_error(report: ErrorReport, wait_seconds: float | None = None) -> ProviderError:
    """Return the error for an exhausted daily quota. Another attempt is made only if the wait is known and short."""
    if _NO_QUOTA.search(report.message):
        return RateLimited(
            f"This account has no quota for this model ({report.status}): choose another model, or enable billing in "
            f"the provider's console.{report.quotation}",
            retryable=False,
        )
    until = "" if wait_seconds is not None else ", or wait until tomorrow"
    return RateLimited(
        f"This model's daily quota is used up ({report.status}): choose another model, raise the quota in the "
        f"provider's console{until}.{report.quotation}",
        retry_after=wait_seconds,
        retryable=wait_seconds is not None,
    )


def _build_rate_limit_error(report: ErrorReport) -> ProviderError:
    wait = parse_wait(report.message) if report.wait_seconds is None else report.wait_seconds
    if _NO_QUOTA.search(report.message) or is_day_limit(f"{report.code} {report.message}"):
        return build_daily_quota_error(report, wait)
    return RateLimited(f"This account has reached the provider's rate limit (429).{report.quotation}", retry_after=wait)


def find_output_fault(report: ErrorReport) -> OutputRejected | None:
    """Return the error for output of the model that the provider could not read, or None for any other error."""
    match = _OUTPUT_FAULT.search(f"{report.code} {report.message}".lower())
    if match is None or report.status in (401, 403, 429):
        return None
    return OutputRejected(f"The provider could not read the model's tool call ({match[0]}).{report.quotation}")


def _build_overload_error(report: ErrorReport) -> ProviderError:
    cause = "is overloaded" if report.status in (503, 529) else "has an internal error"
    return Overloaded(
        f"The provider {cause} ({report.status}).{report.quotation}",
        retry_after=report.wait_seconds,
    )
