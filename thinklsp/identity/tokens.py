"""Verified tokens, the access of a client that has one, and the interface of an object that verifies tokens.

This module loads no library, so that the server can import it without `[serve.oidc]`.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Protocol

from thinklsp.core.errors import TokenRefused
from thinklsp.core.server_context import ClientIdentity

# The tolerated difference between the clocks of this machine and of the identity provider.
LEEWAY_SECONDS = 60
# The clock is read at least this often, because a suspended machine does not count the seconds of a timer.
_MAX_WAIT_SECONDS = 30.0


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
