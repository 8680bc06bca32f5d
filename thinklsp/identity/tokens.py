"""Verified tokens, and the interface of an object that verifies them.

This module loads no library, so that the server can import it without `[serve.oidc]`.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from thinklsp.core.client_identity import ClientIdentity
from thinklsp.core.errors import TokenRefused

# The tolerated difference between the clocks of this machine and of the identity provider.
LEEWAY_SECONDS = 60


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """The identity in a valid token. `ends_at` is the time at which the token is no longer accepted, in seconds since
    the epoch. It includes the leeway."""

    identity: ClientIdentity
    ends_at: float


class TokenVerifier(Protocol):
    """The interface of an object that verifies tokens."""

    async def verify(self, token: str) -> VerifiedToken:
        """Return the identity in a token. Raises TokenRefused."""
        ...


def refuse(reason: str) -> TokenRefused:
    """Return the error for a refused token. `reason` is the end of a sentence and contains no part of the token."""
    return TokenRefused(f"The token was refused: {reason}.")


MAX_FAILURES = 10
PERIOD_SECONDS = 60.0

_MAX_ADDRESSES = 4096


class FailureLimit:
    """The failures of each address in the last minute. If the table is full, the oldest address is forgotten."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, max_addresses: int = _MAX_ADDRESSES) -> None:
        self._clock = clock
        self._max_addresses = max_addresses
        # Ordered by the time of the last failure.
        self._failures: dict[str, deque[float]] = {}

    def is_exceeded(self, address: str) -> bool:
        """Return whether the address has reached the limit."""
        times = self._failures.get(_group_address(address))
        return times is not None and len(times) == MAX_FAILURES and self._clock() - times[0] < PERIOD_SECONDS

    def add(self, address: str) -> None:
        """Count a failure."""
        group = _group_address(address)
        times = self._failures.pop(group, None) or deque(maxlen=MAX_FAILURES)
        times.append(self._clock())
        self._failures[group] = times
        if len(self._failures) > self._max_addresses:
            del self._failures[next(iter(self._failures))]


def _group_address(address: str) -> str:
    """Return the address, or the network of an IPv6 address, because one machine can use a whole network."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return parsed.exploded[:19]
    return str(parsed)
