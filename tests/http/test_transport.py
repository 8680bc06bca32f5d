"""The transport against real sockets on loopback: every deadline, cut, cap and refusal."""

from __future__ import annotations

import asyncio
import gc
import gzip
import logging
import os
import re
import socket
import time
from contextlib import aclosing
from dataclasses import replace

import pytest

from tests.http.fetching import QUICK, fetch, serve
from tests.support.hosts import SseServer, Step, answer, chunk, head
from tests.support.watching import seen
from thinklsp.core.errors import TransportFailed
from thinklsp.http.transport import Timeouts, Transport

CHUNKED = head(transfer_encoding="chunked")


async def failure(plays: list[Step], timeouts: Timeouts = QUICK, **options: int) -> TransportFailed:
    transport = Transport(timeouts=timeouts, **options)
    async with SseServer([plays]) as server:
        with pytest.raises(TransportFailed) as caught:
            await fetch(transport, server.url + "/secret-path?secret=query", x_key="secret-key")
        await transport.aclose()
        text = str(caught.value)
        assert "secret" not in text
        assert "Traceback" not in text
        assert server.url.removeprefix("http://") in text
        return caught.value


async def test_every_request_is_sent_by_httpx(transport: Transport, caplog: pytest.LogCaptureFixture) -> None:
    """Its connections log each request."""
    async with SseServer([answer(b"")] * 3) as server:
        await fetch(transport, server.url)
        caplog.set_level(logging.DEBUG, "httpcore")
        await fetch(transport, server.url)
        async with transport.get(server.url, {}):
            pass
        assert len(server.received) == 3
    sent = re.findall(r"send_request_headers.started request=<Request \[b'(\w+)'\]>", caplog.text)
    assert sent == ["POST", "GET"]


async def test_a_request_and_its_answer(transport: Transport) -> None:
    body = b"x" * 300_000
    async with SseServer([answer(b"hello", 201, "Text/Plain; charset=utf-8", X_Thing="a")]) as server:
        async with transport.post(f"{server.url}/p?q=1", {"x-api-key": "k"}, body) as response:
            assert (response.status, response.content_type, response.headers["x-thing"]) == (201, "text/plain", "a")
            assert await response.read(3) == b"hel"
        received = server.received[0]
    assert (received.target, received.body) == ("/p?q=1", body)
    assert received.headers["x-api-key"] == "k"
    assert received.headers["accept-encoding"] == "identity"
    assert received.headers["user-agent"].startswith("thinklsp/")
    assert "transfer-encoding" not in received.headers


@pytest.mark.timing
async def test_a_drip_is_no_silence() -> None:
    gates = [asyncio.Event() for _ in range(6)]
    plays: list[Step] = [head()]
    for gate in gates:
        plays += [gate, b": ping\n"]
    transport = Transport(timeouts=replace(QUICK, idle=0.4))
    loop = asyncio.get_running_loop()
    start = loop.time()
    for number, gate in enumerate(gates, 1):
        loop.call_later(0.15 * number, gate.set)
    async with SseServer([plays]) as server:
        assert await fetch(transport, server.url) == b": ping\n" * 6
    assert loop.time() - start > 0.8
    await transport.aclose()


RARE = [b"data: rare %d\n\n" % number for number in range(3)]
FAST = [b"data: fast %d\n\n" % number for number in range(200)]


async def read_rare_and_fast_events(transport: Transport) -> list[bytes]:
    """Check that each rare event is handled alone. Return the batches in which the fast events are handled."""
    gates, fast = ([asyncio.Event() for _ in events] for events in (RARE, FAST))
    play: list[Step] = [CHUNKED]
    for gate, event in zip((*gates, *fast), (*RARE, *FAST), strict=True):
        play += [gate, chunk(event)]
    loop = asyncio.get_running_loop()
    async with (
        SseServer([[*play, chunk(b"")]]) as server,
        transport.post(server.url, {}, b"") as response,
        aclosing(response.iterate_chunks()) as chunks,
    ):
        for gate, event in zip(gates, RARE, strict=True):
            gate.set()
            assert await anext(chunks) == event
        for number, gate in enumerate(fast):
            loop.call_later(0.002 * number, gate.set)
        return [batch async for batch in chunks]


