"""How the process ends, whoever ends it and whatever it is doing: with its code, soon, and with nothing left behind."""

from __future__ import annotations

import asyncio
import re
import shutil
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.slow.running import SLACK, Tally, say, spread
from tests.support.client.raw import Ear
from tests.support.epilogue import check_left_behind
from tests.support.listening import Listening
from tests.support.outside import Connect, Outside, server_with, start
from tests.support.signing_server import Hold, Text, Thinking, answer
from tests.support.sizes import lots, tries
from tests.support.watching import seen

pytestmark = pytest.mark.timing
GONE = 1.5

# A disk that does not answer.
NO_DISK = """
import os, sqlite3
def hang(*_, **__):
    os.write(2, b"hanging\\n")
    os.read(os.pipe()[0], 1)
sqlite3.connect = hang
"""


@dataclass(frozen=True)
class Way:
    """Who ends the server, and the exit code."""

    code: int
    act: Callable[[Outside, subprocess.Popen[bytes]], object]


def signalled(number: signal.Signals) -> Way:
    return Way(128 + number, lambda outside, _: outside.client.process.send_signal(number))


def ordered(outside: Outside, *methods: str) -> None:
    client = outside.client
    for method in methods:
        if method == "shutdown":
            client.request(method)
        else:
            client.notify(method)


def input_ends(outside: Outside, *methods: str) -> None:
    ordered(outside, *methods)
    outside.client.wire.close()


WAYS = {
    "shutdown and exit": Way(0, lambda outside, _: ordered(outside, "shutdown", "exit")),
    "exit alone": Way(1, lambda outside, _: ordered(outside, "exit")),
    "end of input": Way(1, lambda outside, _: input_ends(outside)),
    "end of input after shutdown": Way(1, lambda outside, _: input_ends(outside, "shutdown")),
    "death of the editor": Way(1, lambda _, editor: editor.kill()),
    "TERM": signalled(signal.SIGTERM),
    "INT": signalled(signal.SIGINT),
    "HUP": signalled(signal.SIGHUP),
}
SOCKET_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
ROWS = [
    *((way, moment) for moment in ("idle", "at work", "deaf") for way in WAYS),
    *((way, "no disk") for way in ("shutdown and exit", "exit alone", "end of input", "TERM")),
    *((way, "before initialize") for way in ("exit alone", "end of input", "TERM", "INT", "HUP")),
]


def takes_over(process: int, number: signal.Signals) -> bool:
    caught = re.search(r"^SigCgt:\s*(\w+)$", Path(f"/proc/{process}/status").read_text(), re.MULTILINE)
    return caught is not None and bool(int(caught[1], 16) >> number - 1 & 1)


async def come_to(outside: Outside, moment: str) -> Ear:
    client, provider = outside.pair
    ear = Ear(client.wire)
    hold = Hold()
    match moment:
        case "idle":
            await client.command("thinklsp.effort")
        case "at work":
            provider.say(*[answer(Thinking(), hold, Text("Late.")) for _ in range(3)])
            for number in range(3):
                client.command("thinklsp.chat", {"prompt": "x"}, token=f"t-{number}")
            await provider.asked(3)
        case "deaf":
            # Each piece becomes a partial result of its own, and the pipe holds one.
            provider.say(answer(Text("y"), hold, *[Text("z" * 400_000) for _ in range(5)], letters=200_000))
            client.command("thinklsp.chat", {"prompt": "x", "partialResultToken": "p"}, token="t")
            await hold.reached.wait()
            ear.open.clear()
            hold.release()
            await provider.wait_for(lambda: provider.requests[-1].finished, what="the end of the answer")
        case "no disk":
            client.command("thinklsp.chat", {"prompt": "x"}, token="t")
            await seen(lambda: b"hanging" in client.stderr, within=60, what="the disk")
        case "before initialize":
            await seen(lambda: takes_over(client.process.pid, signal.SIGHUP), within=60, what="its own handlers")
    return ear


def an_editor() -> subprocess.Popen[bytes]:
    return subprocess.Popen([shutil.which("cat") or "cat"], stdin=subprocess.PIPE)


@asynccontextmanager
async def with_editor(place: Path, connect: Connect, *, initialize: bool = True, **how: Any) -> AsyncIterator[Any]:
    """Start a server that watches the process of an editor. Yield both, and check what they leave behind."""
    with an_editor() as editor:
        outside = await start(place, connect=connect, initialize=False, **how)
        client = outside.client
        try:
            if initialize:
                await client.initialize(outside.root, options=client.editor.settings, process=editor.pid)
            yield outside, editor
            await client.gone()
            await check_left_behind(outside)
        finally:
            await outside.stop()
            editor.kill()


