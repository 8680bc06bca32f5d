"""JSON-RPC error codes, and the conversion of exceptions to error responses. Internal details are only logged."""

from __future__ import annotations

from collections.abc import Mapping

from thinklsp.core.errors import ThinkLspError

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


def find_error_code(error: BaseException) -> int:
    if isinstance(error, InvalidParams):
        return INVALID_PARAMS
    return INTERNAL_ERROR if _find_user_message(error) is None else REQUEST_FAILED


def format_error(error: BaseException) -> str:
    """Return the error's message if it is meant for users, or a general message otherwise."""
    return _find_user_message(error) or "an internal error; see the server's log"


def format_error_with_id(error: BaseException, error_id: str) -> str:
    """Return the message for an error response. Internal errors get a number that also appears in the log."""
    return (
        _find_user_message(error)
        or f"thinklsp had an internal error (number {error_id}); see the server's log for details."
    )


def _find_user_message(error: BaseException) -> str | None:
    """Return the error's message, or None if the error is internal."""
    if isinstance(error, InvalidParams | ThinkLspError):
        return str(error)
    return f"The request failed: {THREAD_LIMIT_MESSAGE}" if is_thread_limit_error(error) else None
