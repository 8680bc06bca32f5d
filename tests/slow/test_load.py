"""Load: many chats at once, limited progress, typing in a large file, thousands of documents.

The limits are five times the promised values, because the machine may be busy.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.bench.source import build_prompt, build_text
from tests.slow.running import SLACK, Tally, needs_proc, planted, running, say
from tests.slow.steady_provider import SteadyProvider
from tests.support.client.actions import Request, ResponseError
from tests.support.client.raw import RawClient
from tests.support.epilogue import Gauge, gauge, percentile
from tests.support.outside import Outside
from tests.support.sizes import sized
from tests.support.watching import seen

pytestmark = [needs_proc, pytest.mark.timing]
# The promised milliseconds of an echo.
ECHO = {"p50": 5, "p99": 50, "max": 250}
# The promised milliseconds until the first progress, if 32 turns begin at once.
FIRST = 500
SECONDS = sized(commit=5, nightly=20)
PACE = 20


@asynccontextmanager
async def loaded(place: Path, plant: str = "", finish: bool = True) -> AsyncIterator[Outside]:
    how: Any = {"provider": SteadyProvider(), "env": planted(plant), "files": {"a.py": "x = 1\n"}}
    async with running(place, finish=finish, **how) as outside:
        await outside.turn("thinklsp.chat", {"prompt": build_prompt(1, 1)})
        yield outside


async def echo(client: RawClient) -> float:
    """Return the milliseconds until the answer, with our own reading."""
    at = time.perf_counter()
    with pytest.raises(ResponseError):
        await client.request("thinklsp/echo", {})
    return (time.perf_counter() - at) * 1000


async def echoes(client: RawClient, work: Sequence[Request]) -> list[float]:
    """Send 50 echoes a second until all requests are answered."""
    values = []
    while not all(request.answered for request in work):
        values.append(await echo(client))
        await asyncio.sleep(0.02)
    return values


def told(values: list[float]) -> dict[str, float]:
    return {"p50": percentile(values, 0.5), "p99": percentile(values, 0.99), "max": max(values)}


def too_slow(values: list[float], promised: dict[str, int]) -> list[str]:
    limits = {name: SLACK * milliseconds for name, milliseconds in promised.items()}
    return [f"{name}: {value:.0f} ms" for name, value in told(values).items() if value > limits.get(name, value)]


def share(before: Gauge, after: Gauge) -> float:
    return 100 * (after.processor - before.processor) / (after.at - before.at)


def chats(outside: Outside, count: int, events: int, name: str = "") -> list[Request]:
    arguments = [{"prompt": build_prompt(events, PACE), "partialResultToken": f"text-{name}{n}"} for n in range(count)]
    return [
        outside.client.command("thinklsp.chat", argument, token=f"work-{name}{n}")
        for n, argument in enumerate(arguments)
    ]


async def streaming(outside: Outside, count: int = 32) -> tuple[list[str], list[float], str]:
    """Return the failures, the echoes, and a summary."""
    client, events = outside.client, 1000 // PACE * SECONDS
    before = gauge(client.process.pid)
    asked = time.monotonic()
    running_chats = chats(outside, count, events)
    measured = await echoes(client, running_chats)
    results = [await chat for chat in running_chats]
    after = gauge(client.process.pid)
    wrong = [f"chat {n} says less" for n, result in enumerate(results) if result["text"] != build_text(events)]
    by_token: dict[str, list[Any]] = {}
    for progress in client.calls("$/progress"):
        by_token.setdefault(progress.params["token"], []).append(progress)
    for n in range(count):
        text = "".join(p.params["value"]["delta"] for p in by_token[f"text-{n}"] if p.params["value"]["kind"] == "text")
        if text != build_text(events):
            wrong.append(f"chat {n} shows less")
        waited = 1000 * (by_token[f"work-{n}"][0].at - asked)
        if waited > SLACK * FIRST:
            wrong.append(f"chat {n} is first heard of after {waited:.0f} ms")
        reports = [p.at for p in by_token[f"work-{n}"] if p.params["value"]["kind"] == "report"]
        if (most := most_in(1.0, reports)) > 10 + SLACK:
            wrong.append(f"chat {n} reports {most} times in a second")
    everything = sum(map(len, by_token.values())) / (after.at - before.at)
    said = f"{count} chats, {events} events each: echo {told(measured)}, {share(before, after):.0f} % of a processor"
    return wrong, measured, f"{said}, {everything:.0f} progresses a second, {len(measured)} echoes"


def most_in(seconds: float, at: list[float]) -> int:
    return max((sum(1 for other in at if start <= other < start + seconds) for start in at), default=0)


async def test_32_chats_at_once(tmp_path: Path, tally: Tally) -> None:
    async with loaded(tmp_path) as outside:
        wrong, measured, said = await streaming(outside)
    say(said)
    assert wrong == []
    assert too_slow(measured, ECHO) == [], said
    tally("A-30", 2)


@pytest.mark.parametrize(
    ("plant", "found"),
    [("lost text", "shows less"), ("flood", "reports"), ("late", "first heard"), ("stuck loop", "max")],
)
async def test_a_fault_that_was_planted_is_noticed(tmp_path: Path, plant: str, found: str) -> None:
    async with loaded(tmp_path, plant, finish=False) as outside:
        wrong, measured, said = await streaming(outside)
    assert [sentence for sentence in (*wrong, *too_slow(measured, ECHO)) if found in sentence], said


async def test_typing_in_a_large_document_during_8_chats(tmp_path: Path, tally: Tally) -> None:
    """A-L5: a key every 150 ms with an echo after each; a short run does not wait between keys."""
    keys, pause = sized(commit=300, nightly=4_000), sized(commit=0, nightly=150) / 1000
    text = "".join(f"def function_{number}(value):\n    return value + {number}\n\n\n" for number in range(40_000))
    async with loaded(tmp_path) as outside:
        client = outside.client
        uri = client.open(outside.uri("large.py"), text)
        running_chats: list[Request] = []
        values = []
        for number in range(keys):
            if all(chat.answered for chat in running_chats):
                running_chats = chats(outside, 8, 1000 // PACE * SECONDS, f"{number}-")
            place = {"line": 4 * (number % 40_000), "character": 4}
            key = {"range": {"start": place, "end": place}, "text": "x"}
            version = {"uri": uri, "version": number + 2}
            client.notify("textDocument/didChange", {"textDocument": version, "contentChanges": [key]})
            values.append(await echo(client))
            await asyncio.sleep(pause)
        await echoes(client, running_chats)
        assert b"out of sync" not in client.stderr
    say(f"{keys} keys in {len(text) / 1e6:.1f} MB during 8 chats: {told(values)} ms")
    assert too_slow(values, {"p99": 20}) == []
    tally("A-30", 1)


async def test_a_large_document_leaves_nothing_when_it_is_closed(tmp_path: Path) -> None:
    """H-F21."""
    text = "def function(value):\n    return value + 1\n\n\n" * 400_000
    async with loaded(tmp_path) as outside:
        client = outside.client
        before = gauge(client.process.pid)
        for _ in range(3):
            uri = client.open(outside.uri("large.py"), text)
            await echo(client)
            client.close_document(uri)
            await echo(client)
        await seen(lambda: gauge(client.process.pid).private < before.private + 10, what="memory as it was")


async def test_thousands_of_documents(tmp_path: Path, tally: Tally) -> None:
    """A-L6: documents one after the other, then many at once, twice: the second time reuses the memory of the first."""
    times, at_once = sized(commit=2_000, nightly=10_000), sized(commit=1_500, nightly=5_000)
    text = "".join(f"value_{n} = {n}\n" for n in range(300))
    async with loaded(tmp_path) as outside:
        client = outside.client

        async def come_and_go(count: int, together: int) -> Gauge:
            for start in range(0, count, together):
                uris = [client.open(outside.uri(f"d{n}.py"), text) for n in range(start, min(count, start + together))]
                await echo(client)
                full = gauge(client.process.pid)
                for uri in uris:
                    client.close_document(uri)
                await echo(client)
            return full

        await come_and_go(500, 50)
        before = gauge(client.process.pid)
        at = time.perf_counter()
        await come_and_go(times, 1)
        each = (time.perf_counter() - at) / times * 1000
        full = await come_and_go(at_once, at_once)
        first = gauge(client.process.pid)
        await come_and_go(at_once, at_once)
        second = gauge(client.process.pid)
    say(
        f"{times} opened and closed, {each:.2f} ms each; {at_once} open: {before.resident:.1f} MB, {full.resident:.1f} "
        f"MB with them, {first.resident:.1f} MB without, {second.resident:.1f} MB after another time"
    )
    assert second.resident < 1.1 * first.resident
    size = at_once * len(text) / 1e6
    assert size / 2 < full.private - before.private < 4 * size
    assert first.private - before.private < 4 * size
    tally("A-30", 1)
