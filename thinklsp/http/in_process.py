"""Requests that a function of this process answers, without a connection."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Mapping

import httpx

# Receives the method, the path, the headers and the body. Returns the status, the headers and the body.
RequestHandler = Callable[
    [str, str, Mapping[str, str], bytes], Awaitable[tuple[int, Mapping[str, str], AsyncIterator[bytes]]]
]


def open_in_process_client(handler: RequestHandler) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=_InProcessTransport(handler), trust_env=False)


class _InProcessTransport(httpx.AsyncBaseTransport):
    def __init__(self, handler: RequestHandler) -> None:
        self._handler = handler

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        status, headers, body = await self._handler(
            request.method, request.url.path, request.headers, await request.aread()
        )
        return httpx.Response(status, headers=dict(headers), stream=_BodyStream(body))


class _BodyStream(httpx.AsyncByteStream):
    def __init__(self, body: AsyncIterator[bytes]) -> None:
        self._body = body

    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for chunk in self._body:
                yield chunk
        except ConnectionError as error:
            raise httpx.ReadError(str(error)) from None
