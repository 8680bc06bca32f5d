"""Random sessions that could leak secrets into traffic, logs, files, programs or other services."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from pathlib import Path

import pytest

from tests.slow.canary_sessions import FILES, Session, leaks_after, with_watched_children
from tests.slow.running import Tally, running, say
from tests.support.outside import Connect
from tests.support.services import SeveralServices
from tests.support.sizes import SEED, lots, tries

PER_TEST = 10
STEPS = 50
AT_ONCE = 10


@pytest.mark.parametrize(("lot", "count"), list(enumerate(lots(tries("A-18"), PER_TEST))))
async def test_random_sessions_leak_nothing(
    tmp_path: Path, servers: Connect, lot: int, count: int, tally: Tally
) -> None:
    taken: Counter[str] = Counter()
    searched, connect = [], with_watched_children(servers)
    free = asyncio.Semaphore(AT_ONCE)

    async def one(number: int) -> None:
        chance = random.Random(f"{SEED} {lot} {number}")
        services = SeveralServices()
        async with (
            free,
            running(tmp_path / str(number), files=FILES, finish=False, provider=services, connect=connect) as outside,
        ):
            session = Session(outside, chance)
            await session.chat()
            for _ in range(STEPS):
                step = chance.choice(session.steps())
                taken[step.__name__] += 1
                await step()
            if number % PER_TEST == 0:
                await session.terminal()
            leaks = await leaks_after(outside, shut_down=chance.random() < 0.8)
            assert leaks == [], f"session {number} of lot {lot}: {taken}"
            assert all(r.message.get("method") != "telemetry/event" for r in outside.client.received)
            searched.append(len(services.secrets()))

    async with asyncio.TaskGroup() as group:
        for number in range(count):
            group.create_task(one(number))
    say(f"{count} sessions, {sum(searched)} secrets, {dict(taken)}")
    assert sum(searched) > 10 * count
    tally("A-18", count)
    tally("A-33", count)
