"""The simulator's journal, which records each request and its outcome.

The journal is kept in memory and is limited in size. Times are `time.monotonic` values in seconds.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.stand_ins.dialect import ReceivedRequest

MAX_REQUESTS = 1000
_SECRET_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"})


@dataclass(slots=True)
class RecordedRequest:
    """A recorded request and its outcome, which is set while the reply is sent.

    `body` is the parsed JSON, or None if the body is not JSON. `status` is None if no response was sent. `played` names
    the scenario step. `answered_at` is the time of the first byte. `finished_at` is the time at which the reply was
    complete or a scripted fault ended it.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: Any = field(repr=False)
    raw: bytes = field(repr=False)
    received_at: float
    status: int | None = None
    played: str | None = None
    answered_at: float | None = None
    finished_at: float | None = None
    closed_by_client: bool = False
    closed_at: float | None = None

    def build_json(self) -> dict[str, Any]:
        """Return the request as JSON for `/__simulator/requests`, without the raw body and with shortened API keys."""
        headers = {
            name: _truncate_secret(value) if name in _SECRET_HEADERS else value for name, value in self.headers.items()
        }
        return {name: getattr(self, name) for name in self.__slots__ if name != "raw"} | {"headers": headers}


class Journal:
    """The latest requests, oldest first. Callers can wait until the journal changes."""

    def __init__(self, max_requests: int = MAX_REQUESTS) -> None:
        self._requests: deque[RecordedRequest] = deque(maxlen=max_requests)
        self._request_count = 0
        self._change_event = asyncio.Event()

    @property
    def requests(self) -> list[RecordedRequest]:
        return list(self._requests)

    @property
    def request_count(self) -> int:
        """The number of requests since the last `clear`, including requests that are no longer in the journal."""
        return self._request_count

    def add_request(self, received: ReceivedRequest) -> RecordedRequest:
        target = f"{received.path}?{received.query}" if received.query else received.path
        try:
            body = json.loads(received.body)
        except ValueError:
            body = None
        request = RecordedRequest(
            received.method, target, dict(received.headers), body, received.body, time.monotonic()
        )
        self._requests.append(request)
        self._request_count += 1
        self._notify_waiters()
        return request

    def update_request(self, request: RecordedRequest, **changes: object) -> None:
        """Update fields of a recorded request, for example `status` or `finished_at`."""
        for name, value in changes.items():
            setattr(request, name, value)
        self._notify_waiters()

    def clear(self) -> None:
        self._requests.clear()
        self._request_count = 0
        self._notify_waiters()

    async def wait_until(
        self,
        predicate: Callable[[], bool],
        timeout: float,  # noqa: ASYNC109 - tests pass their own timeout
    ) -> None:
        """Wait until `predicate()` is true. The predicate is checked after every change.

        Raises TimeoutError after `timeout` seconds.
        """
        async with asyncio.timeout(timeout):
            while not predicate():
                await self._change_event.wait()

    def _notify_waiters(self) -> None:
        waiting, self._change_event = self._change_event, asyncio.Event()
        waiting.set()


def _truncate_secret(value: str) -> str:
    """Replace a secret with its length and up to four of its first characters, so that keys can be distinguished."""
    return f"{value[: min(4, len(value) // 4)]}… ({len(value)} characters)"
