"""Connections that break at byte offsets of recorded answers, in the four dialects: the edit comes once and whole."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
from contextlib import suppress
from pathlib import Path
from typing import Self
from urllib.parse import urlsplit

import pytest

from tests.slow.running import Tally, running, say
from tests.support.client.actions import ResponseError
from tests.support.epilogue import clock
from tests.support.outside import Connect, Json, Outside, own_server, server_with
from tests.support.services import WAYS, Service
from tests.support.sizes import SEED, lots, tries
from thinklsp.offline.scenario import Scenario

pytestmark = pytest.mark.timing
_NO_LINGER = struct.pack("ii", 1, 0)


class CutService(Service):
    """A service that breaks one of its answers. `cut`: the number of the answer since `begin` and the number of bytes
    before the break. An odd number of bytes ends in a reset. `was_cut`: the break has happened."""

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
            # Answers that are not a model's, such as a list of models, are not cut.
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


DIALECTS = ("anthropic", "openai", "google", "deepseek")
PER_SERVER = 500
BEFORE, AFTER = "x = 1\ny = 1\n", "x = 2\ny = 2\n"
STEPS: list[Json] = [
    [
        {"thinking": "I look first, at two places 🙂."},
        {"text": "I look. "},
        {"tool": "read_file", "input": {"path": "a.py"}},
        {"tool": "search_text", "input": {"pattern": "x", "literal": True}},
    ],
    [
        {"thinking": "Two edits, which are one."},
        {"tool": "edit_file", "input": {"path": "a.py", "old_text": "x = 1", "new_text": "x = 2"}},
        {"tool": "edit_file", "input": {"path": "a.py", "old_text": "y = 1", "new_text": "y = 2"}},
    ],
    [{"thinking": "That is all."}, {"text": "Done 🙂."}],
]
SCENARIO = {"pacing": {"chunk_chars": 40}, "turn": [{"when": "Round", "step": [{"block": step} for step in STEPS]}]}


async def turn(outside: Outside, uri: str, service: CutService, cut: tuple[int, int] | None) -> None:
    client = outside.client
    service.begin(cut)
    edits = len(client.edits())
    result = await outside.edit(uri, "Round.")
    assert (result["stopReason"], result["text"]) == ("end_turn", "Done 🙂."), cut
    assert result["edits"]["applied"] == "all", cut
    assert client.text(uri) == AFTER, cut
    assert len(client.edits()) == edits + 1, cut
    assert len(service.answers) <= len(STEPS) + service.was_cut, cut
    assert service.violations == [], cut
    client.change(uri, AFTER, BEFORE)


async def breaks(place: Path, dialect: str, lot: int, count: int, connect: Connect = own_server) -> int:
    chance, way, made = random.Random(f"{SEED} {dialect} {lot}"), WAYS[dialect], 0
    service = CutService(Scenario.model_validate(SCENARIO))
    options = {"provider": way.provider, "model": way.model}
    # The server waits before a retry, on its own clock.
    how = {"provider": service, "options": options, "connect": connect, "env": clock(100)}
    async with running(place, files={"a.py": BEFORE}, **how) as outside:
        uri = outside.open("a.py")
        await turn(outside, uri, service, None)
        sizes = [len(answer) for answer in service.answers]
        offsets = [(nth, offset) for nth, size in enumerate(sizes) for offset in range(size)]
        for cut in chance.sample(offsets, min(count, len(offsets))):
            await turn(outside, uri, service, cut)
            made += service.was_cut
    say(f"{dialect}: {made} of {count} turns were broken, at one of {len(offsets):,} offsets of {len(sizes)} streams")
    # Identifiers differ in length from turn to turn, so the last offsets may not exist.
    assert made > 0.95 * count
    return made


LOTS = list(enumerate(lots(tries("A-07", 1 / len(DIALECTS)), PER_SERVER)))


@pytest.mark.parametrize(("lot", "count"), LOTS)
@pytest.mark.parametrize("dialect", DIALECTS)
async def test_breaks_at_offsets(tmp_path: Path, dialect: str, lot: int, count: int, tally: Tally) -> None:
    tally("A-07", await breaks(tmp_path, dialect, lot, count))


TWICE = """
from thinklsp.jsonrpc.writer import FrameWriter
write = FrameWriter.write
def twice(self, body, **more):
    write(self, body, **more)
    if b'"workspace/applyEdit"' in body:
        write(self, body.replace(b'"id":', b'"id":77', 1), **more)
FrameWriter.write = twice
"""
ONCE_ONLY = """
from thinklsp.core.errors import StreamProtocolError, TransportFailed
kept = TransportFailed.__init__
TransportFailed.__init__ = lambda self, message, **_: kept(self, message, retryable=False)
StreamProtocolError.retryable = False
"""


@pytest.mark.parametrize("program", [TWICE, ONCE_ONLY], ids=["an edit twice", "no second try"])
async def test_a_server_that_breaks_with_the_stream_is_noticed(tmp_path: Path, program: str) -> None:
    with pytest.raises((AssertionError, ResponseError)):
        await breaks(tmp_path, "anthropic", 0, 5, server_with(program))
