"""JSON-RPC 2.0 messages: their parser, the error responses, and the table of thinklsp's own requests."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

from thinklsp.core.errors import ThinkLspError
from thinklsp.core.json_codec import is_shallow
from thinklsp.jsonrpc.framing import BadFrame

_log = logging.getLogger(__name__)

PARSE_ERROR = -32700
INVALID_REQUEST = -32600
METHOD_NOT_FOUND = -32601
INVALID_PARAMS = -32602
INTERNAL_ERROR = -32603
NOT_INITIALIZED = -32002
REQUEST_CANCELLED = -32800
REQUEST_FAILED = -32803

THREAD_LIMIT_MESSAGE = (
    "the system does not let thinklsp start another thread. "
    "Close other programs, or raise the process limit (`ulimit -u`)."
)
RequestId = int | str
Json = Mapping[str, Any]
_MAX_NAME_LENGTH = 256
_MAX_DEPTH = 64
_MAX_PENDING = 100
# Vim before 9.0.1927 confuses a server request with the response to its own request with the same id (vim/vim#13133),
# and Vim cannot answer string ids (vim/vim#14091). Large integers avoid both bugs.
_FIRST_ID = 1_000_000


class InvalidParams(Exception):
    """The error raised for invalid request arguments. The message names the invalid field."""


class ClientError(ThinkLspError):
    """The error raised when the client answers a server request with an error.

    `code` is the code of the client's error, or None if the client sent no code.
    """

    def __init__(self, sentence: str, code: int | None = None) -> None:
        super().__init__(sentence)
        self.code = code


class TurnError(ThinkLspError):
    """The error raised when a running turn fails. With the turn and session ids in `data`, the caller can continue."""

    def __init__(self, sentence: str, data: Mapping[str, str]) -> None:
        super().__init__(sentence)
        self.data = data


def is_thread_limit_error(error: BaseException) -> bool:
    """Return whether the system refused to start a thread. Python raises a plain RuntimeError in this case."""
    return isinstance(error, RuntimeError) and str(error) == "can't start new thread"


def format_error(error: BaseException) -> str:
    """Return the error's message if it is meant for users, or a general message otherwise."""
    return _find_user_message(error) or "an internal error; see the server's log"


def describe_error(error: BaseException, failed_code: int) -> tuple[int, str]:
    """Return the code and the message of an error response. `failed_code` is the code of errors for the user.

    Internal errors get a number that also appears in the log.
    """
    if isinstance(error, asyncio.CancelledError):
        return REQUEST_CANCELLED, "The request was cancelled."
    if (message := _find_user_message(error)) is not None:
        return INVALID_PARAMS if isinstance(error, InvalidParams) else failed_code, message
    number = os.urandom(4).hex()
    _log.error("internal error %s", number, exc_info=error)
    text = f"thinklsp had an internal error (number {number}); see the server's log for details."
    return INTERNAL_ERROR, text


def _find_user_message(error: BaseException) -> str | None:
    """Return the error's message, or None if the error is internal."""
    if isinstance(error, InvalidParams | ThinkLspError):
        return str(error)
    return f"The request failed: {THREAD_LIMIT_MESSAGE}" if is_thread_limit_error(error) else None


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
    """The client's response to a server request. `is_error` is also True for an invalid response.

    `code` is the code of the client's error, or None without a valid one.
    """

    id: RequestId
    is_error: bool
    result: Any
    code: int | None = None


@dataclass(frozen=True, slots=True)
class InvalidMessage:
    """An invalid message with its error response. `id` is None if the message has no valid id."""

    id: RequestId | None
    code: int
    text: str


Call = Request | Notification
Message = Call | ClientResponse | InvalidMessage | None
"""A parsed message. None stands for an invalid notification or an invalid response: the server ignores both."""


