"""Connections over real sockets: plain, secured, and secured within what is secured, as through a proxy by TLS."""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from random import Random
from urllib.parse import urlsplit

import httpcore
import httpx
import pytest

from thinklsp.http.routes import BATCH_SECONDS, BatchingNetwork, BatchingStream, find_route, open_connections
from thinklsp.http.transport import to_transport_error

LAYERS = pytest.mark.parametrize("layers", [0, 1, 2], ids=["plain", "tls", "tls in tls"])
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def trusting() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    return context


@asynccontextmanager
async def connected(talk: Serve, layers: int, tls: ssl.SSLContext) -> AsyncIterator[BatchingStream]:
    """A connection to somebody who serves it like that; their failures are the test's."""
    served: list[asyncio.Task[None]] = []

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        served.append(task)
        try:
            for layer in range(layers):
                if layer:
                    # As the answer of a proxy: asyncio loses what comes before it has begun its own handshake.
                    writer.write(b".")
                await writer.start_tls(tls)
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    connection = await BatchingNetwork().connect_tcp("127.0.0.1", server.sockets[0].getsockname()[1], 60)
    try:
        for layer in range(layers):
            if layer:
                assert await connection.read(1, 60) == b"."
            connection = await connection.start_tls(trusting(), "localhost", 60)
        yield connection
    finally:
        await connection.aclose()
        server.close()
        with suppress(asyncio.CancelledError):
            await asyncio.wait_for(asyncio.gather(*served), 60)


async def turn_loop(rounds: int) -> None:
    """Let everything run that is ready, so many times."""
    for _ in range(rounds):
        await asyncio.sleep(0)


@LAYERS
async def test_all_of_it_arrives_both_ways(layers: int, untrusted_tls: ssl.SSLContext) -> None:
    random = Random(layers)
    sent = random.randbytes(1_500_000)

    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        received = await reader.readexactly(len(sent))
        while received:
            size = random.choice((1, 50, 5_000, 40_000))
            writer.write(received[:size])
            received = received[size:]
            await writer.drain()

    async with connected(echo, layers, untrusted_tls) as connection:
        for start in range(0, len(sent), 65_536):
            await connection.write(sent[start : start + 65_536], 60)
        received = bytearray()
        while piece := await connection.read(random.choice((1, 100, 65_536)), 60):
            received += piece
            if len(received) == len(sent):
                break
    assert received == sent


EVENTS = [b"event %d\n" % number for number in range(150)]


