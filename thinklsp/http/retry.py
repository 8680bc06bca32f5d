"""Decisions about retrying a failed model call, and the delay before each retry.

All functions are pure. The caller provides the random jitter. The provider adapters parse Retry-After headers into
`ProviderError.retry_after`.
"""

from __future__ import annotations

from dataclasses import dataclass

from thinklsp.core.errors import Overloaded, ProviderError
from thinklsp.core.events import RetryScheduled


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


def plan_retry(
    policy: RetryPolicy, error: ProviderError, *, history: CallHistory, has_content: bool, jitter: float
) -> tuple[RetryScheduled, CallHistory] | str:
    """Return the retry after an error with the new history, or the last sentence of the error if no retry follows.

    `history` does not include the error yet. `has_content` is true if content has arrived, which is discarded. `jitter`
    is in [0, 1).
    """
    if not error.retryable:
        return f"Try again in {format_duration(error.retry_after)}." if error.retry_after else ""
    if has_content and history.interruptions >= policy.max_restarts:
        return f"The answer was interrupted {history.interruptions + 1} times; send your prompt again."
    is_loading = isinstance(error, Overloaded) and error.loading
    if not has_content and not is_loading and history.failures + 1 >= policy.max_tries:
        return f"All {policy.max_tries} attempts failed; try again in a few minutes."
    requested = error.retry_after
    if requested is not None and requested > policy.max_retry_after_seconds:
        return f"The provider asked for a delay of {format_duration(requested)}; try again then."
    delay = requested if requested is not None and requested > 0 else _compute_backoff(policy, history, jitter)
    if history.wait_seconds + delay > policy.max_total_wait_seconds:
        return f"Retrying took longer than {format_duration(policy.max_total_wait_seconds)}; try again later."
    failures, interruptions = history.failures + (not has_content), history.interruptions + has_content
    attempts = (failures + 1, policy.max_tries)
    if has_content:
        attempts = (interruptions + 1, policy.max_restarts + 1)
    elif is_loading:
        attempts = (0, 0)  # Attempts are not limited.
    retry = RetryScheduled(delay, str(error), has_content, *attempts)
    return retry, CallHistory(failures, interruptions, history.wait_seconds + delay)


def format_duration(seconds: float) -> str:
    """Format a duration in seconds, minutes or hours, rounded up. Durations of up to two minutes are in seconds."""
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds > 2 * size:
            return f"{-int(-seconds // size)} {unit}"
    return f"{-int(-seconds // 1)} seconds"


def _compute_backoff(policy: RetryPolicy, history: CallHistory, jitter: float) -> float:
    step = history.failures + history.interruptions
    return jitter * min(policy.max_backoff_seconds, policy.base_seconds * policy.backoff_factor**step)
