"""The agent on standard input and output."""

from __future__ import annotations

import asyncio
import logging
from typing import NoReturn

from thinklsp.acp.acp_server import AcpServer
from thinklsp.acp.first_answer import EarlyInput
from thinklsp.jsonrpc.json_lines import LineReader, build_line
from thinklsp.jsonrpc.reader import InputReader
from thinklsp.jsonrpc.server_process import (
    SHUTDOWN_SECONDS,
    install_signal_handlers,
    run_and_exit,
    take_standard_output,
    wait_until_client_is_gone,
)
from thinklsp.jsonrpc.writer import FrameWriter

_log = logging.getLogger(__name__)


def serve_stdio(first_input: EarlyInput) -> NoReturn:
    """Serve a client until it closes its end, then exit the process with 0, or with 128 plus a signal's number."""
    run_and_exit(_serve(take_standard_output(), first_input))


async def _serve(out: int, first_input: EarlyInput) -> int:
    writer = FrameWriter(out, build_line)
    server = AcpServer(writer, first_input.announced)
    exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def request_exit(code: int) -> None:
        if not exit_code.done():
            exit_code.set_result(code)

    install_signal_handlers(request_exit)
    InputReader(LineReader(), server.receive, lambda: request_exit(0)).start(first_input.data)
    watch = asyncio.create_task(wait_until_client_is_gone(writer, lambda: None))
    watch.add_done_callback(lambda _: request_exit(1))
    code = await exit_code
    try:
        async with asyncio.timeout(SHUTDOWN_SECONDS):
            await server.close()
    except TimeoutError:
        _log.warning("some work did not end in time and was abandoned")
    writer.close()
    return code
