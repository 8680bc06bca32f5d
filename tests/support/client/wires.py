"""The ways by which the raw client reaches a server: pipes, TCP and WebSocket. Shares no code with the product.

What comes by WebSocket is given the headers of the other two, so that whoever reads need not know.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import os
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Self

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
