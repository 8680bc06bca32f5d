"""The LSP protocol for a connection. It extends pygls' protocol and replaces the parts that do not work correctly.

pygls registers handlers, builds capabilities, converts params to lsprotocol types and runs handlers. This module
overrides the following methods.

- `receive` replaces `structure_message` and `handle_message`: pygls does not answer malformed requests.
- `_execute_handler`: pygls keeps notification futures forever, and a SystemExit in a task stops its event loop.
- `_send_handler_result`, `_check_handler_result`: pygls sends tracebacks as error data and as pop-ups.
- `_handle_cancel_notification`: pygls forgets a request that it cancels and never answers it.
- `lsp_initialize`: pygls omits `workDoneProgress`, and the fast reply may already have been sent.
- `lsp_shutdown`, `lsp_exit`: pygls does not answer cancelled requests, and exits the process itself.
- `lsp_workspace__execute_command`: pygls runs a generator, which cannot be cancelled and hides the progress token.
- `lsp_text_document__did_…`: pygls copies the entire text for each change.
- `_send_data`: pygls writes NaN and lone surrogates, which are not valid JSON.
- `send_request`: pygls uses one table for the requests of both sides, so equal ids collide.
- `get_message_type`, `get_result_type`: pygls' cache keeps every connection alive.
"""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Generator, Hashable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, assert_never

from cattrs import Converter
from lsprotocol import types
from pygls.protocol import JsonRPCNotification, JsonRPCRequestMessage, LanguageServerProtocol, lsp_method

from thinklsp.core.json_codec import encode_json
from thinklsp.jsonrpc import rpc_messages as rpc
from thinklsp.jsonrpc.framing import BadFrame
from thinklsp.jsonrpc.writer import MessageWriter
from thinklsp.lsp.protocol.converter import read_initialize_params
from thinklsp.lsp.protocol.fast_initialize import COMMANDS, RENEW_TOKEN, TOKEN_CAPABILITIES

if TYPE_CHECKING:
    from pygls.lsp.server import LanguageServer

_log = logging.getLogger(__name__)

_MAX_RUNNING = 64
_MAX_ECHO_LENGTH = 100
# A larger result fills the outgoing queue, and the client then appears to have stopped reading.
_MAX_RESULT_BYTES = 32 * 1024 * 1024
_TOO_LARGE = "The result is larger than 32 MB and cannot be sent."


def _build_feature(method: str) -> Any:
    """Return a built-in feature that only calls the registered handler."""

    @lsp_method(method)
    def run(self: LspProtocol, params: object) -> None:
        self.fm.features[method](params)

    return run


