"""The writer of a connection over a socket: the same outbox as for a pipe, emptied by a task of the event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from typing import Protocol

from thinklsp.lsp.protocol.frames import BadFrame
from thinklsp.lsp.protocol.writer import LAST_WORDS_SECONDS, Outbox


class Gone(Exception):
    """The client has gone, or nothing more can be understood of what it sends."""


class Wire(Protocol):
    """One client's socket: message bodies in, message bodies out."""

    async def read(self) -> list[bytes | BadFrame]:
        """The next messages, at least one. Raises Gone."""
        ...

    async def send(self, body: bytes, went: Callable[[int], None]) -> None:
        """Waits while the client does not read; `went` is told of every piece that was taken. Raises Gone."""
        ...

    async def close(self, *, going_away: bool) -> None:
        """In order and within a bounded time. `going_away`: it is the server that ends."""
        ...

    def abort(self) -> None:
        """At once; `read` and `send` end."""
        ...


class SocketWriter:
    """To be used on the event loop alone. A client that is given up loses its socket, so that its reader ends too."""

    def __init__(self, wire: Wire, outbox: Outbox | None = None) -> None:
        self._wire = wire
        self._outbox = outbox or Outbox()
        self._changed = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._bring_out())

    @property
    def is_full(self) -> bool:
        return self._outbox.is_full

    def write(self, body: bytes, *, replaces: Hashable = None) -> None:
        self._outbox.put(body, replaces)
        self._changed.set()
        if self._outbox.lost:
            self._wire.abort()

    async def close(self) -> None:
        """What has been written is still brought out, for half a second at most."""
        self._outbox.close()
        self._changed.set()
        await asyncio.wait([self._task], timeout=LAST_WORDS_SECONDS)
        if not self._task.done():
            self._wire.abort()
            self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)

    async def _bring_out(self) -> None:
        try:
            while not self._outbox.ended:
                if (body := self._outbox.take()) is None:
                    self._changed.clear()
                    await self._changed.wait()
                else:
                    await self._wire.send(body, self._outbox.went)
        except Gone:
            pass
        finally:
            self._outbox.give_up()
