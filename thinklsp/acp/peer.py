"""The JSON-RPC peer of an ACP client: it answers each request once, and sends updates and requests of its own."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, assert_never

from thinklsp.core.errors import ThinkLspError
from thinklsp.core.json_codec import encode_json
from thinklsp.jsonrpc import rpc_messages as rpc
from thinklsp.jsonrpc.framing import BadFrame
from thinklsp.jsonrpc.writer import MessageWriter

AUTHENTICATION_REQUIRED = -32000
RESOURCE_NOT_FOUND = -32002

_MAX_RUNNING = 64
_MAX_ECHO_LENGTH = 100
_log = logging.getLogger(__name__)
Params = Mapping[str, Any]
Result = Mapping[str, Any]
Listener = Callable[[Params], None]


class AcpError(ThinkLspError):
    """The error raised for a request that ends with an error code of its own."""

    def __init__(self, code: int, message: str) -> None:
        super().__init__(message)
        self.code = code


Handler = Callable[[Params], Awaitable[Result]]
"""Handles a request and returns its result. The call itself runs before the next message is read, the awaitable in a
task of its own, which sends the result before any callback that the handler has scheduled with `call_soon`.
"""


class AcpPeer:
    """The peer of one client. `handlers` and `listeners` are looked up by the method of a request or notification."""

    def __init__(self, writer: MessageWriter) -> None:
        self._writer = writer
        self.handlers: dict[str, Handler] = {}
        self.listeners: dict[str, Listener] = {"$/cancel_request": self._cancel_request}
        self._running: dict[rpc.RequestId, asyncio.Task[None]] = {}
        self._pending = rpc.PendingRequests(lambda number: self.notify("$/cancel_request", {"requestId": number}))

    def receive(self, line: bytes | BadFrame) -> None:
        """Handle a line from the client. This method never raises."""
        message = rpc.parse_message(line)
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

    @property
    def is_client_slow(self) -> bool:
        """True if so much waits to be read by the client that new requests are rejected."""
        return self._writer.is_full

    def notify(self, method: str, params: Mapping[str, Any]) -> None:
        self._write({"jsonrpc": "2.0", "method": method, "params": params})

    async def request(self, method: str, params: Mapping[str, Any], seconds: float) -> Any:
        """Send a request to the client and return its result.

        Raises ClientError if the client answers with an error, and TimeoutError if it does not answer in time. If the
        caller is cancelled, the request is cancelled, too.
        """
        number = self._pending.issue_id()
        future = self._pending.add(number, method)
        self._write({"jsonrpc": "2.0", "id": number, "method": method, "params": params})
        async with asyncio.timeout(seconds):
            return await asyncio.wrap_future(future)

    async def close(self) -> None:
        """Cancel the client's requests and wait for their ends."""
        tasks = list(self._running.values())
        for task in tasks:
            self._cancel_task(task)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _receive_request(self, request: rpc.Request) -> None:
        handler = self.handlers.get(request.method)
        params = request.message.get("params", {})
        if request.id in self._running:
            self._send_error(request.id, rpc.INVALID_REQUEST, "A request with this id is still running.")
        elif handler is None:
            text = f"Unknown method {request.method[:_MAX_ECHO_LENGTH]}."
            self._send_error(request.id, rpc.METHOD_NOT_FOUND, text)
        elif not isinstance(params, Mapping):
            self._send_error(request.id, rpc.INVALID_PARAMS, "`params` must be an object.")
        elif len(self._running) >= _MAX_RUNNING or self.is_client_slow:
            text = "Too many requests are running. Wait until one of them ends."
            self._send_error(request.id, rpc.INVALID_REQUEST, text)
        else:
            self._start(request.id, handler, params)

    def _start(self, request_id: rpc.RequestId, handler: Handler, params: Params) -> None:
        try:
            work = handler(params)
        except Exception as error:  # noqa: BLE001 - every request is answered
            self._answer_error(request_id, error)
            return
        task = asyncio.get_running_loop().create_task(self._run(request_id, work))
        self._running[request_id] = task

    async def _run(self, request_id: rpc.RequestId, work: Awaitable[Result]) -> None:
        try:
            result = await work
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001 - every request is answered
            del self._running[request_id]
            self._answer_error(request_id, error)
        else:
            del self._running[request_id]
            self._write({"jsonrpc": "2.0", "id": request_id, "result": result})

    def _receive_notification(self, notification: rpc.Notification) -> None:
        listener, params = self.listeners.get(notification.method), notification.message.get("params")
        if listener is None or not isinstance(params, Mapping):
            return
        try:
            listener(params)
        except ThinkLspError as error:
            _log.warning("ignored the notification %s: %s", notification.method, error)
        except Exception:  # noqa: BLE001 - a notification is never answered
            _log.exception("the notification %s failed", notification.method)

    def _cancel_request(self, params: Params) -> None:
        request_id = params.get("requestId")
        # Check the id, because `True == 1` would find another request.
        if isinstance(request_id, int | str) and rpc.is_id(request_id) and request_id in self._running:
            self._cancel_task(self._running[request_id])

    def _cancel_task(self, task: asyncio.Task[None]) -> None:
        """Cancel a request after its first step. A task that is cancelled earlier never runs, so it sends no answer."""
        asyncio.get_running_loop().call_soon(task.cancel)

    def _answer_error(self, request_id: rpc.RequestId, error: BaseException) -> None:
        failed_code = error.code if isinstance(error, AcpError) else rpc.INTERNAL_ERROR
        self._send_error(request_id, *rpc.describe_error(error, failed_code))

    def _send_error(self, request_id: rpc.RequestId | None, code: int, text: str) -> None:
        self._write({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text}})

    def _write(self, message: Mapping[str, Any]) -> None:
        self._writer.write(encode_json(message))
