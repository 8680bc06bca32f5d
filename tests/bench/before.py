"""Comparison of two checkouts: in each round, each row is measured in a process of one tree, then of the other.

Both trees use the interpreter and the libraries of this run.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.bench.measure import ROOT, Figure, Unavailable, clean_environment, find_reason, ratio
from tests.bench.runner import Results, report_progress

# The highest allowed ratio to the value in the other tree.
MOST = 1.15
# Rows that measure a server process. This tree can measure them in another tree that lacks the row.
_OF_PROCESSES = frozenset({"wait", "tls", "change"})
_SECONDS = 3_600.0
_WRONG_USAGE = 2
# The median and the unit of each figure.
Medians = dict[str, tuple[float, str]]


def compare_trees(
    here: Path, there: Path, rows: Sequence[str], results: Results, path: Path, *, rounds: int, quick: bool, cache: Path
) -> None:
    """Measure the rows in both trees and save after each of them. A row that the other tree lacks is skipped."""
    for row in rows:
        begun = time.monotonic()
        options = ["--rounds", "1", "--cache", str(cache), *(["--quick"] if quick else [])]
        taken: dict[Path, list[Medians]] = {here: [], there: []}
        try:
            for number in range(rounds):
                print(f"  row {row}: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
                for tree, medians in taken.items():
                    medians.append(_measure(tree, row, options))
            figures = compare_rounds(row, taken[here], taken[there], there.name, quick=quick)
        except Unavailable as problem:
            figures = [Figure(row, f"row {row}", note=str(problem), outcome="skipped")]
        except (RuntimeError, OSError, subprocess.SubprocessError) as problem:
            figures = [Figure(row, f"row {row}", note=str(problem), outcome="failed")]
        results.figures += figures
        results.save(path)
        report_progress(f"row {row}", time.monotonic() - begun, figures)


def compare_rounds(
    row: str, ours: Sequence[Medians], theirs: Sequence[Medians], name: str, *, quick: bool
) -> list[Figure]:
    """Return a figure for each value that both trees have measured in every round: the ratio of the two."""
    figures = []
    for key, (_, unit) in ours[0].items():
        if all(key in medians for medians in [*ours, *theirs]):
            here, there = ([medians[key][0] for medians in side] for side in (ours, theirs))
            if all(there):
                value = ratio(here, there)
                figures.append(Figure(row, key, unit, here, there, name, value, most=MOST, is_gate=not quick))
    return figures


def read_medians(figures: Sequence[Mapping[str, Any]]) -> Medians:
    """Return the values of thinklsp. Figures that are counts have none: gates check them."""
    medians: Medians = {}
    for figure in figures:
        if figure["ours"] is not None:
            key, found = figure["name"], (figure["ours"][1], figure["unit"])
            # A value that is compared with several peers is one value, unless it was measured separately for each peer.
            if medians.get(key, found) != found:
                key = f"{key} (beside {figure['against']})"
            medians[key] = found
    return medians


def _measure(tree: Path, row: str, options: Sequence[str]) -> Medians:
    """Raises Unavailable if the tree has no such row or the row's tool is missing, RuntimeError if the row failed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "results.json"
        argv = [sys.executable, "-m", "tests.bench", "--only", row, *options, "--json", str(path)]
        done = _run(argv, tree)
        if done.returncode == _WRONG_USAGE:
            if row not in _OF_PROCESSES:
                raise Unavailable(f"the bench in {tree} has no row {row}")
            done = _run(argv, ROOT, BENCH_TREE=str(tree))
        if not path.exists():
            raise RuntimeError(f"the row failed in {tree}: {find_reason(done.stderr)}")
        figures = json.loads(path.read_text("utf-8"))["figures"]
    for figure in figures:
        # The bench of an older tree writes no outcome, and no figures of a row that failed.
        if figure.get("outcome") == "failed":
            raise RuntimeError(f"the row failed in {tree}: {figure['note']}")
    if medians := read_medians(figures):
        return medians
    reasons = [figure["note"] for figure in figures if figure.get("outcome") == "skipped"]
    raise Unavailable(reasons[0] if reasons else "this row measures nothing that can be compared")


def _run(argv: Sequence[str], folder: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        argv, cwd=folder, env=clean_environment(BENCH_ALONE="1", **environment), capture_output=True, text=True,
        timeout=_SECONDS, check=False,
    )  # fmt: skip
