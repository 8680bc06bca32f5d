"""The work-done progress of one turn: one `begin`, reports on a clock of their own, one `end`.

It lives on the clock and not on the stream, because a thinking model can be silent for minutes. It begins before the
engine is loaded, so this module imports nothing of the engine.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import Any, Protocol

from thinklsp.lsp.editor.client import Client

Token = str | int

_HEARTBEAT_SECONDS = 1.8
_MIN_INTERVAL_SECONDS = 0.11


class Content(Protocol):
    """What a turn shows beside its begin and end."""

    def flush(self) -> None:
        """Send the partial results that have gathered."""

    def message(self) -> str:
        """Return the message of the next report."""


class WorkDone:
    """`begin` or `offer`, then `end`; only the first call of each counts.

    `token`: the caller's, or `thinklsp-<turnId>` without one. `turn_id`: the id that the turn will have. `is_watched`:
    the caller gave the token and waits for the end of the turn. `is_cancelled`: the user pressed Cancel, perhaps before
    there was a turn to cancel. `is_launched`: the turn runs and calls `end` itself. `content` is set when there is a
    turn. `changed` makes a report due.
    """

    def __init__(self, client: Client, title: str, token: Token | None = None) -> None:
        self.client = client
        self.turn_id = secrets.token_hex(8)
        self.token = f"thinklsp-{self.turn_id}" if token is None else token
        self.is_watched = token is not None
        self.is_cancelled = self.is_launched = False
        self.content: Content | None = None
        self.changed = asyncio.Event()
        self._title = title
        self._started = 0.0
        self._begun = False
        self._outcome: str | None = None
        self._pulse: asyncio.Task[None] | None = None

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return asyncio.get_running_loop().time() - self._started

    def begin(self) -> None:
        """Send `begin` on the caller's token."""
        self._start()
        self._send_begin()

    async def offer(self) -> None:
        """Create the token, and send `begin` when the client accepts the token: with `end` behind it if the turn has
        ended by then. If the client refuses the token, nothing is sent on it."""
        if self._pulse is None:
            self._start()
            if await self.client.create_progress(self.token):
                self._send_begin()

    def end(self, outcome: str) -> None:
        """Send exactly one `end`, and nothing after it. It never waits: a cancel cannot stop it."""
        if self._outcome is not None:
            return
        self._outcome = outcome
        if self._pulse is not None:
            self._pulse.cancel()
        if self.content is not None:
            self.content.flush()
        self._send_end()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._started = loop.time()
        self._pulse = loop.create_task(self._beat())

    def _send_begin(self) -> None:
        self._begun = True
        self._send({"kind": "begin", "title": "thinklsp", "message": self._title, "cancellable": True})
        self._send_end()

    def _send_end(self) -> None:
        if self._begun and self._outcome is not None:
            self._send({"kind": "end", "message": self._outcome})

    async def _beat(self) -> None:
        """Report when something changed, at most ten times a second, and at least every two seconds."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_HEARTBEAT_SECONDS):
                    await self.changed.wait()
            self.changed.clear()
            if self.content is not None:
                self.content.flush()
            if self._begun:
                message = f"starting · {told_seconds(self.elapsed)}" if self.content is None else self.content.message()
                self._send({"kind": "report", "message": message, "cancellable": True})
            await asyncio.sleep(_MIN_INTERVAL_SECONDS)

    def _send(self, value: dict[str, Any]) -> None:
        self.client.progress(self.token, value)


def told_seconds(seconds: float) -> str:
    """Return a duration as people read it: `12 s`, `3 min 4 s`."""
    whole = int(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60} s"
