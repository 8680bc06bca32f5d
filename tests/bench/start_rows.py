"""Rows 1 to 3 and "wait": from the spawn to the first answers, and what lies in memory then."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from dataclasses import replace

from tests.bench.lockstep import Lockstep
from tests.bench.measure import Bench, Figure, compared, in_turn, ratio

OURS, BARE, HAND = "thinklsp", "bare pygls", "hand-written stdio"
PYLSP, JEDI, RUFF = "python-lsp-server", "jedi-language-server", "ruff server"
PYRIGHT, COPILOT = "pyright", "Copilot language server"
# Seconds of delay, and the milliseconds that an action may wait. VS Code asks 0.25 s after a change; the import of the
# protocol library may take about 0.5 s.
DELAYS: dict[float, float | None] = {0.0: None, 0.25: None, 0.5: 60.0, 1.0: 60.0}


def _servers(bench: Bench) -> dict[str, Callable[[], list[str]]]:
    peers = bench.peers
    return {
        OURS: peers.ours,
        BARE: lambda: peers.script("bare_pygls.py"),
        HAND: lambda: peers.script("by_hand.py"),
        PYLSP: lambda: [peers.python("python-lsp-server", "pylsp"), "-m", "pylsp"],
        JEDI: lambda: [peers.program("jedi-language-server", "jedi_language_server")],
        RUFF: lambda: [peers.program("ruff", "ruff"), "server"],
        PYRIGHT: lambda: [*peers.node("pyright", "langserver.index.js"), "--stdio"],
        COPILOT: lambda: [
            *peers.node("@github/copilot-language-server", "dist/language-server.js"), "--stdio",
        ],
    }  # fmt: skip


async def initialize(bench: Bench) -> list[Figure]:
    """Rows 1 and 3: time and memory of the same starts."""
    memory: dict[str, list[float]] = {}

    def start(name: str, argv: Callable[[], list[str]]) -> Callable[[], float]:
        def measure() -> float:
            with Lockstep(argv(), bench.folder / name.replace(" ", "-")) as server:
                server.initialize()
                taken = server.elapsed
                memory.setdefault(name, []).append(server.resident)
            return taken

        return measure

    servers = _servers(bench)
    values, missing = await in_turn({name: start(name, argv) for name, argv in servers.items()}, bench.rounds)
    bench.series["start"] = {name: list(taken) for name, taken in values.items()}
    targets = {BARE: None, HAND: 1.5, PYLSP: 0.25, COPILOT: None, PYRIGHT: 0.2, JEDI: 0.06, RUFF: None}
    figures = compared("1", "spawn → initialize", values, missing, targets)
    # The first start of each did not count.
    memory = {name: sizes[1:] for name, sizes in memory.items()}
    if BARE in values:
        found = ratio(memory[OURS], memory[BARE])
        figures.append(Figure("3", "memory at initialize", "MB", memory[OURS], memory[BARE], BARE, found))
    return figures


async def first_code_action(bench: Bench) -> list[Figure]:
    """Rows 2 and 3: time and memory of the same starts."""
    memory: dict[str, list[float]] = {}

    def start(name: str, argv: list[str]) -> Callable[[], float]:
        def measure() -> float:
            with Lockstep(argv, bench.folder / name.replace(" ", "-")) as server:
                server.initialize()
                answer = server.first_code_action()
                taken = server.elapsed
                memory.setdefault(name, []).append(server.resident)
                assert answer["result"], answer
            return taken

        return measure

    variants = {OURS: bench.peers.ours(), BARE: bench.peers.script("bare_pygls.py")}
    values, missing = await in_turn({name: start(name, argv) for name, argv in variants.items()}, bench.rounds)
    bench.series["first code action"] = {name: list(taken) for name, taken in values.items()}
    figures = compared("2", "spawn → first code action", values, missing, {BARE: None})
    if BARE in values:
        ours, theirs = memory[OURS][1:], memory[BARE][1:]
        name = "memory after the first code action"
        figures.append(Figure("3", name, "MB", ours, theirs, BARE, ratio(ours, theirs)))
    return figures


async def wait_for_code_action(bench: Bench) -> list[Figure]:
    """Row "wait": how long an action waits that is requested so many seconds after the answer to `initialize`."""

    def start(name: str, argv: list[str], delay: float) -> Callable[[], float]:
        def measure() -> float:
            with Lockstep(argv, bench.folder / name.replace(" ", "-")) as server:
                server.initialize()
                begun = time.perf_counter()
                answer = server.first_code_action(delay)
                taken = (time.perf_counter() - begun - delay) * 1000
                assert answer["result"], answer
            return taken

        return measure

    figures = []
    servers = {OURS: bench.peers.ours(), BARE: bench.peers.script("bare_pygls.py")}
    for delay, most in DELAYS.items():
        variants = {name: start(name, argv, delay) for name, argv in servers.items()}
        values, missing = await in_turn(variants, bench.some(5))
        name = f"first code action, requested {delay:g} s after `initialize`"
        for figure in compared("wait", name, values, missing, {BARE: None}):
            waited = statistics.median(figure.ours)
            figures.append(replace(figure, value=waited, value_unit=" ms", most=most))
    return figures
