"""A language client over real stdio or a socket that knows LSP 3.17 and nothing of the product.

It frames and reads bytes itself, keeps every byte that the server writes, answers the server's requests as an editor
does, really applies workspace edits, and has all traffic checked by `editor`. It never sleeps: `wait_for` waits
on what was observed.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, Self

from tests.support.client.actions import Editing, Process, Request
from tests.support.client.editor import VSCODE, Editor
from tests.support.client.talking import Talking

Json = Any


class RawClient(Talking, Editing):
    """Start with `await RawClient.start(...)`, then `initialize`, and `close` at the end.

    `editor` holds what a test may set: settings, handlers of server requests, answers to questions. `wire`: the way to
    the server, if it is not the process's own pipes. `token`: what `initialize` has to bring.
    """

    def __init__(self, process: Process, wire: Wire | None = None, *, token: str | None = None) -> None:
        super().__init__(process)
        self.token = token
        self.editor = Editor(self.checker, self.open, self._change)
        self.server: Json = {}
        self.begin(wire or StdioWire(process))

    @classmethod
    async def on_pipes(cls, process: Process) -> Self:
        return cls(process)

    @classmethod
    async def on_socket(cls, process: Process, kind: Literal["tcp", "ws"], port: int, token: str) -> Self:
        if kind == "tcp":
            return cls(process, await TcpWire.open(port), token=token)
        return cls(process, await WebSocketWire.upgraded(port, f"Authorization: Bearer {token}"))

    # Life cycle

    async def initialize(
        self,
        root: Path | None,
        *,
        announce: Json = None,
        options: Json = None,
        folders: bool = True,
        process: int | None = None,
    ) -> Json:
        """`process`: the editor's, if that is not ours."""
        self.editor.capabilities = VSCODE if announce is None else announce
        uri = root.as_uri() if root else None
        if self.token is not None:
            options = {"thinklsp": (options or {}) | {"token": self.token}}
        folder = [{"uri": uri, "name": root.name}] if root and folders else None
        params = {"processId": process or os.getpid(), "clientInfo": {"name": self.editor.name, "version": "1"}}
        params |= {"rootUri": uri, "workspaceFolders": folder}
        params |= {"capabilities": self.editor.capabilities, "initializationOptions": options}
        result = await self.request("initialize", params)
        self.server = result["capabilities"]
        self.desk.encoding = self.server.get("positionEncoding", "utf-16")
        self.notify("initialized", {})
        return result

    async def gone(self) -> int:
        code = await super().gone()
        self.checker.finish()
        return code

    # Talking

    def answer(self, identity: Json, result: Json) -> None:
        """To a request of the server, beside the editor's own answer."""
        self.send({"id": identity, "result": result})

    def run_action(self, action: Json, *, token: str | int | None = None) -> Request:
        """Executes the command of a CodeAction (or the plain Command) as an editor does."""
        command = action["command"] if isinstance(action["command"], dict) else action
        params = {"command": command["command"], "arguments": command.get("arguments", [])}
        return self.request("workspace/executeCommand", params | ({} if token is None else {"workDoneToken": token}))

    def forget(self) -> None:
        """What was received so far, and all that has ended: a run of hours would fill our own memory with it."""
        self.received.clear()
        self.stdout.clear()
        self._futures = {identity: future for identity, future in self._futures.items() if not future.done()}
        self.checker.forget()

    def _encode(self, message: Json) -> bytes:
        return json.dumps(message, ensure_ascii=False).encode("utf-8", "surrogatepass")

    def _take_bodies(self) -> Iterator[bytes]:
        while (body := take_body(self._unread)) is not None:
            yield body

    def _check(self, body: bytes) -> Json:
        try:
            message = json.loads(body.decode())
        except ValueError:
            self.checker.blame(f"a message that is no JSON in UTF-8: {body[:200]!r}")
            return None
        self.checker.received(message)
        return message


_HEADER = re.compile(rb"Content-Length: (\d+)\r\n(?:Content-Type: [^\r\n]+\r\n)?\r\n")
_TEXT, _CLOSE, _PING, _PONG = 1, 8, 9, 10


def framed(body: bytes) -> bytes:
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


def take_body(unread: bytearray) -> bytes | None:
    """Take the first message off, if it is there whole."""
    header = _HEADER.match(unread)
    if header is None or len(unread) < header.end() + int(header[1]):
        return None
    end = header.end() + int(header[1])
    body = bytes(unread[header.end() : end])
    del unread[:end]
    return body


