"""The bench's own sums: ratios, growth, verdicts, what it writes, and a run in which rows fail."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.bench import report
from tests.bench.__main__ import PARTS, ROWS, judge
from tests.bench.gates import GATES, apply_gates, find_unused_gates
from tests.bench.lockstep import Lockstep
from tests.bench.measure import Bench, Figure, Outcome, Row, Unavailable, compared, in_turn
from tests.bench.peers import Peers
from tests.bench.runner import Part, Results, find_row, run_parts

VERDICTS = [
    (Figure("1", "", value=0.9, most=1.0), "met", False),
    (Figure("1", "", value=1.4, most=1.0), "near", False),
    (Figure("1", "", value=1.6, most=1.0), "missed", False),
    (Figure("1", "", value=1.01, most=1.0, is_gate=True), "missed", True),
    (Figure("1", "", value=85.0, least=85.0, is_gate=True), "met", False),
    (Figure("1", "", value=84.9, least=85.0, is_gate=True), "missed", True),
    (Figure("1", "", value=84.9), "", False),
    (Figure("1", "", most=1.0), "", False),
    (Figure("1", "", outcome="skipped"), "", False),
    (Figure("1", "", outcome="failed"), "", True),
]


@pytest.mark.parametrize(("figure", "verdict", "failed"), VERDICTS)
def test_only_gates_and_rows_that_raise_fail_a_run(figure: Figure, verdict: str, failed: bool) -> None:
    assert (figure.verdict, figure.failed) == (verdict, failed)


def test_page_has_its_marks() -> None:
    text = report.PAGE.read_text()
    assert text.count(report.BEGIN) == text.count(report.END) == 1


async def measure(bench: Bench) -> list[Figure]:
    (bench.folder / "left over").write_text("by the row")
    return [Figure("1", "start", "ms", [1.0])]


async def miss_a_package(bench: Bench) -> list[Figure]:
    return [Figure("1", bench.peers.python("no-such-package", "no_such_package"))]


def miss(side: str) -> Row:
    """A row for which one of the two programs does not run."""

    def end() -> float:
        raise EOFError("the server ended")

    async def compare(bench: Bench) -> list[Figure]:
        values, missing = await in_turn({"thinklsp": lambda: 1.0, "peer": lambda: 1.0, side: end}, 1)
        return compared("1", "start", values, missing, {"peer": 1.0})

    return compare


def fail(error: Exception) -> Row:
    async def fail_with_it(bench: Bench) -> list[Figure]:
        raise error

    return fail_with_it


ATTEMPTS: list[tuple[Row, Outcome, str]] = [
    (measure, "measured", ""),
    (fail(Unavailable("bwrap was not found. Install it.")), "skipped", "bwrap was not found. Install it."),
    (miss_a_package, "skipped", "no-such-package is not installed; a run without `--quick` installs it"),
    (miss("peer"), "skipped", "peer could not be run: EOFError: the server ended"),
    (miss("thinklsp"), "failed", "thinklsp could not be measured"),
    (fail(ValueError("three figures\nfor two rounds")), "failed", "ValueError: three figures"),
    (fail(AssertionError()), "failed", "AssertionError"),
]


def parts(*rows: Row) -> list[Part]:
    return [Part(("1",), row.__name__, lambda row=row: row) for row in rows]  # type: ignore[misc] # it is a row


async def run_rows(folder: Path, tried: Sequence[Part]) -> Results:
    results = Results()
    peers = Peers(folder / "cache", download=False)
    await run_parts(tried, ["1"], results, folder / "results.json", rounds=1, quick=True, peers=peers)
    return results


@pytest.mark.parametrize(("row", "outcome", "note"), ATTEMPTS, ids=[note or "measured" for *_, note in ATTEMPTS])
async def test_a_run_goes_on_after_a_row_that_cannot_be_measured(
    row: Row, outcome: Outcome, note: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = await run_rows(tmp_path, parts(measure, row, measure))
    assert [figure.outcome for figure in results.figures] == ["measured", outcome, "measured"]
    saved = json.loads((tmp_path / "results.json").read_text())["figures"]
    assert [figure["outcome"] for figure in saved] == ["measured", outcome, "measured"]
    for told in (saved[1]["note"], "\n".join(report.table(results.figures)), capsys.readouterr().err):
        assert note in told
    assert judge(results, write_page=False, complete=False) == (1 if outcome == "failed" else 0)


@pytest.mark.parametrize("name", [part.name for part in PARTS])
def test_each_part_has_a_function(name: str) -> None:
    assert callable(find_row(name))


def test_gates_are_ceilings_that_only_a_long_run_fails_at() -> None:
    figures = [Figure("1", name, against=peer, value=most * 1.01) for (name, peer), most in GATES.items()]
    assert [figure.failed for figure in apply_gates(figures, quick=False)] == [True] * len(GATES)
    assert [figure.verdict for figure in apply_gates(figures, quick=True)] == ["near"] * len(GATES)
    assert [*apply_gates([Figure("1", "other")], quick=False)] == [Figure("1", "other")]


def test_a_gate_without_a_figure_fails_a_complete_run(capsys: pytest.CaptureFixture[str]) -> None:
    figures = [Figure(ROWS[0], name, against=peer) for name, peer in GATES]
    assert find_unused_gates(figures) == []
    assert judge(Results(figures), write_page=False, complete=True) == 0
    assert judge(Results(figures[1:]), write_page=False, complete=True) == 1
    assert figures[0].name in capsys.readouterr().err


class Hurried(Lockstep):
    limit_seconds = 0.3


FRAME = """
import json, subprocess, sys, time
def say(message):
    body = json.dumps(message)
    print(f"Content-Length: {len(body)}\\r\\n\\r\\n{body}", end="", flush=True)
"""
# Servers that a client would wait for without an end.
ENDLESS = {
    "it talks about other things": "while True: say({'method': 'x'})",
    "it does not read": "time.sleep(600)",
    "it says nothing": "sys.stdin.read()",
}


@pytest.mark.parametrize("program", ENDLESS.values(), ids=ENDLESS)
def test_a_server_is_not_waited_for_without_an_end(tmp_path: Path, program: str) -> None:
    argv = [sys.executable, "-c", FRAME + program]
    with Hurried(argv, tmp_path / "workspace") as server, pytest.raises(TimeoutError, match="the server did not"):
        server.ask({"id": 1, "method": "x" * 1_000_000})
    assert server.process.returncode is not None


def test_a_process_that_a_server_leaves_is_not_waited_for(tmp_path: Path) -> None:
    program = "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    argv = [sys.executable, "-c", f"{FRAME}{program}say({{'id': 1, 'result': child.pid}})\ntime.sleep(600)"]
    with Lockstep(argv, tmp_path / "workspace") as server:
        child = server.ask({"id": 1, "method": "x"})
    os.kill(child, signal.SIGKILL)
