"""Verified tokens, and the interface of an object that verifies them.

This module loads no library, so that the server can import it without `[serve.oidc]`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from thinklsp.core.errors import TokenRefused
from thinklsp.core.server_context import ClientIdentity

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
