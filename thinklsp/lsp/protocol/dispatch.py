"""From a message body to a handler and back: every request is answered exactly once, whatever happens.

pygls keeps registration and capabilities. Reading, checking, replying and our own requests to the client are done here,
because pygls leaves malformed requests unanswered and keeps one table for both directions.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import secrets
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, NoReturn

from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.protocol import LanguageServerProtocol, lsp_method

from thinklsp.lsp.convert import Encoding
from thinklsp.lsp.protocol import errors
from thinklsp.lsp.protocol.writer import FrameWriter

_log = logging.getLogger(__name__)

_MAX_ID = 256
_MAX_WAITING = 100


class Protocol(LanguageServerProtocol):
    """One per connection. `execute` is the coroutine that runs commands, `on_initialize` sees the
    client before it is answered, `on_exit` is told the exit code."""

    execute: Callable[[types.ExecuteCommandParams], Any]
    on_initialize: Callable[[types.InitializeParams], None]
    on_exit: Callable[[int], None]

    def __init__(self, server: Any, converter: Any) -> None:
        super().__init__(server, converter)
        self._initialized = False
        self._out: FrameWriter | None = None
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)

    # --- what comes in -------------------------------------------------------------------------------------------

    def receive(self, body: bytes) -> None:
        """One message body. Never raises."""
        try:
            message = json.loads(body.decode("utf-8"), parse_constant=_no_constant)
        except (ValueError, RecursionError):
            self._reply_error(None, errors.PARSE_ERROR, "The message is not valid JSON.")
            return
        if not isinstance(message, dict):
            self._reply_error(None, errors.INVALID_REQUEST, "A message must be one JSON object.")
        elif "method" in message:
            self._receive_call(message)
        elif "id" in message:
            self._receive_reply(message)
        else:
            self._reply_error(None, errors.INVALID_REQUEST, "The message is neither a request nor a response.")

    def _receive_call(self, message: dict[str, Any]) -> None:
        is_request, request_id, method = "id" in message, message.get("id"), message["method"]
        if is_request and not _is_id(request_id):
            self._reply_error(None, errors.INVALID_REQUEST, "The id of a request must be an integer or a short text.")
        elif message.get("jsonrpc") != "2.0" or not isinstance(method, str) or not 0 < len(method) <= _MAX_ID:
            if is_request:
                self._reply_error(request_id, errors.INVALID_REQUEST, "The request is not valid JSON-RPC 2.0.")
        elif is_request:
            self._receive_request(request_id, method, message)
        elif method == types.EXIT or (self._initialized and not self._shutdown):
            self._receive_notification(method, message)

    def _receive_request(self, request_id: Any, method: str, message: dict[str, Any]) -> None:
        if not self._initialized and method != types.INITIALIZE:
            self._reply_error(request_id, errors.NOT_INITIALIZED, "The server has not been initialized yet.")
        elif self._initialized and method == types.INITIALIZE:
            self._reply_error(request_id, errors.INVALID_REQUEST, "The server has been initialized already.")
        elif self._shutdown:
            self._reply_error(request_id, errors.INVALID_REQUEST, "The server is shutting down.")
        elif request_id in self._request_futures:
            self._reply_error(request_id, errors.INVALID_REQUEST, "A request with this id is still running.")
        elif (params := self._structured(method, message)) is None:
            self._reply_error(request_id, errors.INVALID_PARAMS, f"The params of {method[:100]} are not valid.")
        else:
            self._handle_request(request_id, method, params.params if hasattr(params, "params") else None)

    def _receive_notification(self, method: str, message: dict[str, Any]) -> None:
        structured = self._structured(method, message)
        if structured is None:
            _log.warning("a notification %s with invalid params was ignored", method[:100])
            return
        self._handle_notification(method, getattr(structured, "params", None))

    def _structured(self, method: str, message: dict[str, Any]) -> Any:
        """The typed message, or None when its params do not fit. An unknown method passes as it is."""
        kind = self.get_message_type(method)
        if kind is None:
            return types.ShutdownRequest(id=0)
        try:
            return self._converter.structure(message, kind)
        except Exception:  # noqa: BLE001 - cattrs raises groups of anything; all of it means that params do not fit
            return None

    def _receive_reply(self, message: dict[str, Any]) -> None:
        reply_id = message["id"]
        future = self._waiting.pop(reply_id, None) if isinstance(reply_id, int) else None
        if future is None or future.done():
            return
        if message.get("error") is not None:
            future.set_exception(errors.ClientError("The editor refused a request of the server."))
        else:
            future.set_result(message.get("result"))

    # --- what goes out -------------------------------------------------------------------------------------------

    def connect(self, writer: FrameWriter) -> None:
        self._out = writer

    def tell(self, method: str, params: Any) -> None:
        """A notification to the client, as plain JSON values."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params})

    async def ask(self, method: str, params: Any, timeout: float | None) -> Any:  # noqa: ASYNC109 - part of the contract
        """A request to the client; its result as plain JSON values.

        Raises ClientError when the client answers with an error, TimeoutError after `timeout` seconds (None: never).
        """
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        if len(self._waiting) > _MAX_WAITING:
            oldest = self._waiting.pop(next(iter(self._waiting)))
            oldest.cancel()
        self._send({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        try:
            async with asyncio.timeout(timeout):
                return await future
        finally:
            self._waiting.pop(number, None)

    def plain(self, value: Any) -> Any:
        """A typed value as plain JSON values."""
        return self._converter.unstructure(value)

    def position_encoding(self) -> Encoding:
        """What was agreed on in `initialize`."""
        agreed = self.server_capabilities.position_encoding or types.PositionEncodingKind.Utf16
        return str(getattr(agreed, "value", agreed))  # type: ignore[return-value] # pygls picks one of the three

    def _send_data(self, data: Any) -> None:
        """What pygls sends: replies, made of typed values."""
        try:
            self._send(json.loads(json.dumps(data, default=self._serialize_message, allow_nan=False)))
        except (TypeError, ValueError):
            _log.exception("a reply could not be written as JSON")
            self._reply_error(getattr(data, "id", None), errors.INTERNAL_ERROR, "The result cannot be sent as JSON.")

    def _send(self, message: dict[str, Any]) -> None:
        if self._out is not None:
            # Escaped ASCII: lone surrogates from buffers cannot break the stream.
            self._out.write(json.dumps(message, allow_nan=False, separators=(",", ":")).encode("ascii"))

    def _reply_error(self, request_id: Any, code: int, text: str) -> None:
        self._send({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}})

    def _send_handler_result(self, future: Future[Any], *, msg_id: Any) -> None:
        """The reply of one request; called once, when its handler has ended."""
        self._request_futures.pop(msg_id, None)
        if future.cancelled():
            self._reply_error(msg_id, errors.REQUEST_CANCELLED, "The request was cancelled.")
        elif (error := future.exception()) is None:
            self._send_response(msg_id, result=future.result())
        elif isinstance(error, JsonRpcException):
            self._reply_error(msg_id, error.code, str(error.message))
        else:
            error_id = secrets.token_hex(4)
            code = errors.code_of(error)
            if code == errors.INTERNAL_ERROR:
                _log.error("internal error %s", error_id, exc_info=error)
            self._reply_error(msg_id, code, errors.sentence_of(error, error_id))

    def _handle_cancel_notification(self, msg_id: Any) -> None:
        """The handler is cancelled and answers by itself when it has cleaned up; its reply is the only one."""
        future = self._request_futures.get(msg_id)
        if future is not None:
            future.cancel()

    # --- requests that pygls treats in its own way ---------------------------------------------------------------

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> types.InitializeResult:  # type: ignore[override] # pygls runs a generator; a plain function answers at once
        self._initialized = True
        result: types.InitializeResult = _returned(super().lsp_initialize(params))
        self.on_initialize(params)
        commands = result.capabilities.execute_command_provider
        if commands is not None:
            # pygls leaves it out; without it a conforming client never sends a progress token.
            commands.work_done_progress = True
        return result

    @lsp_method(types.WORKSPACE_EXECUTE_COMMAND)
    async def lsp_workspace__execute_command(  # type: ignore[override] # a coroutine instead of a generator, see below
        self, params: types.ExecuteCommandParams
    ) -> Any:
        """A coroutine, so that `$/cancelRequest` really stops it: pygls' generator would run on."""
        return await self.execute(params)

    @lsp_method(types.EXIT)
    def lsp_exit(self, *_: Any) -> None:  # type: ignore[override] # pygls ends the process here; our runner does
        self.on_exit(0 if self._shutdown else 1)


def _returned(generator: Any) -> Any:
    """The result of a pygls generator that waits for no user handler."""
    try:
        while True:
            next(generator)
    except StopIteration as stop:
        return stop.value


def _is_id(value: object) -> bool:
    if isinstance(value, bool):
        return False
    return isinstance(value, int) or (isinstance(value, str) and len(value) <= _MAX_ID)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not JSON")
