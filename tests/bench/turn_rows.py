"""Rows 12 and 13: what whole turns cost: tokens that are paid for again, and time beside that of the model."""

from __future__ import annotations

import time
from pathlib import Path

from tests.bench.latency_rows import chat, served
from tests.bench.measure import Bench, Figure
from tests.bench.source import Play, anthropic, source, words
from tests.support.outside import Outside, start
from tests.support.signing_script import Text, Thinking, answer, tool

_FILE = "".join(f"def function_{number}(value):\n    return value + {number}\n\n\n" for number in range(800))
_PACE = 150.0


async def cache(bench: Bench) -> list[Figure]:
    """Row 12, at a service that keeps prefixes as Anthropic's does, and counts."""
    steps, turns = 20, 15 if bench.quick else 50
    read = [
        answer(Thinking(), tool("read_file", path="a.py", start_line=40 * n + 1, end_line=40 * n + 40))
        for n in range(steps - 1)
    ]
    outside = await start(bench.folder / "loop", *read, answer(Text("Done.")), files={"a.py": _FILE})
    try:
        loop = _share([(await outside.turn("thinklsp.chat", {"prompt": "Read all of a.py."}))["usage"]])
    finally:
        await outside.stop()
    talk = (answer(Thinking(), Text(f"Answer {number}. " + "Some words of it. " * 40)) for number in range(turns))
    outside = await start(bench.folder / "session", *talk, files={"a.py": _FILE})
    try:
        session = _share([(await _said(outside, number))["usage"] for number in range(turns)])
    finally:
        await outside.stop()
    return [
        Figure("12", name, value=100 * share, value_unit=" %", least=85.0, is_gate=True, note="of the input tokens")
        for name, share in ((f"cache reads of {steps} steps", loop), (f"cache reads of {turns} turns", session))
    ]


async def _said(outside: Outside, number: int) -> dict[str, dict[str, int]]:
    more = {"sessionId": "last"} if number else {}
    prompt = f"Question {number}. " + "With some words to it. " * 20
    result: dict[str, dict[str, int]] = await outside.turn("thinklsp.chat", {"prompt": prompt} | more)
    return result


def _share(usages: list[dict[str, int]]) -> float:
    """`inputTokens` is the whole input."""
    return sum(usage["cacheReadTokens"] for usage in usages) / sum(usage["inputTokens"] for usage in usages)


async def overhead(bench: Bench) -> list[Figure]:
    """Row 13: from the command to its answer, without the time in which the service spoke or read."""
    steps, count = (5, 60) if bench.quick else (20, 100)
    folder: Path = bench.folder
    (folder / "a.py").write_text(_FILE)

    def play(number: int, _: bytes) -> Play:
        step = number % steps
        if step == steps - 1:
            return Play(anthropic(("text", words(count))), _PACE)
        called = f'{{"path": "a.py", "start_line": {40 * step + 1}, "end_line": {40 * step + 40}}}'
        return Play(anthropic(("text", words(count)), ("read_file", [called])), _PACE)

    shares, lost = [], []
    with source(play) as service, served(folder, service.url) as server:
        for number in range(-1, bench.some(3)):
            service.busy.clear()
            begun = time.perf_counter()
            server.send(chat(number + 10))
            told = server.receive(number + 10)
            wall = time.perf_counter() - begun
            assert "result" in told, told
            assert len(service.busy) == steps, "every step has been asked for"
            # The first turn loads what turns need.
            if number >= 0:
                lost.append((wall - sum(service.busy)) * 1000)
                shares.append(lost[-1] / wall / 10)
    share = sorted(shares)[len(shares) // 2]
    note = f"{sorted(lost)[len(lost) // 2] / steps:.1f} ms a step"
    name = f"own time in a turn of {steps} steps"
    return [Figure("13", name, "ms", lost, value=share, value_unit=" %", most=3.0, note=note)]
