"""Clients that ask and ask and read nothing, or hardly anything: what waits for them is bounded, by every way in."""

from __future__ import annotations

import asyncio
import json
import os
import socket
import time
from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.raw import TcpWire, WebSocketWire, framed
from tests.support.epilogue import gauge
from tests.support.listening import Kind, Listening
from tests.support.outside import ARGV
from tests.support.sizes import some

pytestmark = pytest.mark.timing


# The deadline for the server to close the connection.
SECONDS = 120
# Twice the 64 MiB that may wait: the allocator keeps up to half as much again, depending on how messages arrive.
MAX_MEGABYTES = 134
NOBODY = {"processId": None, "rootUri": None, "capabilities": {}}
# The answer repeats the id, which has 3 kB, and the beginning of the name.
QUESTION = {"jsonrpc": "2.0", "id": "🙂" * 250, "method": "m" * 250}


def body(message: Any) -> bytes:
    return json.dumps(message, ensure_ascii=False).encode()


class Flood:
    """Sends requests without a pause, and reads `per_second` bytes. `most`: the growth of memory in 10^6 bytes."""

    def __init__(self, process: int, per_second: int) -> None:
        self._process = process
        self._per_second = per_second
        self._before = gauge(process).resident
        self._end = time.monotonic() + SECONDS
        self.most = 0.0
        self.closed = False

    @property
    def is_over(self) -> bool:
        return self.closed or time.monotonic() > self._end

    def look(self) -> None:
        try:
            self.most = max(self.most, (gauge(self._process).resident - self._before) * 1.048576)
        except OSError:
            self.closed = True

    async def ask(self, write: Any, drain: Any) -> None:
        try:
            while not self.is_over:
                for _ in range(100):
                    write()
                await drain()
                self.look()
        except OSError:
            self.closed = True

    async def listen(self, descriptor: socket.socket | int) -> None:
        loop, read = asyncio.get_running_loop(), 0
        began = loop.time()
        while not self.is_over:
            due = int((loop.time() - began) * self._per_second) - read
            if due > 0:
                read += len(_taken(descriptor, due))
            await asyncio.sleep(0.05)


def _taken(source: socket.socket | int, most: int) -> bytes:
    try:
        return os.read(source, most) if isinstance(source, int) else source.recv(most)
    except BlockingIOError:
        return b"-"
    except OSError:
        return b""


@pytest.mark.parametrize("per_second", [0, 70_000])
async def test_over_standard_input(per_second: int, tmp_path: Path) -> None:
    """H-F6"""
    reading, writing = os.pipe()
    os.set_blocking(reading, False)
    process = await asyncio.create_subprocess_exec(
        *ARGV, stdin=asyncio.subprocess.PIPE, stdout=writing, stderr=asyncio.subprocess.DEVNULL, env=_env(tmp_path)
    )
    os.close(writing)
    assert process.stdin is not None
    stdin = process.stdin
    stdin.write(framed(body({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": NOBODY})))
    await _answered(lambda: _taken(reading, 65536))
    flood = Flood(process.pid, per_second)
    question = framed(body(QUESTION))
    await asyncio.gather(flood.ask(lambda: stdin.write(question), stdin.drain), flood.listen(reading))
    stdin.close()
    if not flood.closed:
        process.kill()
    await process.wait()
    os.close(reading)
    assert flood.closed, "the server still serves it"
    assert flood.most < MAX_MEGABYTES


@pytest.mark.parametrize(("kind", "per_second"), some(product(["tcp", "ws"], [0, 70_000]), commit=2))
async def test_over_sockets(kind: Kind, per_second: int, tmp_path: Path) -> None:
    """H-F6"""
    server = Listening(kind, argv=ARGV)
    try:
        await server.start(tmp_path, _env(tmp_path))
        assert server.process is not None
        wire = await _admitted(server)
        flood = Flood(server.process.pid, per_second)
        wire.writer.transport.pause_reading()  # type: ignore[attr-defined] # all transports of sockets can
        own = socket.socket(fileno=os.dup(wire.writer.get_extra_info("socket").fileno()))
        with own:
            question = body(QUESTION)
            await asyncio.gather(flood.ask(lambda: wire.write(question), wire.writer.drain), flood.listen(own))
        assert flood.closed, "the server still serves it"
        assert flood.most < MAX_MEGABYTES
        wire.kill()
        (await _admitted(server)).kill()
    finally:
        await server.stop()


async def _admitted(server: Listening) -> TcpWire:
    options = {"thinklsp": {"token": server.token}}
    wire = (
        await TcpWire.open(server.port)
        if server.kind == "tcp"
        else await WebSocketWire.upgraded(server.port, f"Authorization: Bearer {server.token}")
    )
    params = NOBODY | {"initializationOptions": options}
    wire.write(body({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": params}))
    async with asyncio.timeout(60):
        assert b"serverInfo" in await wire.read()
    return wire


async def _answered(read: Any) -> None:
    seen = b""
    async with asyncio.timeout(60):
        while b"serverInfo" not in seen:
            seen += read().replace(b"-", b"")
            await asyncio.sleep(0.02)


def _env(place: Path) -> Mapping[str, str]:
    kept = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "HOME": str(place)}
    return kept | {"THINKLSP_STATE_DIR": str(place / "state"), "XDG_CONFIG_HOME": str(place)}
