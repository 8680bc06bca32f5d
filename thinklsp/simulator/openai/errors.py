"""Refusals of the OpenAI service: status, words and envelope, and the typed reading of JSON that refuses the rest.

The sentences here are the service's own forms, filled with places and values; which of them applies is decided by
the checks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from thinklsp.simulator.scenario import HttpError

INVALID = "invalid_request_error"
_ID = re.compile(r"[A-Za-z0-9_-]+")
_MAX_ID = 64


@dataclass(frozen=True, slots=True)
class _Default:
    """What the service says with a status when nobody scripts it."""

    kind: str
    code: str | None
    message: str


_SERVER = _Default(
    "server_error", "server_error", "The server had an error while processing your request. Sorry about that!"
)
_DEFAULTS: Mapping[int, _Default] = {
    400: _Default(INVALID, None, "We could not parse the request."),
    401: _Default(INVALID, "invalid_api_key", "Incorrect API key provided."),
    403: _Default("request_forbidden", "unsupported_country_region_territory", "Region not supported"),
    404: _Default(INVALID, None, "Not found"),
    408: _Default("server_error", None, "Request timed out."),
    409: _Default(INVALID, None, "The resource is being changed by another request. Please try again."),
    413: _Default(INVALID, None, "The request body is too large."),
    422: _Default(INVALID, None, "The request could not be processed."),
    429: _Default("tokens", "rate_limit_exceeded", "Rate limit reached for requests. Please try again later."),
    500: _SERVER,
    503: _Default(
        "server_error", "server_error", "The engine is currently overloaded, please try again later."
    ),
}  # fmt: skip
_TYPE_AND_CODE: Mapping[str, tuple[str, str | None]] = {
    "api_error": ("server_error", "server_error"),
    "authentication_error": (INVALID, "invalid_api_key"),
    "billing_error": ("insufficient_quota", "insufficient_quota"),
    "conflict_error": (INVALID, None),
    "invalid_request_error": (INVALID, None),
    "not_found_error": (INVALID, None),
    "overloaded_error": ("server_error", "server_error"),
    "permission_error": (INVALID, None),
    "rate_limit_error": ("tokens", "rate_limit_exceeded"),
    "rate_limit_exceeded": ("tokens", "rate_limit_exceeded"),
    "request_too_large": (INVALID, None),
    "timeout_error": ("server_error", None),
}
_STATUS_OF_TYPE = {"overloaded_error": 503, "rate_limit_error": 429, "rate_limit_exceeded": 429}
_JSON_TYPES: Mapping[type[object], str] = {
    str: "a string", int: "an integer", float: "a decimal", bool: "a boolean", list: "an array", dict: "an object",
}  # fmt: skip


class Refused(Exception):
    """A request that the service answers with an error; `str` is the message exactly as it goes out."""

    def __init__(self, status: int, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code


def invalid(message: str, param: str | None = None, code: str | None = None) -> NoReturn:
    """Refuse with status 400."""
    raise Refused(400, message, param=param, code=code)


def unknown(place: str) -> NoReturn:
    invalid(f"Unknown parameter: '{place}'.", place, "unknown_parameter")


def missing(place: str) -> NoReturn:
    invalid(f"Missing required parameter: '{place}'.", place, "missing_required_parameter")


def wrong_type(place: str, expected: str, value: Any) -> NoReturn:
    """`expected` in words, such as `an object` or `one of a string or an array`."""
    got = "null" if value is None else _JSON_TYPES[type(value)]
    invalid(f"Invalid type for '{place}': expected {expected}, but got {got} instead.", place, "invalid_type")


def empty_text(place: str) -> NoReturn:
    invalid(
        f"Invalid '{place}': empty string. Expected a string with minimum length 1, but got an empty string instead.",
        place,
        "empty_string",
    )


def empty_list(place: str) -> NoReturn:
    invalid(
        f"Invalid '{place}': empty array. Expected an array with minimum length 1, but got an empty array instead.",
        place,
        "empty_array",
    )


def too_small(place: str, minimum: int, value: int) -> NoReturn:
    invalid(
        f"Invalid '{place}': integer below minimum value. Expected a value >= {minimum}, but got {value} instead.",
        place,
        "integer_below_min_value",
    )


def bad_value(place: str, value: str, supported: Iterable[str]) -> NoReturn:
    """A value that no model knows."""
    invalid(f"Invalid value: '{value}'. Supported values are: {listing(supported)}.", place, "invalid_value")


def unsupported_value(place: str, value: str, model: str, supported: Iterable[str]) -> NoReturn:
    """A value that other models take."""
    invalid(
        f"Unsupported value: '{value}' is not supported with the '{model}' model. Supported values are: "
        f"{listing(supported)}.",
        place,
        "unsupported_value",
    )


def unsupported(place: str) -> NoReturn:
    """A key that other models take."""
    invalid(f"Unsupported parameter: '{place}' is not supported with this model.", place, "unsupported_parameter")


def listing(values: Iterable[str]) -> str:
    """`'a'`, `'a' and 'b'`, `'a', 'b', and 'c'`."""
    quoted = [f"'{value}'" for value in values]
    if len(quoted) < 3:
        return " and ".join(quoted)
    return f"{', '.join(quoted[:-1])}, and {quoted[-1]}"


def error_body(kind: str, message: str, *, param: str | None = None, code: str | None = None) -> bytes:
    error = {"error": {"message": message, "type": kind, "param": param, "code": code}}
    return json.dumps(error, indent=2).encode("ascii")


def server_failure(status: int, message: str) -> bytes:
    """The envelope for an error of the server itself."""
    default = _default(status)
    return error_body(default.kind, message, code=default.code)


def scripted_error(error: HttpError) -> tuple[int, bytes]:
    """A scenario's error in this service's words. Overload is 503 here, whatever another service calls it."""
    status = 503 if error.status == 529 else error.status
    default = _default(status)
    kind, code = type_and_code(error.type) if error.type else (default.kind, default.code)
    return status, error_body(kind, error.message or default.message, code=code)


def type_and_code(name: str) -> tuple[str, str | None]:
    """A scenario's name for an error, neutral or the service's own, as the service's `type` and `code`."""
    return _TYPE_AND_CODE.get(name, (name, name))


