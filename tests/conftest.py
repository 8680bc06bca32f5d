"""What is loaded for the suite stays loaded: the garbage collector need not walk through it after every few objects.
`nursery`, `servers`: processes of ours without their loading. `tally`: what tests did for the figures of `figures.toml`
is summed up at the end of a run.
"""

from __future__ import annotations

import os
import signal
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

import hypothesis
import pytest

# What helpers assert is told in full, as what tests assert; before the first of them is loaded.
pytest.register_assert_rewrite("tests.support", "tests.slow", "tests.faults")

from tests.support.client.actions import Editing
from tests.support.client.raw import RawClient
from tests.support.forking import Nursery
from tests.support.outside import ARGV, PASSED, Connect, server_by
from tests.support.sizes import STEP, examples, figures
from thinklsp.core.import_context import reduce_gc

if TYPE_CHECKING:
    from tests.support.postgres_server import PostgresServer

# The defaults of all properties. No health check and no deadline, because both measure time.
hypothesis.settings.register_profile(
    "gate",
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
    derandomize=True,
    database=None,
)
hypothesis.settings.register_profile(
    "random", parent=hypothesis.settings.get_profile("gate"), derandomize=False, print_blob=True
)
hypothesis.settings.load_profile("gate" if STEP == "quick" else "random")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell lets what it runs in the background ignore interrupts, and so would every server that is started here.
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    with reduce_gc():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    """Note whether the test passed. Pytest looks for this hook only in conftest files."""
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


@pytest.fixture(scope="session", autouse=True)
def default_hangup() -> Iterator[None]:
    """Start programs with the default action for SIGHUP. `nohup` ignores SIGHUP, and children would inherit that.

    A handler is not inherited by another program. It keeps pytest alive, as `nohup` does.
    """
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        yield
        return
    signal.signal(signal.SIGHUP, lambda *_: None)
    yield
    signal.signal(signal.SIGHUP, signal.SIG_IGN)


@pytest.fixture(scope="session")
def nursery() -> Iterator[Nursery | None]:
    """Where processes of ours are forked from; None where they have to be started."""
    if not hasattr(os, "pidfd_open"):
        yield None
        return
    with Nursery() as nursery:
        yield nursery


@pytest.fixture(scope="session")
def postgres() -> Iterator[PostgresServer]:
    """A PostgreSQL server with thinklsp's tables, for all tests of a worker. Each test has a tenant of its own."""
    from tests.support.postgres_server import run_postgres

    with run_postgres() as server:
        yield server


@pytest.fixture
def client_class() -> type[Editing]:
    """What the editors are; a folder of tests may have another."""
    return RawClient


@pytest.fixture
def servers(nursery: Nursery | None, client_class: type[Editing]) -> Connect:
    """How a server comes about: forked where that can be, else started."""
    return server_by(ARGV, client_class) if nursery is None else partial(nursery.connect, client=client_class)


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
