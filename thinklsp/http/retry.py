"""When a failed model call is tried again, and after how long. Pure: the caller brings the dice and does the waiting.

Retry-After headers are read by the provider adapters (`ProviderError.retry_after`); this module only weighs them.
"""

from __future__ import annotations

from dataclasses import dataclass

from thinklsp.core.errors import Overloaded, ProviderError


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """`tries`: requests before any content has come. `restarts`: new beginnings after a break in mid-answer.

    Times are seconds. `longest_wait` bounds what a service may ask for, `patience` all waiting of one model call; a
    server that is loading its model is asked for as long as that lasts.
    """

    tries: int = 4
    restarts: int = 2
    base: float = 1.0
    factor: float = 2.0
    cap: float = 30.0
    longest_wait: float = 120.0
    patience: float = 300.0


@dataclass(frozen=True, slots=True)
class CallHistory:
    """What one model call has been through: failures before content, breaks in mid-answer, seconds waited."""

    failures: int = 0
    breaks: int = 0
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class TryAgain:
    """`restart`: a partial answer is thrown away."""

    delay: float
    restart: bool


@dataclass(frozen=True, slots=True)
class GiveUp:
    """`addition` is a sentence to put behind the error's own, or empty."""

    addition: str = ""


def decide(
    policy: RetryPolicy, error: ProviderError, *, history: CallHistory, had_content: bool, roll: float
) -> TryAgain | GiveUp:
    """The failure is not yet part of `history`. `roll` in [0, 1) is the jitter."""
    if not error.retryable:
        return GiveUp()
    if had_content and history.breaks >= policy.restarts:
        return GiveUp(f"The answer broke off {history.breaks + 1} times and was given up: send it again.")
    is_loading = isinstance(error, Overloaded) and error.loading
    if not had_content and not is_loading and history.failures + 1 >= policy.tries:
        return GiveUp(f"It was tried {policy.tries} times: try again later.")
    asked = error.retry_after
    if asked is not None and asked > policy.longest_wait:
        return GiveUp(f"The service asks to wait {spoken_time(asked)}; try again then.")
    delay = asked if asked is not None and asked > 0 else _backoff(policy, history, roll)
    if history.waited + delay > policy.patience:
        return GiveUp(f"Trying again took longer than {spoken_time(policy.patience)}: try again later.")
    return TryAgain(delay, restart=had_content)


def after(history: CallHistory, verdict: TryAgain) -> CallHistory:
    """The history once the wait of `verdict` is over."""
    return CallHistory(
        history.failures + (not verdict.restart),
        history.breaks + verdict.restart,
        history.waited + verdict.delay,
    )


def spoken_time(seconds: float) -> str:
    """For sentences: seconds up to two minutes, then minutes, then hours, rounded up."""
    for unit, size in (("hours", 3600), ("minutes", 60)):
        if seconds > 2 * size:
            return f"{-int(-seconds // size)} {unit}"
    return f"{-int(-seconds // 1)} seconds"


def _backoff(policy: RetryPolicy, history: CallHistory, roll: float) -> float:
    step = history.failures + history.breaks
    return roll * min(policy.cap, policy.base * policy.factor**step)
