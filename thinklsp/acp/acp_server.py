"""The ACP agent of one client, on standard input and output. It loads the engine in a thread."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Awaitable
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from thinklsp.acp.initialization import AnnouncedFeatures, build_initialize_result, is_valid_version
from thinklsp.acp.peer import AcpError, AcpPeer, Handler, Params, Result
from thinklsp.core.import_context import reduce_gc, switch_threads_often
from thinklsp.jsonrpc.first_message import FirstInput
from thinklsp.jsonrpc.framing import BadFrame, LineReader, build_line
from thinklsp.jsonrpc.rpc_messages import INVALID_REQUEST, InvalidParams
from thinklsp.jsonrpc.stdio import ExitCode, run_and_exit, serve_client, take_standard_output
from thinklsp.jsonrpc.writer import FrameWriter, MessageWriter

if TYPE_CHECKING:
    from thinklsp.acp.host import SessionHost


# The requests, and the methods of SessionHost that handle them.
_METHODS = {
    "authenticate": "authenticate",
    "session/new": "create_session",
    "session/load": "load_session",
    "session/resume": "resume_session",
    "session/list": "list_sessions",
    "session/delete": "delete_session",
    "session/close": "close_session",
    "session/prompt": "prompt",
    "session/set_mode": "set_mode",
    "session/set_config_option": "set_config_option",
}
_NOT_INITIALIZED = "Send `initialize` before any other request."
_INITIALIZED = "The agent is already initialized."


class AcpServer:
    """The agent. `announced` contains the params of `initialize` if that request was answered before the start."""

    def __init__(self, writer: MessageWriter, announced: Params | None = None) -> None:
        self.exit_code = ExitCode()
        self.process_id: int | None = None  # The protocol does not tell it.
        self._peer = AcpPeer(writer)
        self._features: AnnouncedFeatures | None = None
        self._host: SessionHost | None = None
        self._loading: asyncio.Task[SessionHost] | None = None
        self._peer.handlers["initialize"] = self._initialize
        for method, name in _METHODS.items():
            self._peer.handlers[method] = partial(self._dispatch, name)
        self._peer.listeners["session/cancel"] = self._cancel
        if announced is not None:
            self._begin(announced)

    def receive(self, line: bytes | BadFrame) -> None:
        """Handle a line from the client. This method never raises."""
        self._peer.receive(line)

    async def close(self) -> None:
        """End the client's requests, and close connections and files."""
        await self._peer.close()
        if self._loading is not None:
            await asyncio.wait([self._loading])
        if self._host is not None:
            await self._host.close()

    def _initialize(self, params: Params) -> Awaitable[Result]:
        if self._features is not None:
            raise AcpError(INVALID_REQUEST, _INITIALIZED)
        if not is_valid_version(params.get("protocolVersion")):
            raise InvalidParams("The field `protocolVersion` must be a number from 0 to 65535.")
        features = self._begin(params)
        return _answer(build_initialize_result(features))

    def _begin(self, params: Params) -> AnnouncedFeatures:
        """Take over the features of the client, and load the engine before the first session needs it."""
        self._features = features = AnnouncedFeatures(params)
        self._loading = asyncio.get_running_loop().create_task(self._load(features))
        return features

    async def _load(self, features: AnnouncedFeatures) -> SessionHost:
        self._host = host = await asyncio.to_thread(_create_host, self._peer, features)
        return host

    def _dispatch(self, name: str, params: Params) -> Awaitable[Result]:
        if self._features is None:
            raise AcpError(INVALID_REQUEST, _NOT_INITIALIZED)
        if self._host is not None:
            return _run_handler(self._host, name, params)
        return self._dispatch_later(name, params, self._features)

    async def _dispatch_later(self, name: str, params: Params, features: AnnouncedFeatures) -> Result:
        """Wait until the engine is loaded. After a failure, for example of the user's file, load it again."""
        if self._loading is None or (self._loading.done() and self._loading.exception() is not None):
            self._loading = asyncio.get_running_loop().create_task(self._load(features))
        loading = self._loading
        # Do not await the task directly, because a cancelled request must not cancel the shared load.
        await asyncio.wait([loading])
        return await _run_handler(loading.result(), name, params)

    def _cancel(self, params: Params) -> None:
        if self._host is not None:
            self._host.cancel(params)


def _run_handler(host: SessionHost, name: str, params: Params) -> Awaitable[Result]:
    handle: Handler = getattr(host, name)
    return handle(params)


async def _answer(result: Result) -> Result:
    return result


def _create_host(peer: AcpPeer, features: AnnouncedFeatures) -> SessionHost:
    """Import the engine and create it. Raises SettingsError if the user's file is invalid."""
    with reduce_gc(), switch_threads_often():
        from thinklsp.acp.host import SessionHost  # noqa: PLC0415 - loaded after the answer to `initialize`
        from thinklsp.engine.user_config import warm_up  # noqa: PLC0415 - loaded after the answer to `initialize`

        warm_up()
    return SessionHost(peer, features, os.environ)


def serve_stdio(first_input: FirstInput) -> NoReturn:
    """Serve a client until it closes its end, then exit the process with 0, or with 128 plus a signal's number."""
    run_and_exit(_serve(take_standard_output(), first_input))


async def _serve(out: int, first_input: FirstInput) -> int:
    writer, data, announced = FrameWriter(out, build_line), first_input.data, None
    if first_input.is_answered:
        line, _, data = data.partition(b"\n")
        announced = json.loads(line)["params"]
    return await serve_client(AcpServer(writer, announced), writer, LineReader(), data, code_at_end=0)
