"""Clients of a socket that do not read."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress

import pytest

from tests.lsp.test_sockets import KINDS, listening, served, until_closed
from tests.support.watching import HANG_SECONDS
from thinklsp.jsonrpc.writer import OutgoingQueue

LONG = "x" * 250


@pytest.mark.parametrize("kind", KINDS)
async def test_who_does_not_read_is_left_and_no_other(kind: str) -> None:
    async with listening(kind, create_queue=lambda: OutgoingQueue(max_bytes=100_000)) as (port, connect, _):
        deaf, other = await served(await connect(port)), await served(await connect(port))
        deaf.writer.transport.pause_reading()
        question = json.dumps({"jsonrpc": "2.0", "id": LONG, "method": f"{LONG}!"}).encode()
        async with asyncio.timeout(HANG_SECONDS):
            while not deaf.writer.transport.is_closing():
                for _ in range(200):
                    deaf.write(question)
                # Newer versions of asyncio count all that waits anew with each of them.
                with suppress(ConnectionError):
                    await deaf.writer.drain()
                # Whoever reads is answered all the while.
                other.write(question)
                assert LONG.encode() in await other.read()
        deaf.kill()
        other.write(b'{"jsonrpc":"2.0","method":"exit"}')
        await until_closed(other)
