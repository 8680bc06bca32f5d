"""Failures of generateContent as our errors, with sentences that a user can act on.

The same table serves HTTP statuses and errors that arrive in mid-stream under status 200, which carry a code of their
own. Wording of the service is matched on short fragments, since it is documented to change.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from thinklsp.core.errors import AuthenticationFailed, BadRequest, Overloaded, ProviderError
from thinklsp.providers.base import ThinkingForm
from thinklsp.providers.failures import (
    Report,
    failure_by_status,
    refuses_earlier_thinking,
    spent_for_today,
    thinking_rejected,
    too_long,
)
from thinklsp.providers.service_errors import EffortRefused, ThinkingFormRefused, retry_after

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
_BROKEN_OFF = 499
_BAD_KEY = ("api key not valid", "api key expired", "api_key_invalid")
_TOO_LONG = ("exceeds the maximum number of tokens", "input token count", "request payload size exceeds")
_LEVEL = ("thinking level", "thinking_level", "thinkinglevel")
# What the service says about a form of thinking -> the form that the model takes instead. The first that fits counts.
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
# Models that only make images or only embed.
_TOOLLESS = re.compile(r"(?i)function calling is not (?:enabled|supported)(?: for (?:models/)?([\w.-]*\w))?")
# Part of the name of a limit.
_DAY = "PerDay"
_DELAY = re.compile(r"(\d+(?:\.\d+)?)s")


def failure_of_answer(status: int, headers: Mapping[str, str], body: bytes, model: str = "") -> ProviderError:
    """Classify an HTTP answer that is not a stream. `model`: the id that the request asked for."""
    content = _content(body)
    error = content.get("error")
    plain = "" if content else body[:10_000].decode("utf-8", "replace")
    return _classify(replace(_report(status, error, plain, retry_after(headers)), model=model))


def failure_in_stream(content: Mapping[str, Any]) -> ProviderError:
    """An error object that came with status 200."""
    error = content.get("error")
    return _classify(_report(_own_status(error), error, "", None))


def _content(body: bytes) -> Mapping[str, Any]:
    """The body as a JSON object, also where it stands alone in a list; empty where it is none."""
    try:
        value = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    if isinstance(value, list) and value:
        value = value[0]
    return value if isinstance(value, dict) else {}


def _own_status(error: object) -> int:
    """Streams that break off say by code or by name what the HTTP status would have been."""
    if not isinstance(error, dict):
        return 500
    code = error.get("code")
    if isinstance(code, int) and 400 <= code < 600:
        return code
    return _STATUS_OF_NAME.get(str(error.get("status")), 500)


def _report(status: int, error: object, plain: str, wait: float | None) -> Report:
    """Some services in between send the error as a bare string."""
    if not isinstance(error, dict):
        return Report(status, error if isinstance(error, str) else plain, "", wait)
    details = error.get("details")
    facts = [detail for detail in details if isinstance(detail, dict)] if isinstance(details, list) else []
    own_wait = _retry_delay(facts)
    return Report(status, str(error.get("message") or ""), _reason(facts), wait if own_wait is None else own_wait)


def _reason(facts: Sequence[Mapping[str, Any]]) -> str:
    """A limit of the day counts as one: the wait that is named beside it does not help."""
    if any(_DAY in str(fact.get("violations")) for fact in facts):
        return _DAY
    return next((fact["reason"] for fact in facts if isinstance(fact.get("reason"), str)), "")


def _retry_delay(facts: Sequence[Mapping[str, Any]]) -> float | None:
    """This service says in the body how long to wait, not in a header."""
    for fact in facts:
        found = _DELAY.fullmatch(str(fact.get("retryDelay")))
        if found:
            return float(found[1])
    return None


def _classify(report: Report) -> ProviderError:
    if report.status == 400:
        return _bad_request(report)
    if report.status == _BROKEN_OFF:
        return Overloaded(f"The service broke off the request ({report.status}).{report.said}")
    if report.status == 429 and report.code == _DAY:
        return spent_for_today(report)
    return failure_by_status(report)


def _bad_request(report: Report) -> ProviderError:
    text = report.message.lower()
    if report.code == "API_KEY_INVALID" or _any_of(_BAD_KEY, text):
        return AuthenticationFailed(
            "The service refused the API key (400): check where the key comes from (environment variable, keyring or "
            f"command) and that it belongs to this service.{report.said}"
        )
    if _any_of(_TOO_LONG, text):
        return too_long(report)
    if refuses_earlier_thinking(text):
        return thinking_rejected()
    toolless = _TOOLLESS.search(report.message)
    if toolless is not None:
        name = toolless[1] or "This model"
        return BadRequest(f"{name} cannot call tools, which thinklsp needs: choose another with `model`.{report.said}")
    if _any_of(_LEVEL, text):
        return EffortRefused(f"The model does not take this effort: change the setting effort.{report.said}")
    for fragment, instead in _REFUSED_FORMS.items():
        if fragment in text:
            return ThinkingFormRefused(
                f"The model does not take thinking as it was asked for: change thinking.mode.{report.said}", instead
            )
    return failure_by_status(report)


def _any_of(fragments: Sequence[str], text: str) -> bool:
    return any(fragment in text for fragment in fragments)
