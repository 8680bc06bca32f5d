"""A request by a transport, whole, and servers that speak whatever a test likes."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from thinklsp.http.transport import Timeouts, Transport

QUICK = Timeouts(connect=60, write=60, pool=60, first_byte_local=60, idle=60, total=60, drain=0.2)
Accept = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None] | None]


async def fetch(transport: Transport, url: str, body: bytes = b"{}", **headers: str) -> bytes:
    async with transport.post(f"{url}/v1/messages", headers, body) as response:
        return b"".join([piece async for piece in response.iterate_chunks()])


@asynccontextmanager
async def serve(accept: Accept, tls: ssl.SSLContext | None = None) -> AsyncIterator[int]:
    """Serve each connection like that, and yield the port."""
    server = await asyncio.start_server(accept, "127.0.0.1", 0, ssl=tls)
    yield server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
