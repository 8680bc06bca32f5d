"""Clients on sockets of the real server inside the test's process: any pieces, limits, and who does not read."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.client.raw import HandshakeRefused, framed
from tests.support.client.raw import TcpWire as Client
from tests.support.client.raw import WebSocketWire as WebSocketClient
from tests.support.sizes import examples
from tests.support.watching import HANG_SECONDS
from thinklsp.jsonrpc.framing import BadFrame
from thinklsp.jsonrpc.writer import ClientDisconnected
from thinklsp.lsp.transport import sockets, websocket
from thinklsp.lsp.transport.sockets import ConnectionRegistry, ListenConfig

KINDS = {"tcp": (sockets.listen_tcp, Client.open), "ws": (websocket.listen_ws, WebSocketClient.upgraded)}
NOBODY = {"processId": None, "rootUri": None, "capabilities": {}}
INITIALIZE = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": NOBODY}).encode()


@asynccontextmanager
async def listening(kind: str, **limits: Any) -> AsyncIterator[tuple[int, Any, ConnectionRegistry]]:
    """Listen with these limits; give the port, what connects to it, and the connections."""
    listen, connect = KINDS[kind]
    connections = ConnectionRegistry(**limits)
    with socket.create_server(("127.0.0.1", 0)) as door:
        async with listen(ListenConfig(door, None), connections):
            yield door.getsockname()[1], connect, connections
        await connections.close_all()
        await asyncio.sleep(0)
        async with asyncio.timeout(HANG_SECONDS):
            # Those that were refused are still being left.
            while left := asyncio.all_tasks() - {asyncio.current_task()}:
                await asyncio.wait(left)


async def until_closed(client: Client) -> bytes:
    data = b""
    async with asyncio.timeout(HANG_SECONDS):
        while chunk := await client.read():
            data += chunk
    client.close()
    return data


async def perhaps(connect: Any, port: int) -> Client | None:
    """A client, if there is a place for it."""
    with suppress(HandshakeRefused):
        client = await connect(port)
        client.write(INITIALIZE)
        if await client.read():
            return client
        client.close()
    return None


async def admitted(connect: Any, port: int) -> Client:
    """Try again until there is a place for a client."""
    async with asyncio.timeout(HANG_SECONDS):
        while (client := await perhaps(connect, port)) is None:
            pass
    return client


async def served(client: Client) -> Client:
    """It has been answered."""
    client.write(INITIALIZE)
    async with asyncio.timeout(HANG_SECONDS):
        assert b"serverInfo" in await client.read()
    return client


@settings(max_examples=examples(60), deadline=None)
@given(
    st.lists(st.sampled_from([b"{}", "é🙂".encode(), b"\r\nContent-Length: 9\r\n\r\n", b"x" * 500]), max_size=6),
    st.lists(st.integers(1, 60), max_size=40),
)
def test_any_pieces_are_the_same_messages_on_tcp(bodies: list[bytes], cuts: list[int]) -> None:
    async def run() -> list[bytes | BadFrame]:
        found: list[bytes | BadFrame] = []
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            wire = sockets.TcpStream(reader, writer)
            try:
                while True:
                    found.extend(await wire.read())
            except ClientDisconnected:
                await wire.close()
            ended.set()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        async with server:
            client = await Client.open(server.sockets[0].getsockname()[1])
            client.writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            whole = b"".join(map(framed, bodies))
            for cut in cuts:
                client.writer.write(whole[:cut])
                whole = whole[cut:]
                await asyncio.sleep(0)
            client.writer.write(whole)
            client.writer.write_eof()
            await ended.wait()
            client.close()
        return found

    assert asyncio.run(run()) == bodies


@pytest.mark.parametrize("kind", KINDS)
async def test_who_says_nothing_is_left(kind: str) -> None:
    async with listening(kind, authentication_seconds=0.2) as (port, connect, _):
        assert await until_closed(await Client.open(port)) == b""
        half = await Client.open(port)
        half.writer.write(framed(INITIALIZE)[:40] if kind == "tcp" else b"GET / HTTP/1.1\r\nHost: x\r\n")
        assert await until_closed(half) == b""
        # Once it is admitted a client may be silent for as long as it likes. On a busy machine that may fail at first.
        client = await admitted(connect, port)
        assert await until_closed(await Client.open(port)) == b""
        client.write(INITIALIZE.replace(b'"id": 0', b'"id": 1'))
        assert b"already" in await client.read()
        client.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_no_more_than_so_many(kind: str) -> None:
    async with listening(kind, max_clients=2) as (port, connect, _):
        first, second = [await served(await connect(port)) for _ in range(2)]
        await is_refused(kind, connect, port, "reached its client limit")
        first.write(b'{"jsonrpc":"2.0","method":"exit"}')
        await until_closed(first)
        # Its place is free for the next one, as soon as all of it has ended.
        fourth = await admitted(connect, port)
        second.close()
        fourth.close()


async def is_refused(kind: str, connect: Any, port: int, words: str) -> None:
    """It is told so in the answer to its first message, or to its opening request."""
    if kind == "tcp":
        client = await connect(port)
        client.write(INITIALIZE)
        assert words.encode() in await until_closed(client)
    else:
        with pytest.raises(HandshakeRefused) as refused:
            await connect(port)
        assert refused.value.status == 503
        assert words in refused.value.text
        assert refused.value.headers["retry-after"] == "10"


@pytest.mark.parametrize("kind", KINDS)
async def test_a_server_that_is_about_to_stop_says_so(kind: str) -> None:
    """Clients without a turn are told and left at once; the next one is refused."""
    async with listening(kind) as (port, connect, connections):
        client = await served(await connect(port))
        draining = asyncio.create_task(connections.drain(20))
        told = await until_closed(client)
        assert b"window/showMessage" in told
        assert b"This server is about to stop. Connect again in a moment." in told
        if kind == "ws":
            assert client.closed == 1001
        await draining
        await is_refused(kind, connect, port, "about to stop")


@pytest.mark.parametrize("kind", KINDS)
async def test_strangers_take_no_place_of_a_client(kind: str) -> None:
    """Those who say nothing, and more new ones all the time."""
    async with listening(kind, max_clients=3, max_unauthenticated=3) as (port, connect, _):
        strangers = [await Client.open(port) for _ in range(12)]
        clients = []
        for _ in range(3):
            clients.append(await served(await connect(port)))
            strangers += [await Client.open(port) for _ in range(12)]
        # The oldest were left, and no client was.
        for stranger in strangers[:-3]:
            assert await until_closed(stranger) == b""
        for number, client in enumerate(clients):
            client.write(INITIALIZE.replace(b'"id": 0', b'"id": %d' % (number + 1)))
            assert b"already" in await client.read()
        for client in (*strangers[-3:], *clients):
            client.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_a_long_message_arrives_whole_while_the_client_reads(kind: str) -> None:
    async with listening(kind) as (port, connect, connections):
        client = await served(await connect(port))
        for server in connections._servers:
            server.protocol.notify("long", {"text": "y" * 3_000_000})
            server.protocol.notify("after", None)
        data = b""
        async with asyncio.timeout(HANG_SECONDS):
            while b'"after"' not in data:
                data += await client.read()
        assert data.count(b"y") == 3_000_000
        client.close()
