"""The seam between HTTP and a provider's protocol: one received request in, one reply value out.

A dialect is synchronous and has no clock of its own to wait on; pacing travels in the reply.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from thinklsp.simulator.frames import Reply, Whole


@dataclass(frozen=True, slots=True)
class Received:
    """A complete request. Header names are lower case; `path` without the query, which stands in `query`."""

    method: str
    path: str
    query: str
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class Dialect(Protocol):
    def serves(self, request: Received) -> bool:
        """Whether a request is this dialect's, right or wrong. Told by path and headers; the first dialect wins."""
        ...

    def reply(self, request: Received) -> Reply:
        """The answer, errors included; never raises for anything that a client can send."""
        ...

    def failure(self, status: int, message: str) -> Whole:
        """An error of the server itself (body too large, not HTTP) in this dialect's form."""
        ...

    def reset(self) -> None:
        """Forget conversations, cached prefixes and tries; blocks already signed stay valid."""
        ...
