"""The bench's own sums: ratios, growth, verdicts, what it writes, and a run in which rows fail."""

from __future__ import annotations

import json
import os
import re
import socket
import ssl
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit
from xml.etree import ElementTree as ET

import pytest

from tests.bench import charts, report
from tests.bench.__main__ import PARTS, ROWS, judge
from tests.bench.before import compare_rounds, read_medians
from tests.bench.gates import GATES, apply_gates, find_unused_gates
from tests.bench.measure import ROOT, Bench, Figure, Outcome, Row, Unavailable, compared, exponent, in_turn, ratio
from tests.bench.peers import Peers
from tests.bench.runner import Part, Results, find_row, run_parts
from tests.bench.source import Play, anthropic, source
from tests.support.certificates import Authority

SERIES = {
    "start": {"thinklsp": [1.0, 2.0, 3.0], "bare pygls <&>": [300.0, 310.0, 290.0]},
    "streaming anthropic at full speed": {"thinklsp": [5.0], "anthropic SDK": [50.0]},
    "session": {"thinklsp": [1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0]},
}


def test_the_ratio_is_the_median_of_the_rounds() -> None:
    assert ratio([1, 20, 3], [10, 20, 10]) == 0.3
    assert exponent([1, 2, 4], [3, 6, 12]) == pytest.approx(1)
    assert exponent([1, 2, 4], [3, 12, 48]) == pytest.approx(2)


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


async def test_variants_take_turns_and_one_that_is_missing_is_a_line() -> None:
    order: list[str] = []

    def variant(name: str, value: float) -> object:
        def measure() -> float:
            order.append(name)
            return value

        return measure

    def gone() -> float:
        raise Unavailable("no network")

    variants = {"thinklsp": variant("a", 1.0), "peer": variant("b", 4.0), "other": gone}
    values, missing = await in_turn(variants, 2)  # type: ignore[arg-type] # as the annotation of `variant` says
    assert order == ["a", "b"] * 3
    figures = compared("1", "start", values, missing, {"peer": 0.5, "other": 0.1})
    assert [(figure.value, figure.verdict) for figure in figures] == [(0.25, "met"), (None, "")]
    assert "no network" in figures[1].note
    assert any("no network" in line for line in report.table(figures))


def test_pictures_are_well_formed_and_for_both_kinds_of_pages(tmp_path: Path) -> None:
    names = charts.draw(SERIES, tmp_path)
    assert names == ["start", "streaming", "session"]
    for name in names:
        text = (tmp_path / f"{name}.svg").read_text()
        assert ET.fromstring(text).tag.endswith("svg")  # noqa: S314 - our own
        assert "prefers-color-scheme: dark" in text


