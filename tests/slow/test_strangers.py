"""Sockets that never say who they are keep no client with the token out."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.raw import TcpWire
from tests.support.listening import ARGV, Kind, Listening
from tests.support.sizes import sized

CLIENTS = sized(commit=20, nightly=200)
SILENT, PER_SECOND = 200, 200


async def _silent(port: int, opened: list[TcpWire]) -> None:
    opened += [await TcpWire.open(port) for _ in range(SILENT)]


async def _many(port: int, opened: list[TcpWire]) -> None:
    """Open new connections until the task is cancelled."""
    while True:
        opened.append(await TcpWire.open(port))
        if len(opened) > SILENT:
            opened.pop(0).kill()
        await asyncio.sleep(1 / PER_SECOND)


Come = Callable[[int, list[TcpWire]], Coroutine[Any, Any, None]]


@asynccontextmanager
async def strangers(come: Come, port: int) -> AsyncIterator[None]:
    opened: list[TcpWire] = []
    coming = asyncio.create_task(come(port, opened))
    if come is _silent:
        await coming
    try:
        yield
    finally:
        coming.cancel()
        await asyncio.wait([coming])
        for wire in opened:
            wire.kill()


@pytest.mark.timing
@pytest.mark.parametrize("come", [_silent, _many])
@pytest.mark.parametrize("kind", ["tcp", "ws"])
async def test_a_client_with_the_token_always_gets_in(kind: Kind, come: Come, tmp_path: Path) -> None:
    """H-F12"""
    env = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "THINKLSP_STATE_DIR": str(tmp_path / "state")}
    server = Listening(kind, argv=ARGV)
    try:
        await server.start(tmp_path, env)
        async with strangers(come, server.port):
            for _ in range(CLIENTS):
                async with asyncio.timeout(10):
                    client = await server.connect(tmp_path, env)
                    await client.initialize(tmp_path)
                    assert await client.close() == 0
                    assert client.checker.violations == []
    finally:
        await server.stop()
