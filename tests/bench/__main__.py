"""All figures, side by side with their peers. Ends with 1 where a count or a growth is too high; ratios of times are
told, and where they are more than half over their target told as missed."""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import platformdirs

from tests.bench import (
    charts,
    document_rows,
    latency_rows,
    own_rows,
    report,
    request_rows,
    search_rows,
    shadow_rows,
    start_rows,
    store_rows,
    stream_rows,
    turn_rows,
    whole_rows,
)
from tests.bench.measure import ROOT, Bench, Figure, Row
from tests.bench.peers import Peers

# In the order of the table; a row may have several parts, and a part tell of several rows.
ROWS: list[tuple[str, Row]] = [
    ("1 3", start_rows.initialize),
    ("2", start_rows.first_code_action),
    ("3 4", stream_rows.full_speed),
    ("4", stream_rows.paced),
    ("5", stream_rows.tool_argument),
    ("6", latency_rows.reports),
    ("7", latency_rows.latency),
    ("8", document_rows.edits),
    ("9", search_rows.search),
    ("10", store_rows.durable),
    ("10", store_rows.loaded),
    ("11", request_rows.body),
    ("11", request_rows.session),
    ("12", turn_rows.cache),
    ("13", turn_rows.overhead),
    ("editor", own_rows.code_action),
    ("editor", own_rows.chat_lenses),
    ("editor", own_rows.begin_and_cancel),
    ("store", store_rows.large),
    ("shadow", shadow_rows.costs),
    ("whole", whole_rows.whole),
]
NAMES = list(dict.fromkeys(name for names, _ in ROWS for name in names.split()))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", metavar="ROW,…", default="", help=f"some of: {', '.join(NAMES)}")
    parser.add_argument("--quick", action="store_true", help="few rounds, small inputs, no peers that are not there")
    parser.add_argument("--rounds", type=int, help="how often each is measured (11; 2 with --quick)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there")
    parser.add_argument("--charts", metavar="DIR", type=Path, help="draw the pictures there")
    parser.add_argument("--readme", action="store_true", help="put table and pictures into README.md and docs/speed")
    parser.add_argument("--cache", metavar="DIR", type=Path, help="where peers are installed")
    chosen = parser.parse_args()
    wanted = set(filter(None, chosen.only.split(","))) or set(NAMES)
    if wanted - set(NAMES):
        parser.error(f"there is no row {', '.join(sorted(wanted - set(NAMES)))}; there are: {', '.join(NAMES)}")
    peers = Peers(chosen.cache or Path(platformdirs.user_cache_dir("thinklsp-bench")), download=not chosen.quick)
    rounds = chosen.rounds or (2 if chosen.quick else 11)
    # As the server does: else now one, now the other would pay for the collector's way through the peers' libraries.
    gc.freeze()
    # Children compile what they import, once, before it counts.
    for name in [name for name in os.environ if name.startswith("PYTHON") and name != "PYTHONPATH"]:
        del os.environ[name]
    figures, series = asyncio.run(_measured(wanted, rounds, chosen.quick, peers))
    print("\n".join(report.table(figures)))
    if chosen.json is not None:
        told = {"figures": [figure.json() for figure in figures], "series": series}
        chosen.json.write_text(json.dumps(told, indent=1), "utf-8")
    if chosen.charts is not None:
        charts.draw(series, chosen.charts)
    if chosen.readme:
        report.written(figures, charts.draw(series, report.pictures_folder()), ROOT / "README.md")
    failed = [figure for figure in figures if figure.failed]
    for figure in failed:
        print(f"FAILED: row {figure.row}, {figure.name}: {figure.value:.3g}{figure.value_unit}", file=sys.stderr)
    return 1 if failed else 0


async def _measured(
    wanted: set[str], rounds: int, quick: bool, peers: Peers
) -> tuple[list[Figure], dict[str, dict[str, list[float]]]]:
    figures: list[Figure] = []
    series: dict[str, dict[str, list[float]]] = {}
    for names, row in ROWS:
        if not wanted & set(names.split()):
            continue
        begun = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            bench = Bench(Path(folder), rounds, quick, peers, series)
            figures += [figure for figure in await row(bench) if figure.row in wanted]
        print(
            f"  {row.__module__.rpartition('.')[2]}.{row.__name__}: {time.monotonic() - begun:.0f} s", file=sys.stderr
        )
    order = {name: number for number, name in enumerate(NAMES)}
    return sorted(figures, key=lambda figure: order[figure.row]), series


if __name__ == "__main__":
    sys.exit(main())