def status_of_type(name: str) -> int:
    """The status under which an error that a scenario puts into a stream comes where there is no stream."""
    return _STATUS_OF_TYPE.get(name, 500)


def _default(status: int) -> _Default:
    if status in _DEFAULTS:
        return _DEFAULTS[status]
    return _SERVER if status >= 500 else _DEFAULTS[400]


def table(value: Any, place: str) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        wrong_type(place, "an object", value)
    return value


def array(value: Any, place: str) -> Sequence[Any]:
    if not isinstance(value, list):
        wrong_type(place, "an array", value)
    return value


def filled_array(value: Any, place: str) -> Sequence[Any]:
    values = array(value, place)
    if not values:
        empty_list(place)
    return values


def text(value: Any, place: str) -> str:
    if not isinstance(value, str):
        wrong_type(place, "a string", value)
    return value


def filled_text(value: Any, place: str) -> str:
    if not text(value, place):
        empty_text(place)
    return str(value)


def flag(value: Any, place: str) -> bool:
    if not isinstance(value, bool):
        wrong_type(place, "a boolean", value)
    return value


def whole_number(value: Any, place: str, minimum: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        wrong_type(place, "an integer", value)
    if value < minimum:
        too_small(place, minimum, value)
    return value


def number(value: Any, place: str, lowest: float, highest: float) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool):
        wrong_type(place, "a decimal", value)
    if not lowest <= value <= highest:
        edge, word = (lowest, "below minimum") if value < lowest else (highest, "above maximum")
        sign = ">=" if value < lowest else "<="
        invalid(
            f"Invalid '{place}': decimal {word} value. Expected a value {sign} {edge:g}, but got {value} instead.",
            place,
            f"decimal_{word.replace(' ', '_').replace('minimum', 'min').replace('maximum', 'max')}_value",
        )
    return value


def choice(value: Any, place: str, supported: Collection[str]) -> str:
    if text(value, place) not in supported:
        bad_value(place, value, supported)
    return str(value)


def required(value: Mapping[str, Any], key: str, place: str) -> Any:
    if key not in value:
        missing(f"{place}.{key}")
    return value[key]


def only(value: Mapping[str, Any], known: Collection[str], place: str) -> None:
    for key in value:
        if key not in known:
            unknown(f"{place}.{key}")


def identifier(value: Any, place: str, prefix: str | None = None) -> str:
    """An id as the service takes one; with `prefix`, one of that kind of item."""
    if text(value, place) and prefix is not None and not value.startswith(f"{prefix}_"):
        invalid(
            f"Invalid '{place}': '{value}'. Expected an ID that begins with '{prefix}'.",
            place,
            "invalid_value",
        )
    if not _ID.fullmatch(value):
        invalid(
            f"Invalid '{place}': '{value}'. Expected an ID that contains letters, numbers, underscores, or dashes, "
            "but this value contained additional characters.",
            place,
            "invalid_value",
        )
    return short_text(value, place, _MAX_ID)


def short_text(value: Any, place: str, longest: int) -> str:
    if len(filled_text(value, place)) > longest:
        invalid(
            f"Invalid '{place}': string too long. Expected a string with maximum length {longest}, but got a string "
            f"with length {len(value)} instead.",
            place,
            "string_above_max_length",
        )
    return str(value)
