"""The table of thinklsp's own requests to a client."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any, NamedTuple

from thinklsp.jsonrpc.envelope import ClientResponse
from thinklsp.jsonrpc.error_responses import ClientError

_MAX_PENDING = 100
# Vim before 9.0.1927 confuses a server request with the response to its own request with the same id (vim/vim#13133),
# and Vim cannot answer string ids (vim/vim#14091). Large integers avoid both bugs.
_FIRST_ID = 1_000_000


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
            code = _extract_code(response)
            pending.future.set_exception(ClientError("The editor rejected a server request.", code))
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


def _extract_code(response: ClientResponse) -> int | None:
    code = response.error.get("code") if response.error is not None else None
    return code if isinstance(code, int) and not isinstance(code, bool) else None
