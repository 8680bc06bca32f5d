"""Refusals of compatible servers: the exception by which checks say no, and the forms in which each server says it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NoReturn, assert_never

Envelope = Literal["openai", "ollama", "llama.cpp", "vllm", "openrouter"]
_INVALID = "invalid_request_error"
# Neutral names of errors as scenarios write them: OpenAI's type and code for it, and the status it stands for.
_NEUTRAL: Mapping[str, tuple[str, str | None, int]] = {
    "invalid_request_error": (_INVALID, None, 400),
    "authentication_error": (_INVALID, "invalid_api_key", 401),
    "billing_error": ("insufficient_quota", "insufficient_quota", 402),
    "permission_error": (_INVALID, "insufficient_permissions", 403),
    "not_found_error": (_INVALID, "model_not_found", 404),
    "request_too_large": (_INVALID, None, 413),
    "rate_limit_error": ("requests", "rate_limit_exceeded", 429),
    "api_error": ("server_error", None, 500),
    "timeout_error": ("server_error", None, 504),
    "overloaded_error": ("server_error", None, 503),
}
_BY_STATUS = {status: name for name, (_, _, status) in _NEUTRAL.items()} | {529: "overloaded_error"}
_MESSAGES = {
    401: "Incorrect API key provided.",
    402: "Insufficient Balance",
    404: "The model does not exist or you do not have access to it.",
    429: "Rate limit reached for requests",
    500: "The server had an error while processing your request. Sorry about that!",
    503: "The server is currently overloaded with other requests. Sorry about that!",
    529: "The server is currently overloaded with other requests. Sorry about that!",
}
_VLLM_TYPES = {400: "BadRequestError", 401: "AuthenticationError", 404: "NotFoundError", 429: "RateLimitError"}


@dataclass(frozen=True, slots=True)
class Failure:
    """An error before it has a server's form. `more`: what a server adds to it (llama.cpp counts, OpenRouter
    metadata). `upstream`: a failure of the server behind a router, told inside the router's own."""

    status: int
    message: str
    kind: str
    code: str | None = None
    param: str | None = None
    more: Mapping[str, Any] = field(default_factory=dict)


class Refused(Exception):
    """A request that the server answers with an error; `str` is the message exactly as it goes out."""

    def __init__(self, failure: Failure) -> None:
        super().__init__(failure.message)
        self.failure = failure


def invalid(message: str, param: str | None = None, code: str | None = None) -> NoReturn:
    """Refuse with status 400."""
    raise Refused(Failure(400, message, _INVALID, code, param))


def extra(place: str) -> NoReturn:
    """Refuse a key that the server does not know."""
    invalid(f"{place}: Extra inputs are not permitted", place)


def failure(status: int, message: str | None = None) -> Failure:
    """What a server says with `status`, in its usual words unless others are given."""
    kind, code, _ = _NEUTRAL[_BY_STATUS.get(status, "api_error" if status >= 500 else "invalid_request_error")]
    return Failure(status, message or _MESSAGES.get(status, "Error"), kind, code)


def scripted(name: str | None, message: str | None, status: int | None = None) -> Failure:
    """A scenario's error. Neutral names become the services' own; other names stay. `status` None: the name's own."""
    if name is None:
        return failure(status or 500, message)
    kind, code, usual = _NEUTRAL.get(name, (name, None, 500))
    status = status or usual
    return Failure(status, message or _MESSAGES.get(status, "Error"), kind, code)


def error_value(told: Failure, envelope: Envelope) -> dict[str, Any]:
    """The JSON under the key `error`."""
    match envelope:
        case "openai":
            return {"message": told.message, "type": told.kind, "param": told.param, "code": told.code}
        case "ollama":
            kind = {400: _INVALID, 404: "not_found_error"}.get(told.status, "api_error")
            return {"message": told.message, "type": kind, "param": None, "code": None}
        case "llama.cpp":
            return {"code": told.status, "message": told.message, "type": told.kind, **told.more}
        case "vllm":
            kind = _VLLM_TYPES.get(told.status, "InternalServerError" if told.status >= 500 else "BadRequestError")
            return {"message": told.message, "type": kind, "param": told.param, "code": told.status}
        case "openrouter":
            metadata = {"metadata": told.more} if told.more else {}
            return {"message": told.message, "code": told.status, **metadata}
        case _:
            assert_never(envelope)
