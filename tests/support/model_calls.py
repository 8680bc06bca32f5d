"""Model calls over real HTTP, against a server that plays streams."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import replace

from tests.support.other_hosts import Received, SseServer, Step
from thinklsp.agent.model_call import CallEvent, HttpModelCaller
from thinklsp.http.retry import RetryPolicy
from thinklsp.http.transport import Transport
from thinklsp.providers.base import Adapter, Endpoint, ModelRequest


async def call_model(
    adapter: Adapter,
    endpoint: Endpoint,
    plays: Sequence[Sequence[Step]],
    request: ModelRequest | Callable[[str], ModelRequest],
    *,
    path: str = "",
    tries: int = 1,
) -> tuple[list[CallEvent], list[Received]]:
    """Return the events of a call, and the requests that the server received. Waits between tries take no time.

    `request`: also one that is made for the address of the server. `path`: of the base URL.
    """

    async def at_once(_: float) -> None:
        """What is waited for is not what is tested."""

    async with SseServer(plays) as server:
        transport = Transport()
        here = replace(endpoint, base_url=f"{server.url}{path}")
        policy = RetryPolicy(max_tries=tries)
        caller = HttpModelCaller(adapter, here, transport, policy=policy, rng=lambda: 0.0, sleep=at_once)
        made = request if isinstance(request, ModelRequest) else request(server.url)
        try:
            async with aclosing(caller.stream(made)) as events:
                return [event async for event in events], server.received
        finally:
            await transport.aclose()
