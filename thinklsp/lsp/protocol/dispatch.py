"""From a message body to a handler and back: every request is answered exactly once, whatever happens.

pygls keeps registration and capabilities. Reading, checking, replying and our own requests to the client are done here,
because pygls leaves malformed requests unanswered and keeps one table for both directions.
"""

from __future__ import annotations

import asyncio
import inspect
import itertools
import json
import logging
import secrets
from collections.abc import Awaitable, Callable, Hashable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Self, assert_never

from lsprotocol import types
from pygls.protocol import LanguageServerProtocol, lsp_method

from thinklsp.core.strict_json import json_bytes
from thinklsp.lsp.convert import Encoding
from thinklsp.lsp.protocol import envelope, errors
from thinklsp.lsp.protocol.frames import BadFrame
from thinklsp.lsp.protocol.writer import Writer

_log = logging.getLogger(__name__)

_MAX_RUNNING = 64
_MAX_WAITING = 100
_LONGEST_ECHO = 100
# What `initialize` is about when its capabilities cannot be read as a whole.
_NEEDED = ("processId", "rootUri", "workspaceFolders", "initializationOptions")


class Protocol(LanguageServerProtocol):
    """One per connection; before the first message it is given its writer by `connect`. `execute` is the coroutine that
    runs commands, `on_initialize` sees the client before it is answered, `on_shutdown` ends what runs by itself,
    `on_exit` is told the exit code. `is_greeted`: the client has had the answer to its `initialize`."""

    execute: Callable[[types.ExecuteCommandParams], Any]
    on_initialize: Callable[[types.InitializeParams], None]
    on_shutdown: Callable[[], None]
    on_exit: Callable[[int], None]
    _out: Writer

    def __init__(self, server: Any, converter: Any) -> None:
        super().__init__(server, converter)
        self.capabilities: Mapping[str, Any] = {}
        self.is_greeted = False
        self._initialized = False
        self._waiting: dict[int, asyncio.Future[Any]] = {}
        self._numbers = itertools.count(1)

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
        handler = self._handler(request.method)
        if handler is None:
            method = request.method[:_LONGEST_ECHO]
            self._reply_error(request.id, errors.METHOD_NOT_FOUND, f"There is no method {method}.")
        elif inspect.iscoroutinefunction(handler):
            self._start(request, handler)
        else:
            with _Guard() as made:
                made.result = handler(self._params(request.method, request.message))
            if not (request.method == types.INITIALIZE and self.is_greeted):
                self._answer(request.id, made)

    def _refusal(self, request: envelope.Request) -> tuple[int, str] | None:
        """Why the request cannot be taken in this phase of the connection's life."""
        initializes = request.method == types.INITIALIZE
        if not self._initialized and not initializes:
            return errors.NOT_INITIALIZED, "The server has not been initialized yet."
        if self._shutdown:
            return errors.INVALID_REQUEST, "The server is shutting down."
        if self._initialized and initializes:
            return errors.INVALID_REQUEST, "The server has been initialized already."
        if request.id in self._request_futures:
            return errors.INVALID_REQUEST, "A request with this id is still running."
        if len(self._request_futures) >= _MAX_RUNNING and not _makes_room(request):
            return errors.REQUEST_FAILED, "The server is busy with too many requests. Wait for one of them."
        return None

    def _start(self, request: envelope.Request, handler: Callable[[Any], Awaitable[Any]]) -> None:
        async def attempt() -> _Guard:
            with _Guard() as made:
                made.result = await handler(self._params(request.method, request.message))
            return made

        task = asyncio.get_running_loop().create_task(attempt())
        self._request_futures[request.id] = task  # type: ignore[assignment] # pygls' table of what still runs
        task.add_done_callback(partial(self._finished, request.id))

    def _receive_notification(self, notification: envelope.Notification) -> None:
        method = notification.method
        if method != types.EXIT and (not self._initialized or self._shutdown):
            return
        handler = self._cancel if method == types.CANCEL_REQUEST else self._handler(method)
        if handler is None:
            return
        with _Guard() as made:
            handler(self._params(method, notification.message))
        if isinstance(made.error, errors.InvalidParams):
            _log.warning("a notification %s with invalid params was ignored", method[:_LONGEST_ECHO])
        elif made.error is not None:
            _log.error("the notification %s failed", method[:_LONGEST_ECHO], exc_info=made.error)

    def _handler(self, method: str) -> Callable[[Any], Any] | None:
        found: Callable[..., Any] | None = self.fm.builtin_features.get(method) or self.fm.features.get(method)
        if found is not None and inspect.isgeneratorfunction(found):
            return lambda params: _returned(found(params))
        return found

    def get_message_type(self, method: str) -> type[Any] | None:  # type: ignore[override] # no cache, see below
        """As pygls' own, whose cache would keep this object for as long as the process lives."""
        return types.METHOD_TO_TYPES.get(method, (None,))[0]

    def _params(self, method: str, message: envelope.Json) -> Any:
        """The typed params; as they came for a method of our own. Raises InvalidParams."""
        kind = self.get_message_type(method)
        if kind is None:
            return message.get("params")
        if method == types.INITIALIZE:
            return self._initialize_params(message)
        try:
            typed = self._converter.structure(message, kind)
        except Exception:  # noqa: BLE001 - cattrs raises groups of anything; all of it means that params do not fit
            raise errors.InvalidParams(f"The params of {method[:_LONGEST_ECHO]} are not valid.") from None
        return getattr(typed, "params", None)

    def _initialize_params(self, message: envelope.Json) -> types.InitializeParams:
        """Capabilities of a newer or a careless client may not fit the types; they must not lock it out."""
        params = message.get("params")
        capabilities = params.get("capabilities") if isinstance(params, Mapping) else None
        if not isinstance(params, Mapping) or not isinstance(capabilities, Mapping):
            raise errors.InvalidParams("The params of initialize are not valid.")
        self.capabilities = capabilities
        known = {name: params[name] for name in _NEEDED if name in params}
        general = capabilities.get("general")
        for tried in (params, known | {"capabilities": {"general": general}}, known | {"capabilities": {}}):
            with suppress(Exception):
                return self._converter.structure(tried, types.InitializeParams)
        raise errors.InvalidParams("The params of initialize are not valid.")

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
            self.tell(types.CANCEL_REQUEST, {"id": number})
            raise
        finally:
            self._waiting.pop(number, None)

    def plain(self, value: Any) -> Any:
        """A typed value as plain JSON values."""
        return self._converter.unstructure(value)

    def position_encoding(self) -> Encoding:
        """What was agreed on in `initialize`."""
        agreed = self.server_capabilities.position_encoding or types.PositionEncodingKind.Utf16
        return str(getattr(agreed, "value", agreed))  # type: ignore[return-value] # pygls picks one of the three

    def _send(self, message: Any, replaces: Hashable = None) -> None:
        """Raises TypeError or ValueError, and sends nothing, where the message cannot be JSON."""
        text = json.dumps(message, default=self._serialize_message, allow_nan=False, separators=(",", ":"))
        body = text.encode("ascii")
        if b"\\ud" in body:
            # Half of a surrogate pair, from a buffer or a model, would be no JSON to many editors.
            body = json_bytes(json.loads(text))
        self._out.write(body, replaces=replaces)

    def _reply(self, request_id: envelope.Id, result: Any) -> None:
        try:
            self._send({"jsonrpc": "2.0", "id": request_id, "result": result})
        except Exception:  # noqa: BLE001 - a result of any kind passes through converters of any kind
            _log.exception("a result could not be written as JSON")
            self._reply_error(request_id, errors.INTERNAL_ERROR, "The result cannot be sent as JSON.")

    def _reply_error(self, request_id: Any, code: int, text: str, **more: object) -> None:
        self._send({"jsonrpc": "2.0", "id": request_id, "error": {"code": code, "message": text, **more}})

    def _finished(self, request_id: envelope.Id, task: asyncio.Task[_Guard]) -> None:
        """A handler that was cancelled before it began has no outcome of its own."""
        self._request_futures.pop(request_id, None)
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

    def _cancel(self, params: types.CancelParams) -> None:
        """The handler is cancelled and answers by itself when it has cleaned up; its reply is the only one."""
        # An id that is none could pass for another one: true equals 1.
        future = self._request_futures.get(params.id) if envelope.is_id(params.id) else None
        if future is not None:
            future.cancel()

    @lsp_method(types.INITIALIZE)
    def lsp_initialize(self, params: types.InitializeParams) -> types.InitializeResult:  # type: ignore[override] # pygls runs a generator; a plain function answers at once
        result: types.InitializeResult = _returned(super().lsp_initialize(params))
        self.on_initialize(params)
        self._initialized = True
        # pygls leaves the progress out; without it a conforming client never sends a token for it.
        announced = types.ExecuteCommandOptions(list(self.fm.commands), work_done_progress=True)
        result.capabilities.execute_command_provider = announced
        return result

    @lsp_method(types.SHUTDOWN)
    def lsp_shutdown(self, *_: Any) -> None:  # type: ignore[override] # pygls runs a generator here, too
        self._shutdown = True
        for future in self._request_futures.values():
            future.cancel()
        self.on_shutdown()

    @lsp_method(types.WORKSPACE_EXECUTE_COMMAND)
    async def lsp_workspace__execute_command(  # type: ignore[override] # a coroutine instead of a generator, see below
        self, params: types.ExecuteCommandParams
    ) -> Any:
        """A coroutine, so that `$/cancelRequest` really stops it: pygls' generator would run on."""
        return await self.execute(params)

    @lsp_method(types.EXIT)
    def lsp_exit(self, *_: Any) -> None:  # type: ignore[override] # pygls ends the process here; our runner does
        self.on_exit(0 if self._shutdown else 1)


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


def _makes_room(request: envelope.Request) -> bool:
    """What ends others' work is never turned away."""
    params = request.message.get("params")
    command = params.get("command") if isinstance(params, Mapping) else None
    return request.method == types.SHUTDOWN or command == "thinklsp.cancel"


def _returned(generator: Any) -> Any:
    """The result of a pygls generator that waits for no user handler."""
    try:
        while True:
            next(generator)
    except StopIteration as stop:
        return stop.value
