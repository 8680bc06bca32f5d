"""An editor on pytest-lsp: lsprotocol objects both ways, and its checks of the protocol beside those of `editor`.

What LSP leaves to server and client stays JSON: the results of commands, progress values, `thinklsp/editor/*`.
"""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Awaitable, Coroutine, Sequence
from concurrent.futures import Future
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self, cast

from cattrs import Converter
from lsprotocol import types
from pygls.exceptions import JsonRpcException
from pygls.io_ import WebSocketWriter, run_async, run_websocket
from pygls.protocol import default_converter
from pytest_lsp import LanguageClient, LanguageClientProtocol
from pytest_lsp.checks import check_params_against_client_capabilities, check_result_against_client_capabilities
from pytest_lsp.client import DEFAULT_CLIENT_FEATURES, register_lsp_features
from pytest_lsp.client import progress as keep_progress
from websockets.asyncio.client import ClientConnection, connect

from tests.support.client.actions import Editing, Json, Process, Received, Request
from tests.support.client.documents import Encoding, range_of
from tests.support.client.editor import VSCODE, Editor
from tests.support.watching import HANG_SECONDS


def make_converter() -> Converter:
    """Return pygls' converter without a fault of lsprotocol, which reads a CodeAction with a command as a Command."""
    converter: Converter = default_converter()  # type: ignore[no-untyped-call] # of pygls

    def structure(value: Json, _: Any) -> Any:
        is_command = isinstance(value.get("command"), str)
        return converter.structure(value, types.Command if is_command else types.CodeAction)

    converter.register_structure_hook(types.Command | types.CodeAction, structure)
    return converter


CONVERTER = make_converter()


class Protocol(LanguageClientProtocol):
    """Shows all traffic to the client, and lets its editor answer the server's requests."""

    _server: Connection

    def structure_message(self, data: Json) -> Any:
        if "jsonrpc" not in data:
            return data
        self._server.owner.checker.received(data)
        message = super().structure_message(dict(data))
        self._server.owner.take(data, message)
        return message

    def _send_data(self, data: Any) -> None:
        self._server.owner.checker.sent(CONVERTER.unstructure(data))
        super()._send_data(data)
        self._server.owner.changed()

    def handle_message(self, message: Any) -> None:
        super().handle_message(message)
        # Who waits for a request of the server goes on behind the editor's answer to it.
        self._server.owner.changed()

    def _handle_request(self, msg_id: int | str, method_name: str, params: Any) -> None:
        """Answer beside pygls, which gives up an answer that the server no longer wants; editors may send it late."""
        check_params_against_client_capabilities(self._server.capabilities, method_name, params)
        self._server.owner.begin_answer(msg_id, method_name, params)


class TextWriter(WebSocketWriter):
    """Sends text messages, as LSP on WebSocket is spoken; pygls' own writer sends binary ones."""

    def write(self, data: bytes) -> Awaitable[None]:
        return self._ws.send(data.decode())


