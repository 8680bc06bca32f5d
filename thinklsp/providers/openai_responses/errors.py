"""Failures of the Responses API as our errors, with sentences that a user can act on.

The same table serves HTTP statuses and errors that arrive in mid-stream under status 200, which go by code and type.
Wording of the service is matched on short fragments, since it is documented to change.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from thinklsp.core.errors import BadRequest, ProviderError, RateLimited
from thinklsp.providers.failures import (
    Report,
    cache_hint_refused,
    failure_by_status,
    no_credit,
    refuses_earlier_thinking,
    spend_limit,
    thinking_rejected,
    too_long,
)
from thinklsp.providers.service_errors import (
    CompactionRefused,
    EffortRefused,
    ThinkingFormRefused,
    json_object,
    retry_after,
    should_retry,
)

# Codes and types of errors that come without a status of their own.
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
_OF_THE_REQUEST = re.compile(r"invalid|unsupported|image|policy|violation|context_length|billing")
_TOO_LONG = ("context window", "maximum context length", "available context size")
_REFUSED_VALUE = re.compile(r"value: '([a-z]+)'|does not support '([a-z]+)'")
_TRY_AGAIN = re.compile(r"try again in (\d+(?:\.\d+)?)\s?(ms|s|m)\b")
_SECONDS = {"ms": 0.001, "s": 1.0, "m": 60.0}


def failure_of_answer(status: int, headers: Mapping[str, str], body: bytes, model: str = "") -> ProviderError:
    """Classify an HTTP answer that is not a stream. `model`: the id that the request asked for."""
    content = json_object(body)
    plain = "" if content else body[:10_000].decode("utf-8", "replace")
    report, param = _report(status, _error_in(content), plain, retry_after(headers))
    failure = _classify(replace(report, model=model), param)
    override = should_retry(headers)
    if override is not None:
        failure.retryable = override
    return failure


def failure_in_stream(error: object) -> ProviderError:
    """What stands in an error event, flat or nested, or in a response that failed."""
    told = error if isinstance(error, dict) else {}
    status = next((known for key in ("code", "type") if (known := _status_of(told.get(key))) is not None), 500)
    return _classify(*_report(status, error, "", None))


def _error_in(content: Mapping[str, Any]) -> object:
    """Servers that speak this dialect wrap their errors in several ways, some of them not at all."""
    return next((content[key] for key in ("error", "detail") if content.get(key)), content)


def _status_of(name: object) -> int | None:
    if isinstance(name, str) and not name.isdecimal():
        return _STATUS_OF_CODE.get(name) or (400 if _OF_THE_REQUEST.search(name) else None)
    number = int(name) if isinstance(name, str) and len(name) == 3 else name
    return number if isinstance(number, int) and 400 <= number < 600 else None


def _report(status: int, error: object, plain: str, wait: float | None) -> tuple[Report, str]:
    """With the name of the request's field that the service finds fault with, if it names one."""
    if not isinstance(error, dict):
        return Report(status, error if isinstance(error, str) else plain, "", wait), ""
    message = str(error.get("message") or plain)
    if wait is None and status == 429 and (told := _TRY_AGAIN.search(message.lower())):
        # In mid-stream there is no header that could say it.
        wait = float(told[1]) * _SECONDS[told[2]]
    return Report(status, message, str(error.get("code") or error.get("type") or ""), wait), str(
        error.get("param") or ""
    )


def _classify(report: Report, param: str) -> ProviderError:
    text = report.message.lower()
    if report.code == "context_length_exceeded":
        return too_long(report)
    if report.code in ("insufficient_quota", "billing_not_active"):
        return no_credit(report)
    if report.code == "billing_hard_limit_reached":
        return spend_limit(report)
    if report.status == 429 and "request too large" in text:
        return _larger_than_the_limit(report)
    if report.code == "invalid_encrypted_content":
        return thinking_rejected()
    # A missing item is a 404 at some servers.
    if report.status in (400, 404, 422):
        return _bad_request(report, param, text)
    return failure_by_status(report)


def _bad_request(report: Report, param: str, text: str) -> ProviderError:
    # Before its words are looked at: they may speak of the context window.
    if param.startswith("context_management") or "'context_management" in text:
        return CompactionRefused(
            f"The service does not shorten conversations with this model: set compaction.by to thinklsp.{report.said}"
        )
    if any(fragment in text for fragment in _TOO_LONG):
        return too_long(report)
    if refuses_earlier_thinking(text):
        return thinking_rejected()
    if (refused := cache_hint_refused(report)) is not None:
        return refused
    if param == "reasoning.summary" or "reasoning summaries" in text or "reasoning.summary" in text:
        return BadRequest(
            "The service gives no readable summaries of thinking to this account or with this model: set "
            f"thinking.display to status, or verify the organisation in the service's console.{report.said}"
        )
    if param == "reasoning.effort" or "reasoning.effort" in text:
        return _effort_refused(report, text)
    if param.startswith("reasoning") or "encrypted content is not supported" in text:
        return _no_thinking(report)
    return failure_by_status(report)


def _effort_refused(report: Report, text: str) -> ProviderError:
    """A level that the model does not take, or that there are no levels since it does not think."""
    if "unsupported parameter" in text or report.code == "unsupported_parameter":
        return _no_thinking(report)
    refused = _REFUSED_VALUE.search(text)
    if refused is not None and "none" in refused.groups():
        return ThinkingFormRefused(
            f"The model cannot stop thinking: set thinking.mode to auto.{report.said}", "adaptive"
        )
    return EffortRefused(f"The model does not take this effort: change `effort`.{report.said}")


def _no_thinking(report: Report) -> ProviderError:
    return ThinkingFormRefused(
        f"The model does not take thinking as it was asked for: set `effort` and thinking.mode to auto.{report.said}",
        "unset",
    )


def _larger_than_the_limit(report: Report) -> ProviderError:
    """Waiting does not help: the request alone is more than a minute's allowance."""
    limit = RateLimited(
        "The request alone is larger than the account's rate limit allows (429): compact the conversation, begin a "
        f"new one, or raise the limit in the service's console.{report.said}"
    )
    limit.retryable = False
    return limit
