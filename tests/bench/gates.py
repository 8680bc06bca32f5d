"""Gates: upper limits that fail a run, by the name of the figure and the peer.

The unit is that of the figure's `value`: a ratio if the figure compares two values, else the unit in its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from tests.bench.measure import Figure

GATES: dict[tuple[str, str], float] = {
    ("spawn → initialize", "bare pygls"): 0.10,
    ("spawn → initialize", "Copilot language server"): 0.05,
    ("spawn → first code action", "bare pygls"): 1.05,
    ("memory at initialize", "bare pygls"): 0.30,
    ("memory after the first code action", "bare pygls"): 1.15,
    ("agent: spawn → initialize", "thinklsp --stdio"): 3.0,
    ("agent: memory at initialize", "thinklsp --stdio"): 1.2,
    ("agent: memory after a turn", "thinklsp --stdio"): 1.2,
    ("CPU of a didChange of one key", "bare pygls"): 0.65,
    ("CPU per event, at full speed", "anthropic SDK"): 0.25,
    ("CPU per event, at 150/s", "anthropic SDK"): 0.45,
    ("CPU per event, TLS, at full speed", "anthropic SDK"): 0.22,
    ("CPU per event, TLS, at 150/s", "anthropic SDK"): 0.45,
    # A process that streams with pygls, httpx and pydantic alone uses 0.73 of the SDK's memory.
    ("memory while streaming", "anthropic SDK"): 0.87,
    # In milliseconds.
    ("echo p99 during 5,000 events/s, 8 chats", "idle p99"): 10.0,
}


def apply_gates(figures: Sequence[Figure], *, quick: bool) -> Iterator[Figure]:
    """Set the limits. A quick run only reports an exceeded limit, because two rounds are too few to fail a run."""
    for figure in figures:
        most = GATES.get((figure.name, figure.against))
        yield figure if most is None else replace(figure, most=most, is_gate=not quick)


def find_unused_gates(figures: Sequence[Figure]) -> list[str]:
    """Return the gates without a figure in a complete run, for example because the figure was renamed."""
    found = {(figure.name, figure.against) for figure in figures}
    return [f"{name}, against {peer}" for name, peer in GATES if (name, peer) not in found]
