"""The bench's own sums: ratios, growth, verdicts, and what it writes."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from tests.bench import charts, report
from tests.bench.measure import ROOT, Figure, Unavailable, compared, exponent, in_turn, ratio

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
    (Figure("1", "", value=1.01, most=1.0, exact=True), "missed", True),
    (Figure("1", "", value=85.0, least=85.0, exact=True), "met", False),
    (Figure("1", "", value=84.9, least=85.0, exact=True), "missed", True),
    (Figure("1", "", value=84.9), "", False),
    (Figure("1", "", most=1.0), "", False),
]


@pytest.mark.parametrize(("figure", "verdict", "failed"), VERDICTS)
def test_only_counts_and_growth_fail_a_run(figure: Figure, verdict: str, failed: bool) -> None:
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
