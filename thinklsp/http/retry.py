"""Decisions about retrying a failed model call, and the delay before each retry.

All functions are pure. The caller provides the random jitter. The provider adapters parse Retry-After headers into
`ProviderError.retry_after`.
"""

from __future__ import annotations

from dataclasses import dataclass

from thinklsp.core.errors import Overloaded, ProviderError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """The limits on retries.

    `max_tries` limits the number of requests before any content arrives. `max_restarts` limits the number of new
    requests after an interrupted answer. `max_retry_after_seconds` limits the delay that a provider may ask for.
    `max_total_wait_seconds` limits the total delay in a model call. While a server is loading its model, only the
    limits on delays apply.
    """

    max_tries: int = 4
    max_restarts: int = 2
    base_seconds: float = 1.0
    backoff_factor: float = 2.0
    max_backoff_seconds: float = 30.0
    max_retry_after_seconds: float = 120.0
    max_total_wait_seconds: float = 300.0


@dataclass(frozen=True, slots=True)
class CallHistory:
    """The failures before any content, the interrupted answers, and the total delay of a model call so far."""

    failures: int = 0
    interruptions: int = 0
    wait_seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Retry:
    """The decision to retry after `delay` seconds. If `restart` is true, the partial answer is discarded."""

    delay: float
    restart: bool


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The decision not to retry. `addition` is a sentence to append to the error message, if any."""

    addition: str = ""


def decide_retry(
    policy: RetryPolicy, error: ProviderError, *, history: CallHistory, has_content: bool, jitter: float
) -> Retry | GiveUp:
    """Decide whether to retry after an error. `history` does not include the error yet. `jitter` is in [0, 1)."""
    if not error.retryable:
        return GiveUp(f"Try again in {format_duration(error.retry_after)}." if error.retry_after else "")
    if has_content and history.interruptions >= policy.max_restarts:
        return GiveUp(f"The answer was interrupted {history.interruptions + 1} times; send your prompt again.")
    is_loading = isinstance(error, Overloaded) and error.loading
    if not has_content and not is_loading and history.failures + 1 >= policy.max_tries:
        return GiveUp(f"All {policy.max_tries} attempts failed; try again in a few minutes.")
    requested = error.retry_after
    if requested is not None and requested > policy.max_retry_after_seconds:
        return GiveUp(f"The provider asked for a delay of {format_duration(requested)}; try again then.")
    delay = requested if requested is not None and requested > 0 else _compute_backoff(policy, history, jitter)
    if history.wait_seconds + delay > policy.max_total_wait_seconds:
        return GiveUp(f"Retrying took longer than {format_duration(policy.max_total_wait_seconds)}; try again later.")
    return Retry(delay, restart=has_content)


def update_history(history: CallHistory, verdict: Retry) -> CallHistory:
    """Return the call history after another retry."""
    return CallHistory(
        history.failures + (not verdict.restart),
        history.interruptions + verdict.restart,
        history.wait_seconds + verdict.delay,
    )


def count_attempts(policy: RetryPolicy, error: ProviderError, retry: Retry, history: CallHistory) -> tuple[int, int]:
    """Return the number of the next attempt and the limit of attempts, or zeros if attempts are not limited.

    `history` includes the error.
    """
    if retry.restart:
        return history.interruptions + 1, policy.max_restarts + 1
    is_loading = isinstance(error, Overloaded) and error.loading
    return (0, 0) if is_loading else (history.failures + 1, policy.max_tries)


def format_duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours, rounded up. Durations of up to two minutes are in seconds."""
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds > 2 * size:
            return f"{-int(-seconds // size)} {unit}"
    return f"{-int(-seconds // 1)} seconds"


def _compute_backoff(policy: RetryPolicy, history: CallHistory, jitter: float) -> float:
    step = history.failures + history.interruptions
    return jitter * min(policy.max_backoff_seconds, policy.base_seconds * policy.backoff_factor**step)
