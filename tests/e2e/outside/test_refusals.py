"""Who may not come in by a socket: each refusal in words, and the others are served on."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, closing, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.raw import HandshakeRefused, TcpWire, WebSocketWire, framed
from tests.support.forking import Nursery
from tests.support.listening import Listening
from tests.support.watching import HANG_SECONDS

ALLOWED = "https://ide.example.com"
INITIALIZE = {"processId": None, "rootUri": None, "capabilities": {}}
EXIT = framed(b'{"jsonrpc":"2.0","method":"exit"}')
Json = Any


@pytest.fixture
async def tcp(tmp_path: Path, nursery: Nursery | None, environment: dict[str, str]) -> AsyncIterator[Listening]:
    async for server in running(Listening("tcp", nursery=nursery), tmp_path, environment):
        yield server


@pytest.fixture
async def ws(tmp_path: Path, nursery: Nursery | None, environment: dict[str, str]) -> AsyncIterator[Listening]:
    async for server in running(Listening("ws", "--allow-origin", ALLOWED, nursery=nursery), tmp_path, environment):
        yield server


async def running(server: Listening, folder: Path, environment: dict[str, str]) -> AsyncIterator[Listening]:
    """It has never more to say than its address, and serves to the end."""
    try:
        await server.start(folder, environment)
        yield server
        client = await server.connect(folder, environment)
        await client.initialize(folder)
        assert (await client.close(), client.checker.violations) == (0, [])
        assert await server.end() == 143
        assert server.log.count("\n") == 1
        assert server.leaks() == []
    finally:
        await server.stop()


def request(method: str, params: Json = None, identity: Json = 1) -> bytes:
    return framed(json.dumps({"jsonrpc": "2.0", "id": identity, "method": method, "params": params}).encode())


def initialize(options: Json) -> bytes:
    return request("initialize", INITIALIZE | {"initializationOptions": options})


async def all_that_comes(wire: TcpWire) -> list[Json]:
    """Until the server closes, which it has to do by itself."""
    data = b""
    async with asyncio.timeout(HANG_SECONDS):
        while chunk := await wire.read():
            data += chunk
    wire.close()
    answers = []
    while data:
        header, _, data = data.partition(b"\r\n\r\n")
        size = int(header.removeprefix(b"Content-Length: "))
        answers.append(json.loads(data[:size]))
        data = data[size:]
    return answers


# What a client on TCP sends; the code and a part of the answer, None where there is nobody to answer.
STRANGERS: dict[str, tuple[bytes, int | None, str]] = {
    "no token": (request("initialize", INITIALIZE), -32803, "requires its token"),
    "another token": (initialize({"thinklsp": {"token": "x" * 43}}), -32803, "requires its token"),
    "an empty token": (initialize({"thinklsp": {"token": ""}}), -32803, "requires its token"),
    "a token that is no text": (initialize({"token": 7}), -32803, "requires its token"),
    "a token beyond Unicode": (initialize({"token": "\ud800é"}), -32803, "requires its token"),
    "another request first": (request("shutdown"), -32600, "must be `initialize`"),
    "a notification first": (EXIT, -32600, "must be `initialize`"),
    "no JSON": (framed(b"{"), -32600, "must be `initialize`"),
    "garbage": (b"garbage\r\n\r\n", -32600, "must be `initialize`"),
    "a length beyond all limits": (b"Content-Length: 99999999999\r\n\r\n", -32600, "must be `initialize`"),
    "a page that posts": (
        b"POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: 300\r\n\r\n" + request("initialize", INITIALIZE),
        -32600,
        "must be `initialize`",
    ),
    "TLS": (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(range(64, 128)) * 4, None, ""),
    "a header without an end": (b"x" * 5000, None, ""),
    "two megabytes of one message": (b"Content-Length: 3000000\r\n\r\n" + b" " * 2_000_000, None, ""),
    "nothing": (b"", None, ""),
}


async def test_strangers_on_tcp(tcp: Listening) -> None:
    for name, (sent, code, words) in STRANGERS.items():
        wire = await TcpWire.open(tcp.port)
        # Whoever is refused gets no answer to what they send behind it.
        with suppress(ConnectionError):
            wire.writer.write(sent + request("shutdown", identity=2) if code else sent)
            if not sent:
                wire.writer.write_eof()
            await wire.writer.drain()
        answers = await all_that_comes(wire)
        assert [answer["error"]["code"] for answer in answers] == ([] if code is None else [code]), name
        assert all(words in answer["error"]["message"] for answer in answers), name


async def test_tokens_on_tcp(tcp: Listening) -> None:
    for options in ({"thinklsp": {"token": tcp.token, "effort": "low"}}, {"token": tcp.token, "effort": "low"}):
        wire = await TcpWire.open(tcp.port)
        wire.writer.write(initialize(options) + request("shutdown", identity=2))
        wire.writer.write(EXIT)
        assert [answer["id"] for answer in await all_that_comes(wire)] == [1, 2]


async def test_the_token_is_no_setting(tcp: Listening, tmp_path: Path, environment: dict[str, str]) -> None:
    client = await tcp.connect(tmp_path, environment)
    await client.initialize(tmp_path, options={"effort": "unheard-of"})
    await client.wait_for(client.messages, what="the refused setting")
    await client.command("thinklsp.usage")
    assert (await client.close(), client.checker.violations) == (0, [])
    assert [message for message in client.messages() if "effort" not in message] == []


@asynccontextmanager
async def serving(server: Listening, folder: Path, environment: dict[str, str]) -> AsyncIterator[Listening]:
    """A server of other options, which ends in order and writes nothing."""
    try:
        await server.start(folder, environment)
        yield server
        assert await server.end() == 143
        assert server.stdout == b""
    finally:
        await server.stop()


async def test_without_a_token_a_page_cannot_come_in(
    tmp_path: Path, nursery: Nursery | None, environment: dict[str, str]
) -> None:
    async with serving(Listening("tcp", "--no-token", nursery=nursery), tmp_path, environment) as server:
        for name in ("a page that posts", "another request first", "TLS"):
            wire = await TcpWire.open(server.port)
            wire.writer.write(STRANGERS[name][0])
            assert all("result" not in answer for answer in await all_that_comes(wire))
        wire = await TcpWire.open(server.port)
        wire.writer.write(request("initialize", INITIALIZE) + EXIT)
        [answer] = await all_that_comes(wire)
        assert answer["result"]["serverInfo"]["name"] == "thinklsp"


# Headers and target of a handshake, given token and port; the status. The key of each row says what it is about.
HANDSHAKES: dict[str, tuple[Callable[[str, int], tuple[list[str], str]], int]] = {
    "bearer": (lambda token, _: ([f"Authorization: Bearer {token}"], "/"), 101),
    "bearer, small": (lambda token, _: ([f"authorization: bearer  {token}"], "/any/path"), 101),
    "query": (lambda token, _: ([], f"/lsp?a=b&token={token}"), 101),
    "subprotocol": (lambda token, _: ([f"Sec-WebSocket-Protocol: lsp, token.{token}"], "/"), 101),
    "an allowed page": (lambda token, _: ([f"Origin: {ALLOWED}"], f"/?token={token}"), 101),
    "our own page": (lambda token, port: ([f"Origin: http://127.0.0.1:{port}"], f"/?token={token}"), 101),
    "our own page by name": (lambda token, port: ([f"Origin: http://localhost:{port}"], f"/?token={token}"), 101),
    "no token": (lambda _, __: ([], "/"), 401),
    "another token": (lambda token, _: ([f"Authorization: Bearer {token[::-1]}"], "/"), 401),
    "half a token": (lambda token, _: ([], f"/?token={token[:20]}"), 401),
    "another scheme": (lambda token, _: ([f"Authorization: Basic {token}"], "/"), 401),
    "a token beyond ASCII": (lambda _, __: ([], "/?token=%C3%A9%ED%A0%80"), 401),
    "another page": (lambda token, _: (["Origin: https://evil.example"], f"/?token={token}"), 403),
    "another page without a token": (lambda _, __: (["Origin: https://evil.example"], "/"), 403),
    "another port of this machine": (lambda token, _: (["Origin: http://127.0.0.1:1"], f"/?token={token}"), 403),
    "our own page by TLS": (lambda token, port: ([f"Origin: https://127.0.0.1:{port}"], f"/?token={token}"), 403),
    "a page that begins alike": (lambda token, _: ([f"Origin: {ALLOWED}.evil.example"], f"/?token={token}"), 403),
    "a page of nowhere": (lambda token, _: (["Origin: null"], f"/?token={token}"), 403),
    "two origins": (lambda token, _: ([f"Origin: {ALLOWED}", "Origin: https://e.example"], f"/?token={token}"), 403),
}


async def test_handshakes(ws: Listening) -> None:
    for name, (asked, status) in HANDSHAKES.items():
        headers, target = asked(ws.token, ws.port)
        if status == 101:
            wire = await WebSocketWire.upgraded(ws.port, *headers, target=target)
            # The token is no protocol that anybody speaks.
            assert wire.protocol == ("lsp" if name == "subprotocol" else None), name
            wire.close()
        else:
            with pytest.raises(HandshakeRefused) as refused:
                await WebSocketWire.upgraded(ws.port, *headers, target=target)
            assert refused.value.status == status, name
            assert ("--allow-origin" if status == 403 else "token") in refused.value.text, name


async def test_what_is_no_websocket(ws: Listening) -> None:
    for sent, status in (
        (b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", b"HTTP/1.1 426 "),
        (b"GET /?token=%b HTTP/1.1\r\nHost: x\r\n\r\n" % ws.token.encode(), b"HTTP/1.1 426 "),
        (b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}", None),
        (request("initialize", INITIALIZE), None),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\n", None),
        (b"\r\n" * 100, None),
        (b"GET /" + b"x" * 100_000, None),
    ):
        wire = await TcpWire.open(ws.port)
        wire.writer.write(sent)
        answer = b""
        async with asyncio.timeout(HANG_SECONDS):
            while chunk := await wire.read():
                answer += chunk
        assert answer.startswith(status or b"HTTP/1.1 4") or (status is None and not answer), sent[:40]
        assert b"capabilities" not in answer
        wire.close()


async def test_messages_on_websocket(ws: Listening) -> None:
    wire = await WebSocketWire.upgraded(ws.port, target=f"/?token={ws.token}")

    async def told() -> Json:
        return json.loads((await wire.read()).partition(b"\r\n\r\n")[2])

    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": INITIALIZE}).encode()
    for start in range(0, len(body), 7):
        # Fragments, with a ping between them: control frames may come anywhere.
        wire.frame(0 if start else 1, body[start : start + 7], final=start + 7 >= len(body))
        if start == 14:
            wire.frame(9, b"are you there?")
    final, kind, payload = await wire._frame()
    assert (final, kind, payload) == (True, 10, b"are you there?")
    assert (await told())["id"] == 1
    wire.frame(2, body)
    assert (await told())["error"] == {"code": -32600, "message": "Messages must be sent as text."}
    wire.write(b"{")
    assert (await told())["error"]["code"] == -32700
    wire.write(b'{"jsonrpc":"2.0","id":2,"method":"textDocument/rename"}')
    assert (await told())["error"]["code"] == -32601
    # Longer than any message may be: the sender is told so, before the rest of it comes.
    wire.writer.write(b"\x81\xff" + (64 * 1024 * 1024 + 1).to_bytes(8, "big") + b"mask")
    assert await wire.read() == b""
    assert wire.closed == 1009
    wire.close()


@pytest.mark.parametrize("kind", ["tcp", "ws"])
async def test_a_token_of_ones_own(
    tmp_path: Path, nursery: Nursery | None, environment: dict[str, str], kind: Any
) -> None:
    token = "of-my-own.0123456789~_"
    (tmp_path / "token").write_text(f"{token}\n")
    (tmp_path / "token").chmod(0o600)
    async with serving(Listening(kind, "--token-file", "token", nursery=nursery), tmp_path, environment) as server:
        if kind == "tcp":
            wire = await TcpWire.open(server.port)
            wire.writer.write(initialize({"token": token}) + EXIT)
            assert [answer["id"] for answer in await all_that_comes(wire)] == [1]
        else:
            with closing(await WebSocketWire.upgraded(server.port, target=f"/?token={token}")):
                pass
    assert token not in server.log
