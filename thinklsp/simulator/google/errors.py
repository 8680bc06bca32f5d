"""Refusals of the Gemini service: status, status word and envelope, and the exception by which checks say no."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

_WORDS = {
    400: "INVALID_ARGUMENT",
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    405: "UNIMPLEMENTED",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    413: "INVALID_ARGUMENT",
    429: "RESOURCE_EXHAUSTED",
    499: "CANCELLED",
    500: "INTERNAL",
    501: "UNIMPLEMENTED",
    502: "UNAVAILABLE",
    503: "UNAVAILABLE",
    504: "DEADLINE_EXCEEDED",
}
_MESSAGES = {
    400: "Request contains an invalid argument.",
    401: "Request had invalid authentication credentials. Expected OAuth 2 access token, login cookie or other valid "
    "authentication credential.",
    403: "The caller does not have permission",
    429: "You exceeded your current quota, please check your plan and billing details.",
    500: "An internal error has occurred. Please retry or report in "
    "https://developers.generativeai.google/guide/troubleshooting",
    503: "The model is overloaded. Please try again later.",
    504: "Deadline expired before operation could complete.",
}
# Scenarios speak of errors by the neutral names; this service has other words, and some of them another status.
_STATUS_OF_TYPE = {
    "invalid_request_error": 400,
    "request_too_large": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
    "api_error": 500,
    "overloaded_error": 503,
    "timeout_error": 504,
}
_STATUS_HERE = {529: 503}
_TYPE = "type.googleapis.com/google.rpc."
Detail = Mapping[str, Any]


class Refused(Exception):
    """A request that the service answers with an error; `str` is the message exactly as it goes out."""

    def __init__(self, status: int, message: str, details: Sequence[Detail] = ()) -> None:
        super().__init__(message)
        self.status = status
        self.details = tuple(details)


def invalid(message: str) -> NoReturn:
    """Refuse with status 400."""
    raise Refused(400, message)


def invalid_payload(problems: Sequence[tuple[str, str]]) -> NoReturn:
    """Refuse JSON that is no such message: every problem with its place, as the service lists them."""
    violations = [{**({"field": place} if place else {}), "description": text} for place, text in problems]
    detail = {"@type": f"{_TYPE}BadRequest", "fieldViolations": violations}
    raise Refused(400, "\n".join(text for _, text in problems), [detail])


def invalid_fields(problems: Sequence[str]) -> NoReturn:
    """Refuse a message whose fields hold what they must not; each problem begins with its field."""
    invalid("".join(f"* GenerateContentRequest.{problem}\n" for problem in problems))


def status_here(status: int) -> int:
    """The status by which this service says what a scenario's status means."""
    return _STATUS_HERE.get(status, status)


def status_of(kind: str) -> int:
    """The status of an error that a scenario names by its neutral type."""
    return _STATUS_OF_TYPE.get(kind, 500)


def error_word(status: int) -> str:
    return _WORDS.get(status, "INTERNAL" if status >= 500 else "INVALID_ARGUMENT")


def error_message(status: int) -> str:
    """What the service says with `status` when nobody scripts it."""
    return _MESSAGES.get(status, "Error")


def named_word(kind: str | None, status: int) -> str:
    """The status word for a scripted error: of its neutral type, of its status, or as the scenario spells it."""
    if kind is None:
        return error_word(status)
    return error_word(_STATUS_OF_TYPE[kind]) if kind in _STATUS_OF_TYPE else kind.upper()


def api_key_invalid() -> Refused:
    info = {"@type": f"{_TYPE}ErrorInfo", "reason": "API_KEY_INVALID", "domain": "googleapis.com"}
    return Refused(400, "API key not valid. Please pass a valid API key.", [info])


def retry_info(seconds: str) -> Detail:
    return {"@type": f"{_TYPE}RetryInfo", "retryDelay": f"{seconds}s"}


def error_value(status: int, message: str, word: str | None = None, details: Sequence[Detail] = ()) -> dict[str, Any]:
    error: dict[str, Any] = {"code": status, "message": message, "status": word or error_word(status)}
    if details:
        error["details"] = list(details)
    return {"error": error}


def error_body(value: Mapping[str, Any], *, listed: bool) -> bytes:
    """`listed`: streams that are one JSON array have their error as its only element."""
    return json.dumps([value] if listed else value, indent=2).encode("ascii")
