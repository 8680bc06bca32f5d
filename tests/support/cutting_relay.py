"""A relay in front of a server that cuts a connection when it sees chosen bytes from the client."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal

Cut = Literal["before", "after"]


class CuttingRelay:
    """`cuts`: for the next occurrences of `trigger`, whether the bytes still reach the server. `seen`: how many did."""

    def __init__(self, port: int, trigger: bytes) -> None:
        self._to = port
        self._trigger = trigger
        self.cuts: list[Cut] = []
        self.seen = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._open: set[socket.socket] = set()
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._to))
                self._open |= {client, server}
                for target, sides in ((self._relay_up, (client, server)), (self._relay_down, (server, client))):
                    self._threads.append(threading.Thread(target=target, args=sides))
                    self._threads[-1].start()

    def _relay_up(self, client: socket.socket, server: socket.socket) -> None:
        with suppress(OSError):
            while data := client.recv(65_536):
                if self._trigger in data:
                    self.seen += 1
                    if self.cuts:
                        if self.cuts.pop(0) == "after":
                            # The client hears nothing more, while the server still gets the bytes.
                            self._end(client)
                            server.sendall(data)
                        break
                server.sendall(data)
        self._end(client, server)
        client.close()

    def _relay_down(self, server: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := server.recv(65_536):
                client.sendall(data)
        self._end(client, server)
        server.close()

    def cut_all(self) -> None:
        self._end(*self._open)

    def close(self) -> None:
        self._end(self._listener)
        self._threads[0].join()
        self._listener.close()
        self.cut_all()
        for thread in self._threads:
            thread.join()

    def _end(self, *sides: socket.socket) -> None:
        for side in sides:
            with suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            self._open.discard(side)


@contextmanager
def cutting(port: int, trigger: bytes) -> Iterator[CuttingRelay]:
    relay = CuttingRelay(port, trigger)
    try:
        yield relay
    finally:
        relay.close()
