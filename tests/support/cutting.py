"""Every service behind a relay that breaks the connection where it is told to, and remembers what it let through."""

from __future__ import annotations

import asyncio
import socket
import struct
from contextlib import suppress
from typing import Self
from urllib.parse import urlsplit

from tests.support.services import Service
from thinklsp.simulator.scenario import Scenario

# Closing such a socket tells the other end of a reset.
_NO_LINGER = struct.pack("ii", 1, 0)


class CutService(Service):
    """`cut`: which answer of those since `begin` breaks, and behind how many bytes of its HTTP answer; every second
    one with a reset, the others as if the service had ended. `was_cut`: it came to that."""

    def __init__(self, scenario: Scenario) -> None:
        super().__init__(scenario)
        self.begin(None)

    def begin(self, cut: tuple[int, int] | None) -> None:
        self.cut, self.was_cut = cut, False
        self.answers: list[bytearray] = []

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        self._links: set[asyncio.Task[None]] = set()
        self._relay = await asyncio.start_server(self._link, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._relay.close()
        for link in self._links:
            link.cancel()
        await asyncio.gather(*self._links, return_exceptions=True)
        await super().__aexit__()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._relay.sockets[0].getsockname()[1]}"

    async def _link(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._links.add(task)
        above, to_service = await asyncio.open_connection("127.0.0.1", urlsplit(super().url).port)
        asking = asyncio.create_task(self._ask(reader, to_service))
        try:
            await self._answer(above, writer)
        except (ConnectionError, asyncio.CancelledError):
            pass  # One of the two has gone, or the test is over.
        finally:
            asking.cancel()
            for end in (writer, to_service):
                end.close()
                with suppress(ConnectionError):
                    await end.wait_closed()
            self._links.discard(task)

    async def _ask(self, reader: asyncio.StreamReader, to_service: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while data := await reader.read(1 << 16):
                if data.startswith(b"POST "):
                    self.answers.append(bytearray())
                to_service.write(data)
        to_service.close()

    async def _answer(self, above: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await above.read(1 << 16):
            # What is no answer of a model, such as a list of models, goes through as it is.
            answer = self.answers[-1] if self.answers else bytearray()
            if self.cut is not None and not self.was_cut and len(self.answers) == self.cut[0] + 1:
                room = self.cut[1] - len(answer)
                if len(data) > room:
                    self._break(writer, data[:room])
                    return
            answer += data
            writer.write(data)

    def _break(self, writer: asyncio.StreamWriter, last: bytes) -> None:
        assert self.cut is not None
        self.was_cut = True
        if last:
            writer.write(last)
        if self.cut[1] % 2:
            writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
