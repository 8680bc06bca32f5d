"""Many WebSocket clients on several servers with one database: no error, flat memory, little memory per idle client."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from tests.slow.running import needs_proc, say
from tests.support.epilogue import gauge
from tests.support.listening import Listening
from tests.support.postgres_server import PostgresServer
from tests.support.sizes import sized
from tests.teams.light_client import LightClient

pytestmark = [needs_proc, pytest.mark.timing]
SERVERS = sized(commit=2, nightly=4)
IDLE, ACTIVE = sized(commit=60, nightly=1_000), sized(commit=8, nightly=100)
SECONDS = sized(commit=8, nightly=300)
# Private memory in megabytes: of one client that has only connected, and what a server may gain in the second half.
PER_IDLE_CLIENT, GROWTH = 1.0, 12.0


def memory(servers: list[Listening]) -> list[float]:
    pids = [server.process.pid for server in servers if server.process is not None]
    return [gauge(pid).private for pid in pids]


async def chat_until(client: LightClient, end: float) -> int:
    """Run turns until the time is over, five in a session. Return their number."""
    turns, session = 0, None
    while asyncio.get_running_loop().time() < end:
        answer = await client.command(
            "thinklsp.chat", {"prompt": "Hello.", **({"sessionId": session} if session else {})}
        )
        if answer is None or answer["stopReason"] != "end_turn":
            client.failures.append(f"a turn has ended with {answer}")
            return turns
        turns += 1
        session = answer["sessionId"] if turns % 5 else None
    return turns


async def test_many_clients_share_servers_and_a_database(
    tmp_path: Path, environment: dict[str, str], postgres: PostgresServer
) -> None:
    (tmp_path / "config.toml").write_text("[serve]\nmax_clients = 400\n")
    environment |= {"THINKLSP_CONFIG": str(tmp_path / "config.toml"), "THINKLSP_PROVIDER": "simulator"}
    environment |= {"THINKLSP_STORE_URL": postgres.url}
    folder = tmp_path / "workspace"
    folder.mkdir()
    servers = [Listening("ws") for _ in range(SERVERS)]
    async with AsyncExitStack() as stack:
        for server in servers:
            stack.push_async_callback(server.stop)
            await server.start(tmp_path, environment)

        async def join(number: int) -> LightClient:
            server = servers[number % SERVERS]
            client = await stack.enter_async_context(LightClient(server.port, server.token))
            await client.initialize(folder)
            return client

        # The first clients load what all others share.
        active = [await join(number) for number in range(ACTIVE)]
        loop = asyncio.get_running_loop()
        assert all(await asyncio.gather(*(chat_until(client, loop.time() + 0.1) for client in active)))
        before = memory(servers)
        idle = [await join(number) for number in range(IDLE)]
        each = max((now - then) / (IDLE / SERVERS) for now, then in zip(memory(servers), before, strict=True))
        middle, end = loop.time() + SECONDS / 2, loop.time() + SECONDS
        first = await asyncio.gather(*(chat_until(client, middle) for client in active))
        halfway = memory(servers)
        second = await asyncio.gather(*(chat_until(client, end) for client in active))
        grown = max(now - then for now, then in zip(memory(servers), halfway, strict=True))
        say(
            f"{IDLE} idle and {ACTIVE} active clients on {SERVERS} servers: {sum(first)} and {sum(second)} turns in "
            f"{SECONDS} s; {each * 1000:.0f} KB per idle client, {grown:.1f} MB more in the second half"
        )
        assert [failure for client in (*active, *idle) for failure in client.failures] == []
        assert [server.log.splitlines()[1:] for server in servers] == [[]] * SERVERS
        assert each < PER_IDLE_CLIENT
        assert grown < GROWTH