async def read_fast_stream(layers: int, tls: ssl.SSLContext) -> list[bytes]:
    """Return the pieces in which the events are read."""

    async def pace(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(2)
        for event in EVENTS:
            writer.write(event)
            # Who reads at once gets the event before the next one is written.
            await turn_loop(20)

    async with connected(pace, layers, tls) as connection:
        await connection.write(b"go", 60)
        pieces: list[bytes] = []
        while sum(map(len, pieces)) < sum(map(len, EVENTS)):
            pieces.append(await connection.read(65_536, 60))
    return pieces


@LAYERS
async def test_of_a_fast_stream_nothing_is_lost(layers: int, untrusted_tls: ssl.SSLContext) -> None:
    assert b"".join(await read_fast_stream(layers, untrusted_tls)) == b"".join(EVENTS)


@pytest.mark.timing
@LAYERS
async def test_of_a_fast_stream_many_events_are_read_at_once(layers: int, untrusted_tls: ssl.SSLContext) -> None:
    loop = asyncio.get_running_loop()
    begin = loop.time()
    pieces = await read_fast_stream(layers, untrusted_tls)
    if layers < 2:
        assert len(pieces) < len(EVENTS) / 2
    else:
        # One record is one event there, which then must not wait for others.
        assert loop.time() - begin < len(EVENTS) * BATCH_SECONDS / 2


@pytest.mark.timing
async def test_who_hurries_does_not_wait_for_more(untrusted_tls: ssl.SSLContext) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while True:
            writer.write(await reader.readexactly(1))

    async def rounds(task: asyncio.Task[bytes]) -> bool:
        await turn_loop(20)
        return task.done()

    async with connected(answer, 0, untrusted_tls) as connection:
        raw = connection.get_extra_info("socket")
        loop = asyncio.get_running_loop()
        # The machine may be busy for longer than anybody gathers.
        for number in range(60):
            begun = loop.time()
            raw_send(raw, b"%d" % (number % 10))
            reading = asyncio.create_task(connection.read(100))
            if not await rounds(reading):
                connection.stop_batching()
                if await rounds(reading) and loop.time() - begun < BATCH_SECONDS:
                    return
            await reading
    pytest.fail("it went on gathering")


def raw_send(raw: asyncio.trsock.TransportSocket, data: bytes) -> None:
    """Beside the connection, which would take a request for a reason to hurry."""
    with socket.socket(fileno=socket.dup(raw.fileno())) as beside:
        beside.send(data)


@LAYERS
async def test_nothing_is_taken_before_it_is_asked_for(layers: int, untrusted_tls: ssl.SSLContext) -> None:
    """Else an answer without end would fill the memory of whoever reads slowly."""
    taken, stopped = 0, asyncio.Event()

    async def flood(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal taken
        while taken < 64 * 1024 * 1024:
            writer.write(bytes(65_536))
            try:
                await asyncio.wait_for(writer.drain(), 0.3)
            except TimeoutError:
                break
            taken += 65_536
        stopped.set()
        writer.transport.abort()

    async with connected(flood, layers, untrusted_tls) as connection:
        assert await connection.read(1, 60) == b"\0"
        await asyncio.wait_for(stopped.wait(), 60)
    assert taken < 32 * 1024 * 1024


@LAYERS
@pytest.mark.parametrize("hard", [False, True], ids=["ended", "reset"])
async def test_the_line_is_cut(layers: int, hard: bool, untrusted_tls: ssl.SSLContext) -> None:
    """Below all that is secured: nobody takes leave."""

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(2)
        writer.write(b"half of ")
        await writer.drain()
        with socket.socket(fileno=socket.dup(writer.get_extra_info("socket").fileno())) as line:
            if hard:
                line.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                writer.transport.abort()
            else:
                line.shutdown(socket.SHUT_WR)
                await reader.read()

    async with connected(cut, layers, untrusted_tls) as connection:
        await connection.write(b"go", 60)
        read = b""
        with suppress(httpcore.ReadError):
            while piece := await connection.read(100, 60):
                read += piece
        assert read in (b"half of ", b"") if hard else read == b"half of "


@LAYERS
async def test_a_reading_that_was_given_up_loses_nothing(layers: int, untrusted_tls: ssl.SSLContext) -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(await reader.readexactly(5))

    async with connected(answer, layers, untrusted_tls) as connection:
        given_up = asyncio.create_task(connection.read(100))
        await asyncio.sleep(0)
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        with pytest.raises(httpcore.ReadTimeout):
            await connection.read(100, 0.05)
        await connection.write(b"hello", 60)
        assert await connection.read(2, 60) == b"he"
        assert await connection.read(100, 60) == b"llo"


async def test_bytes_before_the_handshake_are_not_part_of_tls(untrusted_tls: ssl.SSLContext) -> None:
    async def forge(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"go ahead" + b"forged")
        await writer.drain()
        with suppress(OSError):
            await writer.start_tls(untrusted_tls)

    async with connected(forge, 0, untrusted_tls) as connection:
        assert await connection.read(8, 60) == b"go ahead"
        with pytest.raises(httpcore.ConnectError):
            await connection.start_tls(trusting(), "localhost", 60)


@pytest.mark.parametrize(
    ("codes", "sentence"),
    [
        ([errno.ECONNREFUSED, errno.ECONNREFUSED], "refused"),
        ([errno.ENETUNREACH, errno.ECONNREFUSED], "refused"),
        ([errno.EMFILE, errno.ENETUNREACH], "Too many files"),
        ([errno.ENETUNREACH, errno.EHOSTUNREACH], "check your network"),
    ],
)
def test_a_host_with_several_addresses(codes: list[int], sentence: str) -> None:
    """Every attempt to connect stands behind the error, as the library has it."""
    fault = httpx.ConnectError("All connection attempts failed")
    fault.__cause__ = ExceptionGroup("multiple connection attempts failed", [OSError(code, "") for code in codes])
    assert sentence in str(to_transport_error(fault, "example"))


async def test_a_client_of_httpx_reads_by_it() -> None:
    """`_pool._network_backend` is a private name of httpx, which has no public one for it."""
    async with open_connections(find_route(urlsplit("http://127.0.0.1"), None), None) as transport:
        assert isinstance(transport._pool, httpcore.AsyncConnectionPool)
        assert isinstance(transport._pool._network_backend, BatchingNetwork)
    plain = httpx.AsyncHTTPTransport()
    assert isinstance(plain._pool, httpcore.AsyncConnectionPool)
    assert isinstance(plain._pool._network_backend, httpcore.AsyncNetworkBackend)
