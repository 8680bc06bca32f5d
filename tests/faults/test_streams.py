"""Answers that break off, fall silent, drip, or have no measure."""

from __future__ import annotations

import gzip
import re
import zlib
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path

import pytest

from tests.slow.running import Tally, say
from tests.support.client.actions import ResponseError
from tests.support.client.raw import RawClient
from tests.support.epilogue import clock, faulty, gauge
from tests.support.outside import Connect, check_sentence, own_server, server_with
from tests.support.signing_server import Bare, Event, Hold, Text, Thinking, answer
from tests.support.sizes import tries

pytestmark = pytest.mark.timing
HERE = answer(Thinking(), Text("Here."))
HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n"
PACKED = HEAD.replace(b"connection", b"content-encoding: gzip\r\nconnection")
JSON_HEAD = b"content-type: application/json\r\nconnection: close\r\n\r\n"
START = b'event: message_start\ndata: {"type":"message_start","message":{"model":"m","usage":{}}}\n\n'


def elapsed(client: RawClient, token: str) -> int:
    told = [value.get("message", "") for value in client.progress(token)]
    times = [re.search(r"(?:(\d+) min )?(\d+) s", text) for text in told if "·" in text]
    return max((60 * int(found[1] or 0) + int(found[2]) for found in times if found), default=0)


async def test_silence(tmp_path: Path) -> None:
    """The server waits for 300 seconds and then repeats the request."""
    short, long = Hold(), Hold()
    script = answer(Thinking(), short, Text("Late.")), answer(Thinking(), long, Text("Too late.")), HERE
    async with faulty(tmp_path, *script, env=clock(60)) as outside:
        client, provider = outside.pair
        for token, hold, ends in (("short", short, "Late."), ("long", long, "Here.")):
            turn = client.command("thinklsp.chat", {"prompt": "x"}, token=token)
            await hold.reached.wait()
            begun = elapsed(client, token)
            if hold is short:
                await client.wait_for(lambda begun=begun: elapsed(client, "short") >= begun + 280, within=60)  # type: ignore[misc] # bound at once
                hold.release()
            assert (await outside.result(turn))["text"] == ends
            assert 280 <= elapsed(client, token) - begun < 340
        assert len(provider.requests) == 3


async def test_nothing_but_pings(tmp_path: Path) -> None:
    pings = [item for _ in range(10) for item in (Hold(), Event("ping", {"type": "ping"}))]
    holds = [item for item in pings if isinstance(item, Hold)]
    async with faulty(tmp_path, answer(Thinking(), *pings, Text("Late.")), env=clock(150)) as outside:
        turn = outside.client.command("thinklsp.chat", {"prompt": "x"}, token="t")
        for number, hold in enumerate(holds, 1):
            at = 125 * number
            await outside.client.wait_for(
                lambda at=at: turn.answered or elapsed(outside.client, "t") >= at,  # type: ignore[misc]
                within=60,
                what=f"{at} s",
            )
            hold.release()
        assert (await outside.result(turn))["text"] == "Late."


async def test_a_drip_for_ever(tmp_path: Path) -> None:
    drops = [Hold() for _ in range(500)]
    pieces = [part for drop in drops for part in (b"x", drop)]
    async with faulty(tmp_path, Bare(lambda: [HEAD + START + b"data: ", *pieces]), env=clock(300)) as outside:
        client, provider = outside.pair
        turn = client.command("thinklsp.chat", {"prompt": "x"}, token="t")
        for drop in drops:
            await client.wait_for(lambda drop=drop: turn.answered or drop.reached.is_set())  # type: ignore[misc] # bound at once
            told = len(client.progress("t"))
            await client.wait_for(lambda told=told: turn.answered or len(client.progress("t")) > told + 9)  # type: ignore[misc] # bound at once
            drop.release()
            if turn.answered:
                break
        with pytest.raises(ResponseError, match="took longer than 1800 seconds"):
            await turn
        assert elapsed(client, "t") >= 1790
        assert len(provider.requests) == 1


def pack_without_end() -> Iterator[bytes]:
    packer = zlib.compressobj(wbits=31)
    while True:
        yield packer.compress(b"\n" * 16_000_000)


MEASURELESS: dict[str, tuple[bytes, Callable[[], Iterator[bytes]]]] = {
    "junk": (HEAD + START, lambda: repeat(b": " + b"x" * 65_533 + b"\n")),
    "endless_line": (HEAD + START + b"data: ", lambda: repeat(b"x" * 65_536)),
    "bomb": (PACKED, pack_without_end),
    "bombs": (PACKED, lambda: repeat(gzip.compress(b"\n" * 16_000_000))),
    "events": (HEAD + START, lambda: repeat(b"event: ping\ndata: {}\n\n" * 2_000)),
    "endless_head": (b"HTTP/1.1 200 OK\r\n", lambda: repeat(b"x-more: " + b"x" * 60_000 + b"\r\n")),
    "error_body": (b"HTTP/1.1 400 Bad\r\n" + JSON_HEAD, lambda: repeat(b"x" * 65_536)),
    "whole_json": (b"HTTP/1.1 200 OK\r\n" + JSON_HEAD + b"{", lambda: repeat(b'"x":1,' * 10_000)),
}


@pytest.mark.parametrize("kind", MEASURELESS)
async def test_answers_without_measure(tmp_path: Path, kind: str, tally: Tally) -> None:
    assert len(MEASURELESS) == tries("A-29")
    await endure(tmp_path, kind)
    tally("A-29", 1)


async def endure(place: Path, kind: str, connect: Connect = own_server) -> None:
    """Check that the server refuses such an answer, uses little memory for it, and reads the next one."""
    first, rest = MEASURELESS[kind]
    async with faulty(place, HERE, env=clock(50), connect=connect) as outside:
        await outside.turn("thinklsp.chat", {"prompt": "So that all is loaded."})
        before = gauge(outside.client.process.pid).resident
        outside.provider.say(*[Bare(lambda: chain([first], rest()))] * 4)
        with pytest.raises(ResponseError) as failed:
            await outside.client.command("thinklsp.chat", {"prompt": "x"}, token="t")
        check_sentence(failed.value.message)
        rise = gauge(outside.client.process.pid).resident - before
        say(f"{kind}: {failed.value.message} +{rise:.0f} MB, {len(outside.provider.requests) - 1} requests")
        assert rise < 40, "memory"
        outside.provider.script[:] = [HERE]
        assert (await outside.turn("thinklsp.chat", {"prompt": "And now?"}))["text"] == "Here."


HOARDING = """
from thinklsp.http.sse import SseDecoder
feed, hoard = SseDecoder.feed, []
def keep(self, data):
    hoard.append(bytes(data))
    return feed(self, data)
SseDecoder.feed = keep
"""


async def test_a_server_that_hoards_is_noticed(tmp_path: Path) -> None:
    with pytest.raises(AssertionError, match="memory"):
        await endure(tmp_path, "junk", server_with(HOARDING))
