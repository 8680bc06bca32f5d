"""Rows 1 to 3 and "wait": the time from the spawn to the first answers, and the memory at that time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from tests.bench.lockstep import Lockstep
from tests.bench.measure import Bench, Figure, compared, compared_memory, in_turn

OURS, BARE, HAND = "thinklsp", "bare pygls", "hand-written stdio"
PYLSP, JEDI, RUFF = "python-lsp-server", "jedi-language-server", "ruff server"
PYRIGHT, COPILOT = "pyright", "Copilot language server"
# The delay of the request in seconds, and the maximum wait in milliseconds. VS Code requests code actions 0.25 s after
# a change. The import of the protocol library can take about 0.5 s.
DELAYS: dict[float, float | None] = {0.0: None, 0.25: None, 0.5: 60.0, 1.0: 60.0}


def _servers(bench: Bench) -> dict[str, Callable[[], list[str]]]:
    peers = bench.peers
    return _bare_servers(bench) | {
        HAND: lambda: peers.script("by_hand.py"),
        PYLSP: lambda: [peers.python("python-lsp-server", "pylsp"), "-m", "pylsp"],
        JEDI: lambda: [peers.program("jedi-language-server", "jedi_language_server")],
        RUFF: lambda: [peers.program("ruff", "ruff"), "server"],
        PYRIGHT: lambda: [*peers.node("pyright", "langserver.index.js"), "--stdio"],
        COPILOT: lambda: [
            *peers.node("@github/copilot-language-server", "dist/language-server.js"), "--stdio",
        ],
    }  # fmt: skip


def _bare_servers(bench: Bench) -> dict[str, Callable[[], list[str]]]:
    return {OURS: bench.peers.ours, BARE: lambda: bench.peers.script("bare_pygls.py")}


def _starts(
    bench: Bench, servers: Mapping[str, Callable[[], list[str]]], use: Callable[[Lockstep], float]
) -> tuple[dict[str, Callable[[], float]], dict[str, list[float]]]:
    """Return for each server a function that starts it, initializes it and measures its use, and the memory by name."""
    memory: dict[str, list[float]] = {}

    def start(name: str, argv: Callable[[], list[str]]) -> Callable[[], float]:
        def measure() -> float:
            with Lockstep(argv(), bench.folder / name.replace(" ", "-")) as server:
                server.initialize()
                taken = use(server)
                memory.setdefault(name, []).append(server.resident)
            return taken

        return measure

    return {name: start(name, argv) for name, argv in servers.items()}, memory


async def initialize(bench: Bench) -> list[Figure]:
    """Rows 1 and 3: time and memory of the same starts."""
    starts, memory = _starts(bench, _servers(bench), lambda server: server.elapsed)
    values, missing = await in_turn(starts, bench.rounds)
    targets = {BARE: None, HAND: 1.5, PYLSP: 0.25, COPILOT: None, PYRIGHT: 0.2, JEDI: 0.06, RUFF: None}
    figures = compared("1", "spawn → initialize", values, missing, targets)
    return figures + [compared_memory("3", "memory at initialize", memory, BARE)] * (BARE in values)


async def first_code_action(bench: Bench) -> list[Figure]:
    """Rows 2 and 3: time and memory of the same starts."""

    def act(server: Lockstep) -> float:
        answer = server.first_code_action()
        taken = server.elapsed
        assert answer["result"], answer
        return taken

    starts, memory = _starts(bench, _bare_servers(bench), act)
    values, missing = await in_turn(starts, bench.rounds)
    figures = compared("2", "spawn → first code action", values, missing, {BARE: None})
    return figures + [compared_memory("3", "memory after the first code action", memory, BARE)] * (BARE in values)


async def wait_for_code_action(bench: Bench) -> list[Figure]:
    """Row "wait": the latency of a code action that is requested some time after the answer to `initialize`."""
    figures = []
    for delay, most in DELAYS.items():

        def act(server: Lockstep, delay: float = delay) -> float:
            begun = time.perf_counter()
            answer = server.first_code_action(delay)
            taken = (time.perf_counter() - begun - delay) * 1000
            assert answer["result"], answer
            return taken

        values, missing = await in_turn(_starts(bench, _bare_servers(bench), act)[0], bench.some(5))
        name = f"first code action, requested {delay:g} s after `initialize`"
        for figure in compared("wait", name, values, missing, {BARE: None}):
            waited = statistics.median(figure.ours)
            figures.append(replace(figure, value=waited, value_unit=" ms", most=most))
    return figures
