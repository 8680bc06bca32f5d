"""The server on standard input and output, which serves one client and then exits the process."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import NoReturn

from thinklsp.jsonrpc.reader import InputReader
from thinklsp.jsonrpc.server_process import (
    SHUTDOWN_SECONDS,
    install_signal_handlers,
    run_and_exit,
    take_standard_output,
    wait_until_client_is_gone,
)
from thinklsp.jsonrpc.writer import FrameWriter
from thinklsp.lsp.protocol.fast_initialize import FirstInput
from thinklsp.lsp.protocol.frames import FrameDecoder, build_frame
from thinklsp.lsp.transport.connection import Connection
from thinklsp.settings.startup_settings import StartupSettingsReader

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
