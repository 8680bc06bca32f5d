"""Rows 6 and 7: the rate of progress reports, and the latency of requests, while models stream. Row "editor", for
information: response times of the server."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from tests.bench.lockstep import Lockstep
from tests.bench.measure import ROOT, TREE, Bench, Figure, clean_environment, elapsed, ratio
from tests.bench.source import MODEL, Source
from tests.support.client.documents import range_of
from tests.support.outside import Outside, diagnostic, start
from tests.support.signing_server import Hold, Script, Text, Thinking, answer
from thinklsp.core.import_context import reduce_gc

SPEED = 5_000.0
CHATS = 8


@contextmanager
def talking(count: int, pace: float) -> Iterator[str]:
    """Run a service that answers each request with `count` events, `pace` per second. Yield its address."""
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.bench.source", str(count), str(pace)],
        cwd=ROOT, env=clean_environment(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        yield process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate()


def served(folder: Path, url: str, *, argv: list[str] | None = None, **environment: str) -> Lockstep:
    """Start a thinklsp server and load its engine."""
    given = {"ANTHROPIC_API_KEY": "key", "ANTHROPIC_BASE_URL": url, "THINKLSP_MODEL": MODEL} | environment
    server = Lockstep(argv or [sys.executable, "-m", "thinklsp"], folder, **given)
    server.initialize()
    server.first_code_action()
    server.ask({"id": 3, "method": "workspace/executeCommand", "params": {"command": "thinklsp.effort"}})
    return server


def chat(identity: int, prompt: str = "Go on.", **more: Any) -> dict[str, Any]:
    arguments = {"prompt": prompt, "partialResultToken": f"partial-{identity}"} | more
    params = {"command": "thinklsp.chat", "arguments": [arguments], "workDoneToken": f"work-{identity}"}
    return {"id": identity, "method": "workspace/executeCommand", "params": params}


def timed_turn(server: Lockstep, service: Source, number: int, steps: int, **more: Any) -> tuple[float, float]:
    """Run a turn. Return its milliseconds, and those in which the service was not busy."""
    service.busy.clear()
    begun = time.perf_counter()
    server.ask(chat(number, **more))
    wall = time.perf_counter() - begun
    assert len(service.busy) == steps, "every step has been asked for"
    return wall * 1000, (wall - sum(service.busy)) * 1000


async def reports(bench: Bench) -> list[Figure]:
    """Row 6: the number of progress reports per second during one turn that streams at full speed."""
    count = int(SPEED) * (1 if bench.quick else 3)
    with talking(count, SPEED) as url, served(bench.folder, url) as server:
        server.ask(chat(10))
        reports = [at for at, message in server.passed if _kind(message, "work-10") == "report"]
        partials = [at for at, message in server.passed if _kind(message, "partial-10") == "text"]
    # On a busy machine the events take longer than planned.
    seconds = max(count / SPEED, reports[-1] - reports[0])
    note = f"and {len(partials) / seconds:.1f} pieces of text per second, {count:,} events"
    name, value = f"reports at {SPEED:,.0f} events/s", len(reports) / seconds
    return [Figure("6", name, value=value, value_unit="/s", most=10.0, is_gate=True, note=note)]


def _kind(message: Any, token: str) -> str:
    if message.get("method") != "$/progress" or message["params"]["token"] != token:
        return ""
    return str(message["params"]["value"].get("kind"))


async def latency(bench: Bench) -> list[Figure]:
    """Row 7: the p99 of requests and the longest block of the event loop, during several chats."""
    rounds = 60 if bench.quick else 400
    count = int(SPEED) * (2 if bench.quick else 6) // CHATS
    blocks = bench.folder / "blocks"
    argv = [sys.executable, str(Path(__file__).parent / "servers" / "watched.py")]
    figures, worst = [], 0.0
    with (
        talking(count, SPEED / CHATS) as url,
        served(bench.folder, url, argv=argv, BLOCKS=str(blocks), PYTHONPATH=str(TREE)) as server,
        # A garbage collection in this process would add to the measured latency.
        reduce_gc(),
    ):
        # The first turn loads the modules of a turn.
        server.ask(chat(10))
        _asked(server, 20)
        idle = _asked(server, rounds)
        begun = time.monotonic()
        busy: dict[str, list[float]] = {name: [] for name in idle}
        identities = range(100_000, 100_000 + CHATS)
        while len(busy["echo"]) < rounds:
            server.send(*(chat(number) for number in identities))
            while any(number not in server.answered for number in identities):
                for name, taken in _asked(server, 1).items():
                    busy[name] += taken
            lengths = {len(server.answered[number]["result"]["text"]) for number in identities}
            assert len(lengths) == 1, "every event of every chat has arrived"
            identities = range(identities.stop, identities.stop + CHATS)
        ended = time.monotonic()
        server.send({"id": 9, "method": "shutdown"}, {"method": "exit"})
        server.process.wait(30)
    for line in blocks.read_text().splitlines():
        at, taken = map(float, line.split())
        if begun <= at <= ended:
            worst = max(worst, taken)
    for name, taken in busy.items():
        quiet = _p99(idle[name])
        note = f"p50 {statistics.median(taken):.2f}, idle p50 {statistics.median(idle[name]):.2f} ms"
        # The gate of an echo is in milliseconds, because an idle echo takes only a fraction of one.
        value, unit, most = (_p99(taken), " ms", None) if name == "echo" else (_p99(taken) / quiet, "x", 3.0)
        figures.append(
            Figure("7", f"{name} p99 during {SPEED:,.0f} events/s, {CHATS} chats", "ms", [_p99(taken)], [quiet],
                   "idle p99", value, unit, most=most, note=note)
        )  # fmt: skip
    note = "processor time of one callback"
    return [*figures, Figure("7", "longest block of the loop", value=worst, value_unit=" ms", most=10.0, note=note)]


def _asked(server: Lockstep, rounds: int) -> dict[str, list[float]]:
    """Return the milliseconds from each request to its answer. A short pause separates the requests."""
    taken: dict[str, list[float]] = {"echo": [], "code action": []}
    for _ in range(rounds):
        for name, message in (
            ("echo", {"method": "bench/echo", "params": {}}),
            ("code action", server.code_action_request("a.py")),
        ):
            identity = server.next_id()
            begun = time.perf_counter()
            server.send({"id": identity} | message)
            server.receive(identity)
            taken[name].append((time.perf_counter() - begun) * 1000)
            time.sleep(0.004)
    return taken


def _p99(values: list[float]) -> float:
    return sorted(values)[min(len(values) - 1, round(0.99 * len(values)))]


LARGE = "".join(f"def function_{number}(value):\n    return value + {number}\n\n\n" for number in range(20_000))


@asynccontextmanager
async def opened(folder: Path, *script: Script, **more: Any) -> AsyncIterator[Outside]:
    """Run a server with an editor and a scripted service."""
    outside = await start(folder, *script, **more)
    try:
        yield outside
    finally:
        await outside.stop()


async def code_action(bench: Bench) -> list[Figure]:
    """Measure code actions with ten diagnostics, from request to answer, including the cost of the client."""
    async with opened(bench.folder, files={"large.py": LARGE}) as outside:
        uri = outside.open("large.py")
        problems = [diagnostic(LARGE, f"function_{number}(", "something is wrong") for number in range(10)]
        values = []
        for number in range(bench.rounds * 20):
            place = range_of(LARGE, f"function_{number}(")
            values.append(await elapsed(outside.client.code_actions(uri, place, diagnostics=problems)))
    return [Figure("editor", "code action, 80,000 lines, 10 diagnostics", "ms", values)]


async def first_code_action_by_size(bench: Bench) -> list[Figure]:
    """Measure the first code action in a file. The large file is split into lines for it."""
    large, small, rounds = LARGE, "".join(LARGE.splitlines(keepends=True)[:100]), max(bench.rounds, 7)
    taken: dict[str, list[float]] = {large: [], small: []}
    with served(bench.folder, "http://127.0.0.1:9") as server:
        for number in range(-1, rounds):
            for text, values in taken.items():
                name = f"{number}-{len(text)}.py"
                document = {"uri": (bench.folder / name).as_uri(), "languageId": "python", "version": 1, "text": text}
                server.send({"method": "textDocument/didOpen", "params": {"textDocument": document}})
                server.ask(
                    {
                        "id": server.next_id(),
                        "method": "workspace/executeCommand",
                        "params": {"command": "thinklsp.effort"},
                    }
                )
                begun = time.perf_counter()
                server.ask({"id": server.next_id()} | server.code_action_request(name))
                if number >= 0:
                    values.append((time.perf_counter() - begun) * 1000)
    name, value = "first code action, 80,000 lines", ratio(taken[large], taken[small])
    return [Figure("editor", name, "ms", taken[large], taken[small], "100 lines", value, most=2.0)]


async def begin_and_cancel(bench: Bench) -> list[Figure]:
    """Measure the time from a command to its progress `begin`, and from `$/cancelRequest` to the closed connection."""
    holds = [Hold() for _ in range(bench.rounds)]
    begins, cancels = [], []
    async with opened(bench.folder, *(answer(Thinking("…"), hold, Text("never")) for hold in holds)) as outside:
        for number, hold in enumerate(holds):
            token = f"bench-{number}"
            begun = time.perf_counter()
            request = outside.client.command("thinklsp.chat", {"prompt": "Hello"}, token=token)
            await outside.client.wait_for(lambda token=token: outside.client.progress(token))
            begins.append((time.perf_counter() - begun) * 1000)
            await hold.reached.wait()
            cancelled, seen = time.monotonic(), outside.provider.requests[-1]
            outside.client.cancel(request)
            closed = await outside.provider.wait_for(lambda seen=seen: seen.closed_at)
            cancels.append((closed - cancelled) * 1000)
            await outside.client.wait_for(lambda request=request: request.answered)
    return [
        Figure("editor", "command to progress begin", "ms", begins),
        Figure("editor", "cancel to closed provider connection", "ms", cancels),
    ]
