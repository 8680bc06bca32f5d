"""The page for people who look for holes names tests that exist, and as many sinks as there are."""

from __future__ import annotations

import re
from pathlib import Path

from tests.slow.leaking import SINKS

TESTS = Path(__file__).parent
PAGE = (TESTS.parent / ".github/SECURITY.md").read_text("utf-8")


def test_every_test_that_is_named_exists() -> None:
    named = set(re.findall(r"`((?:\w+/)*test_\w+\.py)`", PAGE))
    assert len(named) > 15
    assert [name for name in named if not (TESTS / name).is_file() and not list(TESTS.rglob(name))] == []


def test_every_claim_of_the_table_has_a_test() -> None:
    table = PAGE.partition("## Who might attack")[2].partition("**Not defended")[0]
    rows = [line for line in table.splitlines() if line.startswith("|")][2:]
    assert [row for row in rows if ".py`" not in row] == []


def test_the_number_of_sinks_is_right() -> None:
    assert f"{len(SINKS)} places are searched" in PAGE
