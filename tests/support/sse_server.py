"""A real HTTP server on loopback that plays prepared bytes. It judges nothing; tests look at what it received."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self

Step = bytes | asyncio.Event | Literal["hold", "reset"]


@dataclass(frozen=True)
class Received:
    """One request as it came. Header names are lower case."""

    target: str
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def head(status: int = 200, content_type: str = "text/event-stream", **headers: str) -> bytes:
    """The start of an answer; its end is the end of the connection. Underscores in names stand for hyphens."""
    lines = [f"HTTP/1.1 {status} Status", f"content-type: {content_type}", "connection: close"]
    lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
    return ("\r\n".join(lines) + "\r\n\r\n").encode()


def chunk(data: bytes) -> bytes:
    """One piece of a body sent with `transfer_encoding="chunked"`."""
    return b"%x\r\n%s\r\n" % (len(data), data)


def answer(body: bytes, status: int = 200, content_type: str = "application/json", **headers: str) -> list[Step]:
    return [head(status, content_type, content_length=str(len(body)), **headers), body]


@dataclass
class SseServer:
    """Answers the n-th request with the n-th play, the last one from then on.

    Steps of a play: bytes to send, an event to wait for, `hold` (until the client goes away), `reset` (cut hard).
    """

    plays: Sequence[Sequence[Step]]
    received: list[Received] = field(default_factory=list)
    gone: asyncio.Event = field(default_factory=asyncio.Event)
    arrived: asyncio.Event = field(default_factory=asyncio.Event)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0, limit=64 * 1024 * 1024)
        host, port = self._server.sockets[0].getsockname()[:2]
        self._url = f"http://{host}:{port}"
        self._tasks: set[asyncio.Task[Any]] = set()
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._server.wait_closed()

    @property
    def url(self) -> str:
        return self._url

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        try:
            await self._play(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _play(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.received.append(await _read_request(reader))
        self.arrived.set()
        for step in self.plays[min(len(self.received), len(self.plays)) - 1]:
            match step:
                case bytes():
                    writer.write(step)
                    await writer.drain()
                case "hold":
                    await reader.read()
                    self.gone.set()
                case "reset":
                    writer.transport.abort()
                    return
                case asyncio.Event():
                    await step.wait()


async def _read_request(reader: asyncio.StreamReader) -> Received:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines[1:] if line)
    headers = {name.strip().lower(): value.strip() for name, _, value in pairs}
    body = await reader.readexactly(int(headers.get("content-length", "0")))
    return Received(lines[0].split()[1], headers, body)
