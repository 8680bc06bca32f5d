"""Measure thinklsp and comparable programs. A row whose tool is missing is skipped. The exit code is 1 if a row could
not be measured or exceeds a gate. A target that is exceeded is only reported: up to 1.5 times as "near", above that as
"missed"."""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
from pathlib import Path

import platformdirs

from tests.bench import report
from tests.bench.before import compare_trees
from tests.bench.gates import find_unused_gates
from tests.bench.measure import ROOT
from tests.bench.peers import Peers
from tests.bench.runner import Results, load_part, run_parts

# In the order of the table; a row may have several parts, and a part may fill several rows.
PARTS = [
    load_part("1 3", "start_rows.initialize"),
    load_part("2 3", "start_rows.first_code_action"),
    load_part("wait", "start_rows.wait_for_code_action"),
    load_part("agent", "agent_rows.initialize"),
    load_part("agent", "agent_rows.first_turn"),
    load_part("agent", "agent_rows.replay"),
    load_part("4 3", "stream_rows.anthropic_at_full_speed"),
    load_part("4 3", "stream_rows.openai_at_full_speed"),
    load_part("4", "stream_rows.paced"),
    load_part("tls", "stream_rows.tls_at_full_speed"),
    load_part("tls", "stream_rows.tls_paced"),
    load_part("5", "stream_rows.tool_argument"),
    load_part("6", "latency_rows.reports"),
    load_part("7", "latency_rows.latency"),
    load_part("change", "document_rows.type_keys"),
    load_part("8", "document_rows.edits"),
    load_part("9", "search_rows.search"),
    load_part("9", "search_rows.list_files"),
    load_part("10", "store_rows.durable"),
    load_part("10", "store_rows.loaded"),
    load_part("11", "turn_rows.body"),
    load_part("11", "turn_rows.session"),
    load_part("12", "turn_rows.cache"),
    load_part("13", "turn_rows.overhead"),
    load_part("13", "turn_rows.growth"),
    load_part("13", "turn_rows.applied"),
    load_part("editor", "latency_rows.code_action"),
    load_part("editor", "latency_rows.first_code_action_by_size"),
    load_part("editor", "latency_rows.begin_and_cancel"),
    load_part("team", "postgres_rows.steps"),
    load_part("shadow", "search_rows.costs"),
]
ROWS = list(dict.fromkeys(row for part in PARTS for row in part.rows))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.bench", description=__doc__)
    parser.add_argument("--only", metavar="ROW,…", default="", help=f"some of: {', '.join(ROWS)}")
    parser.add_argument("--quick", action="store_true", help="few rounds and small inputs; install nothing")
    parser.add_argument("--rounds", type=int, help="rounds of measurement (default 11, or 2 with --quick)")
    parser.add_argument("--json", metavar="FILE", type=Path, help="write the figures there, after every row")
    parser.add_argument("--docs", action="store_true", help="write the table of docs/performance.md")
    parser.add_argument("--cache", metavar="DIR", type=Path, help="where peers are installed")
    parser.add_argument(
        "--against", metavar="DIR", type=Path, help="compare with the checkout of thinklsp in DIR, row by row in turn"
    )
    chosen = parser.parse_args()
    wanted = list(dict.fromkeys(filter(None, chosen.only.split(",")))) or ROWS
    if unknown := set(wanted) - set(ROWS):
        parser.error(f"there is no row {', '.join(sorted(unknown))}; there are: {', '.join(ROWS)}")
    if chosen.against is not None and chosen.docs:
        parser.error("--docs is for a run without --against")
    if chosen.against is not None and not (chosen.against / "tests" / "bench").is_dir():
        parser.error(f"there is no checkout of thinklsp in {chosen.against}")
    # Compile the modules that child processes import before anything is measured.
    for name in [name for name in os.environ if name.startswith("PYTHON") and name != "PYTHONPATH"]:
        del os.environ[name]
    cache = (chosen.cache or Path(platformdirs.user_cache_dir("thinklsp-bench"))).absolute()
    path = chosen.json or cache / "results.json"
    results = Results()
    rounds = chosen.rounds or (2 if chosen.quick else 11)
    try:
        if chosen.against is not None:
            compare_trees(
                ROOT, chosen.against.resolve(), wanted, results, path, rounds=rounds, quick=chosen.quick, cache=cache
            )
        else:
            peers = Peers(cache, download=not chosen.quick)
            asyncio.run(run_parts(PARTS, wanted, results, path, rounds=rounds, quick=chosen.quick, peers=peers))
    finally:
        results.sort(ROWS)
        print("\n".join(report.table(results.figures)))
        print(f"The figures are in {path}.", file=sys.stderr)
    return judge(results, write_page=chosen.docs, complete=chosen.against is None and set(wanted) == set(ROWS))


def judge(results: Results, *, write_page: bool, complete: bool) -> int:
    """Print what has failed, and write docs/performance.md if every row of ours was measured."""
    problems = [report.describe_failure(figure) for figure in results.failed]
    if complete and not any(figure.outcome != "measured" and not figure.against for figure in results.figures):
        problems += [f"no figure is held against the gate {gate}" for gate in find_unused_gates(results.figures)]
    if write_page and any(figure.outcome == "failed" for figure in results.figures):
        problems.append("docs/performance.md was not written, because its table would lack rows")
    elif write_page:
        report.written(results.figures, report.PAGE)
    for problem in problems:
        print(f"FAILED: {problem}", file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
