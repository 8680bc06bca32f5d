"""Rejected requests. This module contains the exception, the services' error messages, and shapes for request objects.

A shape is a pydantic model. If a value does not match its shape, the error message is either pydantic's own message, as
in the Anthropic service, or the OpenAI service's message, which compatible servers also use.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails, PydanticCustomError

from tests.stand_ins.tables import read_table
from thinklsp.offline.scenario import DialectName, HttpError, TableRow


class RequestRejected(Exception):
    """An error for a request that the service rejects. `str(error)` is the message that the client receives.

    `kind` is the service's error type, or None for the status's default type. `extra_fields` contains additional fields
    for the error object.
    """

    def __init__(
        self,
        status: int,
        message: str,
        param: str | None = None,
        code: str | None = None,
        *,
        kind: str | None = None,
        extra_fields: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.param = param
        self.code = code
        self.kind = kind
        self.extra_fields = extra_fields or {}


def reject(message: str, param: str | None = None, code: str | None = None) -> NoReturn:
    """Reject the request with status 400."""
    raise RequestRejected(400, message, param, code)


# Maps the error types that scenarios use for all services to their HTTP status.
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
}


class _ErrorRow(TableRow):
    """A row in `errors.toml`."""

    type: str
    code: str | None = None
    message: str = "Error"


class ErrorTable:
    """The error types and messages of a service, by status.

    `overloaded_status` is the status that the service sends when it is overloaded. It replaces a scripted status of 529
    unless `sends_529` is true.
    """

    def __init__(self, service: DialectName, *, overloaded_status: int = 503, sends_529: bool = False) -> None:
        self._rows = {int(status): _ErrorRow(**row) for status, row in read_table("errors")[service].items()}
        self._overloaded_status = overloaded_status
        self._sends_529 = sends_529

    def build_for_status(self, status: int, message: str | None = None) -> RequestRejected:
        """Return the error for a status. `message` defaults to the service's usual message."""
        row = self._find_row(status)
        return RequestRejected(status, message or row.message, code=row.code, kind=row.type)

    def build_scripted(self, error: HttpError) -> RequestRejected:
        """Return the error that a scenario specifies, with the service's own name for the error type."""
        status = self._overloaded_status if error.status == 529 and not self._sends_529 else error.status
        row = self._find_row(status) if error.type is None else self._find_row_by_type(error.type)
        return RequestRejected(status, error.message or self._find_row(status).message, code=row.code, kind=row.type)

    def find_status(self, name: str) -> int:
        """Return the HTTP status for a type of error event."""
        if name == "overloaded_error":
            return self._overloaded_status
        own = (status for status, row in self._rows.items() if row.code == name)
        return _STATUS_OF_TYPE.get(name) or next(own, 500)

    def _find_row_by_type(self, name: str) -> _ErrorRow:
        if name == "overloaded_error" or name in _STATUS_OF_TYPE:
            return self._find_row(self.find_status(name))
        return next((row for row in self._rows.values() if row.code == name), _ErrorRow(type=name))

    def _find_row(self, status: int) -> _ErrorRow:
        return self._rows.get(status) or self._rows[500 if status >= 500 else 400]


class Shape(BaseModel):
    """A request object with strict types. Unknown keys are rejected, and optional keys may be null."""

    model_config = ConfigDict(strict=True, extra="forbid")


class OpenShape(Shape):
    """A request object that may contain unknown keys."""

    model_config = ConfigDict(extra="ignore")


def _check_filled(text: str) -> str:
    # Check the length here, because pydantic's length constraint also rejects lone surrogates.
    if not text:
        raise PydanticCustomError("string_too_short", "String should have at least 1 character")
    return text


NonEmptyString = Annotated[str, AfterValidator(_check_filled)]
S = TypeVar("S", bound=Shape)
JsonPath = tuple[int | str, ...]
# A function that rejects an invalid value, given pydantic's error details and the path of the value in the body.
RejectProblem = Callable[[ErrorDetails, JsonPath], NoReturn]


def read_shape(shape: type[S], value: object, place: JsonPath, reject_problem: RejectProblem) -> S:
    """Validate a request object. Raises RequestRejected for the first invalid value."""
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        reject_problem(problem, place + problem["loc"])


def reject_like_pydantic(problem: ErrorDetails, place: JsonPath) -> NoReturn:
    """Reject a value with pydantic's error message, as the Anthropic service does."""
    message = "Input should be a valid dictionary" if problem["type"] == "model_type" else problem["msg"]
    reject(f"{'.'.join(map(str, place))}: {message}")


