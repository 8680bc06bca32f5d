"""The health and readiness of a real server, and slow or malformed HTTP requests."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from typing import Any

import pytest

from tests.support.listening import Listening
from tests.support.outside import Outside
from tests.support.signing_server import Hold, Text, Thinking, answer
from tests.telemetry.monitored import METRICS, fetch, find_port, until_answer
from thinklsp.core.errors import StoreUnreachable
from thinklsp.telemetry.health import HttpEndpoint, Response, StoreProbe, parse_request_line

Begin = Callable[..., Awaitable[Outside]]


async def test_a_server_is_ready_until_it_drains(begin: Begin) -> None:
    server, hold = Listening("ws", *METRICS), Hold()
    outside = await begin(answer(Thinking(), hold, Text("Done.")), connect=server.connect)
    try:
        port = find_port(server)
        for path in ("/health", "/healthz", "/ready?x=1", "/readyz"):
            reply = await until_answer(port, path, 200)
            assert reply.headers["content-type"] == "application/json"
            assert reply.json == {"ok": True} | ({"store": "ok"} if "ready" in path else {})
        turn = outside.client.command("thinklsp.chat", {"prompt": "x"}, token="t")
        await hold.reached.wait()
        outside.client.process.send_signal(signal.SIGTERM)
        reply = await until_answer(port, "/ready", 503)
        assert reply.json["problem"] == "This server is about to stop. Connect again in a moment."
        assert (await fetch(port, "/health")).status == 200
        hold.release()
        assert (await turn)["text"] == "Done."
        assert await outside.client.process.wait() == 143
        outside.told()
    finally:
        await outside.stop()
        await server.stop()


class Database:
    """A database that can be switched off."""

    problems: tuple[str, ...] = ()
    is_there = True

    def __init__(self) -> None:
        self.answers = asyncio.Event()
        self.answers.set()
        self.questions = 0

    async def read_data_version(self) -> object:
        self.questions += 1
        await self.answers.wait()
        if not self.is_there:
            raise StoreUnreachable("The database does not answer.")
        return 1

    async def aclose(self) -> None:
        pass


async def test_one_failure_of_the_store_is_not_enough() -> None:
    database = Database()
    probe = StoreProbe(database)
    states = []
    for is_there in (True, False, True, False, False, False, True):
        database.is_there = is_there
        await probe.ask()
        states.append(probe.state)
    assert states == ["ok", "ok", "ok", "ok", "unreachable", "unreachable", "ok"]
    database.problems = ("Sessions are in memory only.",)
    await probe.ask()
    assert (probe.state, probe.explain_unready()) == ("degraded", None)


async def test_questions_to_a_silent_store_do_not_pile_up() -> None:
    database = Database()
    probe = StoreProbe(database, max_answer_seconds=0.01)
    database.answers.clear()
    for _ in range(5):
        await probe.ask()
    assert (probe.state, database.questions) == ("unreachable", 1)
    database.answers.set()
    await probe.ask()
    assert (probe.state, database.questions) == ("ok", 1)


@contextmanager
def endpoint(respond: Callable[[str], Response]) -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        server = HttpEndpoint(listening, respond)
        server.start()
        try:
            yield listening.getsockname()[1]
        finally:
            server.stop()


def echo(path: str) -> Response:
    return Response(HTTPStatus.OK, "text/plain", path.encode())


async def test_requests_are_answered_and_others_refused() -> None:
    with endpoint(echo) as port:
        reply = await fetch(port, "/some/path?secret=1")
        assert (reply.status, reply.body, reply.headers["connection"]) == (200, b"/some/path", "close")
        head = await fetch(port, "/path", "HEAD")
        assert (head.status, head.body, head.headers["content-length"]) == (200, b"", "5")
        refused = await fetch(port, "/path", "POST")
        assert (refused.status, refused.headers["allow"]) == (405, "GET, HEAD")


@pytest.mark.parametrize("head", [b"\r\n\r\n", b"\xff\xfe\r\n\r\n", b"GET /\r\n\r\n", b"GET / SMTP/1.1\r\n\r\n"])
def test_what_is_no_request_has_no_method(head: bytes) -> None:
    assert parse_request_line(head) == ("", "")


@pytest.mark.timing
async def test_slow_and_talkative_clients_keep_no_one_out() -> None:
    with endpoint(echo) as port:
        slow: list[Any] = [await asyncio.open_connection("127.0.0.1", port) for _ in range(100)]
        for _, writer in slow:
            writer.write(b"GET / HTTP/1.1\r\n")
        began = time.monotonic()
        assert (await fetch(port, "/path")).status == 200
        assert time.monotonic() - began < 4
        endless, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"GET / HTTP/1.1\r\n" + b"x" * 200_000)
        for reader in (endless, *(reader for reader, _ in slow)):
            # Each is left after its time, with no answer.
            async with asyncio.timeout(60):
                assert await read_all(reader) == b""
        for one in (writer, *(writer for _, writer in slow)):
            one.close()


async def read_all(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""