def parse_message(frame: bytes | BadFrame) -> Message:
    if isinstance(frame, BadFrame):
        return InvalidMessage(None, INVALID_REQUEST, frame.reason)
    duplicates: list[str] = []

    def build_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        result = dict(pairs)
        if len(result) != len(pairs):
            duplicates.append("")
        return result

    try:
        # int() raises ValueError for NaN and infinity.
        message = json.loads(frame.decode("utf-8"), parse_constant=int, object_pairs_hook=build_object)
    except (ValueError, RecursionError):
        return InvalidMessage(None, PARSE_ERROR, "The message is not valid JSON.")
    if not isinstance(message, dict):
        return InvalidMessage(None, INVALID_REQUEST, "A message must be one JSON object.")
    request_id = message["id"] if is_id(message.get("id")) else None
    problem: tuple[int, str] | None = None
    if not is_shallow(message, _MAX_DEPTH):
        problem = PARSE_ERROR, f"The message nests deeper than {_MAX_DEPTH} levels."
    elif duplicates:
        problem = INVALID_REQUEST, "An object in the message has a duplicate member."
    if "method" not in message and request_id is not None:
        # Never answer a response with an error, because the client may be using the same id for its own request.
        return _build_response(request_id, message, is_valid=problem is None)
    if problem is not None:
        return InvalidMessage(request_id, *problem)
    if "method" in message:
        return _parse_call(message, request_id)
    if "id" not in message:
        return InvalidMessage(None, INVALID_REQUEST, "The message is neither a request nor a response.")
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
        return InvalidMessage(None, INVALID_REQUEST, "A request id must be an integer or a short string.")
    if not is_valid:
        return InvalidMessage(request_id, INVALID_REQUEST, "The request is not valid JSON-RPC 2.0.")
    return Request(request_id, method, message)


def _build_response(request_id: RequestId, message: Json, *, is_valid: bool) -> ClientResponse:
    error = message.get("error") if is_valid else None
    code = error.get("code") if isinstance(error, dict) else None
    return ClientResponse(
        request_id,
        is_error=not is_valid or error is not None,
        result=message.get("result"),
        code=code if isinstance(code, int) and not isinstance(code, bool) else None,
    )


class _PendingRequest(NamedTuple):
    """A request that the client has not answered yet. `convert` raises an exception for an invalid result."""

    method: str
    convert: Callable[[Any], Any]
    future: Future[Any]


class PendingRequests:
    """The requests of a connection that the client has not answered yet. Use the table only on one thread.

    `on_cancel` is called with the id of a request whose future is cancelled, so that the client can be told.
    """

    def __init__(self, on_cancel: Callable[[int], None]) -> None:
        self._on_cancel = on_cancel
        self._requests: dict[int, _PendingRequest] = {}
        self._ids = itertools.count(_FIRST_ID)

    def __len__(self) -> int:
        return len(self._requests)

    def issue_id(self) -> int:
        """Return a new id for `add`."""
        return next(self._ids)

    def add(self, request_id: int, method: str, convert: Callable[[Any], Any] = lambda result: result) -> Future[Any]:
        """Add a request and return its future, which a coroutine can await through `asyncio.wrap_future`.

        The future gets the result after `convert`. The future raises ClientError if the client answers with an error
        or an invalid result, or if the client leaves too many later requests unanswered.
        """
        future: Future[Any] = Future()
        future.add_done_callback(partial(self._remove, request_id))
        self._requests[request_id] = _PendingRequest(method, convert, future)
        if len(self._requests) > _MAX_PENDING:
            oldest = self._requests.pop(next(iter(self._requests)))
            oldest.future.set_exception(ClientError("The editor left too many server requests unanswered."))
        return future

    def settle(self, response: ClientResponse) -> None:
        """Complete the request of a response. Ignore a response without a pending request."""
        pending = self._requests.pop(response.id, None) if isinstance(response.id, int) else None
        if pending is None or pending.future.done():
            return
        if response.is_error:
            pending.future.set_exception(ClientError("The editor rejected a server request.", response.code))
            return
        try:
            result = pending.convert(response.result)
        except Exception:  # noqa: BLE001 - cattrs raises many types; each means that the result is invalid
            pending.future.set_exception(ClientError(f"The editor's answer to {pending.method} is not valid."))
        else:
            pending.future.set_result(result)

    def _remove(self, request_id: int, future: Future[Any]) -> None:
        self._requests.pop(request_id, None)
        if future.cancelled():
            self._on_cancel(request_id)
