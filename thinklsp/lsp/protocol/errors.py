"""JSON-RPC error codes, and which of our errors becomes which. Texts are sentences; details stay in the log."""

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

NO_THREAD = (
    "the system lets thinklsp start no more threads. Close other programs, or raise the limit on processes (ulimit -u)."
)


class InvalidParams(Exception):
    """Arguments of the wrong shape; `str` names the field."""


class ClientError(ThinkLspError):
    """The editor answered one of our requests with an error."""


class TurnFailed(ThinkLspError):
    """A turn that had begun. `data` says which one and in which session, so that its caller can go on there."""

    def __init__(self, sentence: str, data: Mapping[str, str]) -> None:
        super().__init__(sentence)
        self.data = data


def is_no_thread(error: BaseException) -> bool:
    """Python has no type of its own for it."""
    return isinstance(error, RuntimeError) and str(error) == "can't start new thread"


def code_of(error: BaseException) -> int:
    if isinstance(error, InvalidParams):
        return INVALID_PARAMS
    return INTERNAL_ERROR if _meant(error) is None else REQUEST_FAILED


def spoken(error: BaseException) -> str:
    """The sentence of an error that is meant for people, else words that say nothing about our insides."""
    return _meant(error) or "an internal error; see the server's log"


def sentence_of(error: BaseException, error_id: str) -> str:
    """What the client may read. A bug is named by an id that the log explains."""
    return _meant(error) or f"thinklsp had an internal error (number {error_id}); the server's log holds the details."


def _meant(error: BaseException) -> str | None:
    """The sentence for people; None where the error is a bug."""
    if isinstance(error, InvalidParams | ThinkLspError):
        return str(error)
    return f"This cannot be done now: {NO_THREAD}" if is_no_thread(error) else None
