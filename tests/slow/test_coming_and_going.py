"""Clients that come and go leave nothing behind: no task, no descriptor, no thread, no server of their own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from pathlib import Path

import pytest

from tests.support.epilogue import WITNESSED, counted, gauge, without_counts
from tests.support.listening import Kind, Listening
from tests.support.sizes import sized

pytestmark = pytest.mark.timing
CLIENTS, AT_ONCE = sized(commit=40, nightly=1000), 10
# What the allocator may keep between two halves of all clients, in megabytes; the first half fills its pools.
GROWTH = 4.0
# Workers of the loop's own pool come as they are needed and stay, up to this many; the main thread is one more.
THREADS = min(32, (os.cpu_count() or 1) + 4) + 1


async def counts(server: Listening) -> list[int]:
    assert server.process is not None
    process = server.process
    one = await counted(lambda: process.send_signal(signal.SIGUSR1), lambda: server.log, server.wait_for)
    return [one.tasks, one.descriptors, one.threads, one.kept]


def memory(server: Listening) -> float:
    assert server.process is not None
    return gauge(server.process.pid).private


async def settled(server: Listening, most: list[int]) -> list[int]:
    deadline = asyncio.get_running_loop().time() + 60
    while True:
        figures = await counts(server)
        if all(one <= other for one, other in zip(figures, most, strict=True)):
            return figures
        assert asyncio.get_running_loop().time() < deadline, f"{figures} is left, where at most {most} may be"


async def come_and_go(server: Listening, root: Path, environment: dict[str, str], number: int) -> None:
    client = await server.connect(root, environment)
    match number % 4:
        case 0:
            client.wire.write(json.dumps({"jsonrpc": "2.0", "method": "initialized"}).encode())
        case 1:
            await client.initialize(root)
        case 2:
            await client.initialize(root)
            await client.command("thinklsp.sessions")
        case _:
            await client.initialize(root)
            await client.command("thinklsp.usage")
            assert await client.close() == 0
            return
    client.kill()
    client.checker.open_requests.clear()
    await client.gone()


@pytest.mark.skipif(sys.platform != "linux", reason="descriptors are counted in /proc")
@pytest.mark.parametrize("kind", ["tcp", "ws"])
async def test_clients_that_go_leave_nothing_behind(kind: Kind, tmp_path: Path, environment: dict[str, str]) -> None:
    server = Listening(kind, argv=WITNESSED)

    async def many(count: int) -> None:
        for start in range(0, count, AT_ONCE):
            numbers = range(start, start + AT_ONCE)
            await asyncio.gather(*(come_and_go(server, tmp_path, environment, number) for number in numbers))

    try:
        await server.start(tmp_path, environment)
        empty = await counts(server)
        await many(AT_ONCE)
        # Some descriptors of the process stay after the first clients.
        first = await settled(server, [empty[0], 100, THREADS, 0])
        await many(CLIENTS // 2)
        half = memory(server)
        await many(CLIENTS // 2)
        if CLIENTS >= 400:
            assert memory(server) - half < GROWTH
        await settled(server, [empty[0], first[1], THREADS, 0])
        assert await server.end() == 143
        assert [line for line in without_counts(server.log).splitlines() if not line.startswith("thinklsp: ")] == []
    finally:
        await server.stop()
