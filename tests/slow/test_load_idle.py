"""The processor time and memory of a server that has nothing to do."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from tests.slow.running import SLACK, needs_proc, planted, running, say
from tests.support.epilogue import Gauge, gauge
from tests.support.outside import UNWATCHED, Outside
from tests.support.signing_server import Text, answer
from tests.support.sizes import sized

pytestmark = [needs_proc, pytest.mark.timing]
SECONDS = sized(commit=8, nightly=60)


async def idle(outside: Outside) -> tuple[Gauge, float, float]:
    """Return the last gauge, wake-ups per second, and percent of a processor, after a turn has loaded everything."""
    outside.provider.say(answer(Text("Yes.")))
    await outside.turn("thinklsp.chat", {"prompt": "Hello."})
    await asyncio.sleep(2)
    before = gauge(outside.client.process.pid)
    await asyncio.sleep(SECONDS)
    after = gauge(outside.client.process.pid)
    seconds = after.at - before.at
    return after, (after.wakeups - before.wakeups) / seconds, 100 * (after.processor - before.processor) / seconds


async def test_an_idle_server_sleeps(tmp_path: Path) -> None:
    """A-L8: two wake-ups a second, half a percent of a processor, 120 MB."""
    async with running(tmp_path, env=UNWATCHED) as outside:
        last, wakeups, processor = await idle(outside)
    say(
        f"idle: {last.resident:.1f} MB, of them its own {last.private:.1f}; {processor:.2f} %, {wakeups:.2f} wake-ups/s"
    )
    assert last.resident < 120
    assert wakeups < 2
    assert processor < 0.5 * SLACK


async def test_a_server_that_does_not_sleep_is_noticed(tmp_path: Path) -> None:
    async with running(tmp_path, env=planted("restless"), finish=False) as outside:
        _, wakeups, _ = await idle(outside)
    assert wakeups > 2
