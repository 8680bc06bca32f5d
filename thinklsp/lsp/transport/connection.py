"""The creation of a server with all its handlers, and the server on standard input and output."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn

from thinklsp.core.import_context import switch_threads_often
from thinklsp.jsonrpc.first_message import FirstInput
from thinklsp.jsonrpc.framing import FrameDecoder, build_frame
from thinklsp.jsonrpc.stdio import run_and_exit, serve_client, take_standard_output
from thinklsp.jsonrpc.writer import FrameWriter
from thinklsp.lsp.features import register_features
from thinklsp.lsp.server import ThinkLspServer, pause_collection
from thinklsp.settings.startup_settings import StartupSettingsReader

if TYPE_CHECKING:
    from thinklsp.identity.tokens import ClientAccess
    from thinklsp.lsp.assistant import Assistant


def create_server(
    early_reading: StartupSettingsReader | None = None, access: ClientAccess | None = None
) -> ThinkLspServer:
    """Return a server with all its handlers. `access` is the access of a client that is identified by a token."""
    server = ThinkLspServer(_load_engine, early_reading, access)
    register_features(server)
    return server


def _load_engine() -> tuple[type[Assistant], Callable[[ThinkLspServer], None]]:
    """Import the commands and the engine, which the first code action does not need. Call this function in a thread."""
    with pause_collection("thinklsp.lsp.commands"), switch_threads_often():
        from thinklsp.engine.user_config import warm_up  # noqa: PLC0415 - imported late to keep the start fast
        from thinklsp.lsp.assistant import Assistant  # noqa: PLC0415 - imported late to keep the start fast
        from thinklsp.lsp.commands import register_commands  # noqa: PLC0415 - imported late to keep the start fast

        warm_up()
    return Assistant, register_commands


def serve_stdio(first_input: FirstInput, early_reading: StartupSettingsReader) -> NoReturn:
    """Serve a client until it disconnects, then exit the process.

    The exit code is 0 after `shutdown` and `exit`, 1 without them, and 128 plus the signal number after a signal.
    """
    out = take_standard_output()
    # Wait for the user's settings, because further messages may have arrived together with the first message.
    early_reading.wait()
    run_and_exit(_serve(out, first_input, early_reading))


async def _serve(out: int, first_input: FirstInput, early_reading: StartupSettingsReader) -> int:
    writer, server = FrameWriter(out, build_frame), create_server(early_reading)
    server.protocol.connect(writer)
    server.protocol.is_initialize_answered = first_input.is_answered
    return await serve_client(server, writer, FrameDecoder(), first_input.data, code_at_end=1)
