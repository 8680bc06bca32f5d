"""How many servers one database carries: processes that store steps at the rate of 25 users who never rest."""

from __future__ import annotations

import asyncio
import json
import sys

import pytest

from tests.slow.running import say
from tests.support.epilogue import percentile
from tests.support.postgres_server import create_test_key, run_postgres
from tests.support.sizes import STEP, sized
from tests.teams.paced_worker import STEPS_PER_SECOND

pytestmark = pytest.mark.timing
WORKERS = (2,) if STEP in ("quick", "commit") else (4, 8, 16, 32)
SECONDS = sized(commit=3, nightly=20)
# In CI, other tests run beside this one, so it measures nothing there.
CEILING_MS = 250.0 if STEP in ("nightly", "release") else float("inf")


async def test_steps_of_many_servers_are_stored_soon() -> None:
    with run_postgres(is_durable=True) as server:
        for count in WORKERS:
            taken = await _measure(server.url, count)
            p50, p99 = percentile(taken, 0.5), percentile(taken, 0.99)
            say(f"{count} workers, {count * STEPS_PER_SECOND} steps/s of 20 KB: p50 {p50:.0f} ms, p99 {p99:.0f} ms")
            assert len(taken) == count * STEPS_PER_SECOND * SECONDS
            # The larger numbers show where the limit of the machine is.
            assert p99 < CEILING_MS or count > WORKERS[0]


async def _measure(url: str, count: int) -> list[float]:
    """Return the milliseconds of the steps of this many workers."""
    workers = [
        await asyncio.create_subprocess_exec(
            sys.executable, "-W", "error", "-m", "tests.teams.paced_worker",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, limit=1 << 20,
        )
        for _ in range(count)
    ]  # fmt: skip
    try:
        for number, worker in enumerate(workers):
            assert worker.stdin is not None
            work = {"url": url, "key": create_test_key(), "name": f"{count}-{number}", "seconds": SECONDS}
            worker.stdin.write(json.dumps(work).encode() + b"\n")
        for worker in workers:
            assert worker.stdout is not None
            assert await worker.stdout.readline() == b"ready\n"
        for worker in workers:
            assert worker.stdin is not None
            worker.stdin.write(b"go\n")
        return [step for worker in workers if worker.stdout for step in json.loads(await worker.stdout.readline())]
    finally:
        for worker in workers:
            if worker.returncode is None:
                worker.kill()
            await worker.wait()
