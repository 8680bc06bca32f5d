"""What was asked of the simulator and how it went: the record that tests and the curious read.

Bounded; times are `time.monotonic` seconds. Nothing is written anywhere.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from thinklsp.simulator.dialect import Received

_KEPT = 1000
_SECRET_HEADERS = frozenset({"authorization", "x-api-key", "api-key", "x-goog-api-key", "cookie"})


@dataclass(slots=True)
class RecordedRequest:
    """One request and its fate; the journal fills it in while the answer is played.

    `body` is the parsed JSON, None where it is none. `status` None: nothing was answered. `played`: the place in
    the scenario. `answered_at`: first byte; `finished_at`: the answer was sent whole, or cut by a fault.
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

    def as_json(self) -> dict[str, Any]:
        """For the record endpoint: without raw bytes, header values for keys shortened."""
        shown = {name: _shortened(value) if name in _SECRET_HEADERS else value for name, value in self.headers.items()}
        plain = ("method", "path", "body", "received_at", "status", "played", "answered_at", "finished_at")
        closing = ("closed_by_client", "closed_at")
        return {"headers": shown, **{name: getattr(self, name) for name in plain + closing}}


class Journal:
    """The latest requests, oldest first, and a way to wait for what they tell."""

    def __init__(self) -> None:
        self._requests: deque[RecordedRequest] = deque(maxlen=_KEPT)
        self._seen = 0
        self._changed = asyncio.Event()

    @property
    def requests(self) -> list[RecordedRequest]:
        return list(self._requests)

    @property
    def seen(self) -> int:
        """Requests since the last `clear`, those no longer kept included."""
        return self._seen

    def open(self, received: Received) -> RecordedRequest:
        target = f"{received.path}?{received.query}" if received.query else received.path
        body = _parsed(received.body)
        request = RecordedRequest(
            received.method, target, dict(received.headers), body, received.body, time.monotonic()
        )
        self._requests.append(request)
        self._seen += 1
        self._tell()
        return request

    def answered(self, request: RecordedRequest, status: int) -> None:
        request.status = status
        request.answered_at = time.monotonic()
        self._tell()

    def finished(self, request: RecordedRequest) -> None:
        request.finished_at = time.monotonic()
        self._tell()

    def left(self, request: RecordedRequest) -> None:
        """The client closed before its answer was whole."""
        request.closed_by_client = True
        request.closed_at = time.monotonic()
        self._tell()

    def clear(self) -> None:
        self._requests.clear()
        self._seen = 0
        self._tell()

    async def wait_until(
        self,
        holds: Callable[[], bool],
        timeout: float,  # noqa: ASYNC109 - callers in tests say how long they wait
    ) -> None:
        """Returns as soon as `holds()`; it is asked again at every change. Raises TimeoutError."""
        async with asyncio.timeout(timeout):
            while not holds():
                await self._changed.wait()

    def _tell(self) -> None:
        waiting, self._changed = self._changed, asyncio.Event()
        waiting.set()


def _parsed(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None


def _shortened(value: str) -> str:
    """At most four characters and never more than a quarter, so that keys can be told apart but not used."""
    return f"{value[: min(4, len(value) // 4)]}… ({len(value)} characters)"
