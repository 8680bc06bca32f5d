"""From a message body to a handler and back: every request is answered exactly once, whatever happens.

Reading, checking, replying and our own requests to the client are done here, because pygls leaves malformed requests
unanswered and keeps one table for both directions. What params mean is said by `forms`, and by pygls where they are
unusual.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, assert_never

from thinklsp.core.strict_json import json_bytes
from thinklsp.lsp import late
from thinklsp.lsp.protocol import envelope, errors, forms
from thinklsp.lsp.protocol.convert import Encoding
from thinklsp.lsp.protocol.frames import BadFrame
from thinklsp.lsp.protocol.greeting import encoding_of
from thinklsp.lsp.protocol.writer import Writer

_log = logging.getLogger(__name__)

_MAX_RUNNING = 64
_MAX_WAITING = 100
_LONGEST_ECHO = 100
# A larger one would count as a client that does not read, see Outbox.
_MAX_RESULT_BYTES = 32 * 1024 * 1024
_TOO_LARGE = "The result is larger than 32 MB and cannot be sent."
# Vim before 9.0.1927 takes a request with the id of one of its own for the answer to that one (vim/vim#13133), and it
# cannot answer ids that are strings (vim/vim#14091).
_FIRST_ID = 1_000_000


class Protocol:
    """One per connection; before the first message it is given its writer by `connect`. `handlers` by method; a
    coroutine is run beside others, its request cancelled with it. `on_initialize` sees the client before it is
    answered, `on_shutdown` ends what runs by itself, `on_exit` is told the exit code. `is_greeted`: the client has had
    the answer to its `initialize`, which was of the usual form."""

    on_initialize: Callable[[forms.Beginning], None]
    on_shutdown: Callable[[], None]
    on_exit: Callable[[int], None]
    _out: Writer

    def __init__(self) -> None:
        self.handlers: dict[str, Callable[[Any], Any]] = {
            "initialize": self._initialize,
            "shutdown": self._shut_down,
            "exit": lambda _: self.on_exit(0 if self._shutdown else 1),
            "$/cancelRequest": self._cancel,
        }
        self.capabilities: Mapping[str, Any] = {}
        self.encoding: Encoding = "utf-16"
        self.is_greeted = False
        self._initialized = False
        self._shutdown = False
        self._running: dict[envelope.Id, asyncio.Task[_Guard]] = {}
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(_FIRST_ID)

    def receive(self, frame: bytes | BadFrame) -> None:
        """One message. Never raises."""
        if isinstance(frame, BadFrame):
            message: envelope.Message = envelope.Fault(None, errors.INVALID_REQUEST, frame.reason)
        else:
            message = envelope.read(frame)
        match message:
            case envelope.Fault():
                self._reply_error(message.id, message.code, message.text)
            case envelope.Reply():
                self._receive_reply(message)
            case envelope.Request():
                self._receive_request(message)
            case envelope.Notification():
                self._receive_notification(message)
            case None:
                pass
            case _:
                assert_never(message)

    def _receive_request(self, request: envelope.Request) -> None:
        if (refusal := self._refusal(request)) is not None:
            self._reply_error(request.id, *refusal)
            return
        handler = self.handlers.get(request.method)
        if handler is None:
            method = request.method[:_LONGEST_ECHO]
            self._reply_error(request.id, errors.METHOD_NOT_FOUND, f"There is no method {method}.")
        elif inspect.iscoroutinefunction(handler):
            self._start(request, handler)
        else:
            with _Guard() as made:
                made.result = handler(_params(request.method, request.message))
            if not (request.method == "initialize" and self.is_greeted):
                self._answer(request.id, made)

    def _refusal(self, request: envelope.Request) -> tuple[int, str] | None:
        """Why the request cannot be taken in this phase of the connection's life."""
        initializes = request.method == "initialize"
        if not self._initialized and not initializes:
            return errors.NOT_INITIALIZED, "The server has not been initialized yet."
        if self._shutdown:
            return errors.INVALID_REQUEST, "The server is shutting down."
        if self._initialized and initializes:
            return errors.INVALID_REQUEST, "The server has been initialized already."
        if request.id in self._running:
            return errors.INVALID_REQUEST, "A request with this id is still running."
        if _makes_room(request):
            return None
        if len(self._running) >= _MAX_RUNNING:
            return errors.REQUEST_FAILED, "The server is busy with too many requests. Wait for one of them."
        if self._out.is_full:
            return errors.REQUEST_FAILED, "Too many messages of the server wait to be read. Read them, then ask again."
        return None

    def _start(self, request: envelope.Request, handler: Callable[[Any], Awaitable[Any]]) -> None:
        async def attempt() -> _Guard:
            with _Guard() as made:
                made.result = await handler(_params(request.method, request.message))
            return made

        task = asyncio.get_running_loop().create_task(attempt())
        self._running[request.id] = task
        task.add_done_callback(partial(self._finished, request.id))

    def _receive_notification(self, notification: envelope.Notification) -> None:
        method = notification.method
        if method != "exit" and (not self._initialized or self._shutdown):
            return
        handler = self.handlers.get(method)
        # A request without an id wants no answer, and so nothing.
        if handler is None or inspect.iscoroutinefunction(handler):
            return
        with _Guard() as made:
            handler(_params(method, notification.message))
        if isinstance(made.error, errors.InvalidParams):
            _log.warning("a notification %s with invalid params was ignored", method[:_LONGEST_ECHO])
        elif made.error is not None:
            _log.error("the notification %s failed", method[:_LONGEST_ECHO], exc_info=made.error)

    def _receive_reply(self, reply: envelope.Reply) -> None:
        future = self._waiting.pop(reply.id, None) if isinstance(reply.id, int) else None
        if future is None or future.done():
            return
        if reply.failed:
            future.set_exception(errors.ClientError("The editor refused a request of the server."))
        else:
            future.set_result(reply.result)

    def connect(self, writer: Writer) -> None:
        self._out = writer

    def tell(self, method: str, params: Any, *, replaces: Hashable = None) -> None:
        """A notification to the client, as plain JSON values. An earlier one with the same `replaces` that the client
        has not read yet is left out."""
        self._send({"jsonrpc": "2.0", "method": method, "params": params}, replaces)

    async def ask(
        self,
        method: str,
        params: Any,
        timeout: float | None,  # noqa: ASYNC109 - part of the contract
        numbered: Callable[[int], None] = lambda _: None,
    ) -> Any:
        """A request to the client; its result as plain JSON values. `params` None: the method takes none. `numbered` is
        told its id before it leaves.

        Raises ClientError when the client answers with an error, TimeoutError after `timeout` seconds (None: never).
        """
        number = next(self._numbers)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self._waiting[number] = future
        numbered(number)
        if len(self._waiting) > _MAX_WAITING:
            oldest = self._waiting.pop(next(iter(self._waiting)))
            oldest.set_exception(errors.ClientError("The editor left too many requests of the server unanswered."))
        message = {"jsonrpc": "2.0", "id": number, "method": method}
        self._send(message if params is None else message | {"params": params})
        try:
            async with asyncio.timeout(timeout):
                return await future
        except (asyncio.CancelledError, TimeoutError):
            # The editor should take its prompt or preview away: nobody waits for the answer any more.
            self.tell("$/cancelRequest", {"id": number})
            raise
        finally:
            self._waiting.pop(number, None)

    def _send(self, message: Any, replaces: Hashable = None) -> None:
        """Raises TypeError or ValueError, and sends nothing, if the message cannot be JSON."""
        self._out.write(_body(message), replaces=replaces)

    def _reply(self, request_id: envelope.Id, result: Any) -> None:
        try:
            body = _body({"jsonrpc": "2.0", "id": request_id, "result": result})
        except Exception:  # noqa: BLE001 - a result of any kind passes through converters of any kind
            _log.exception("a result could not be written as JSON")
            self._reply_error(request_id, errors.INTERNAL_ERROR, "The result cannot be sent as JSON.")
            return
        if len(body) > _MAX_RESULT_BYTES:
            self._reply_error(request_id, errors.REQUEST_FAILED, _TOO_LARGE)
        else:
            self._out.write(body)

    def _reply_error(self, request_id: Any, code: int, text: str, **more: object) -> None:
        self._send({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text, **more}})

    def _finished(self, request_id: envelope.Id, task: asyncio.Task[_Guard]) -> None:
        """A handler that was cancelled before it began has no outcome of its own."""
        self._running.pop(request_id, None)
        self._answer(request_id, _Guard(error=asyncio.CancelledError()) if task.cancelled() else task.result())

    def _answer(self, request_id: envelope.Id, made: _Guard) -> None:
        """The reply of one request; called once, when its handler has ended."""
        error = made.error
        if error is None:
            self._reply(request_id, made.result)
        elif isinstance(error, asyncio.CancelledError):
            self._reply_error(request_id, errors.REQUEST_CANCELLED, "The request was cancelled.")
        else:
            error_id = secrets.token_hex(4)
            code = errors.code_of(error)
            if code == errors.INTERNAL_ERROR:
                _log.error("internal error %s", error_id, exc_info=error)
            more = {"data": error.data} if isinstance(error, errors.TurnFailed) else {}
            self._reply_error(request_id, code, errors.sentence_of(error, error_id), **more)

    def _cancel(self, request_id: Any) -> None:
        """The handler is cancelled and answers by itself when it has cleaned up; its reply is the only one."""
        # An id that is none could pass for another one: true equals 1.
        task = self._running.get(request_id) if envelope.is_id(request_id) else None
        if task is not None:
            task.cancel()

    def _initialize(self, message: envelope.Json) -> Any:
        """The result; None where the client has had it."""
        params, result = message.get("params", {}), None
        if not self.is_greeted:
            params, result = late.whole().initialize(message)
        self.capabilities = message["params"]["capabilities"]
        agreed = encoding_of(self.capabilities) if result is None else result["capabilities"]["positionEncoding"]
        self.encoding = agreed or "utf-16"
        self.on_initialize(forms.beginning(params))
        self._initialized = True
        return result

    def _shut_down(self, _: Any) -> None:
        self._shutdown = True
        for task in self._running.values():
            task.cancel()
        self.on_shutdown()


@dataclass(slots=True)
class _Guard:
    """What a handler has come to. Whatever it raises ends here, so that a fault of one handler neither ends the
    process nor leaves a request without its answer."""

    result: Any = None
    error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> bool:
        self.error = error
        return True


def _body(message: Any) -> bytes:
    text = json.dumps(message, allow_nan=False, separators=(",", ":"))
    body = text.encode("ascii")
    # Half of a surrogate pair, from a buffer or a model, would be no JSON to many editors.
    return json_bytes(json.loads(text)) if b"\\ud" in body else body


def _makes_room(request: envelope.Request) -> bool:
    """What ends others' work is never turned away."""
    params = request.message.get("params")
    command = params.get("command") if isinstance(params, Mapping) else None
    return request.method == "shutdown" or command == "thinklsp.cancel"


def _params(method: str, message: envelope.Json) -> Any:
    """As the handler takes them. Raises InvalidParams."""
    if method == "initialize":
        return message
    return forms.params_of(method, message, lambda method, message: late.whole().usual_params(method, message))
