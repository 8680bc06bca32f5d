"""HTTP/1.1 on one connection, as the signing server speaks it: requests in, answers out, in odd pieces.

Shares no code with the product.
"""

from __future__ import annotations

import asyncio
import json
import random
from contextlib import suppress
from typing import Any

from tests.support.signing_script import Event, How

Json = Any


class CutByScript(ConnectionError):
    """We hung up, not the client."""


class HttpWire:
    """HTTP/1.1 on one connection. What arrives while an answer is streamed is kept for the next request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer
        self._buffer = bytearray()
        self._room: int | None = None
        # Seeded, so that a failing run cuts the same pieces again.
        self._cuts = random.Random(20_261_120)

    async def read_request(self) -> tuple[str, dict[str, str], bytes] | None:
        head = await self._until(b"\r\n\r\n")
        if head is None:
            return None
        line, *rest = head.decode("latin-1").split("\r\n")
        headers = {name.strip().lower(): value.strip() for name, _, value in (item.partition(":") for item in rest)}
        return line, headers, await self._body(headers)

    async def _body(self, headers: dict[str, str]) -> bytes:
        if "chunked" not in headers.get("transfer-encoding", ""):
            return await self._exactly(int(headers.get("content-length", "0")))
        body = b""
        while size := int(await self._until(b"\r\n") or b"0", 16):
            body += await self._exactly(size)
            await self._until(b"\r\n")
        await self._until(b"\r\n")
        return body

    async def _until(self, mark: bytes) -> bytes | None:
        while mark not in self._buffer:
            if not await self._fill():
                return None
        found, _, rest = bytes(self._buffer).partition(mark)
        self._buffer[:] = rest
        return found

    async def _exactly(self, size: int) -> bytes:
        while len(self._buffer) < size:
            if not await self._fill():
                raise ConnectionResetError("the request ended early")
        body = bytes(self._buffer[:size])
        del self._buffer[:size]
        return body

    async def _fill(self) -> bool:
        chunk = await self._reader.read(65536)
        self._buffer += chunk
        return bool(chunk)

    async def closed(self) -> None:
        """Returns when the client has closed its side."""
        with suppress(ConnectionError):
            while await self._fill():
                pass

    async def json(self, status: int, value: Json, headers: dict[str, str] | None = None) -> None:
        body = json.dumps(value).encode()
        extra = "".join(f"{name}: {text}\r\n" for name, text in (headers or {}).items())
        head = f"HTTP/1.1 {status} X\r\ncontent-type: application/json\r\n{extra}content-length: {len(body)}\r\n\r\n"
        await self.put(head.encode() + body)

    async def put(self, data: bytes) -> None:
        """As they are. Raises CutByScript where `cut_behind` says that the connection breaks."""
        if self._room is not None:
            data, self._room = data[: self._room], self._room - len(data)
        self._writer.write(data)
        await self._writer.drain()
        if self._room is not None and self._room <= 0:
            self.cut("reset")

    def cut_behind(self, size: int | None) -> None:
        """The connection breaks behind so many more bytes."""
        self._room = size

    async def begin_stream(self) -> None:
        kind = b"content-type: text/event-stream; charset=utf-8"
        await self.put(b"HTTP/1.1 200 OK\r\n%b\r\ntransfer-encoding: chunked\r\n\r\n" % kind)

    async def event(self, event: Event, pace: float) -> None:
        await self.pieces(event.encode())
        if pace:
            await asyncio.sleep(pace)

    async def pieces(self, written: bytes) -> None:
        """In up to three chunks, cut anywhere, characters included."""
        cuts = sorted(self._cuts.randrange(len(written)) for _ in range(2))
        for start, end in zip([0, *cuts], [*cuts, len(written)], strict=True):
            if piece := written[start:end]:
                await self.put(b"%x\r\n%b\r\n" % (len(piece), piece))

    async def end_stream(self) -> None:
        await self.put(b"0\r\n\r\n")

    def cut(self, how: How) -> None:
        """Breaks the connection, or ends the answer as if it were whole."""
        match how:
            case "reset":
                self._writer.transport.abort()
            case "close":
                self._writer.close()
            case "end":
                self._writer.write(b"0\r\n\r\n")
                self._writer.close()
        raise CutByScript
