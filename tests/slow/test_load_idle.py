"""What a server takes that has nothing to do, and how soon it answers."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path

import pytest

from tests.slow.running import SLACK, needs_proc, planted, running, say
from tests.support.epilogue import Gauge, gauge
from tests.support.outside import UNWATCHED, Outside, start
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


async def test_the_first_answer(tmp_path: Path) -> None:
    """A-L9: the server answers `initialize` in 800 ms if nothing is compiled yet, else in 400 ms."""
    compiled: dict[str, str | None] = {"PYTHONPYCACHEPREFIX": str(tmp_path / "compiled")}
    took: dict[str, float] = {}
    for name in ("cold", "warm", "once more"):
        at = time.perf_counter()
        outside = await start(tmp_path / name, env=compiled)
        took[name] = (time.perf_counter() - at) * 1000
        effort = outside.client.command("thinklsp.effort", {})
        await outside.client.wait_for(lambda effort=effort: effort.answered, within=100)  # type: ignore[misc] # this one
        await outside.finish()
        await outside.stop()
    say(f"first answer: {', '.join(f'{name} {milliseconds:.0f} ms' for name, milliseconds in took.items())}")
    assert took["cold"] < 800 * SLACK
    assert min(took["warm"], took["once more"]) < 400 * SLACK
