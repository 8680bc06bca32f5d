"""The stand-ins of all services on one port, and the record of what they were sent."""

from __future__ import annotations

import asyncio
import json
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from tests.stand_ins.anthropic.service import AnthropicDialect
from tests.stand_ins.chat.service import ChatDialect
from tests.stand_ins.dialect import (
    Dialect,
    ReceivedRequest,
    SimulatedReply,
    StreamedReply,
    WholeReply,
)
from tests.stand_ins.google.service import GoogleDialect
from tests.stand_ins.openai.service import OpenAiDialect
from tests.support.hosts import Host
from tests.support.signing_server import ClientLeft, CutByScript, HttpWire
from tests.support.watching import Watched
from thinklsp.offline.scenario import Scenario
from thinklsp.offline.script import Script

_MAX_REQUESTS = 1000


@dataclass(slots=True)
class RecordedRequest:
    """A request and what became of it.

    `body` is the parsed JSON, or None if the body is not JSON. `status` is None if no response was sent. `played` names
    the scenario step. `finished_at` is the time at which the reply was complete or a scripted fault ended it, and
    `closed_at` the time at which the client left; both are `time.monotonic` values.
    """

    method: str
    path: str
    headers: Mapping[str, str] = field(repr=False)
    body: Any = field(repr=False)
    raw: bytes = field(repr=False)
    status: int | None = None
    played: str | None = None
    finished_at: float | None = None
    closed_at: float | None = None

    @property
    def closed_by_client(self) -> bool:
        return self.closed_at is not None


class Simulator(Watched, Host):
    """`async with Simulator(scenario) as simulator:`. `on_finished` is called after each request.

    The first dialect that accepts a request answers it, or the last one if none does. `requests` are the latest ones.
    """

    def __init__(
        self, scenario: Scenario, port: int = 0, *, on_finished: Callable[[RecordedRequest], None] | None = None
    ) -> None:
        super().__init__()
        self.address = ("127.0.0.1", port)
        script = self._script = Script(scenario)
        self._dialects: tuple[Dialect, ...] = (
            GoogleDialect(script),
            OpenAiDialect(script),
            ChatDialect(script),
            AnthropicDialect(script),
        )
        self._recorded: deque[RecordedRequest] = deque(maxlen=_MAX_REQUESTS)
        self.on_finished = on_finished

    @property
    def base_url(self) -> str:
        return self.url

    @property
    def requests(self) -> list[RecordedRequest]:
        return list(self._recorded)

    def find_dialect(self, received: ReceivedRequest) -> Dialect:
        return next((dialect for dialect in self._dialects if dialect.can_answer(received)), self._dialects[-1])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = HttpWire(reader, writer)
        while (request := await wire.read_request()) is not None:
            line, headers, body = request
            method, target, _ = line.split(" ")
            path, _, query = target.partition("?")
            await self._answer(wire, ReceivedRequest(method, path, query, headers, body), target)

    async def _answer(self, wire: HttpWire, received: ReceivedRequest, target: str) -> None:
        recorded = RecordedRequest(received.method, target, received.headers, _parse(received.body), received.body)
        self._recorded.append(recorded)
        self.changed()
        reply = self.find_dialect(received).build_reply(received)
        recorded.played = reply.step_label
        broken: ConnectionError | None = None
        try:
            await wire.answer(self._play(wire, reply, recorded))
        except (ClientLeft, CutByScript) as error:
            broken = error
        if isinstance(broken, ClientLeft):
            recorded.closed_at = time.monotonic()
        else:
            recorded.finished_at = time.monotonic()
        self.changed()
        if self.on_finished is not None:
            self.on_finished(recorded)
        if broken is not None:
            raise broken

    async def _play(self, wire: HttpWire, reply: SimulatedReply, recorded: RecordedRequest) -> None:
        await asyncio.sleep(reply.delay_ms / 1000)
        match reply:
            case WholeReply():
                recorded.status = reply.status
                await wire.whole(reply.status, reply.headers, reply.body)
            case StreamedReply():
                recorded.status = 200
                await wire.begin_stream(reply.headers)
                await _play_frames(wire, reply)
            case _:
                assert_never(reply)


async def _play_frames(wire: HttpWire, reply: StreamedReply) -> None:
    for frame in reply.frames:
        if isinstance(frame, bytes):
            await wire.chunk(frame)
        elif frame:
            await _wait_with_pings(wire, frame, reply)
    if reply.breaks:
        wire.cut("reset")
    await wire.end_stream()


async def _wait_with_pings(wire: HttpWire, ms: int, reply: StreamedReply) -> None:
    every = reply.ping_every_ms
    while every and ms > every:
        await asyncio.sleep(every / 1000)
        await wire.chunk(reply.ping)
        ms -= every
    await asyncio.sleep(ms / 1000)


def _parse(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
