"""One run of the soak test: a real server, two providers, the steps, samples, and a `Report` of the result."""

from __future__ import annotations

import asyncio
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from tests.soak.course import FILES, Course, ForgetfulServices
from tests.soak.judges import Sample, complaints, hourly, judge, table, warm
from tests.support.client.actions import ResponseError
from tests.support.epilogue import WITNESSED, check_left_behind, check_store, counted, gauge, percentile, without_counts
from tests.support.outside import Outside, loose_files, server_by, start
from tests.support.watching import seen

_ACTIONS_EVERY = 1.0
# A search for all secrets in all files takes seconds, so it is rare.
_LOOKS_EVERY = 60.0
# The server looks up the edits of documents after a step.
_MOST_COUNTS = 20


@dataclass(frozen=True)
class Plan:
    """The size of a run. `rate`: seconds from one chat to the next. `every`: seconds between samples. `faults`: the
    share of chats with a fault. The run ends after `chats` chats or after `minutes`, whichever is first."""

    minutes: float = 60.0
    chats: int = sys.maxsize
    rate: float = 3.0
    every: float = 10.0
    faults: float = 0.1
    seed: int = 20_261_120


@dataclass
class Report:
    """The result of a run. `wrong`: the failures as sentences. `actions`: the durations of code actions in seconds."""

    samples: list[Sample] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    done: Counter[str] = field(default_factory=Counter)
    actions: list[float] = field(default_factory=list)

    def __str__(self) -> str:
        if not self.samples:
            return "\n".join(self.wrong)
        later = warm(self.samples)
        kinds = ", ".join(f"{name} {count}" for name, count in sorted(self.done.items()))
        growth, whole = (later[-1].gauge.private - sample.gauge.private for sample in (later[0], self.samples[0]))
        milliseconds = [f"{percentile(self.actions, share) * 1000:.1f}" for share in (0.5, 0.99, 1.0)]
        return "\n".join(
            [
                table(self.samples),
                f"done: {kinds}",
                f"code actions: {len(self.actions)}, p50/p99/max {'/'.join(milliseconds)} ms",
                f"after the warm-up: {growth:+.1f} MB, {hourly(later):+.2f} MB in an hour at a chat each 20 s",
                f"over the whole run: {whole:+.1f} MB",
                *(self.wrong or ["nothing is wrong"]),
            ]
        )


async def soak(
    place: Path, plan: Plan, *, env: Mapping[str, str | None] | None = None, say: Callable[[str], None] = lambda _: None
) -> Report:
    """Run a soak test in the folder `place`. `env`: changes of the server's environment. `say` gets each sample."""
    report = Report()
    outside = await start(
        place, provider=ForgetfulServices(), files=FILES, options={"provider": "anthropic"}, env=dict(env or {}),
        connect=server_by(WITNESSED),
    )  # fmt: skip
    try:
        course = Course(outside, random.Random(plan.seed), plan.faults)
        async with _acting(course):
            await _run(outside, course, plan, report, say)
        report.wrong += course.wrong
        report.done, report.actions = course.done, course.actions
        report.wrong += await _end(outside)
        if report.samples:
            report.wrong += judge(report.samples)
    finally:
        await outside.stop()
    return report


@asynccontextmanager
async def _acting(course: Course) -> AsyncIterator[None]:
    """Request code actions one after the other in the background."""

    async def act() -> None:
        while True:
            try:
                await course.act()
            except (TimeoutError, ResponseError) as error:
                course.wrong.append(f"a code action failed: {error}")
            await asyncio.sleep(_ACTIONS_EVERY)

    acting = asyncio.create_task(act())
    try:
        yield
    finally:
        acting.cancel()
        await asyncio.gather(acting, return_exceptions=True)


async def _run(outside: Outside, course: Course, plan: Plan, report: Report, say: Callable[[str], None]) -> None:
    begun = sampled = looked = time.monotonic()
    steps = 0
    while (now := time.monotonic()) < begun + 60 * plan.minutes and steps < plan.chats:
        await course.step()
        steps += 1
        if now - sampled >= plan.every:
            sampled = now
            at_rest = min((sample.count.tasks for sample in report.samples), default=0)
            report.samples.append(await _sample(outside, (now - begun) / 60, steps, at_rest))
            say(table(report.samples[-1:]).splitlines()[-1])
        if now - looked >= _LOOKS_EVERY:
            looked = now
            report.wrong += _look(outside)
        if outside.client.process.returncode is not None:
            report.wrong.append("the server has gone")
            return
        await asyncio.sleep(max(0.0, begun + steps * plan.rate - time.monotonic()))


async def _sample(outside: Outside, minute: float, chats: int, at_rest: int) -> Sample:
    """Take a sample as soon as the server has at most `at_rest` tasks. Tasks that do not end are in the sample."""
    client = outside.client
    for _ in range(_MOST_COUNTS):
        count = await counted(
            lambda: client.process.send_signal(signal.SIGUSR1), lambda: client.stderr.decode(errors="replace"), seen
        )
        if count.tasks <= at_rest:
            break
    return Sample(minute, chats, gauge(client.process.pid), count)


def _look(outside: Outside) -> list[str]:
    """Return leaks and protocol violations since the last call, and clear the recorded traffic."""
    found = [str(leak) for leak in outside.leaks()]
    found += [text[:300] for text in (*outside.client.checker.violations, *outside.provider.violations)]
    outside.client.checker.violations.clear()
    outside.forget()
    assert isinstance(outside.provider, ForgetfulServices)
    outside.provider.forget()
    return found


async def _end(outside: Outside) -> list[str]:
    wrong = []
    code = await outside.client.close()
    if code != 0:
        wrong.append(f"the exit code is {code}")
    wrong += _look(outside)
    wrong += complaints(without_counts(outside.client.stderr.decode(errors="replace")))
    wrong += [f"others can read {name}" for name in loose_files(outside.home / "state")]
    wrong += [outside.held()] if outside.held() else []
    if check_store(outside.home) != "ok":
        wrong.append(f"the store is not sound: {check_store(outside.home)}")
    with suppress(TimeoutError):
        await check_left_behind(outside)
        return wrong
    return [*wrong, "a process was left behind"]
