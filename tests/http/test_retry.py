"""The retry policy as a table."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from thinklsp.core.errors import (
    AuthenticationFailed,
    BadRequest,
    ContextWindowExceeded,
    Overloaded,
    ProviderError,
    RateLimited,
    StreamProtocolError,
    TransportFailed,
)
from thinklsp.http.retry import CallHistory, GiveUp, RetryPolicy, TryAgain, after, decide, spoken_time

POLICY = RetryPolicy()


def loading(retry_after: float | None) -> Overloaded:
    error = Overloaded("x", retry_after=retry_after)
    error.loading = True
    return error


@dataclass(frozen=True)
class Case:
    id: str
    error: ProviderError
    expected: TryAgain | GiveUp | type[GiveUp]
    history: CallHistory = field(default_factory=CallHistory)
    had_content: bool = False
    roll: float = 1.0


CASES = [
    Case("first failure", Overloaded("x"), TryAgain(1.0, restart=False)),
    Case("jitter is full", Overloaded("x"), TryAgain(0.0, restart=False), roll=0.0),
    Case("doubles", TransportFailed("x"), TryAgain(2.0, restart=False), CallHistory(failures=1)),
    Case("third", TransportFailed("x"), TryAgain(4.0, restart=False), CallHistory(failures=2)),
    Case("four tries", TransportFailed("x"), GiveUp("It was tried 4 times: try again later."), CallHistory(failures=3)),
    Case("never 400", BadRequest("x"), GiveUp()),
    Case("never 401", AuthenticationFailed("x"), GiveUp()),
    Case("never too long", ContextWindowExceeded("x"), GiveUp()),
    Case("never a certificate", TransportFailed("x", retryable=False), GiveUp()),
    Case("asked", RateLimited("x", retry_after=17.5), TryAgain(17.5, restart=False), roll=0.1),
    Case("asked for the longest", RateLimited("x", retry_after=120), TryAgain(120, restart=False)),
    Case(
        "asked for too long",
        RateLimited("x", retry_after=121),
        GiveUp("The service asks to wait 3 minutes; try again then."),
    ),
    Case("asked for nothing", RateLimited("x", retry_after=0), TryAgain(1.0, restart=False)),
    Case("break in mid-answer", StreamProtocolError("x"), TryAgain(1.0, restart=True), had_content=True),
    Case(
        "second break", StreamProtocolError("x"), TryAgain(2.0, restart=True), CallHistory(breaks=1), had_content=True
    ),
    Case(
        "third break",
        StreamProtocolError("x"),
        GiveUp("The answer broke off 3 times and was given up: send it again."),
        CallHistory(breaks=2),
        had_content=True,
    ),
    Case(
        "breaks do not use up tries",
        Overloaded("x"),
        TryAgain(16.0, restart=False),
        CallHistory(failures=2, breaks=2),
    ),
    Case("hopeless in mid-answer", BadRequest("x"), GiveUp(), had_content=True),
    Case("a model that loads", loading(10), TryAgain(10, restart=False), CallHistory(failures=25, waited=250)),
    Case("a model that never loads", loading(10), GiveUp, CallHistory(failures=30, waited=291)),
    Case("loading in mid-answer", loading(10), GiveUp, CallHistory(breaks=2), had_content=True),
    Case("patience", RateLimited("x", retry_after=100), GiveUp, CallHistory(failures=2, waited=201)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_decision(case: Case) -> None:
    verdict = decide(POLICY, case.error, history=case.history, had_content=case.had_content, roll=case.roll)
    if isinstance(case.expected, type):
        assert isinstance(verdict, case.expected)
    else:
        assert verdict == case.expected


def test_the_wait_is_capped() -> None:
    policy = RetryPolicy(tries=20)
    verdict = decide(policy, Overloaded("x"), history=CallHistory(failures=9), had_content=False, roll=1.0)
    assert verdict == TryAgain(30.0, restart=False)


def test_history_counts_failures_breaks_and_waiting() -> None:
    history = after(after(CallHistory(), TryAgain(2.0, restart=False)), TryAgain(3.0, restart=True))
    assert history == CallHistory(failures=1, breaks=1, waited=5.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 seconds"), (90, "90 seconds"), (121, "3 minutes"), (3600, "60 minutes"), (10_000, "3 hours")],
)
def test_times_are_spoken_rounded_up(seconds: float, text: str) -> None:
    assert spoken_time(seconds) == text
