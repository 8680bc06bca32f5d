"""The sample project of the demo: a small package whose totals are two cents short, for reasons in two files.

The project is real: its tests are run by `python -m unittest`, and each of the two faults alone keeps one of them red.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
from dataclasses import dataclass

_MONEY = '''\
"""Money is whole cents inside the program and text at its edges."""


def to_cents(price: str) -> int:
    """`"19.99"` is 1999 cents."""
    return int(float(price) * 100)


def shown(cents: int) -> str:
    return f"{cents // 100}.{cents % 100:02d} €"
'''

_INVOICE = '''\
"""What a customer pays."""

from shop.money import shown, to_cents

VAT_PERCENT = 19


def net(items: list[tuple[str, int]]) -> int:
    """Cents without tax, for items of (price, quantity)."""
    return sum(to_cents(price) * quantity for price, quantity in items)


def gross(items: list[tuple[str, int]]) -> int:
    """Cents with tax, which is rounded to the nearest cent."""
    return int(net(items) * (1 + VAT_PERCENT / 100))


def total(items: list[tuple[str, int]]) -> str:
    return shown(gross(items))
'''

_TESTS = """\
import unittest

from shop.invoice import total


class TotalTest(unittest.TestCase):
    def test_nothing_costs_nothing(self):
        self.assertEqual(total([]), "0.00 €")

    def test_round_prices(self):
        self.assertEqual(total([("10.00", 2)]), "23.80 €")

    def test_a_book(self):
        self.assertEqual(total([("19.99", 1)]), "23.79 €")
"""

TEST_FILE = "tests/test_invoice.py"
FILES = {
    "README.md": "# shop\n\nPrices, tax and invoices. Run the tests with `python -m unittest`.\n",
    "shop/__init__.py": "",
    "shop/money.py": _MONEY,
    "shop/invoice.py": _INVOICE,
    "tests/__init__.py": "",
    TEST_FILE: _TESTS,
}
SHOWN = ("shop/invoice.py", "shop/money.py", TEST_FILE)

_PLACE = re.compile(rf'File "[^"]*{re.escape(TEST_FILE)}", line (\d+)')
_KEPT = re.compile(r"(FAIL|ERROR): |\w*(Error|Exception)\b|Ran \d+|FAILED|OK")


@dataclass(frozen=True, slots=True)
class Failure:
    """Where the test file failed (line from 1), and with what message."""

    line: int
    message: str


@dataclass(frozen=True, slots=True)
class TestRun:
    """`lines` are what is worth reading of the output. `failure` is the first one, None where there is none."""

    passed: bool
    lines: tuple[str, ...]
    failure: Failure | None


def make(folder: str) -> None:
    """Writes the project into a folder that does not exist yet."""
    for name, text in FILES.items():
        path = os.path.join(folder, name)
        os.makedirs(os.path.dirname(path), exist_ok=True)
        with open(path, "x", encoding="utf-8", newline="") as file:
            file.write(text)


async def run_tests(folder: str) -> TestRun:
    """`python -m unittest` in the project."""
    # Compiled files would be taken for fresh: the edit comes within the same second.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1", "PYTHONUTF8": "1", "NO_COLOR": "1"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-W", "ignore", "-m", "unittest"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        cwd=folder,
        env=environment,
    )
    output, _ = await process.communicate()
    text = output.decode("utf-8", "replace")
    lines = tuple(line.strip() for line in text.splitlines() if _KEPT.match(line))
    return TestRun(process.returncode == 0, lines, _failure(text))


def _failure(text: str) -> Failure | None:
    place = _PLACE.search(text)
    message = re.search(r"^\w*(?:Error|Exception): .*$", text, re.MULTILINE)
    return Failure(int(place[1]), message[0]) if place and message else None
