"""What is loaded for the suite stays loaded: the garbage collector need not walk through it after every few objects.
`nursery`, `servers`: processes of ours without their loading. `tally`: what tests did for the figures of `figures.toml`
is summed up at the end of a run.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from typing import Any

import pytest

# What helpers assert is told in full, as what tests assert; before the first of them is loaded.
pytest.register_assert_rewrite("tests.support", "tests.slow", "tests.faults")

from tests.support.forking import Nursery
from tests.support.outcomes import PASSED
from tests.support.outside import Connect, own_server
from tests.support.sizes import STEP, figures
from thinklsp.core.loading import uncollected

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell lets what it runs in the background ignore interrupts, and so would every server that is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    with uncollected():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Note whether the test passed. Pytest looks for this hook only in conftest files."""
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery | None]:
    """Where processes of ours are forked from; None where they have to be started."""
    if not hasattr(os, "pidfd_open"):
        yield None
        return
    with Nursery() as nursery:
        yield nursery


@pytest.fixture
def servers(nursery: Nursery | None) -> Connect:
    """How a server comes about: forked where that can be, else started."""
    return own_server if nursery is None else nursery.connect


@pytest.fixture
def tally(record_property: Callable[[str, object], None]) -> Callable[[str, int], None]:
    """`tally("A-01", 1_000)`: this test made so many tries for the figure, and it passed if none of them failed."""

    def note(figure: str, count: int) -> None:
        assert figure in figures()
        record_property("figure", [figure, count])

    return note


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """`A-01: 0 of 1,000 messages failed, 3.1 s`. A failed test may have stopped early; its tries do not count."""
    made, failed = Counter[str](), Counter[str]()
    seconds: dict[str, float] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.getreports(outcome):
            for name, value in report.user_properties if report.when == "call" else ():
                if name == "figure":
                    figure, count = value
                    (made if outcome == "passed" else failed)[figure] += count if outcome == "passed" else 1
                    seconds[figure] = seconds.get(figure, 0) + report.duration
    if not made + failed:
        return
    terminalreporter.section(f"figures ({STEP})")
    for figure in sorted({*made, *failed}):
        row = figures()[figure]
        wrong = f"{failed[figure]} tests FAILED besides" if failed[figure] else "0 failed"
        terminalreporter.line(
            f"{figure}: {made[figure]:,} {row['unit']}, {wrong}, {seconds[figure]:.1f} s – {row['what']}"
        )