async def test_nothing_is_lost_or_out_of_order(transport: Transport) -> None:
    assert b"".join(await read_rare_and_fast_events(transport)) == b"".join(FAST)


@pytest.mark.timing
async def test_what_comes_close_together_is_handled_together(transport: Transport) -> None:
    assert len(await read_rare_and_fast_events(transport)) < len(FAST) / 2


TIMEOUTS: dict[str, tuple[list[Step], Timeouts, str, bool]] = {
    "silence before the head": (["hold"], replace(QUICK, first_byte_local=0.2), "sent no answer", True),
    "head in drips": ([b"HTTP/1.1 200 OK\r\nx:", "hold"], replace(QUICK, first_byte_local=0.2), "sent no answer", True),
    "silence in the body": ([head(), b"data: 1\n", "hold"], replace(QUICK, idle=0.2), "stopped responding", True),
    "too long in all": ([head(), b"data: 1\n", "hold"], replace(QUICK, total=0.3), "took longer than", False),
    "too long before the head": (["hold"], replace(QUICK, total=0.2), "took longer than", False),
}


@pytest.mark.parametrize("name", TIMEOUTS)
async def test_deadlines(name: str) -> None:
    plays, timeouts, sentence, retryable = TIMEOUTS[name]
    error = await failure(plays, timeouts)
    assert sentence in str(error)
    assert error.retryable is retryable


@pytest.mark.timing
@pytest.mark.parametrize("name", TIMEOUTS)
async def test_deadlines_are_kept_in_time(name: str) -> None:
    plays, timeouts, *_ = TIMEOUTS[name]
    start = time.monotonic()
    await failure(plays, timeouts)
    assert time.monotonic() - start < 2


BREAKS: dict[str, tuple[list[Step], str, bool]] = {
    "cut in a chunked body": ([CHUNKED, chunk(b"data: 1\n")], "was lost", True),
    "cut in a counted body": ([head(content_length="100"), b"data: 1\n"], "was lost", True),
    "reset in the body": ([head(content_length="100"), b"data: 1\n", "reset"], "was lost", True),
    "closed without an answer": ([], "was lost", True),
    "not HTTP": ([b"SSH-2.0-OpenSSH_9\r\n\r\n"], "was lost", True),
    "redirect": (
        [head(307, location="https://elsewhere.example/secret?secret=1"), "hold"],
        "redirects to elsewhere.example,",
        False,
    ),
    "redirect to nowhere": ([head(302), "hold"], "redirects to", False),
    "unasked compression": ([head(content_encoding="br"), b"x"], "compressed answer", False),
    "nested compression": ([head(content_encoding="gzip, gzip"), b"x"], "compressed answer", False),
    "gzip": ([head(content_encoding="gzip"), gzip.compress(b"x"), "hold"], "compressed answer", False),
    "upper case": ([head(content_encoding="GZIP"), gzip.compress(b"x")], "compressed answer", False),
    "deflate": ([head(content_encoding="deflate"), b"x"], "compressed answer", False),
}


@pytest.mark.parametrize("name", BREAKS)
async def test_breaks_and_refusals(name: str) -> None:
    plays, sentence, retryable = BREAKS[name]
    error = await failure(plays)
    assert sentence in str(error)
    assert error.retryable is retryable


async def test_an_oversized_answer_is_given_up() -> None:
    error = await failure([head(), b"x" * 2_000_000], max_response_bytes=1024 * 1024)
    assert "exceeds 1 MB" in str(error)
    assert not error.retryable


