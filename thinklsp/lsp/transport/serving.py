"""The lifetime of a server for many clients: listen, drain after SIGTERM, and end."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import NoReturn

from thinklsp.core.server_context import Observer
from thinklsp.jsonrpc.server_process import install_signal_handlers, run_and_exit
from thinklsp.lsp.transport.sockets import ConnectionRegistry, Listen, ListenConfig
from thinklsp.settings.user_file import ServeSection

OpenMonitor = Callable[[ConnectionRegistry], AbstractAsyncContextManager[None]]


def serve_sockets(
    listen: Listen,
    config: ListenConfig,
    section: ServeSection,
    ready: Callable[[], None],
    *,
    observer: Observer,
    open_monitor: OpenMonitor,
) -> NoReturn:
    """Serve clients until a signal arrives, then exit the process with 128 plus the signal number.

    After SIGTERM, running turns have `drain_seconds` to finish. A second signal ends this time.

    `ready` is called when clients can connect. `open_monitor` serves health and metrics, also while the server drains.
    """
    connections = ConnectionRegistry(section.max_clients, observer=observer)
    run_and_exit(_serve(listen, config, section.drain_seconds, ready, open_monitor(connections), connections))


async def _serve(
    listen: Listen,
    config: ListenConfig,
    drain_seconds: float,
    ready: Callable[[], None],
    monitor: AbstractAsyncContextManager[None],
    connections: ConnectionRegistry,
) -> int:
    codes: asyncio.Queue[int] = asyncio.Queue()
    install_signal_handlers(codes.put_nowait)
    async with monitor:
        async with listen(config, connections):
            ready()
            code = await codes.get()
            # Ctrl-C means now. Service managers send SIGTERM and wait.
            if code == 128 + signal.SIGTERM:
                await _drain(connections, drain_seconds, codes)
        await connections.close_all()
    return code


async def _drain(connections: ConnectionRegistry, seconds: float, codes: asyncio.Queue[int]) -> None:
    """Wait until the running turns have ended, the time is over, or a second signal has arrived."""
    draining = asyncio.create_task(connections.drain(seconds))
    second_signal = asyncio.create_task(codes.get())
    await asyncio.wait([draining, second_signal], return_when=asyncio.FIRST_COMPLETED)
    for task in (draining, second_signal):
        task.cancel()
