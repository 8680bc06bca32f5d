"""The parser for JSON-RPC messages. It checks everything except `params`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from thinklsp.core.json_codec import is_shallow
from thinklsp.jsonrpc import error_responses

RequestId = int | str
Json = Mapping[str, Any]

_MAX_NAME_LENGTH = 256
_MAX_DEPTH = 64


@dataclass(frozen=True, slots=True)
class Request:
    id: RequestId
    method: str
    message: Json


@dataclass(frozen=True, slots=True)
class Notification:
    method: str
    message: Json


@dataclass(frozen=True, slots=True)
class ClientResponse:
    """The client's response to a server request.

    `error` is None if the client sent no error object, although `is_error` is True for every invalid response.
    """

    id: RequestId
    is_error: bool
    result: Any
    error: Json | None = None


@dataclass(frozen=True, slots=True)
class InvalidMessage:
    """An invalid message with its error response. `id` is None if the message has no valid id."""

    id: RequestId | None
    code: int
    text: str


Call = Request | Notification
Message = Call | ClientResponse | InvalidMessage | None
"""A parsed message. None stands for an invalid notification or an invalid response: the server ignores both."""


def parse_message(body: bytes) -> Message:
    duplicates: list[str] = []

    def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            duplicates.append("")
        return result

    try:
        message = json.loads(body.decode("utf-8"), parse_constant=_reject_constant, object_pairs_hook=build_object)
    except (ValueError, RecursionError):
        return InvalidMessage(None, error_responses.PARSE_ERROR, "The message is not valid JSON.")
    if not isinstance(message, dict):
        return InvalidMessage(None, error_responses.INVALID_REQUEST, "A message must be one JSON object.")
    request_id = message["id"] if is_id(message.get("id")) else None
    problem: tuple[int, str] | None = None
    if not is_shallow(message, _MAX_DEPTH):
        problem = error_responses.PARSE_ERROR, f"The message nests deeper than {_MAX_DEPTH} levels."
    elif duplicates:
        problem = error_responses.INVALID_REQUEST, "An object in the message has a duplicate member."
    if "method" not in message and request_id is not None:
        # Never answer a response with an error, because the client may be using the same id for its own request.
        return _build_response(request_id, message, is_valid=problem is None)
    if problem is not None:
        return InvalidMessage(request_id, *problem)
    if "method" in message:
        return _parse_call(message, request_id)
    if "id" not in message:
        return InvalidMessage(None, error_responses.INVALID_REQUEST, "The message is neither a request nor a response.")
    return None


def is_id(value: object) -> bool:
    """Return whether a value is a valid id: an integer, or a short string without lone surrogates.

    Lone surrogates are not allowed, because a response in UTF-8 cannot contain them.
    """
    if isinstance(value, str):
        return len(value) <= _MAX_NAME_LENGTH and not any("\ud800" <= char <= "\udfff" for char in value)
    return isinstance(value, int) and not isinstance(value, bool)


def _parse_call(message: Json, request_id: RequestId | None) -> Call | InvalidMessage | None:
    method = message["method"]
    is_valid = message.get("jsonrpc") == "2.0" and isinstance(method, str) and 0 < len(method) <= _MAX_NAME_LENGTH
    if "id" not in message:
        return Notification(method, message) if is_valid else None
    if request_id is None:
        return InvalidMessage(
            None, error_responses.INVALID_REQUEST, "A request id must be an integer or a short string."
        )
    if not is_valid:
        return InvalidMessage(request_id, error_responses.INVALID_REQUEST, "The request is not valid JSON-RPC 2.0.")
    return Request(request_id, method, message)


def _build_response(request_id: RequestId, message: Json, *, is_valid: bool) -> ClientResponse:
    error = message.get("error")
    return ClientResponse(
        request_id,
        is_error=not is_valid or error is not None,
        result=message.get("result"),
        error=error if is_valid and isinstance(error, dict) else None,
    )


def _reject_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
