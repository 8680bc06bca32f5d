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
from thinklsp.core.events import RetryScheduled
from thinklsp.http.retry import CallHistory, RetryPolicy, format_duration, plan_retry

POLICY = RetryPolicy()


def loading(retry_after: float | None) -> Overloaded:
    error = Overloaded("x", retry_after=retry_after)
    error.loading = True
    return error


@dataclass(frozen=True)
class Case:
    id: str
    error: ProviderError
    expected: tuple[float, bool] | str
    history: CallHistory = field(default_factory=CallHistory)
    had_content: bool = False
    roll: float = 1.0


def wait(seconds: float, *, restart: bool = False) -> tuple[float, bool]:
    return seconds, restart


BUSY, LOST, BROKEN = Overloaded("x"), TransportFailed("x"), StreamProtocolError("x")
INTERRUPTED = "The answer was interrupted 3 times; send your prompt again."
TOO_LONG = "The provider asked for a delay of 3 minutes; try again then."
FAILED = "All 4 attempts failed; try again in a few minutes."
PATIENCE = "Retrying took longer than 5 minutes; try again later."
CASES = [
    Case("first failure", BUSY, wait(1.0)),
    Case("jitter is full", BUSY, wait(0.0), roll=0.0),
    Case("doubles", LOST, wait(2.0), CallHistory(failures=1)),
    Case("third", LOST, wait(4.0), CallHistory(failures=2)),
    Case("four tries", LOST, FAILED, CallHistory(failures=3)),
    Case("never 400", BadRequest("x"), ""),
    Case("never 401", AuthenticationFailed("x"), ""),
    Case("never too long", ContextWindowExceeded("x"), ""),
    Case("never a certificate", TransportFailed("x", retryable=False), ""),
    Case("asked", RateLimited("x", retry_after=17.5), wait(17.5), roll=0.1),
    Case("asked for the longest", RateLimited("x", retry_after=120), wait(120)),
    Case("asked for too long", RateLimited("x", retry_after=121), TOO_LONG),
    Case("asked for nothing", RateLimited("x", retry_after=0), wait(1.0)),
    Case("break in mid-answer", BROKEN, wait(1.0, restart=True), had_content=True),
    Case("second break", BROKEN, wait(2.0, restart=True), CallHistory(interruptions=1), had_content=True),
    Case("third break", BROKEN, INTERRUPTED, CallHistory(interruptions=2), had_content=True),
    Case("breaks do not use up tries", BUSY, wait(16.0), CallHistory(failures=2, interruptions=2)),
    Case("hopeless in mid-answer", BadRequest("x"), "", had_content=True),
    Case("a model that loads", loading(10), wait(10), CallHistory(failures=25, wait_seconds=250)),
    Case("a model that never loads", loading(10), PATIENCE, CallHistory(failures=30, wait_seconds=291)),
    Case("loading in mid-answer", loading(10), INTERRUPTED, CallHistory(interruptions=2), had_content=True),
    Case("patience", RateLimited("x", retry_after=100), PATIENCE, CallHistory(failures=2, wait_seconds=201)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.id)
def test_decision(case: Case) -> None:
    plan = plan_retry(POLICY, case.error, history=case.history, has_content=case.had_content, jitter=case.roll)
    assert (plan if isinstance(plan, str) else (plan[0].delay, plan[0].restart)) == case.expected


def test_the_wait_is_capped() -> None:
    policy = RetryPolicy(max_tries=20)
    plan = plan_retry(policy, Overloaded("x"), history=CallHistory(failures=9), has_content=False, jitter=1.0)
    assert plan == (RetryScheduled(30.0, "x", False, 11, 20), CallHistory(failures=10, wait_seconds=30.0))


def test_history_counts_failures_breaks_and_waiting() -> None:
    history = CallHistory()
    for has_content, loads in ((False, False), (True, False), (False, True)):
        plan = plan_retry(
            POLICY,
            loading(2) if loads else RateLimited("x", retry_after=2),
            history=history,
            has_content=has_content,
            jitter=0,
        )
        assert not isinstance(plan, str)
        retry, history = plan
        assert (retry.attempt, retry.max_attempts) == ((0, 0) if loads else (2, 3) if has_content else (2, 4))
    assert history == CallHistory(failures=2, interruptions=1, wait_seconds=6.0)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.2, "1 seconds"), (90, "90 seconds"), (121, "3 minutes"), (3600, "60 minutes"), (10_000, "3 hours")],
)
def test_times_are_spoken_rounded_up(seconds: float, text: str) -> None:
    assert format_duration(seconds) == text