def test_the_table_goes_between_its_marks_and_nowhere_else(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n")
    report.written([Figure("1", "start", "ms", [1.0], [4.0], "peer", 0.25, most=0.5)], ["start"], readme)
    text = readme.read_text()
    assert text.startswith(f"before\n{report.BEGIN}\n")
    assert text.endswith(f"\n{report.END}\nafter\n")
    assert "| start | 1 ms | peer | 4 ms | 0.25 × (≤ 0.5) ● |" in text
    assert "old" not in text


def test_the_readme_has_the_marks_and_its_pictures() -> None:
    text = (ROOT / "README.md").read_text()
    assert text.count(report.BEGIN) == text.count(report.END) == 1
    pictures = re.findall(r"!\[[^\]]+\]\((docs/speed/[^)]+)\)", text)
    assert pictures
    assert [path for path in pictures if not (ROOT / path).is_file()] == []


async def measure(bench: Bench) -> list[Figure]:
    (bench.folder / "left over").write_text("by the row")
    return [Figure("1", "start", "ms", [1.0])]


async def miss_a_tool(bench: Bench) -> list[Figure]:
    raise Unavailable("bwrap was not found. Install bubblewrap.")


async def miss_a_package(bench: Bench) -> list[Figure]:
    return [Figure("1", bench.peers.python("no-such-package", "no_such_package"))]


async def miss_a_peer(bench: Bench) -> list[Figure]:
    values, missing = await in_turn({"thinklsp": lambda: 1.0, "peer": miss}, 1)
    return compared("1", "start", values, missing, {"peer": 1.0})


async def miss_our_own_side(bench: Bench) -> list[Figure]:
    values, missing = await in_turn({"thinklsp": miss, "peer": lambda: 1.0}, 1)
    return compared("1", "start", values, missing, {"peer": 1.0})


async def raise_an_error(bench: Bench) -> list[Figure]:
    raise ValueError("three figures\nfor two rounds")


async def fail_an_assertion(bench: Bench) -> list[Figure]:
    raise AssertionError


def miss() -> float:
    raise EOFError("the server ended")


def load_a_renamed_module() -> Row:
    raise ImportError("cannot import name 'Opened'")


ATTEMPTS: list[tuple[Row, Outcome, str]] = [
    (measure, "measured", ""),
    (miss_a_tool, "skipped", "bwrap was not found. Install bubblewrap."),
    (miss_a_package, "skipped", "no-such-package is not installed; a run without `--quick` installs it"),
    (miss_a_peer, "skipped", "peer could not be run: EOFError: the server ended"),
    (miss_our_own_side, "failed", "thinklsp could not be measured"),
    (raise_an_error, "failed", "ValueError: three figures"),
    (fail_an_assertion, "failed", "AssertionError"),
]


def parts(*rows: Row) -> list[Part]:
    return [Part(("1",), row.__name__, lambda row=row: row) for row in rows]  # type: ignore[misc] # it is a row


async def run_rows(folder: Path, tried: Sequence[Part]) -> Results:
    results = Results()
    peers = Peers(folder / "cache", download=False)
    await run_parts(tried, ["1"], results, folder / "results.json", rounds=1, quick=True, peers=peers)
    return results


@pytest.mark.parametrize(("row", "outcome", "note"), ATTEMPTS, ids=[row.__name__ for row, *_ in ATTEMPTS])
async def test_a_run_goes_on_after_a_row_that_cannot_be_measured(
    row: Row, outcome: Outcome, note: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    results = await run_rows(tmp_path, parts(measure, row, measure))
    assert [figure.outcome for figure in results.figures] == ["measured", outcome, "measured"]
    saved = json.loads((tmp_path / "results.json").read_text())["figures"]
    assert [figure["outcome"] for figure in saved] == ["measured", outcome, "measured"]
    for told in (saved[1]["note"], "\n".join(report.table(results.figures)), capsys.readouterr().err):
        assert note in told
    assert judge(results, write_readme=False, complete=False) == (1 if outcome == "failed" else 0)


async def test_a_part_that_cannot_be_imported_is_a_failed_row(tmp_path: Path) -> None:
    results = await run_rows(tmp_path, [Part(("1",), "renamed", load_a_renamed_module), *parts(measure)])
    assert [(figure.name, figure.outcome) for figure in results.figures] == [
        ("renamed", "failed"),
        ("start", "measured"),
    ]


async def test_results_are_saved_after_every_row_of_a_run_that_is_interrupted(tmp_path: Path) -> None:
    path, saved = tmp_path / "results.json", []

    class Interrupt(BaseException):
        pass

    async def count_saved(bench: Bench) -> list[Figure]:
        saved.append(len(json.loads(path.read_text())["figures"]) if path.exists() else 0)
        return await measure(bench)

    async def interrupt(bench: Bench) -> list[Figure]:
        raise Interrupt

    with pytest.raises(Interrupt):
        await run_rows(tmp_path, parts(count_saved, count_saved, interrupt, count_saved))
    assert saved == [0, 1]
    assert len(json.loads(path.read_text())["figures"]) == 2
    assert os.listdir(tmp_path) == ["results.json"]


async def test_parts_of_other_rows_are_left_out(tmp_path: Path) -> None:
    assert (await run_rows(tmp_path, [Part(("2",), "other", load_a_renamed_module)])).figures == []


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
    assert judge(Results(figures), write_readme=False, complete=True) == 0
    assert judge(Results(figures[1:]), write_readme=False, complete=True) == 1
    assert figures[0].name in capsys.readouterr().err


def test_the_readme_is_not_written_if_a_row_failed(capsys: pytest.CaptureFixture[str]) -> None:
    before = (ROOT / "README.md").read_text()
    failed = Results([Figure("1", "start", note="ValueError", outcome="failed")])
    assert judge(failed, write_readme=True, complete=False) == 1
    assert "README.md was not written" in capsys.readouterr().err
    assert (ROOT / "README.md").read_text() == before


def test_the_readme_names_what_was_not_measured(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text(f"{report.BEGIN}\n{report.END}\n")
    skipped = Figure("shadow", "shadow_rows.costs", note="Install bubblewrap.", outcome="skipped")
    report.written([skipped], [], readme)
    assert "- shadow_rows.costs: Install bubblewrap." in readme.read_text()


def test_figures_of_two_trees_are_compared_by_their_medians() -> None:
    one = {"name": "start", "unit": "ms", "ours": [1, 2, 3], "against": "pygls"}
    count = {"name": "reports", "unit": "", "ours": None, "against": ""}
    other = {"name": "memory", "unit": "MB", "ours": [4, 4, 4], "against": "anthropic"}
    medians = read_medians([one, one | {"against": "ruff"}, count, other, other | {"ours": [6, 6, 6]}])
    assert medians == {"start": (2, "ms"), "memory": (4, "MB"), "memory (beside anthropic)": (6, "MB")}
    figures = compare_rounds("1", [medians, medians], [{"start": (1.0, "ms")}, medians], "before", quick=False)
    assert [(figure.name, figure.value, figure.failed) for figure in figures] == [("start", 1.5, True)]


def test_a_source_over_tls_sends_a_record_per_event(tmp_path: Path) -> None:
    authority, play = Authority(tmp_path), Play(anthropic(("text", ["one", "two", "three"])))
    client = ssl.create_default_context(cafile=str(authority.bundle))
    with source(lambda *_: play, authority.server("127.0.0.1")) as service:
        address = urlsplit(service.url)
        assert address.scheme == "https"
        with (
            socket.create_connection((address.hostname, address.port), timeout=10) as plain,
            client.wrap_socket(plain, server_hostname=address.hostname) as connection,
        ):
            connection.sendall(b"POST / HTTP/1.1\r\nContent-Length: 0\r\n\r\n")
            records = [connection.recv(1 << 16) for _ in range(len(play.events) + 2)]
    assert records[1:] == [*play.frames(), b"0\r\n\r\n"]
