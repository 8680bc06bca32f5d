"""The outgoing part of the protocol, which sends responses, notifications and server requests to the client."""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any

from cattrs import Converter
from lsprotocol import types
from pygls.protocol import JsonRPCNotification, JsonRPCRequestMessage, LanguageServerProtocol

from thinklsp.core.json_codec import encode_json
from thinklsp.jsonrpc import envelope, error_responses
from thinklsp.jsonrpc.pending_requests import PendingRequests
from thinklsp.jsonrpc.writer import MessageWriter

if TYPE_CHECKING:
    from pygls.lsp.server import LanguageServer

_log = logging.getLogger(__name__)

# A larger result fills the outgoing queue, and the client then appears to have stopped reading.
_MAX_RESULT_BYTES = 32 * 1024 * 1024
_TOO_LARGE = "The result is larger than 32 MB and cannot be sent."


class OutgoingProtocol(LanguageServerProtocol):
    """A version of pygls' protocol with its own writer and a separate table for server requests.

    - `_send_data`: pygls writes NaN and lone surrogates, which are not valid JSON.
    - `send_request`: pygls uses one table for the requests of both sides, so equal ids collide.
    - `get_message_type`, `get_result_type`: pygls' cache keeps every connection alive.
    """

    def __init__(self, server: LanguageServer, converter: Converter) -> None:
        super().__init__(server, converter)
        self._message_writer: MessageWriter | None = None
        self._pending = PendingRequests(self._send_cancellation)

    def get_message_type(self, method: str) -> type[Any] | None:  # type: ignore[override] # pygls decorates it
        return types.METHOD_TO_TYPES.get(method, (None,))[0]

    def get_result_type(self, method: str) -> type[Any] | None:  # type: ignore[override] # pygls decorates it
        return types.METHOD_TO_TYPES.get(method, (None, None))[1]

    def connect(self, writer: MessageWriter) -> None:
        """Set the writer. Call this method before the first message."""
        self._message_writer = writer

    def issue_request_id(self) -> int:
        """Return a new id for `send_request`. The caller can use the id to cancel the request."""
        return self._pending.issue_id()

    def send_request(
        self,
        method: str,
        params: object = None,
        callback: Callable[[Any], None] | None = None,
        msg_id: envelope.RequestId | None = None,
    ) -> Future[Any]:
        """Send a request and return a future of its result. Methods outside LSP return plain JSON.

        The future raises ClientError if the client answers with an error or an invalid result. Cancelling the future
        cancels the request, so that the editor can close a prompt or a preview.
        """
        number = self.issue_request_id() if not isinstance(msg_id, int) else msg_id
        kind = self.get_message_type(method) or JsonRPCRequestMessage
        body = self._encode_body(kind(id=number, method=method, params=params, jsonrpc="2.0"))
        future = self._pending.add(number, method, partial(self._structure_result, method))
        if callback is not None:
            future.add_done_callback(lambda done: callback(done.result()))
        self._write(body)
        return future

    def _send_cancellation(self, number: int) -> None:
        self.notify(types.CANCEL_REQUEST, types.CancelParams(number))

    def notify(self, method: str, params: object = None) -> None:
        """Send a notification. A progress report replaces an earlier unsent report for the same token."""
        kind = self.get_message_type(method) or JsonRPCNotification
        message = kind(method=method, params=params, jsonrpc="2.0")
        self._write(self._encode_body(message), _build_coalesce_key(params))

    def _send_data(self, data: object) -> None:
        """Send a message. Raise TypeError or ValueError without sending anything if the message is not valid JSON."""
        self._write(self._encode_body(data))

    def _encode_body(self, message: object) -> bytes:
        return encode_json(message, default=self._serialize_message)

    def _write(self, body: bytes, coalesce_key: Hashable = None) -> None:
        if self._message_writer is None:
            raise RuntimeError("the protocol has no writer yet")
        self._message_writer.write(body, coalesce_key=coalesce_key)

    def _structure_result(self, method: str, result: object) -> object:
        kind = self.get_result_type(method)
        if kind is None:
            return result
        return self._converter.structure({"jsonrpc": "2.0", "id": 0, "result": result}, kind).result

    def _answer(self, request_id: envelope.RequestId, result: object) -> None:
        try:
            body = self._encode_body({"jsonrpc": "2.0", "id": request_id, "result": result})
        except Exception:  # noqa: BLE001 - a converter may raise any exception
            _log.exception("a result could not be written as JSON")
            self._send_error(request_id, error_responses.INTERNAL_ERROR, "The result cannot be sent as JSON.")
            return
        if len(body) > _MAX_RESULT_BYTES:
            self._send_error(request_id, error_responses.REQUEST_FAILED, _TOO_LARGE)
        else:
            self._write(body)

    def _answer_error(self, request_id: envelope.RequestId, error: BaseException) -> None:
        if isinstance(error, asyncio.CancelledError):
            self._send_error(request_id, error_responses.REQUEST_CANCELLED, "The request was cancelled.")
            return
        error_id = secrets.token_hex(4)
        code = error_responses.find_error_code(error)
        if code == error_responses.INTERNAL_ERROR:
            _log.error("internal error %s", error_id, exc_info=error)
        more = {"data": error.data} if isinstance(error, error_responses.TurnError) else {}
        self._send_error(request_id, code, error_responses.format_error_with_id(error, error_id), **more)

    def _send_error(self, request_id: envelope.RequestId | None, code: int, text: str, **more: object) -> None:
        self._send_data({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text, **more}})


def _build_coalesce_key(params: object) -> Hashable:
    """Return a key that identifies the progress to which a report belongs, or None for other messages."""
    if isinstance(params, types.ProgressParams) and isinstance(params.value, types.WorkDoneProgressReport):
        return "report", params.token
    return None
