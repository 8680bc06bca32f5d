"""A client connection, from the first message to its last task, and the server on standard input and output."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, NoReturn

from thinklsp.core.observer import NO_OBSERVER, Observer
from thinklsp.jsonrpc.framing import BadFrame, FrameDecoder, build_frame
from thinklsp.jsonrpc.stdio import (
    SHUTDOWN_SECONDS,
    InputReader,
    install_signal_handlers,
    run_and_exit,
    take_standard_output,
    wait_until_client_is_gone,
)
from thinklsp.jsonrpc.writer import FrameWriter, MessageWriter
from thinklsp.lsp import engine_loading
from thinklsp.lsp.features import register_features
from thinklsp.lsp.protocol.fast_initialize import FirstInput
from thinklsp.lsp.server import ThinkLspServer
from thinklsp.settings.startup_settings import StartupSettingsReader

if TYPE_CHECKING:
    from thinklsp.lsp.editor.client_access import ClientAccess


STOPPING = "This server is about to stop. Connect again in a moment."
_STOPPING_AFTER_TURNS = "This server is about to stop. It first finishes the running turn and starts no new one."


class Connection:
    """A client connection with its server.

    `access` is the access of a client that is identified by a token. `request_exit` is called at the client's `exit`
    notification, at the end of the input, and on signals.
    """

    def __init__(
        self,
        writer: MessageWriter,
        early_reading: StartupSettingsReader | None = None,
        access: ClientAccess | None = None,
        *,
        observer: Observer = NO_OBSERVER,
    ) -> None:
        self.server = create_server(early_reading, access)
        self.server.state.observer = observer
        self._exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.server.protocol.connect(writer)
        self.server.protocol.on_exit = self.request_exit

    def receive(self, frame: bytes | BadFrame) -> None:
        """Handle a message, or ignore it if the connection has ended. This method never raises."""
        if not self._exit_code.done():
            self.server.protocol.receive(frame)

    def request_exit(self, code: int) -> None:
        """End the connection with an exit code. Only the first call has an effect."""
        if not self._exit_code.done():
            self._exit_code.set_result(code)

    async def wait_for_exit(self) -> int:
        """Wait until the connection ends and return the exit code, which is 0 after `shutdown` and `exit`."""
        return await asyncio.shield(self._exit_code)

    def drain(self) -> None:
        """Tell the client that the server is about to stop. From now on, start no new turn. Running turns continue."""
        self.server.state.is_draining = True
        self.server.state.client.show_message("info", _STOPPING_AFTER_TURNS if self.is_busy else STOPPING)

    @property
    def is_busy(self) -> bool:
        """Whether a turn is starting or running."""
        return self.server.is_busy

    async def close(self) -> None:
        """End the client's turns, and close connections and files."""
        await self.server.close()


def create_server(
    early_reading: StartupSettingsReader | None = None, access: ClientAccess | None = None
) -> ThinkLspServer:
    """Return a server with all its handlers, ready for its first message."""
    server = ThinkLspServer(engine_loading, early_reading, access)
    register_features(server)
    return server


_log = logging.getLogger(__name__)


def serve_stdio(first_input: FirstInput, early_reading: StartupSettingsReader) -> NoReturn:
    """Serve a client until it disconnects, then exit the process.

    The exit code is 0 after `shutdown` and `exit`, 1 without them, and 128 plus the signal number after a signal.
    """
    out = take_standard_output()
    # Wait for the user's settings, because further messages may have arrived together with the first message.
    early_reading.wait()
    run_and_exit(_serve(out, first_input, early_reading))


async def _serve(out: int, first_input: FirstInput, early_reading: StartupSettingsReader) -> int:
    writer = FrameWriter(out, build_frame)
    connection = Connection(writer, early_reading)
    connection.server.protocol.is_initialize_answered = first_input.is_answered
    install_signal_handlers(connection.request_exit)
    reader = InputReader(FrameDecoder(), connection.receive, partial(connection.request_exit, 1))
    reader.start(first_input.data)
    watch = asyncio.create_task(_watch_client(connection, writer))
    code = await connection.wait_for_exit()
    watch.cancel()
    try:
        async with asyncio.timeout(SHUTDOWN_SECONDS):
            await connection.close()
    except TimeoutError:
        _log.warning("some work did not end in time and was abandoned")
    writer.close()
    return code


async def _watch_client(connection: Connection, writer: FrameWriter) -> None:
    await wait_until_client_is_gone(writer, lambda: connection.server.process_id)
    connection.request_exit(1)
