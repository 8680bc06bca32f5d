"""Every figure has a row, and the tests that its row names exist and count."""

from __future__ import annotations

import pytest

from tests.faults.test_the_tables import TESTS, Json, missing
from tests.support.sizes import STEPS, figures

# A-32, the rate of flaky tests, is a figure of the runs and not of a test.
DUE = {f"A-{number:02}" for number in range(1, 49)} - {"A-32"}


def test_every_figure_has_its_row() -> None:
    assert set(figures()) == DUE


@pytest.mark.parametrize("row", figures().values(), ids=figures())
def test_a_row_is_proved_by_tests_that_exist_and_count(row: Json) -> None:
    assert row["tests"]
    assert [named for named in (*row["tests"], *row["controls"]) if missing(named)] == []
    assert row["controls"] or len(row.get("note", "")) > 20
    counts = [row[step] for step in STEPS[1:]]
    assert counts == sorted(counts)
    texts = [(TESTS / named.partition("::")[0]).read_text("utf-8") for named in row["tests"]]
    assert any(f'tally("{row["id"]}"' in text for text in texts)
