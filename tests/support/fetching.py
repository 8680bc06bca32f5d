"""A request by a transport, whole."""

from __future__ import annotations

from thinklsp.core.body import Body
from thinklsp.http.transport import Timeouts, Transport

QUICK = Timeouts(connect=2, write=2, pool=2, first_byte_here=5, idle=5, total=10, settle=0.2)


async def fetch(transport: Transport, url: str, body: bytes = b"{}", **headers: str) -> bytes:
    async with transport.post(f"{url}/v1/messages", headers, Body([body])) as response:
        return b"".join([piece async for piece in response.chunks()])
