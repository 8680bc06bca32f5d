"""Rows 6 and 7: what an editor is told and how fast it is answered while models talk."""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.bench.lockstep import Lockstep
from tests.bench.measure import ROOT, TREE, Bench, Figure, clean_environment
from tests.bench.source import MODEL
from thinklsp.core.loading import uncollected

SPEED = 5_000.0
CHATS = 8


@contextmanager
def talking(count: int, pace: float) -> Iterator[str]:
    """A service that answers every request with so many events; its address."""
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
    """Our server, with its engine loaded."""
    given = {"ANTHROPIC_API_KEY": "key", "ANTHROPIC_BASE_URL": url, "THINKLSP_MODEL": MODEL} | environment
    server = Lockstep(argv or [sys.executable, "-m", "thinklsp"], folder, **given)
    server.initialize()
    server.first_code_action()
    server.send({"id": 3, "method": "workspace/executeCommand", "params": {"command": "thinklsp.effort"}})
    assert "result" in server.receive(3)
    return server


def chat(identity: int, prompt: str = "Go on.", **more: Any) -> dict[str, Any]:
    arguments = {"prompt": prompt, "partialResultToken": f"partial-{identity}"} | more
    params = {"command": "thinklsp.chat", "arguments": [arguments], "workDoneToken": f"work-{identity}"}
    return {"id": identity, "method": "workspace/executeCommand", "params": params}


async def reports(bench: Bench) -> list[Figure]:
    """Row 6: a count, for one turn that streams at full tilt."""
    count = int(SPEED) * (1 if bench.quick else 3)
    with talking(count, SPEED) as url, served(bench.folder, url) as server:
        server.send(chat(10))
        answer = server.receive(10)
        assert "result" in answer, answer
        reports = [at for at, message in server.passed if _kind(message, "work-10") == "report"]
        partials = [at for at, message in server.passed if _kind(message, "partial-10") == "text"]
    # A busy machine takes longer for them than they should have taken.
    seconds = max(count / SPEED, reports[-1] - reports[0])
    note = f"and {len(partials) / seconds:.1f} pieces of text per second, {count:,} events"
    value = len(reports) / seconds
    return [
        Figure(
            "6", f"reports at {SPEED:,.0f} events/s", value=value, value_unit="/s", most=10.0, is_gate=True, note=note
        )
    ]


def _kind(message: Any, token: str) -> str:
    if message.get("method") != "$/progress" or message["params"]["token"] != token:
        return ""
    return str(message["params"]["value"].get("kind"))


async def latency(bench: Bench) -> list[Figure]:
    """Row 7."""
    rounds = 60 if bench.quick else 400
    count = int(SPEED) * (2 if bench.quick else 6) // CHATS
    blocks = bench.folder / "blocks"
    argv = [sys.executable, str(Path(__file__).parent / "servers" / "watched.py")]
    figures, worst = [], 0.0
    with (
        talking(count, SPEED / CHATS) as url,
        served(bench.folder, url, argv=argv, BLOCKS=str(blocks), PYTHONPATH=str(TREE)) as server,
        # Our own collector would be counted as the server's.
        uncollected(),
    ):
        # The first turn loads what turns need.
        server.send(chat(10))
        assert "result" in server.receive(10)
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
        # An echo has a gate in milliseconds, since an idle echo takes a fraction of one.
        value, unit, most = (_p99(taken), " ms", None) if name == "echo" else (_p99(taken) / quiet, "x", 2.0)
        figures.append(
            Figure("7", f"{name} p99 during {SPEED:,.0f} events/s, {CHATS} chats", "ms", [_p99(taken)], [quiet],
                   "idle p99", value, unit, most=most, note=note)
        )  # fmt: skip
    note = "processor time of one callback"
    return [*figures, Figure("7", "longest block of the loop", value=worst, value_unit=" ms", most=10.0, note=note)]


def _asked(server: Lockstep, rounds: int) -> dict[str, list[float]]:
    """Milliseconds from the request to the answer. Between two a moment passes, as with a person."""
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
