"""Many clients in one process: what TCP and WebSocket share.

Each client has a server, an engine and a store of its own over the one state folder, as if it had a process of its
own: a session belongs to the one that has locked it, and whoever else wants it is told so.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import NoReturn, Protocol

from thinklsp.lsp.protocol.frames import BadFrame
from thinklsp.lsp.protocol.socket_writer import Gone, SocketWriter, Wire
from thinklsp.lsp.protocol.writer import LAST_WORDS_SECONDS, Outbox
from thinklsp.lsp.serving.connection import GOODBYE_SECONDS, Connection, on_signals, run_to_its_end

_log = logging.getLogger(__name__)

_MAX_CLIENTS = 64
_MAX_STRANGERS = 64
_ADMISSION_SECONDS = 10.0


@dataclass(frozen=True, slots=True)
class Entrance:
    """Where clients come in: a socket that listens, the token that they must bring (None: none), and the origins of
    web pages that are allowed beside our own address."""

    socket: socket.socket
    token: str | None
    origins: frozenset[str] = frozenset()


class Client(Protocol):
    """Somebody whose socket was accepted."""

    def abort(self) -> None: ...


class Connections:
    """All clients of the process: at most `max_clients` that were admitted, and `max_strangers` that were not yet.

    A stranger has `patience` seconds. One too many takes the place of the oldest, so that a client with the token gets
    in, however many others say nothing.
    """

    def __init__(
        self,
        max_clients: int = _MAX_CLIENTS,
        max_strangers: int = _MAX_STRANGERS,
        patience: float = _ADMISSION_SECONDS,
        outbox: Callable[[], Outbox] = Outbox,
    ) -> None:
        self._max_clients = max_clients
        self._max_strangers = max_strangers
        self.patience = patience
        self._outbox = outbox
        # Oldest first.
        self._strangers: dict[Client, None] = {}
        self._admitted: set[Client] = set()
        self._served: set[Connection] = set()
        self._all_gone = asyncio.Event()
        self.ending = False

    def enter(self, stranger: Client) -> None:
        """Take in a socket that was accepted."""
        if len(self._strangers) >= self._max_strangers:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            oldest.abort()
        self._strangers[stranger] = None

    def admit(self, client: Client) -> bool:
        """Give a stranger one of the places of clients. False if there is none, or the server ends."""
        self._strangers.pop(client, None)
        # A client whose socket has gone may still be busy with ending what it began.
        if self.ending or max(len(self._admitted), len(self._served)) >= self._max_clients:
            _log.info("a client was turned away: no more than %d are served", self._max_clients)
            return False
        self._admitted.add(client)
        return True

    def leave(self, client: Client) -> None:
        self._strangers.pop(client, None)
        self._admitted.discard(client)

    async def serve(self, wire: Wire, first: Sequence[bytes | BadFrame] = ()) -> None:
        """One client that was admitted, to its end; what it began has ended then. `first` are messages that have been
        read already. What goes wrong with it is in the log and ends no other one."""
        if self.ending:
            return
        writer = SocketWriter(wire, self._outbox())
        connection = Connection(writer)
        self._served.add(connection)
        reading = asyncio.get_running_loop().create_task(_read(connection, wire, first))
        try:
            await connection.left()
            reading.cancel()
            await connection.close()
        except Exception:  # noqa: BLE001 - the others are served on, whatever it was
            _log.exception("a connection did not end as it should")
        finally:
            await writer.close()
            await wire.close(going_away=self.ending)
            self._served.discard(connection)
            if not self._served:
                self._all_gone.set()

    async def end(self) -> None:
        """Every client is left in order, within a bounded time."""
        self.ending = True
        for connection in self._served:
            connection.leave(1)
        try:
            async with asyncio.timeout(GOODBYE_SECONDS + LAST_WORDS_SECONDS):
                while self._served:
                    self._all_gone.clear()
                    await self._all_gone.wait()
        except TimeoutError:
            _log.warning("some work did not end in time and was left behind")
        for client in (*self._strangers, *self._admitted):
            client.abort()


async def _read(connection: Connection, wire: Wire, first: Sequence[bytes | BadFrame]) -> None:
    frames = first
    try:
        while True:
            for frame in frames:
                connection.receive(frame)
                # A client that sends without a pause must not keep the others waiting.
                await asyncio.sleep(0)
            frames = await wire.read()
    except Gone as gone:
        _log.info("a client has gone: %s", gone)
    finally:
        connection.leave(1)


Listening = Callable[[Entrance, Connections], AbstractAsyncContextManager[None]]


def serve_sockets(listening: Listening, entrance: Entrance, ready: Callable[[], None]) -> NoReturn:
    """Serves until a signal ends it, and the process: the exit code is 128 and its number. `ready` is called when
    clients can come."""
    run_to_its_end(_serve(listening, entrance, ready))


async def _serve(listening: Listening, entrance: Entrance, ready: Callable[[], None]) -> int:
    leaving: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def leave(code: int) -> None:
        if not leaving.done():
            leaving.set_result(code)

    on_signals(leave)
    connections = Connections()
    async with listening(entrance, connections):
        ready()
        code = await leaving
    await connections.end()
    return code