async def test_refused_port_and_unknown_name(transport: Transport) -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        port = closed.getsockname()[1]
        with pytest.raises(TransportFailed, match=rf"127\.0\.0\.1:{port} refused the connection") as caught:
            await fetch(transport, f"http://127.0.0.1:{port}")
    assert caught.value.retryable
    with pytest.raises(TransportFailed, match=r"name no-such-host\.invalid could not be resolved"):
        await fetch(transport, "https://no-such-host.invalid")


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("http://api.example", "plain HTTP"),
        ("http://10.0.0.1", "plain HTTP"),
        ("http://127.0.0.1.example", "plain HTTP"),
        ("http://localhost.example", "plain HTTP"),
        ("https://user:secret@api.example", "user name"),
        ("http://secret@127.0.0.1", "user name"),
        ("ftp://api.example", "https://"),
        ("api.example", "https://"),
        ("https://", "https://"),
        ("https://[::1", "is invalid"),
        ("https://host:port", "is invalid"),
        ("file:///etc/secret", "https://"),
        ("https://api..example", "is invalid; check the base URL"),
        (f"https://{'a' * 70}.example", "is invalid; check the base URL"),
        ("https://" + "\u0100" * 70, "is invalid; check the base URL"),
    ],
)
async def test_addresses_that_are_not_spoken_to(transport: Transport, url: str, sentence: str) -> None:
    with pytest.raises(TransportFailed, match=sentence) as caught:
        await fetch(transport, url)
    assert not caught.value.retryable
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("value", ["k\u00e4y\u20ac-secret", "two\nlines-secret"])
async def test_a_key_that_is_no_header(transport: Transport, value: str) -> None:
    async with SseServer([answer(b"")]) as server:
        with pytest.raises(TransportFailed, match="character that HTTP does not allow") as caught:
            await fetch(transport, server.url, key=value)
    assert "secret" not in str(caught.value)


async def test_cancel_closes_the_socket(transport: Transport) -> None:
    for plays in (["hold"], [head(), b"data: 1\n\n", "hold"]):
        async with SseServer([plays]) as server:
            task = asyncio.create_task(fetch(transport, server.url))
            await server.arrived.wait()
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await asyncio.wait_for(server.gone.wait(), 60)


@pytest.mark.timing
async def test_a_cancel_at_any_moment_leaves_no_socket(transport: Transport) -> None:
    """Not even until the collector comes by."""
    async with SseServer([answer(b"hello")]) as server:
        await fetch(transport, server.url)
        await transport.aclose()
        before = len(os.listdir("/proc/self/fd"))
        gc.disable()
        try:
            for rounds in range(40):
                task = asyncio.create_task(fetch(transport, server.url))
                for _ in range(rounds):
                    await asyncio.sleep(0)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
            await transport.aclose()
            await seen(lambda: len(os.listdir("/proc/self/fd")) <= before, within=60)
        finally:
            gc.enable()


async def test_leaving_the_block_closes_the_socket(transport: Transport) -> None:
    async with SseServer([[head(), b"data: 1\n\n", "hold"]]) as server:
        async with transport.post(server.url, {}, b"") as response:
            async for piece in response.iterate_chunks():
                assert piece
                break
        await asyncio.wait_for(server.gone.wait(), 60)


async def test_closing_the_transport_ends_requests_under_way(transport: Transport) -> None:
    async with SseServer([[head(), b"data: 1\n\n", "hold"]]) as server:
        task = asyncio.create_task(fetch(transport, server.url))
        await server.arrived.wait()
        await asyncio.wait_for(transport.aclose(), 60)
        with pytest.raises(TransportFailed):
            await asyncio.wait_for(task, 60)


async def test_a_finished_answer_leaves_its_connection_open() -> None:
    """The end of the body may trail the last event; it is awaited so that the next call needs no new handshake."""
    connections, gone = 0, asyncio.Event()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        try:
            while await reader.readuntil(b"\r\n\r\n"):
                writer.write(
                    b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n" + chunk(b"data: 1\n\n") + chunk(b"")
                )
        except asyncio.IncompleteReadError:
            writer.close()
            await writer.wait_closed()
            gone.set()

    transport = Transport(timeouts=replace(QUICK, drain=60))
    async with serve(accept) as port:
        for _ in range(3):
            async with transport.post(f"http://127.0.0.1:{port}", {}, b"") as response:
                async for _piece in response.iterate_chunks():
                    break
        assert connections == 1
        await transport.aclose()
        await asyncio.wait_for(gone.wait(), 60)


async def test_libraries_log_neither_addresses_nor_keys(transport: Transport, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    async with SseServer([answer(b"ok")]) as server:
        await fetch(transport, server.url + "/secret", x_key="secret")
    assert "secret" not in caplog.text