async def ended(place: Path, way: Way, moment: str, connect: Connect) -> float:
    """Return the seconds from the cause of the exit until the exit."""
    async with with_editor(place, connect, initialize=moment != "before initialize") as (outside, editor):
        ear = await come_to(outside, moment)
        at = time.monotonic()
        way.act(outside, editor)
        async with asyncio.timeout(GONE * SLACK + (3 if way is WAYS["death of the editor"] else 0)):
            code = await outside.client.process.wait()
        took = time.monotonic() - at
        ear.open.set()
        await outside.client.gone()
        assert code == way.code
        assert b"Traceback" not in outside.client.stderr, outside.client.stderr.decode()
        assert [str(leak) for leak in outside.leaks()] == []
    return took


@pytest.mark.parametrize(("way", "moment"), ROWS, ids=[f"{moment}: {way}" for way, moment in ROWS])
async def test_exit_codes(tmp_path: Path, way: str, moment: str, servers: Connect, tally: Tally) -> None:
    took = await ended(tmp_path, WAYS[way], moment, server_with(NO_DISK) if moment == "no disk" else servers)
    say(f"{moment}, {way}: gone after {took * 1000:.0f} ms")
    tally("A-08", 1)


@pytest.mark.parametrize("number", SOCKET_SIGNALS, ids=lambda number: number.name)
async def test_exit_codes_on_a_socket(tmp_path: Path, number: signal.Signals, tally: Tally) -> None:
    server, hold = Listening("tcp"), Hold()
    outside = await start(tmp_path, *[answer(Thinking(), hold)] * 4, connect=server.connect)
    try:
        for count, leave in enumerate((("shutdown", "exit"), ("exit",), ()), 1):
            leaver = await outside.beside()
            leaver.client.command("thinklsp.chat", {"prompt": "x"}, token="t")
            await outside.provider.wait_for(lambda count=count: len(outside.provider.requests) == count)  # type: ignore[attr-defined,misc] # a signing server, asked at once
            ordered(leaver, *leave)
            if not leave:
                leaver.client.kill()
            await leaver.client.gone()
            assert outside.client.process.returncode is None
        await outside.client.command("thinklsp.effort")
        outside.client.command("thinklsp.chat", {"prompt": "x"}, token="t")
        await outside.provider.wait_for(lambda: len(outside.provider.requests) == 4)
        if number == signal.SIGTERM:
            # The turn may go on, until there is a second signal.
            outside.client.process.send_signal(number)
            await outside.client.wait_for(lambda: outside.client.calls("window/showMessage"), what="the notice")
        at = time.monotonic()
        assert await server.end(number) == 128 + number
        took = time.monotonic() - at
        assert took < GONE * SLACK
        assert "Traceback" not in server.log
        await outside.client.gone()
        assert outside.leaks() == []
        await check_left_behind(outside)
        say(f"tcp, {number.name}: gone after {took * 1000:.0f} ms")
    finally:
        await outside.stop()
        await server.stop()
    tally("A-08", 1)


def test_the_table_is_the_figure() -> None:
    assert len(ROWS) + len(SOCKET_SIGNALS) == tries("A-08")


ALWAYS_0 = "import os\nreal = os._exit\nos._exit = lambda code: real(0)\n"
WAITS = "import os, sys\nos._exit = lambda code: sys.exit(code)\n"
WRONG = {
    "another code": ("TERM", "idle", ALWAYS_0, AssertionError),
    "a thread is waited for": ("exit alone", "no disk", NO_DISK + WAITS, TimeoutError),
}


@pytest.mark.parametrize("wrong", WRONG)
async def test_a_server_that_ends_wrongly_is_noticed(tmp_path: Path, wrong: str) -> None:
    way, moment, program, noticed = WRONG[wrong]
    with pytest.raises(noticed):
        await ended(tmp_path, WAYS[way], moment, server_with(program))


async def survived(place: Path, connect: Connect, *, reaped: bool, within: float = 3 + 2 * SLACK) -> float:
    """Return the seconds that a server outlives its editor. Its pipe stays open. `reaped`: the parent waited for it."""
    async with with_editor(place, connect) as (outside, editor):
        await outside.client.command("thinklsp.effort")
        editor.kill()
        at = time.monotonic()
        if reaped:
            await asyncio.to_thread(editor.wait)
        async with asyncio.timeout(within):
            assert await outside.client.process.wait() == 1
        return time.monotonic() - at


@pytest.mark.parametrize(("lot", "count"), list(enumerate(lots(tries("A-10"), 5))))
async def test_a_killed_editor_is_noticed(tmp_path: Path, lot: int, count: int, servers: Connect, tally: Tally) -> None:
    took = await asyncio.gather(
        *(survived(tmp_path / str(number), servers, reaped=(lot + number) % 2 == 0) for number in range(count))
    )
    say(f"{count} editors killed, servers gone: {spread(took)}")
    tally("A-10", count)


async def test_a_server_that_outlives_its_editor_is_noticed(tmp_path: Path) -> None:
    blind = "import os\nos.pidfd_open = lambda _: os.pipe()[0]\n"
    with pytest.raises(TimeoutError):
        await survived(tmp_path, server_with(blind), reaped=True, within=5)
