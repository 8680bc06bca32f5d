"""An MCP server over HTTP whose first call gets no answer."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from tests.mcp_client import http_stub


@asynccontextmanager
async def holding_call(held: list[str], text: str) -> AsyncIterator[str]:
    """Serve a server behind a relay that answers the first call with a stream without an event.

    The server answers calls with `text`. `held` becomes `open` during the first call, and then `closed`.
    """
    streams: set[asyncio.Task[None]] = set()

    def behave(request: http_stub.Request) -> http_stub.Response:
        response = http_stub.behave(request)
        if (request.message or {}).get("method") == "tools/call":
            response.body = response.body.replace(b"/mcp", text.encode())
        return response

    async with http_stub.serve(behave) as stub:

        async def relay(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            streams.add(asyncio.current_task())  # type: ignore[arg-type] # a task runs this
            head = await reader.readuntil(b"\r\n\r\n")
            length = re.search(rb"(?i)content-length: *([0-9]+)", head)
            body = await reader.readexactly(int(length[1]) if length is not None else 0)
            if b"tools/call" in body and not held:
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n: wait\n\n")
                held.append("open")
                # A killed process resets its connections if it has not read everything.
                with suppress(ConnectionError):
                    await reader.read()
                held.append("closed")
            else:
                inner, to_inner = await asyncio.open_connection("127.0.0.1", stub.port)
                to_inner.write(head + body)
                writer.write(await inner.read())
                to_inner.close()
            writer.close()

        server = await asyncio.start_server(relay, "127.0.0.1", 0)
        try:
            yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/mcp"
        finally:
            server.close()
            await asyncio.gather(*streams, return_exceptions=True)
