"""The tables are complete: every row has cases or existing tests, or explains why it has none."""

from __future__ import annotations

import ast
import tomllib
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.slow.running import Tally

Json = Any
TESTS = Path(__file__).parents[1]


def rows(name: str) -> list[Json]:
    table: list[Json] = tomllib.loads((Path(__file__).parent / name).read_text("utf-8"))["row"]
    return table


FAULTS, INCIDENTS = rows("faults.toml"), rows("incidents.toml")


@cache
def defined_in(file: str) -> frozenset[str]:
    tree = ast.parse((TESTS / file).read_text("utf-8"))
    defined = (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))
    return frozenset(node.name for node in defined if node.name.startswith("test_"))


def missing(named: str) -> bool:
    file, _, test = named.partition("::")
    return not (TESTS / file).is_file() or (bool(test) and test not in defined_in(file))


def test_every_fault_has_its_row() -> None:
    assert [row["id"] for row in FAULTS] == [f"F-{number:02}" for number in range(1, 53)]
    for row in FAULTS:
        assert sum(key in row for key in ("case", "tests", "absent")) == 1, row["id"]
        assert row["what"], row["id"]
        assert "absent" in row or (row["injected"] and row["expected"]), row["id"]


def test_every_incident_has_its_row() -> None:
    assert [row["id"] for row in INCIDENTS] == [f"S-{number}" for number in range(1, 32)]
    for row in INCIDENTS:
        assert row["what"], row["id"]
        assert row["defence"], row["id"]
        assert row.get("tests") or len(row.get("reason", "")) > 20, row["id"]


@pytest.mark.parametrize("row", [row for row in FAULTS + INCIDENTS if row.get("tests")], ids=lambda row: row["id"])
def test_what_proves_a_row_exists(row: Json, tally: Tally) -> None:
    assert [named for named in row["tests"] if missing(named)] == []
    tally("A-04", 1)


def test_a_missing_test_is_noticed() -> None:
    assert missing("agent/test_turn.py::test_this_is_not_there")
    assert missing("agent/test_nothing.py")
    assert not missing("agent/test_turn.py::test_an_answer")
