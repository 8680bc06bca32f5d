"""Rejected requests. This module contains the exception, the services' error messages, and shapes for request objects.

A shape is a pydantic model with what our requests may contain: every other key is rejected. The error message for a
value that does not match is either pydantic's own, as in the Anthropic service, or like the OpenAI service's.
"""

from __future__ import annotations

import base64
import binascii
import re
import tomllib
from collections.abc import Collection, Mapping
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal, NoReturn, TypeVar

from pydantic import AfterValidator, BaseModel, ConfigDict, ValidationError
from pydantic_core import PydanticCustomError

from thinklsp.core.images import read_header
from thinklsp.offline.scenario import HttpError, TableRow

DialectName = Literal["anthropic", "openai", "google", "openai-compatible"]


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
        raise PydanticCustomError("empty", "empty string")
    return text


NonEmptyString = Annotated[str, AfterValidator(_check_filled)]
S = TypeVar("S", bound=Shape)
JsonPath = tuple[int | str, ...]


def read_shape(shape: type[S], value: object, place: JsonPath) -> S:
    """Validate a request object, with pydantic's error message, as the Anthropic service does."""
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = ".".join(map(str, place + problem["loc"]))
        reject(f"{where}: {problem['msg']}")


def read_openai_shape(shape: type[S], value: object, place: JsonPath) -> S:
    """Validate a request object, with an error message in the form of the OpenAI service."""
    try:
        return shape.model_validate(value)
    except ValidationError as error:
        problem = error.errors(include_url=False)[0]
        where = format_path(place + problem["loc"])
        match problem["type"]:
            case "extra_forbidden":
                reject(f"Unknown parameter: '{where}'.", where, "unknown_parameter")
            case "missing":
                reject_missing(where)
            case _:
                reject_invalid(where, problem["msg"])


def format_path(place: JsonPath) -> str:
    """Format a path in a request body, for example as `input[0].content`."""
    return "".join(f"[{key}]" if isinstance(key, int) else f".{key}" for key in place).removeprefix(".")


def reject_invalid(place: str, problem: str) -> NoReturn:
    reject(f"Invalid '{place}': {problem}.", place, "invalid_value")


def reject_missing(place: str) -> NoReturn:
    reject(f"Missing required parameter: '{place}'.", place, "missing_required_parameter")


def check_supported_value(value: object, place: str, supported: Collection[str]) -> str:
    """Return `value` if it is one of the supported strings. Reject the request otherwise."""
    if not isinstance(value, str) or value not in supported:
        values = ", ".join(f"'{name}'" for name in supported)
        reject(f"Invalid value: '{value}'. Supported values are: {values}.", place, "invalid_value")
    return value


@cache
def read_table(name: str) -> dict[str, Any]:
    """Return a table of the stand-ins, which is a TOML file beside this module."""
    return tomllib.loads((Path(__file__).parent / f"{name}.toml").read_text("utf-8"))


ImageFault = Literal["base64", "size", "type", "content"]
_MAX_URL_CHARS = 27 << 20
_DATA_URL = re.compile(r"data:(?P<type>image/[\w.+-]*);base64,", re.ASCII)


def find_image_fault(data: str, media_type: str, max_chars: int) -> ImageFault | None:
    """Return the fault of an image in base64, or None for a valid image.

    `size`: the text is longer than `max_chars`. `base64`: the text cannot be decoded. `content`: the bytes are not a
    complete image. `type`: the bytes are an image of another type.
    """
    if len(data) > max_chars:
        return "size"
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return "base64"
    header = read_header(content)
    if header is None or not (header.width and header.height and header.is_complete):
        return "content"
    return None if header.media_type == media_type else "type"


_URL_FAULTS: Mapping[ImageFault, tuple[str, str]] = {
    "size": ("The image is too large.", "image_too_large"),
    "base64": ("The image data is not valid base64.", "invalid_base64_image"),
    "type": ("The image data is not of the type of its URL.", "unsupported_image_media_type"),
    "content": ("The image data you provided does not represent a valid image.", "invalid_image"),
}


def check_image_url(url: Any, place: str) -> None:
    """Check the image in a data URL, as the OpenAI service and compatible servers do. We send no other URL."""
    match = _DATA_URL.match(url) if isinstance(url, str) else None
    if match is None:
        reject_invalid(place, "expected a base64-encoded data URL with an image MIME type")
    media_type = match["type"].replace("image/jpg", "image/jpeg")
    fault = find_image_fault(url[match.end() :], media_type, _MAX_URL_CHARS)
    if fault is not None:
        message, code = _URL_FAULTS[fault]
        reject(message, place, code)
