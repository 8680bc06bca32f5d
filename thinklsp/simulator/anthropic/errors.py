"""Refusals of the Anthropic service: status, type and body, and the exception by which checks say no."""

from __future__ import annotations

import json
from typing import NoReturn

_TYPES = {
    400: "invalid_request_error",
    401: "authentication_error",
    402: "billing_error",
    403: "permission_error",
    404: "not_found_error",
    405: "invalid_request_error",
    409: "conflict_error",
    413: "request_too_large",
    429: "rate_limit_error",
    500: "api_error",
    504: "timeout_error",
    529: "overloaded_error",
}
_MESSAGES = {
    401: "invalid x-api-key",
    429: "This request would exceed your account's rate limit. Please try again later.",
    500: "Internal server error",
    504: "Request timed out",
    529: "Overloaded",
}


class Refused(Exception):
    """A request that the service answers with an error; `str` is the message exactly as it goes out."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


def invalid(message: str) -> NoReturn:
    """Refuse with status 400."""
    raise Refused(400, message)


def extra(place: str) -> NoReturn:
    """Refuse a key that the service does not know."""
    invalid(f"{place}: Extra inputs are not permitted")


def error_type(status: int) -> str:
    return _TYPES.get(status, "api_error" if status >= 500 else "invalid_request_error")


def error_message(status: int) -> str:
    """What the service says with `status` when nobody scripts it."""
    return _MESSAGES.get(status, "Error")


def error_body(kind: str, message: str, request_id: str) -> bytes:
    error = {"type": "error", "error": {"type": kind, "message": message}, "request_id": request_id}
    return json.dumps(error).encode("ascii")