class Connection(LanguageClient):
    """pytest-lsp's client, on a server that runs already. What the server does wrong is blamed to the checker."""

    def __init__(self, owner: LspClient) -> None:
        self.owner = owner
        super().__init__(protocol_cls=Protocol, converter_factory=lambda: CONVERTER)
        register_lsp_features(self, DEFAULT_CLIENT_FEATURES | {types.PROGRESS: take_progress})

    def attach(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.protocol.set_writer(writer)
        self._begin(writer, run_async(self._stop_event, reader, self.protocol, error_handler=self.report_server_error))

    async def start_ws(self, host: str, port: int, token: str = "") -> None:
        """Do as pygls does, with a header."""
        headers = {"Authorization": f"Bearer {token}"}
        socket = await connect(f"ws://{host}:{port}", additional_headers=headers, max_size=None, proxy=None)
        reading = run_websocket(socket, self._stop_event, self.protocol, error_handler=self.report_server_error)
        self._begin(socket, reading)
        await asyncio.sleep(0)  # As pygls does: the reading sets a writer when it begins.
        self.protocol.set_writer(TextWriter(socket), include_headers=False)

    def _begin(self, wire: asyncio.StreamWriter | ClientConnection, reading: Coroutine[Any, Any, None]) -> None:
        self.wire = wire
        self.reading = asyncio.create_task(reading)
        self.reading.add_done_callback(self._end)

    def _end(self, _: object) -> None:
        """Answer what the server did not, and stop what would still answer the server."""
        self.protocol.writer = None
        gone = JsonRpcException(f"the server has gone\n{self.owner.describe()}", code=0)
        for future in list(self.protocol._request_futures.values()):
            if not future.done():
                future.set_exception(gone)
        for task in list(self.owner.answering):
            task.cancel()
        self.owner.changed()

    def report_server_error(self, error: Exception, source: Any) -> None:
        self.owner.checker.blame(f"{source.__name__}: {error!r}")


def take_progress(connection: Connection, params: types.ProgressParams) -> None:
    """Keep work-done progress as pytest-lsp does, which knows no partial results and no tokens of the client's own."""
    if params.value and params.value["kind"] in ("begin", "report", "end"):
        connection.progress_reports.setdefault(params.token, [])
        keep_progress(connection, params)


class TypedEditor(Editor):
    """An editor whose handlers take lsprotocol objects."""

    async def answer(self, method: str, params: Any) -> Json:
        if method not in self.handlers:
            params = CONVERTER.unstructure(params)
        return await super().answer(method, params)

    def apply_edit(self, params: Any) -> Any:
        return CONVERTER.structure(super().apply_edit(CONVERTER.unstructure(params)), types.ApplyWorkspaceEditResult)


class LspRequest(Request):
    """A request whose result is checked against the capabilities that the client has announced."""

    def __init__(self, client: LspClient, identity: str, method: str, answer: asyncio.Future[Json]) -> None:
        super().__init__(identity, method, answer, client.describe)
        self._capabilities = client.connection.capabilities

    async def _wait(self) -> Any:
        result = await super()._wait()
        check_result_against_client_capabilities(self._capabilities, self.method, result)
        return result


class LspClient(Editing):
    """One editor on one server, its own if on pipes. `connection`: pytest-lsp's client. `stdout` has no headers."""

    editor: TypedEditor
    server: types.ServerCapabilities

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self.is_shared = False
        self.connection = Connection(self)
        self.editor = TypedEditor(self.checker, self.open, self._change)
        self.answering: set[asyncio.Task[None]] = set()
        self._log: asyncio.Task[None] | None = None

    @classmethod
    async def on_pipes(cls, process: Process) -> Self:
        client = cls(process)
        assert process.stdout is not None
        assert process.stdin is not None
        client.connection.attach(process.stdout, process.stdin)
        client._log = asyncio.create_task(client._read_log())
        return client

    @classmethod
    async def on_socket(cls, process: Process, kind: Literal["tcp", "ws"], port: int, token: str) -> Self:
        client = cls(process)
        client.is_shared = True
        if kind == "tcp":
            client.token = token
            client.connection.attach(*await asyncio.open_connection("127.0.0.1", port))
        else:
            await client.connection.start_ws("127.0.0.1", port, token)
        return client

    async def _read_log(self) -> None:
        assert self.process.stderr is not None
        while chunk := await self.process.stderr.read(65536):
            self.stderr += chunk

    async def initialize(
        self, root: Path | None, *, announce: Any = None, options: Json = None
    ) -> types.InitializeResult:
        """Begin the session. `announce`: capabilities, typed or as JSON."""
        self.editor.capabilities = CONVERTER.unstructure(VSCODE if announce is None else announce)
        if self.token is not None:
            options = {"thinklsp": (options or {}) | {"token": self.token}}
        params = types.InitializeParams(
            capabilities=CONVERTER.structure(self.editor.capabilities, types.ClientCapabilities),
            client_info=types.ClientInfo(self.editor.name, "1"),
            root_uri=root.as_uri() if root else None,
            initialization_options=options,
            workspace_folders=[types.WorkspaceFolder(root.as_uri(), root.name)] if root else None,
        )
        result = await self.connection.initialize_session(params)
        self.server = result.capabilities
        self.desk.encoding = cast("Encoding", self.server.position_encoding or "utf-16")
        return result

    @property
    def has_gone(self) -> bool:
        return self.connection.reading.done()

    async def gone(self) -> int:
        """Wait until the process, or the socket, has ended; return the exit code, 0 of a socket."""
        tasks = [task for task in (self.connection.reading, self._log) if task is not None]
        _, running = await asyncio.wait(tasks, timeout=HANG_SECONDS)
        if running:
            self.kill()
            await asyncio.wait(tasks)
            self.checker.blame("the server did not end and had to be killed")
        code = 0 if self.is_shared else await self.process.wait()
        if isinstance(self.connection.wire, asyncio.StreamWriter):
            self.connection.wire.close()
        self.checker.finish()
        return code

    def kill(self) -> None:
        if self.is_shared:
            self.connection.wire.transport.abort()
        elif self.process.returncode is None:
            self.process.kill()

    # Talking

    def request(self, method: str, params: Any = None) -> LspRequest:
        identity = str(uuid.uuid4())
        answer: asyncio.Future[Json] = asyncio.get_running_loop().create_future()
        sent = self.connection.protocol.send_request(method, typed(method, params), msg_id=identity)
        sent.add_done_callback(partial(settle, answer))
        return LspRequest(self, identity, method, answer)

    def notify(self, method: str, params: Any = None) -> None:
        self.connection.protocol.notify(method, typed(method, params))

    def answer(self, identity: int | str, result: Any) -> None:
        """Answer a request of the server, beside the editor's own answer."""
        self.connection.protocol._send_response(identity, result)

    def run_action(self, action: types.CodeAction | types.Command, *, token: str | int | None = None) -> Request:
        """Execute the command of an action as an editor does."""
        command = action if isinstance(action, types.Command) else action.command
        assert command is not None
        params = types.ExecuteCommandParams(command.command, command.arguments, token)
        return self.request(types.WORKSPACE_EXECUTE_COMMAND, params)

    # Reading and answering

    def take(self, data: Json, message: Any) -> None:
        self.stdout += json.dumps(data, ensure_ascii=False).encode("utf-8", "surrogatepass")
        self.received.append(Received(time.monotonic(), data, getattr(message, "params", None)))

    def begin_answer(self, identity: int | str, method: str, params: Any) -> None:
        task = asyncio.create_task(self._answer(identity, method, params))
        self.answering.add(task)
        task.add_done_callback(self.answering.discard)

    async def _answer(self, identity: int | str, method: str, params: Any) -> None:
        try:
            answer = await self.editor.answer(method, params)
        except Exception as broken:  # noqa: BLE001 - a handler of a test has failed
            self.checker.blame(f"the editor could not answer: {broken!r}")
            return
        error = types.ResponseError(**answer["error"]) if "error" in answer else None
        self.connection.protocol._send_response(identity, answer.get("result"), error)


def typed(method: str, params: Any) -> Any:
    """Return params, in which JSON and lsprotocol objects may be mixed, as the object of the method."""
    kind: Any = types.METHOD_TO_TYPES[method][2] if method in types.METHOD_TO_TYPES else None
    return params if params is None or kind is None else CONVERTER.structure(CONVERTER.unstructure(params), kind)


def settle(answer: asyncio.Future[Json], sent: Future[Any]) -> None:
    error = sent.exception()
    if answer.done():
        return
    if isinstance(error, JsonRpcException):
        answer.set_result({"error": {"code": error.code, "message": error.message, "data": error.data}})
    else:
        answer.set_result({"result": sent.result()})


def named(actions: Sequence[types.CodeAction | types.Command], name: str) -> list[Any]:
    """Return the actions whose title begins with `thinklsp: <name>`."""
    return [action for action in actions if action.title.startswith(f"thinklsp: {name}")]


def diagnostic(text: str, part: str, message: str, **more: Any) -> types.Diagnostic:
    place = CONVERTER.structure(range_of(text, part), types.Range)
    return types.Diagnostic(place, message, severity=types.DiagnosticSeverity.Error, source="pyright", **more)
