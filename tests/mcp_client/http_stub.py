"""A small HTTP server that answers as a script says, and notes what it receives. Shares no code with the product."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

TOOL = {"name": "work", "description": "Works.", "inputSchema": {"type": "object"}}


@dataclass
class Request:
    method: str
    path: str
    headers: dict[str, str]
    message: Any


@dataclass
class Response:
    """An answer or, with `held`, a stream without an event, which notes in `held` that it is open and then closed."""

    status: int = 200
    headers: dict[str, str] = field(default_factory=lambda: {"content-type": "application/json"})
    body: bytes = b""
    held: list[str] | None = None


Answer = Callable[[Request], Response]


@dataclass
class Stub:
    answer: Answer
    requests: list[Request] = field(default_factory=list)
    port: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            method, path, _ = head[0].split(" ")
            headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:])}
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            request = Request(method, path, headers, json.loads(body) if body else None)
            self.requests.append(request)
            response = self.answer(request)
            if response.held is not None:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: wait\n\n")
                response.held.append("open")
                # A killed process resets its connections if it has not read everything.
                with suppress(ConnectionError):
                    await reader.read()
                response.held.append("closed")
            lines = {**response.headers, "content-length": str(len(response.body)), "connection": "close"}
            text = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
            writer.write(f"HTTP/1.1 {response.status} X\r\n{text}\r\n".encode() + response.body)
            await writer.drain()
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


@asynccontextmanager
async def serve(answer: Answer) -> AsyncIterator[Stub]:
    stub = Stub(answer)
    server = await asyncio.start_server(stub.serve, "127.0.0.1", 0)
    stub.port = server.sockets[0].getsockname()[1]
    try:
        yield stub
    finally:
        server.close()


def reply(request: Request, result: Any) -> Response:
    return Response(body=json.dumps({"jsonrpc": "2.0", "id": request.message["id"], "result": result}).encode())


def behave(request: Request) -> Response:
    """Answer as a good server of the newer protocol with one tool, whose result is the path of the request."""
    match (request.message or {}).get("method"):
        case "server/discover":
            versions = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
            return reply(request, {"resultType": "complete", **versions, "ttlMs": 0, "cacheScope": "private"})
        case "tools/list":
            return reply(request, {"resultType": "complete", "tools": [TOOL], "ttlMs": 0, "cacheScope": "private"})
        case "tools/call":
            content = [{"type": "text", "text": request.path}]
            return reply(request, {"resultType": "complete", "content": content})
        case _:
            return Response(404)


def hold_first_call(held: list[str], text: str) -> Answer:
    """Hold the first call of the tool, and answer the others with a text."""

    def answer(request: Request) -> Response:
        if (request.message or {}).get("method") != "tools/call":
            return behave(request)
        result = {"resultType": "complete", "content": [{"type": "text", "text": text}]}
        return reply(request, result) if held else Response(held=held)

    return answer
