"""The main loop of the benchmarks: rows run one after the other, and a failed row does not end the run."""

from __future__ import annotations

import gc
import json
import os
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path

from tests.bench.gates import apply_gates
from tests.bench.measure import Bench, Figure, Row, Unavailable, describe
from tests.bench.peers import Peers


@dataclass(frozen=True)
class Part:
    """One function of the benchmarks. `rows`: the rows that it measures. `load` imports the function and can fail."""

    rows: tuple[str, ...]
    name: str
    load: Callable[[], Row]


@dataclass
class Results:
    """The results of a run so far."""

    figures: list[Figure] = field(default_factory=list)

    @property
    def failed(self) -> list[Figure]:
        return [figure for figure in self.figures if figure.failed]

    def sort(self, rows: Sequence[str]) -> None:
        self.figures.sort(key=lambda figure: rows.index(figure.row))

    def save(self, path: Path) -> None:
        """Replace the file atomically, so that it is complete even if the run is interrupted."""
        data = {"figures": [figure.json() for figure in self.figures]}
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_name(f"{path.name}.new")
        draft.write_text(json.dumps(data, indent=1), "utf-8")
        os.replace(draft, path)


def load_part(rows: str, name: str) -> Part:
    """Return a part by its module in this package and its function, for example `start_rows.initialize`."""

    def load() -> Row:
        row = find_row(name)
        # As in the server. Otherwise, garbage collections would scan all loaded libraries during some variants.
        gc.freeze()
        return row

    return Part(tuple(rows.split()), name, load)


def find_row(name: str) -> Row:
    """Import the function of a part. Raises ImportError or AttributeError."""
    module, _, function = name.partition(".")
    row: Row = getattr(import_module(f"tests.bench.{module}"), function)
    return row


async def run_parts(
    parts: Sequence[Part],
    wanted: Collection[str],
    results: Results,
    path: Path,
    *,
    rounds: int,
    quick: bool,
    peers: Peers,
) -> None:
    """Run the parts that measure a wanted row, and save the results after each part."""
    for part in parts:
        if not set(part.rows).isdisjoint(wanted):
            begun = time.monotonic()
            figures = await _run_part(part, rounds=rounds, quick=quick, peers=peers)
            kept = [figure for figure in figures if figure.row in wanted or figure.outcome == "failed"]
            results.figures += apply_gates(kept, quick=quick)
            results.save(path)
            report_progress(part.name, time.monotonic() - begun, kept)


async def _run_part(part: Part, *, rounds: int, quick: bool, peers: Peers) -> list[Figure]:
    try:
        row = part.load()
        with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
            os.mkdir(workspace := os.path.join(folder, "workspace"))
            return await row(Bench(Path(workspace), rounds, quick, peers))
    except Unavailable as problem:
        return [Figure(name, part.name, note=str(problem), outcome="skipped") for name in part.rows]
    except Exception as problem:  # noqa: BLE001 - the other rows must still run
        traceback.print_exc()
        return [Figure(part.rows[0], part.name, note=describe(problem), outcome="failed")]


def report_progress(name: str, seconds: float, figures: Sequence[Figure]) -> None:
    """Print that a part is done, and the figures that could not be measured."""
    print(f"  {name}: {seconds:.0f} s", file=sys.stderr)
    for figure in figures:
        if figure.outcome != "measured":
            beside = f" against {figure.against}" if figure.against else ""
            print(f"    {figure.outcome}: {figure.name}{beside}: {figure.note}", file=sys.stderr)