class LspProtocol(LanguageServerProtocol):
    """The LSP protocol for a connection.

    `capabilities` contains the client's capabilities as plain JSON, because the values may have unexpected types.
    `client_name` is the name in the client's `clientInfo`.
    `is_initialize_answered` is True if the client already has the reply to its `initialize` request. `on_exit` is
    called with the exit code. `execute_command` runs a command.
    """

    on_exit: Callable[[int], None]
    execute_command: Callable[[types.ExecuteCommandParams], Awaitable[object]]

    def __init__(self, server: LanguageServer, converter: Converter) -> None:
        super().__init__(server, converter)
        for method in [name for name in self.fm.builtin_features if name.startswith("notebookDocument/")]:
            del self.fm.builtin_features[method]  # The server does not support notebooks.
        self.capabilities: Mapping[str, object] = {}
        self.client_name: object = None
        self.is_initialize_answered = False
        self._initialized = False
        self._message_writer: MessageWriter | None = None
        self._pending = rpc.PendingRequests(
            lambda number: self.notify(types.CANCEL_REQUEST, types.CancelParams(number))
        )

    # The handling of messages from the client.

    def receive(self, frame: bytes | BadFrame) -> None:
        """Handle a message. This method never raises."""
        message = rpc.parse_message(frame)
        match message:
            case rpc.InvalidMessage():
                self._send_error(message.id, message.code, message.text)
            case rpc.ClientResponse():
                self._pending.settle(message)
            case rpc.Request():
                self._receive_request(message)
            case rpc.Notification():
                self._receive_notification(message)
            case None:
                pass
            case _:
                assert_never(message)

    def _receive_request(self, request: rpc.Request) -> None:
        if (refusal := self._check_request(request)) is not None:
            self._send_error(request.id, *refusal)
            return
        if (error := self._run_handler(self._handle_request, request, request.id)) is not None:
            self._request_futures.pop(request.id, None)
            self._answer_error(request.id, error)

    def _run_handler(self, handle: Callable[..., None], call: rpc.Call, *ids: rpc.RequestId) -> BaseException | None:
        """Run a handler and return the exception that it raises, or None.

        No exception is propagated, because each request must be answered and the process must continue.
        """
        try:
            handle(*ids, call.method, self._structure_params(call.method, call.message))
        except BaseException as error:  # noqa: BLE001 - any exception is reported to the client or logged
            return error
        return None

    def _check_request(self, request: rpc.Request) -> tuple[int, str] | None:
        """Return an error code and a message if the request cannot be accepted now, or None otherwise."""
        initializes = request.method == types.INITIALIZE
        if not self._initialized and not initializes:
            return rpc.NOT_INITIALIZED, "The server is not initialized yet."
        if self._shutdown:
            return rpc.INVALID_REQUEST, "The server is shutting down."
        if self._initialized and initializes:
            return rpc.INVALID_REQUEST, "The server is already initialized."
        if request.id in self._request_futures:
            return rpc.INVALID_REQUEST, "A request with this id is still running."
        if request.method not in self.fm.features and request.method not in self.fm.builtin_features:
            return rpc.METHOD_NOT_FOUND, f"Unknown method {request.method[:_MAX_ECHO_LENGTH]}."
        return None if _is_exempt_from_limit(request) else self._check_load()

    def _check_load(self) -> tuple[int, str] | None:
        if len(self._request_futures) >= _MAX_RUNNING:
            return rpc.REQUEST_FAILED, "Too many requests are running. Wait until one of them ends."
        if self._message_writer is not None and self._message_writer.is_full:
            return (
                rpc.REQUEST_FAILED,
                "Too many messages are waiting for the client. Read them and send the request again.",
            )
        return None

    def _receive_notification(self, notification: rpc.Notification) -> None:
        method = notification.method
        if method != types.EXIT and (not self._initialized or self._shutdown):
            return
        handler = self.fm.builtin_features.get(method) or self.fm.features.get(method)
        # A message without an id cannot be answered.
        is_request = self.get_result_type(method) is not None or inspect.iscoroutinefunction(handler)
        if method != types.CANCEL_REQUEST and (handler is None or is_request):
            return
        error = self._run_handler(self._handle_notification, notification)
        if isinstance(error, rpc.InvalidParams):
            _log.warning("ignored the notification %s with invalid params", method[:_MAX_ECHO_LENGTH])
        elif error is not None:
            _log.error("the notification %s failed", method[:_MAX_ECHO_LENGTH], exc_info=error)

    def _structure_params(self, method: str, message: rpc.Json) -> object:
        """Return the params as an lsprotocol type, or as plain JSON for methods outside LSP. Raise InvalidParams."""
        if method == types.INITIALIZE:
            return self._structure_initialize_params(message.get("params"))
        kind = self.get_message_type(method)
        if kind is None:
            return message.get("params")
        try:
            return getattr(self._converter.structure(message, kind), "params", None)
        except Exception:  # noqa: BLE001 - cattrs raises many types; each means that the params are invalid
            raise rpc.InvalidParams(f"The params of {method[:_MAX_ECHO_LENGTH]} are not valid.") from None

    def _structure_initialize_params(self, params: object) -> types.InitializeParams:
        """Return the `initialize` params. Missing or invalid capabilities mean that the client has none."""
        if not isinstance(params, Mapping):
            raise rpc.InvalidParams("The params of initialize are not valid.")
        capabilities, info = params.get("capabilities"), params.get("clientInfo")
        self.capabilities = capabilities if isinstance(capabilities, Mapping) else {}
        self.client_name = info.get("name") if isinstance(info, Mapping) else None
        return read_initialize_params(params)

    def _handle_cancel_notification(self, msg_id: rpc.RequestId) -> None:
        """Cancel a running request. Its handler cleans up and then sends the only response."""
        # Look up only valid ids. Otherwise, the id `true` matches the request with the id 1, because `True == 1`.
        future = self._request_futures.get(msg_id) if rpc.is_id(msg_id) else None
        if future is not None:
            future.cancel()

    # Handlers.

    def _execute_handler(self, msg_id: Any, handler: Any, callback: Any, args: Any = None, kwargs: Any = None) -> None:
        if inspect.iscoroutinefunction(handler):
            handler = _guard_handler(handler)
        super()._execute_handler(msg_id, handler, callback, args, kwargs)
        if (future := self._request_futures.get(msg_id)) is not None:
            future.add_done_callback(lambda _: self._request_futures.pop(msg_id, None))

    def _send_handler_result(self, future: Future[Any], *, msg_id: Any) -> None:
        self._request_futures.pop(msg_id, None)
        if future.cancelled():
            self._answer_error(msg_id, asyncio.CancelledError())
        elif (error := future.exception()) is not None:
            self._answer_error(msg_id, error)
        elif self._initialized:
            self._answer(msg_id, future.result())
        else:  # Before the server is initialized, the only request that it accepts is `initialize`.
            self._initialized = True
            if not self.is_initialize_answered:
                self._answer(msg_id, future.result())

    def _check_handler_result(self, future: Future[Any]) -> None:
        if not future.cancelled() and (error := future.exception()) is not None:
            _log.error("a notification failed", exc_info=error)

    def cancel_requests(self) -> list[asyncio.Future[Any]]:
        """Cancel all of the client's running requests and return their futures."""
        futures: list[Any] = list(self._request_futures.values())
        running = [future for future in futures if asyncio.isfuture(future)]
        for task in running:
            task.cancel()
        return running

    # The built-in features that replace those of pygls.

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> Generator[Any, Any, Any]:
        if self.is_initialize_answered:
            yield self.fm.features[types.INITIALIZE], (params,), None
            return None
        result = yield from super().lsp_initialize(params)
        # The commands are registered later, but clients send a progress token only if `workDoneProgress` is set here.
        commands = types.ExecuteCommandOptions(list(COMMANDS), work_done_progress=True)
        result.capabilities.execute_command_provider = commands
        if RENEW_TOKEN in self.fm.features:
            result.capabilities.experimental = TOKEN_CAPABILITIES
        return result

    @lsp_method(types.SHUTDOWN)
    def lsp_shutdown(self, *_: object) -> None:  # type: ignore[override] # pygls has a generator
        self._shutdown = True
        self.cancel_requests()
        self.fm.features[types.SHUTDOWN](None)

    @lsp_method(types.EXIT)
    def lsp_exit(self, *_: object) -> None:  # type: ignore[override] # pygls has a generator
        self.on_exit(0 if self._shutdown else 1)

    @lsp_method(types.WORKSPACE_EXECUTE_COMMAND)
    async def lsp_workspace__execute_command(self, params: types.ExecuteCommandParams) -> object:  # type: ignore[override] # pygls has a generator
        return await self.execute_command(params)

    lsp_initialized = _build_feature(types.INITIALIZED)
    lsp_text_document__did_open = _build_feature(types.TEXT_DOCUMENT_DID_OPEN)
    lsp_text_document__did_change = _build_feature(types.TEXT_DOCUMENT_DID_CHANGE)
    lsp_text_document__did_close = _build_feature(types.TEXT_DOCUMENT_DID_CLOSE)
    lsp_work_done_progress_cancel = _build_feature(types.WINDOW_WORK_DONE_PROGRESS_CANCEL)
    lsp_workspace__did_change_workspace_folders = _build_feature(types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS)

    # The messages to the client.

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
        msg_id: rpc.RequestId | None = None,
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

    def _answer(self, request_id: rpc.RequestId, result: object) -> None:
        try:
            body = self._encode_body({"jsonrpc": "2.0", "id": request_id, "result": result})
        except Exception:  # noqa: BLE001 - a converter may raise any exception
            _log.exception("a result could not be written as JSON")
            self._send_error(request_id, rpc.INTERNAL_ERROR, "The result cannot be sent as JSON.")
            return
        if len(body) > _MAX_RESULT_BYTES:
            self._send_error(request_id, rpc.REQUEST_FAILED, _TOO_LARGE)
        else:
            self._write(body)

    def _answer_error(self, request_id: rpc.RequestId, error: BaseException) -> None:
        more = {"data": error.data} if isinstance(error, rpc.TurnError) else {}
        code, text = rpc.describe_error(error, rpc.REQUEST_FAILED)
        self._send_error(request_id, code, text, **more)

    def _send_error(self, request_id: rpc.RequestId | None, code: int, text: str, **more: object) -> None:
        self._send_data({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text, **more}})


def _guard_handler(handler: Callable[..., Awaitable[object]]) -> Callable[..., Awaitable[object]]:
    """Return a handler that converts SystemExit to an error, because SystemExit in a task stops the event loop."""

    async def run_guarded(*args: object, **kwargs: object) -> object:
        try:
            return await handler(*args, **kwargs)
        except (KeyboardInterrupt, SystemExit) as error:
            raise RuntimeError("a handler tried to exit the process") from error

    return run_guarded


def _is_exempt_from_limit(request: rpc.Request) -> bool:
    """Return whether a request stops running work, like shutdown, and is therefore exempt from the limits."""
    params = request.message.get("params")
    command = params.get("command") if isinstance(params, Mapping) else None
    return request.method == types.SHUTDOWN or command == "thinklsp.cancel"


def _build_coalesce_key(params: object) -> Hashable:
    """Return a key that identifies the progress to which a report belongs, or None for other messages."""
    if isinstance(params, types.ProgressParams) and isinstance(params.value, types.WorkDoneProgressReport):
        return "report", params.token
    return None
