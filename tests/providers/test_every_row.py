"""Every sharp edge that we know of, 1 to 73, is proven by a test that names it, or listed with the reason why not.

Rows 1 to 35 stand as a table in `test_sharp_edges`, which names tests all over the suite; from 36 on each is a function
`test_row_NN_…` of the service that it concerns. Parts that cannot come about are listed there under `CANNOT`.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Iterator, Mapping
from types import ModuleType

import pytest

from tests.providers import test_rows_of_answers, test_rows_of_transport, test_sharp_edges
from tests.providers.google import test_google_sharp_edges
from tests.providers.openai_chat import test_chat_sharp_edges
from tests.providers.openai_responses import test_openai_sharp_edges
from tests.providers.test_sharp_edges import ROWS
from tests.support.anthropic_cases import FOLDER

ALL = range(1, 74)
# Where the rows of each service stand.
ROOMS: Mapping[ModuleType, range] = {
    test_openai_sharp_edges: range(36, 48),
    test_google_sharp_edges: range(48, 62),
    test_chat_sharp_edges: range(62, 74),
}
# Rows of the first table that concern every dialect: they are proven for all of them, by functions of these modules.
EVERYBODYS: Mapping[ModuleType, tuple[int, ...]] = {
    test_rows_of_transport: tuple(range(1, 11)),
    test_rows_of_answers: (16, 17, 27, 29, 31, 33, 34),
}
NUMBERED = re.compile(r"test_row_(\d+)(?:_and_(\d+))?_")


def numbered(module: ModuleType) -> Iterator[tuple[int, str]]:
    """The rows that the functions of a module prove, by their names."""
    for name, value in vars(module).items():
        found = NUMBERED.match(name)
        if found and inspect.isfunction(value) and value.__module__ == module.__name__:
            yield from ((int(number), name) for number in found.groups() if number)


def reasons() -> dict[int, str]:
    """Why a row, or a part of it, cannot come about."""
    of_table = {number: row.reason for number, row in ROWS.items() if row.reason}
    return of_table | {number: reason for module in ROOMS for number, reason in module.CANNOT.items()}


def proofs(number: int) -> list[str]:
    """The tests of a row. Fails for one that is named and does not exist."""
    found = [name for module in (*ROOMS, *EVERYBODYS) for row, name in numbered(module) if row == number]
    if number in ROWS:
        found += [named(test) for test in ROWS[number].tests]
        for case in ROWS[number].fixtures:
            assert (FOLDER / f"{case}.sse").exists(), case
            assert (FOLDER / f"{case}.json").exists(), f"{case} is played by nobody"
            found.append(case)
    return found


def named(test: object) -> str:
    if not isinstance(test, str):
        assert inspect.isfunction(test)
        return test.__name__
    place, _, name = test.partition("::")
    module = importlib.import_module(f"tests.{place.replace('/', '.')}")
    assert inspect.isfunction(getattr(module, name, None)), f"{test} does not exist"
    assert name.startswith("test_")
    return name


@pytest.mark.parametrize("number", ALL)
def test_every_row_is_proven_or_cannot_come_about(number: int) -> None:
    found, reason = proofs(number), reasons().get(number, "")
    assert found or reason
    # A test that bears the number of a row is one of it.
    own = [name for name in found if name.startswith("test_row_")]
    assert all(str(number) in NUMBERED.match(name).groups() for name in own)  # type: ignore[union-attr]  # it matched
    assert number not in reasons() or len(reason) > 20


def test_nothing_is_listed_that_is_no_row() -> None:
    assert list(ROWS) == list(range(1, 36))
    assert {*ALL} == {*ROWS, *(number for rooms in ROOMS.values() for number in rooms)}
    assert reasons().keys() <= {*ALL}


@pytest.mark.parametrize("module", ROOMS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_each_service_proves_its_own_rows_by_number(module: ModuleType) -> None:
    proven, rows = {number for number, _ in numbered(module)}, {*ROOMS[module]}
    assert rows <= proven | module.CANNOT.keys()
    assert module.CANNOT.keys() <= rows
    # Rows of the first table are proven beside them where a service has something of its own about them.
    assert proven - rows <= {number for numbers in EVERYBODYS.values() for number in numbers}


@pytest.mark.parametrize("module", EVERYBODYS, ids=lambda module: module.__name__.rpartition(".")[2])
def test_what_concerns_every_dialect_is_proven_for_each(module: ModuleType) -> None:
    assert tuple(sorted({number for number, _ in numbered(module)})) == EVERYBODYS[module]
    for number, name in numbered(module):
        # One row speaks of one service alone; all others go through every one.
        assert number == 10 or "where" in inspect.signature(getattr(module, name)).parameters


def test_the_table_names_its_own_tests() -> None:
    here = {name for _, name in numbered(test_sharp_edges)}
    assert here == {test.__name__ for row in ROWS.values() for test in row.tests if not isinstance(test, str)}


def test_a_missing_test_is_noticed() -> None:
    with pytest.raises(AssertionError, match="does not exist"):
        named("providers/test_sharp_edges::test_row_99_is_not_there")
