"""Work-done progress for a turn. It sends one `begin`, reports at regular intervals, and one `end`.

A timer sends the reports, because a thinking model can be silent for minutes. The progress begins before the engine is
loaded, so this module imports nothing from the engine.
"""

from __future__ import annotations

import asyncio
import secrets
from contextlib import suppress
from typing import Protocol

from lsprotocol import types

from thinklsp.lsp.editor.client import Client, Token, WorkDoneProgress

_HEARTBEAT_SECONDS = 1.8
_MIN_INTERVAL_SECONDS = 0.11


class ProgressContent(Protocol):
    """The source of a turn's progress reports and partial results."""

    def flush(self) -> None:
        """Send the partial results collected so far."""

    def build_message(self) -> str:
        """Return the message for the next progress report."""


class WorkDone:
    """The work-done progress for a turn. Call `begin` or `offer`, then `end`. Repeated calls have no effect.

    `token` is the caller's token, or `thinklsp-<turnId>` by default. `turn_id` is the id for the new turn. `is_watched`
    is True if the caller sent the token and waits for the end of the turn. `is_cancelled` is True if the user pressed
    Cancel, which may happen before the turn is created. `is_launched` is True if the turn runs and will call `end`.
    `content` is set when the turn is created. Setting `changed` triggers a report.
    """

    def __init__(self, client: Client, title: str, token: Token | None = None) -> None:
        self.client = client
        self.turn_id = secrets.token_hex(8)
        self.token = f"thinklsp-{self.turn_id}" if token is None else token
        self.is_watched = token is not None
        self.is_cancelled = self.is_launched = False
        self.content: ProgressContent | None = None
        self.changed = asyncio.Event()
        self._title = title
        self._started = 0.0
        self._has_begun = False
        self._outcome: str | None = None
        self._heartbeat: asyncio.Task[None] | None = None

    @property
    def elapsed(self) -> float:
        """The number of seconds since the start."""
        return asyncio.get_running_loop().time() - self._started

    def begin(self) -> None:
        """Send `begin` on the caller's token."""
        self._start()
        self._send_begin()

    async def offer(self) -> None:
        """Create the token, and send `begin` if the client accepts it.

        If the turn has already ended, also send `end`. If the client rejects the token, send nothing.
        """
        if self._heartbeat is None:
            self._start()
            if await self.client.create_progress(self.token):
                self._send_begin()

    def end(self, outcome: str) -> None:
        """Send exactly one `end`, and nothing after it.

        The method does not await, so a cancellation cannot interrupt it.
        """
        if self._outcome is not None:
            return
        self._outcome = outcome
        if self._heartbeat is not None:
            self._heartbeat.cancel()
        if self.content is not None:
            self.content.flush()
        self._send_end()

    def _start(self) -> None:
        loop = asyncio.get_running_loop()
        self._started = loop.time()
        self._heartbeat = loop.create_task(self._run_heartbeat())

    def _send_begin(self) -> None:
        self._has_begun = True
        self._send(types.WorkDoneProgressBegin("thinklsp", cancellable=True, message=self._title))
        self._send_end()

    def _send_end(self) -> None:
        if self._has_begun and self._outcome is not None:
            self._send(types.WorkDoneProgressEnd(message=self._outcome))

    async def _run_heartbeat(self) -> None:
        """Send a report after a change, at most ten times a second, and at least every two seconds."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(_HEARTBEAT_SECONDS):
                    await self.changed.wait()
            self.changed.clear()
            if self.content is not None:
                self.content.flush()
            if self._has_begun:
                message = (
                    f"starting · {format_seconds(self.elapsed)}"
                    if self.content is None
                    else self.content.build_message()
                )
                self._send(types.WorkDoneProgressReport(cancellable=True, message=message))
            await asyncio.sleep(_MIN_INTERVAL_SECONDS)

    def _send(self, value: WorkDoneProgress) -> None:
        self.client.send_progress(self.token, value)


def format_seconds(seconds: float) -> str:
    """Format a duration for users: `12 s`, `3 min 4 s`."""
    total = int(seconds)
    return f"{total} s" if total < 60 else f"{total // 60} min {total % 60} s"
