"""A client connection, from the first message until all tasks have finished and the process can exit."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from thinklsp.core.server_context import NO_OBSERVER, Observer
from thinklsp.jsonrpc.framing import BadFrame
from thinklsp.jsonrpc.writer import MessageWriter
from thinklsp.lsp import engine_loading
from thinklsp.lsp.features import register_features
from thinklsp.lsp.server import ThinkLspServer
from thinklsp.settings.startup_settings import StartupSettingsReader

if TYPE_CHECKING:
    from thinklsp.identity.tokens import ClientAccess

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