_JSON_TYPES: Mapping[type[object], str] = {
    str: "a string", int: "an integer", float: "a decimal", bool: "a boolean", list: "an array", dict: "an object",
}  # fmt: skip
# Maps pydantic's error types for values of the wrong type to the expected type.
_EXPECTED = {
    "string_type": str, "int_type": int, "float_type": float, "bool_type": bool, "list_type": list, "dict_type": dict,
    "model_type": dict,
}  # fmt: skip


def format_path(place: JsonPath) -> str:
    """Format a path in a request body, for example as `input[0].content`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place).removeprefix(".")


def reject_like_openai(problem: ErrorDetails, place: JsonPath) -> NoReturn:
    """Reject a value with the OpenAI service's error message."""
    where, value, limits = format_path(place), problem["input"], problem.get("ctx", {})
    match problem["type"]:
        case "extra_forbidden":
            reject(f"Unknown parameter: '{where}'.", where, "unknown_parameter")
        case "string_unicode":
            reject("We could not parse the JSON body of your request.")
        case "missing":
            reject_missing(where)
        case "literal_error":
            check_supported_value(value, where, re.findall(r"'([^']*)'", limits["expected"]))
        case "string_too_short":
            reject_empty(where, "string")
        case "too_short":
            reject_empty(where, "array")
        case "string_too_long":
            reject(
                f"Invalid '{where}': string too long. Expected a string with maximum length {limits['max_length']}, "
                f"but got a string with length {len(value)} instead.",
                where,
                "string_above_max_length",
            )
        case "string_pattern_mismatch":
            pattern = f"Expected a string that matches the pattern '{limits['pattern']}'."
            reject(f"Invalid '{where}': string does not match pattern. {pattern}", where, "invalid_value")
        case "greater_than_equal":
            _reject_out_of_range(where, value, limits["ge"], "below minimum", ">=")
        case "less_than_equal":
            _reject_out_of_range(where, value, limits["le"], "above maximum", "<=")
        case "identifier":
            reject(f"Invalid '{where}': '{value}'. {problem['msg']}", where, "invalid_value")
        case kind:
            reject_type(where, _JSON_TYPES[_EXPECTED[kind]], value)
    raise AssertionError(problem)


def reject_missing(place: str) -> NoReturn:
    reject(f"Missing required parameter: '{place}'.", place, "missing_required_parameter")


def reject_type(place: str, expected: str, value: Any) -> NoReturn:
    """Reject a value of the wrong type. `expected` describes the expected type, for example as `an object`."""
    got = "null" if value is None else _JSON_TYPES[type(value)]
    reject(f"Invalid type for '{place}': expected {expected}, but got {got} instead.", place, "invalid_type")


def reject_empty(place: str, what: Literal["string", "array"]) -> NoReturn:
    article = "an" if what == "array" else "a"
    reject(
        f"Invalid '{place}': empty {what}. Expected {article} {what} with minimum length 1, but got an empty {what} "
        "instead.",
        place,
        f"empty_{what}",
    )


def check_supported_value(value: object, place: str, supported: Collection[str]) -> str:
    """Return `value` if it is one of the supported strings. Reject the request otherwise."""
    if not isinstance(value, str):
        reject_type(place, "a string", value)
    if value not in supported:
        reject(f"Invalid value: '{value}'. Supported values are: {format_list(supported)}.", place, "invalid_value")
    return value


def reject_unsupported_value(place: str, value: str, model: str, supported: Iterable[str]) -> NoReturn:
    """Reject a value that the model does not support, although other models do."""
    reject(
        f"Unsupported value: '{value}' is not supported with the '{model}' model. Supported values are: "
        f"{format_list(supported)}.",
        place,
        "unsupported_value",
    )


def reject_unsupported_key(place: str) -> NoReturn:
    """Reject a key that the model does not support, although other models do."""
    reject(f"Unsupported parameter: '{place}' is not supported with this model.", place, "unsupported_parameter")


def format_list(values: Iterable[str]) -> str:
    """Format values as a list, for example as `'a', 'b', and 'c'`."""
    quoted = [f"'{value}'" for value in values]
    if len(quoted) < 3:
        return " and ".join(quoted)
    return f"{', '.join(quoted[:-1])}, and {quoted[-1]}"


def _reject_out_of_range(place: str, value: Any, limit: Any, word: str, sign: str) -> NoReturn:
    kind = "decimal" if isinstance(limit, float) else "integer"
    code = f"{kind}_{word.replace(' ', '_').removesuffix('imum')}_value"
    reject(
        f"Invalid '{place}': {kind} {word} value. Expected a value {sign} {limit:g}, but got {value} instead.",
        place,
        code,
    )
