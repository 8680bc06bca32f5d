"""Verified tokens, the access of a client that has one, and the limit on refused tokens per address.

This module loads no library, so that the server can import it without `[serve.oidc]`. A valid token is accepted even
beyond the limit: behind a reverse proxy all clients have the same address, and one client with an expired token must
not lock out the others. Beyond the limit, a refused client no longer receives the reason.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv6Address, ip_address
from typing import Protocol

from thinklsp.core.bounded_dict import BoundedDict
from thinklsp.core.errors import TokenRefused
from thinklsp.core.server_context import ClientIdentity

# The tolerated difference between the clocks of this machine and of the identity provider.
LEEWAY_SECONDS = 60
# The clock is read at least this often, because a suspended machine does not count the seconds of a timer.
_MAX_WAIT_SECONDS = 30.0
MAX_FAILURES = 10
PERIOD_SECONDS = 60.0
_MAX_ADDRESSES = 4096


@dataclass(frozen=True, slots=True)
class VerifiedToken:
    """The identity in a valid token.

    `ends_at` is the time at which the token is no longer accepted, in seconds since the epoch. It includes the leeway.
    """

    identity: ClientIdentity
    ends_at: float


class TokenVerifier(Protocol):
    """The interface of an object that verifies tokens."""

    async def verify(self, token: str) -> VerifiedToken:
        """Return the identity in a token. Raises TokenRefused."""
        ...


class ClientAccess:
    """The identity of a client, and the time at which its access ends. `clock` returns seconds since the epoch."""

    def __init__(self, verifier: TokenVerifier, token: VerifiedToken, clock: Callable[[], float] = time.time) -> None:
        self.identity = token.identity
        self._verifier = verifier
        self._ends_at = token.ends_at
        self._clock = clock
        self._renewal_event = asyncio.Event()

    async def renew(self, token: str) -> float:
        """Extend the access with a new token of the same user, and return the remaining seconds. Raises TokenRefused.

        The client's groups stay the same until it connects again.
        """
        verified = await self._verifier.verify(token)
        if (verified.identity.tenant, verified.identity.user) != (self.identity.tenant, self.identity.user):
            raise refuse("it belongs to another user")
        self._ends_at = verified.ends_at
        self._renewal_event.set()
        return self._ends_at - self._clock()

    async def wait_for_end(self) -> None:
        """Wait until the access ends. Renewals extend the wait."""
        while (remaining := self._ends_at - self._clock()) > 0:
            self._renewal_event.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(min(remaining, _MAX_WAIT_SECONDS)):
                    await self._renewal_event.wait()


def refuse(reason: str) -> TokenRefused:
    """Return the error for a refused token. `reason` is the end of a sentence and contains no part of the token."""
    return TokenRefused(f"The token was refused: {reason}.")


class FailureLimit:
    """The failures of each address in the last minute. If the table is full, the oldest address is forgotten."""

    def __init__(self, clock: Callable[[], float] = time.monotonic, max_addresses: int = _MAX_ADDRESSES) -> None:
        self._clock = clock
        # Ordered by the time of the last failure.
        self._failures: dict[str, deque[float]] = BoundedDict(max_addresses)

    def is_exceeded(self, address: str) -> bool:
        """Return whether the address has reached the limit."""
        times = self._failures.get(_group_address(address))
        return times is not None and len(times) == MAX_FAILURES and self._clock() - times[0] < PERIOD_SECONDS

    def add(self, address: str) -> None:
        """Count a failure."""
        group = _group_address(address)
        times = self._failures[group] = self._failures.get(group) or deque(maxlen=MAX_FAILURES)
        times.append(self._clock())


def _group_address(address: str) -> str:
    """Return the address, or the network of an IPv6 address, because one machine can use a whole network."""
    try:
        parsed = ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, IPv6Address) and parsed.ipv4_mapped is None:
        return parsed.exploded[:19]
    return str(parsed)