class StdioWire:
    """`read` and `read_log` give what has come, nothing at the end; `ended` gives the exit code, if there is one."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def read(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.read(65536)

    async def read_log(self) -> bytes:
        assert self._process.stderr is not None
        return await self._process.stderr.read(65536)

    def write(self, body: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(framed(body))

    async def ended(self) -> int:
        return await self._process.wait()

    def close(self) -> None:
        if self._process.stdin is not None:
            self._process.stdin.close()

    def kill(self) -> None:
        if self._process.returncode is None:
            self._process.kill()


class TcpWire:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, port: int) -> Self:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def read(self) -> bytes:
        try:
            return await self.reader.read(65536)
        except ConnectionError:
            return b""

    async def read_log(self) -> bytes:
        return b""

    def write(self, body: bytes) -> None:
        self.writer.write(framed(body))

    async def ended(self) -> int:
        return 0

    def close(self) -> None:
        self.writer.close()

    def kill(self) -> None:
        self.writer.transport.abort()


class HandshakeRefused(Exception):
    def __init__(self, status: int, text: str, headers: Mapping[str, str] = MappingProxyType({})) -> None:
        super().__init__(f"{status}: {text}")
        self.status = status
        self.text = text
        self.headers = headers


class WebSocketWire(TcpWire):
    """RFC 6455, as far as a client needs it. `closed`: the code of the server; `protocol`: which one it chose."""

    closed: int | None = None
    protocol: str | None = None

    @classmethod
    async def upgraded(cls, port: int, *headers: str, target: str = "/") -> Self:
        """Raises HandshakeRefused."""
        wire = await cls.open(port)
        key = base64.b64encode(os.urandom(16)).decode()
        asked = [
            f"GET {target} HTTP/1.1", f"Host: 127.0.0.1:{port}", "Upgrade: websocket", "Connection: Upgrade",
            "Sec-WebSocket-Version: 13", f"Sec-WebSocket-Key: {key}", *headers,
        ]  # fmt: skip
        wire.writer.write("".join(f"{line}\r\n" for line in [*asked, ""]).encode())
        try:
            status, *told = (await wire.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        except (ConnectionError, asyncio.IncompleteReadError):
            wire.close()
            raise HandshakeRefused(0, "closed without an answer") from None
        known = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in told)}
        if not status.startswith("HTTP/1.1 101 "):
            text = (await wire.reader.read()).decode()
            wire.close()
            raise HandshakeRefused(int(status.split(" ")[1]), text, known)
        expected = hashlib.sha1(f"{key}258EAFA5-E914-47DA-95CA-C5AB0DC85B11".encode(), usedforsecurity=False)
        assert known["sec-websocket-accept"] == base64.b64encode(expected.digest()).decode()
        wire.protocol = known.get("sec-websocket-protocol")
        return wire

    async def read(self) -> bytes:
        message = b""
        try:
            while True:
                final, kind, payload = await self._frame()
                if kind == _PING:
                    self.frame(_PONG, payload)
                elif kind == _CLOSE:
                    self.closed = int.from_bytes(payload[:2], "big")
                    self.frame(_CLOSE, payload)
                    return b""
                elif kind != _PONG:
                    message += payload
                    if final:
                        return framed(message)
        except (ConnectionError, asyncio.IncompleteReadError):
            return b""

    async def _frame(self) -> tuple[bool, int, bytes]:
        first, size = await self.reader.readexactly(2)
        if size > 125:
            size = int.from_bytes(await self.reader.readexactly(2 if size == 126 else 8), "big")
        return bool(first & 0x80), first & 0x0F, await self.reader.readexactly(size)

    def write(self, body: bytes) -> None:
        self.frame(_TEXT, body)

    def frame(self, kind: int, payload: bytes, *, final: bool = True) -> None:
        """One frame, masked as a client must."""
        size = len(payload)
        if size < 126:
            header = bytes([0x80 | size])
        elif size < 1 << 16:
            header = b"\xfe" + size.to_bytes(2, "big")
        else:
            header = b"\xff" + size.to_bytes(8, "big")
        mask = os.urandom(4)
        stream = int.from_bytes((mask * (size // 4 + 1))[:size], "big")
        masked = (int.from_bytes(payload, "big") ^ stream).to_bytes(size, "big")
        self.writer.write(bytes([(0x80 if final else 0) | kind]) + header + mask + masked)


Wire = StdioWire | TcpWire


class Ear:
    """What lets an editor read from its wire, or not."""

    def __init__(self, wire: Wire) -> None:
        self.open = asyncio.Event()
        self.open.set()
        read = wire.read

        async def listen() -> bytes:
            await self.open.wait()
            return await read()

        wire.read = listen  # type: ignore[method-assign] # this is the fault
