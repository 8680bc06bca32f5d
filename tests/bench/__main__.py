"""`python -m tests.bench [--quick] [--only NAME] [--json]`: prints minimum, median and maximum of each figure."""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import sys
import tempfile
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.bench.rows import ROWS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--only", help="figures whose names begin so", default="")
    parser.add_argument("--json", action="store_true", help="one JSON object instead of a table")
    chosen = parser.parse_args()
    names = [name for name in ROWS if name.startswith(chosen.only)]
    if not names:
        parser.error(f"no figure begins with {chosen.only!r}; there are: {', '.join(ROWS)}")
    figures = {name: measured(ROWS[name], 3 if chosen.quick else 11) for name in names}
    if chosen.json:
        print(json.dumps(figures))
        return 0
    print(f"{'figure':<58}{'minimum':>10}{'median':>10}{'maximum':>10}")
    for name, (least, middle, most) in figures.items():
        print(f"{name:<58}{least:>10.2f}{middle:>10.2f}{most:>10.2f}")
    return 0


def measured(row: Callable[[Path, int], Awaitable[list[float]]], rounds: int) -> tuple[float, float, float]:
    with tempfile.TemporaryDirectory() as folder:
        values = asyncio.run(row(Path(folder), rounds))
    return min(values), statistics.median(values), max(values)


if __name__ == "__main__":
    sys.exit(main())
