"""The cached public keys of an identity provider.

The keys are fetched again when they are ten minutes old, and when a token names an unknown key, which happens after the
provider has replaced its keys. While the provider cannot be reached, the cached keys stay valid for a day. Fetches are
at least 30 seconds apart, so that forged tokens cannot make the server flood the provider.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Generic, TypeVar

from thinklsp.core.errors import TokenRefused, TransportFailed
from thinklsp.identity.tokens import refuse

_log = logging.getLogger(__name__)

MAX_AGE_SECONDS = 600.0
MAX_OUTAGE_SECONDS = 24 * 3600.0
MIN_INTERVAL_SECONDS = 30.0

Key = TypeVar("Key")


class SigningKeys(Generic[Key]):
    """The keys of an identity provider by id. `fetch` returns the current keys or raises TransportFailed.

    `clock` returns seconds that never go back.
    """

    def __init__(
        self, fetch: Callable[[], Awaitable[Mapping[str, Key]]], clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._fetch = fetch
        self._clock = clock
        self._keys: Mapping[str, Key] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._fetch_task: asyncio.Task[None] | None = None

    async def find(self, key_id: str) -> Key:
        """Return the key with this id. Raises TokenRefused if the provider has no such key or cannot be reached."""
        if self._is_older_than(MAX_AGE_SECONDS) or key_id not in self._keys:
            await self.refresh()
        if self._is_older_than(MAX_OUTAGE_SECONDS):
            raise TokenRefused(
                "The token could not be checked, because the identity provider cannot be reached. Try again later.",
                is_outage=True,
            )
        if key_id not in self._keys:
            raise refuse("the identity provider has no such key")
        return self._keys[key_id]

    async def refresh(self) -> None:
        """Fetch the keys, unless the last attempt was less than 30 seconds ago. A failure is logged.

        Simultaneous callers share one fetch. If a caller is cancelled, the fetch continues, because a client could
        otherwise use up the only attempt of these 30 seconds by closing its connection.
        """
        if self._fetch_task is None or self._fetch_task.done():
            if self._tried_at is not None and self._clock() - self._tried_at < MIN_INTERVAL_SECONDS:
                return
            self._tried_at = self._clock()
            self._fetch_task = asyncio.create_task(self._replace_keys())
        await asyncio.shield(self._fetch_task)

    async def aclose(self) -> None:
        """Cancel a running fetch."""
        if self._fetch_task is not None:
            self._fetch_task.cancel()
            await asyncio.gather(self._fetch_task, return_exceptions=True)

    async def _replace_keys(self) -> None:
        try:
            self._keys = await self._fetch()
        except TransportFailed as error:
            _log.warning("the keys of the identity provider cannot be fetched: %s", error)
        else:
            self._fetched_at = self._clock()

    def _is_older_than(self, seconds: float) -> bool:
        return self._fetched_at is None or self._clock() - self._fetched_at > seconds
