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

from tests.support.raw_wires import HandshakeRefused, framed
from tests.support.raw_wires import TcpWire as Client
from tests.support.raw_wires import WebSocketWire as WebSocketClient
from thinklsp.lsp.protocol.frames import BadFrame
from thinklsp.lsp.protocol.socket_writer import Gone
from thinklsp.lsp.protocol.writer import Outbox
from thinklsp.lsp.serving import tcp, websocket
from thinklsp.lsp.serving.sockets import Connections, Entrance

KINDS = {"tcp": (tcp.listening, Client.open), "ws": (websocket.listening, WebSocketClient.upgraded)}
NOBODY = {"processId": None, "rootUri": None, "capabilities": {}}
INITIALIZE = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": NOBODY}).encode()
LONG = "x" * 250


@asynccontextmanager
async def listening(kind: str, connections: Connections, **options: Any) -> AsyncIterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as door:
        async with KINDS[kind][0](Entrance(door, None), connections):
            yield door.getsockname()[1]
        await connections.end()


async def until_closed(client: Client) -> bytes:
    data = b""
    async with asyncio.timeout(20):
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


async def served(client: Client) -> Client:
    """It has been answered."""
    client.write(INITIALIZE)
    async with asyncio.timeout(10):
        assert b"serverInfo" in await client.read()
    return client


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([b"{}", "é🙂".encode(), b"\r\nContent-Length: 9\r\n\r\n", b"x" * 500]), max_size=6),
    st.lists(st.integers(1, 60), max_size=40),
)
def test_any_pieces_are_the_same_messages_on_tcp(bodies: list[bytes], cuts: list[int]) -> None:
    async def run() -> list[bytes | BadFrame]:
        found: list[bytes | BadFrame] = []
        ended = asyncio.Event()

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            wire = tcp.TcpWire(reader, writer)
            try:
                while True:
                    found.extend(await wire.read())
            except Gone:
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
    connections = Connections(patience=0.2)
    async with listening(kind, connections) as port:
        assert await until_closed(await Client.open(port)) == b""
        half = await Client.open(port)
        half.writer.write(framed(INITIALIZE)[:40] if kind == "tcp" else b"GET / HTTP/1.1\r\nHost: x\r\n")
        assert await until_closed(half) == b""
        # Once it is admitted a client may be silent for as long as it likes.
        client = await served(await KINDS[kind][1](port))
        assert await until_closed(await Client.open(port)) == b""
        client.write(INITIALIZE.replace(b'"id": 0', b'"id": 1'))
        assert b"already" in await client.read()
        client.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_no_more_than_so_many(kind: str) -> None:
    connections = Connections(max_clients=2)
    _, connect = KINDS[kind]
    async with listening(kind, connections) as port:
        first, second = [await served(await connect(port)) for _ in range(2)]
        third = await connect(port)
        third.write(INITIALIZE)
        told = await until_closed(third)
        assert b"as many clients as it can serve" in told if kind == "tcp" else third.closed == 1013
        first.write(b'{"jsonrpc":"2.0","method":"exit"}')
        await until_closed(first)
        async with asyncio.timeout(10):
            # Its place is free for the next one, as soon as all of it has ended.
            while (fourth := await perhaps(connect, port)) is None:
                pass
        second.close()
        fourth.close()


@pytest.mark.parametrize("kind", KINDS)
async def test_strangers_take_no_place_of_a_client(kind: str) -> None:
    """H-F12: those who say nothing, and more new ones all the time."""
    connections = Connections(max_clients=3, max_strangers=3)
    _, connect = KINDS[kind]
    async with listening(kind, connections) as port:
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
async def test_who_does_not_read_is_left_and_no_other(kind: str) -> None:
    connections = Connections(outbox=lambda: Outbox(max_bytes=100_000))
    _, connect = KINDS[kind]
    async with listening(kind, connections) as port:
        deaf, other = await served(await connect(port)), await served(await connect(port))
        deaf.writer.transport.pause_reading()
        question = json.dumps({"jsonrpc": "2.0", "id": LONG, "method": f"{LONG}!"}).encode()
        async with asyncio.timeout(30):
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


@pytest.mark.parametrize("kind", KINDS)
async def test_a_long_message_arrives_whole_while_the_client_reads(kind: str) -> None:
    connections = Connections()
    async with listening(kind, connections) as port:
        client = await served(await KINDS[kind][1](port))
        for connection in connections._served:
            connection.server.protocol.tell("long", {"text": "y" * 3_000_000})
            connection.server.protocol.tell("after", None)
        data = b""
        async with asyncio.timeout(20):
            while b'"after"' not in data:
                data += await client.read()
        assert data.count(b"y") == 3_000_000
        client.close()
