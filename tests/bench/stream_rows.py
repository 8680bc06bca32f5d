"""Rows 3 to 5 and "tls": the cost of a streamed event, compared with the SDKs of the providers."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.bench.measure import (
    TREE,
    Bench,
    Figure,
    Unavailable,
    clean_environment,
    compared,
    compared_memory,
    find_reason,
    in_turn,
    ratio,
)
from tests.bench.source import Play, anthropic, argument, responses, source, words

if TYPE_CHECKING:
    from tests.support.hosts import Authority

OURS, LIBRARIES = "thinklsp", "its libraries alone"
PACED = 150.0


async def anthropic_at_full_speed(bench: Bench) -> list[Figure]:
    """Rows 3 and 4."""
    return await _pair(bench, "4", "anthropic", Play(anthropic(("text", words(_count(bench))))), None)


async def openai_at_full_speed(bench: Bench) -> list[Figure]:
    """Rows 3 and 4."""
    return await _pair(bench, "4", "openai", Play(responses(words(_count(bench)))), 0.12)


async def paced(bench: Bench) -> list[Figure]:
    """Row 4, at the speed of a model. Most of the cost is the wake-ups."""
    return await _pair(bench, "4", "anthropic", _paced(bench), None, rounds=5)


async def tls_at_full_speed(bench: Bench) -> list[Figure]:
    """Row "tls": each event is a TLS record, as services do."""
    play = Play(anthropic(("text", words(_count(bench)))))
    return await _pair(bench, "tls", "anthropic", play, None, authority=_make_authority(bench))


async def tls_paced(bench: Bench) -> list[Figure]:
    """Row "tls", at the speed of a model."""
    return await _pair(bench, "tls", "anthropic", _paced(bench), None, rounds=5, authority=_make_authority(bench))


def _count(bench: Bench) -> int:
    return 2_000 if bench.quick else 20_000


def _paced(bench: Bench) -> Play:
    return Play(anthropic(("text", words(300 if bench.quick else 1_000))), PACED)


def _make_authority(bench: Bench) -> Authority:
    """Raises Unavailable if the library that signs certificates is missing."""
    try:
        from tests.support.hosts import Authority
    except ImportError as problem:
        raise Unavailable(f"{problem}. Install it with `pip install cryptography`.") from None
    return Authority(bench.folder / "certificates")


async def _pair(
    bench: Bench,
    row: str,
    sdk: str,
    play: Play,
    most: float | None,
    *,
    rounds: int = 11,
    authority: Authority | None = None,
) -> list[Figure]:
    """Measure thinklsp and an SDK with the same events, over TLS if an authority is given."""
    memory: dict[str, list[float]] = {}
    lengths: set[int] = set()
    is_full_speed = row == "4" and play.pace is None
    context = None if authority is None else authority.server("127.0.0.1")
    trust = {} if authority is None else {"SSL_CERT_FILE": str(authority.bundle)}
    with source(lambda *_: play, context) as service:

        def variant(name: str, who: str) -> Callable[[], Coroutine[Any, Any, float]]:
            async def measure() -> float:
                told = await _client(bench, who, service.url, **trust)
                memory.setdefault(name, []).append(told["memory"])
                lengths.add(told["length"])
                return told["cpu"] / len(play.events) * 1e6

            return measure

        variants = {OURS: variant(OURS, f"thinklsp-{sdk}"), f"{sdk} SDK": variant(f"{sdk} SDK", sdk)}
        if is_full_speed and sdk == "anthropic":
            variants[LIBRARIES] = variant(LIBRARIES, "libraries")
        values, missing = await in_turn(variants, bench.some(rounds))
    assert len(lengths) <= 1, "both have read the same"
    speed = "at full speed" if play.pace is None else f"at {play.pace:.0f}/s"
    if authority is not None:
        speed = f"TLS, {speed}"
    figures = compared(row, f"CPU per event, {speed}", values, missing, {f"{sdk} SDK": most}, unit="µs")
    if is_full_speed and not missing:
        figures.append(compared_memory("3", "memory while streaming", memory, f"{sdk} SDK", most=0.55))
    if LIBRARIES in values:
        figures.append(compared_memory("3", "memory while streaming", memory, LIBRARIES))
    return figures


async def tool_argument(bench: Bench) -> list[Figure]:
    """Row 5: one tool call whose arguments arrive in pieces of 20 bytes."""
    # thinklsp refuses arguments of more than a million characters.
    small, large = (50_000, 200_000) if bench.quick else (200_000, 900_000)
    figures = await _pair(bench, "5", "anthropic", Play(anthropic(("edit_file", argument(small)))), 0.10, rounds=3)
    name = f"tool argument of {small // 1000} KB, CPU per event"
    figures = [replace(figure, name=name) for figure in figures if figure.row == "5"]
    plays = {size: Play(anthropic(("edit_file", argument(size)))) for size in (small, large)}

    def cost(size: int, url: str) -> Callable[[], Coroutine[Any, Any, float]]:
        async def measure() -> float:
            told = await _client(bench, "thinklsp-anthropic", url)
            return told["cpu"] / len(plays[size].events) * 1e6

        return measure

    with source(lambda *_: plays[small]) as first, source(lambda *_: plays[large]) as second:
        costs = {"small": cost(small, first.url), "large": cost(large, second.url)}
        values, missing = await in_turn(costs, bench.some(5))
    if missing:
        raise RuntimeError(f"a tool argument could not be measured: {missing}")
    ours, theirs = values["large"], values["small"]
    growth, name = ratio(ours, theirs), f"the same of {large / 1e6:g} MB, per event"
    return [
        *figures,
        Figure("5", name, "µs", ours, theirs, f"{small // 1000} KB", growth, most=1.2, is_gate=not bench.quick),
    ]


async def _client(bench: Bench, who: str, url: str, **environment: str) -> Any:
    package = who if who in ("anthropic", "openai") else "pygls"
    process = await asyncio.create_subprocess_exec(
        bench.peers.python(package, package), "-m", "tests.bench.stream_clients", who, url,
        cwd=TREE, env=clean_environment(**environment), stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(300):
            output, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        raise
    if process.returncode:
        reason = find_reason(errors.decode(errors="replace"))
        if who not in ("anthropic", "openai"):
            raise RuntimeError(f"{who} could not be measured: {reason}")
        raise Unavailable(f"the {who} SDK could not be measured: {reason}")
    return json.loads(output)
