"""The end in the middle of work, clocks that jump, and a machine that has nothing left to give."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.epilogue import check_answers, clock, faulty
from tests.support.outside import Outside, server_by
from tests.support.raw_client import ResponseError
from tests.support.signing_script import Hold, Text, Thinking, answer, tool

Json = Any
DONE = answer(Thinking(), Text("Done."))


async def chats(outside: Outside, count: int, hold: Hold) -> None:
    """So many turns that stand still in the middle of their answers."""
    provider: Any = outside.provider
    provider.say(*[answer(Thinking(), hold, Text("Late.")) for _ in range(count)])
    for number in range(count):
        outside.client.command("thinklsp.chat", {"prompt": f"{number}"}, token=f"many-{number}")
    await provider.asked(count)


async def test_shutdown_in_the_middle_of_32_chats(tmp_path: Path) -> None:
    """F-42: all of them are answered, and the process is gone soon after `exit`."""
    async with faulty(tmp_path, code=0) as outside:
        client = outside.client
        await client.command("thinklsp.effort")
        await chats(outside, 32, Hold())
        at = time.monotonic()
        await client.request("shutdown")
        replied = time.monotonic() - at
        assert await client.close() == 0
        assert time.monotonic() - at - replied < 3
        assert replied < 2
        assert client.checker.violations == []
        # There is nobody left to answer: the rest of the epilogue is checked on a second server.
        await outside.reopen()


JUMPS = {"a day ahead": (86_400.0, 0.0), "a day back": (-86_400.0, 0.0), "an hour asleep": (3_600.0, 3_600.0)}


@pytest.mark.parametrize("kind", JUMPS)
async def test_clocks_that_jump(tmp_path: Path, kind: str) -> None:
    """F-44: the clock on the wall decides nothing. After a sleep the stream is a break like any other."""
    jump, suspended = JUMPS[kind]
    hold, sleeping = Hold(), bool(suspended)
    first = answer(Thinking(), hold, Text("First."))
    env = clock(jump=jump, suspended=suspended)
    async with faulty(tmp_path, first, *([] if sleeping else [DONE]), env=env) as outside:
        client = outside.client
        turn = client.command("thinklsp.chat", {"prompt": "x"}, token="t")
        await hold.reached.wait()
        client.process.send_signal(signal.SIGUSR1)
        if sleeping:
            with pytest.raises(ResponseError, match="took longer than"):
                await turn
            outside.provider.say(DONE)  # type: ignore[attr-defined] # a signing server
        else:
            told = len(client.progress("t"))
            await client.wait_for(lambda: len(client.progress("t")) > told + 1, what="progress after the jump")
            hold.release()
            assert (await outside.result(turn))["text"] == "First."
        result = await outside.turn("thinklsp.chat", {"prompt": "And?", "sessionId": "last"})
        assert result["text"] == "Done."


def limited(limits: str) -> Any:
    return server_by(["bash", "-c", f'{limits}; exec "$0" -m thinklsp', sys.executable])


async def test_hardly_any_descriptors(tmp_path: Path) -> None:
    """F-45: 64 of them and more turns than that: some are refused with a sentence, none is left hanging."""
    hold = Hold()
    count = 60
    async with faulty(tmp_path, connect=limited("ulimit -n 64")) as outside:
        client, provider = outside.pair
        # What is loaded at the first turn needs files of its own.
        provider.say(DONE, *[answer(Thinking(), hold, Text("Late.")) for _ in range(count)])
        await outside.turn("thinklsp.chat", {"prompt": "x"})
        turns = [client.command("thinklsp.chat", {"prompt": f"{n}"}, token=f"t-{n}") for n in range(count)]
        await client.wait_for(lambda: len(provider.requests) + sum(t.answered for t in turns) >= 20, within=20)
        await check_answers(outside)
        await client.command("thinklsp.cancel")
        hold.release()
        ended = [await outcome(turn) for turn in turns]
        assert set(ended) - {"end_turn", "cancelled"} <= {s for s in ended if "Too many files" in s}, set(ended)
        provider.script[:] = [DONE]
        assert (await outside.turn("thinklsp.chat", {"prompt": "x"}))["text"] == "Done."
        outside.told()


async def outcome(turn: Any) -> str:
    try:
        return str((await turn)["stopReason"])
    except ResponseError as error:
        return error.message


async def test_no_more_threads(tmp_path: Path) -> None:
    """F-45: what needs one fails with a sentence; the server lives."""
    if os.getuid() == 0:
        pytest.skip("limits on processes do not bind root")
    async with faulty(tmp_path, DONE, connect=limited("ulimit -u 1")) as outside:
        await check_answers(outside)


async def test_little_memory(tmp_path: Path) -> None:
    """F-45: 256 MB of data, and a prompt of 40: refused or answered, and the server lives."""
    async with faulty(tmp_path, files={"a.py": "x" * 4_000_000}, connect=limited("ulimit -d 262144")) as outside:
        provider: Any = outside.provider
        look = answer(Thinking(), tool("search_text", pattern="x+"), tool("read_file", path="a.py"))
        provider.say(look, DONE)
        assert (await outside.turn("thinklsp.chat", {"prompt": "Look."}))["text"] == "Done."
        huge = outside.client.command("thinklsp.chat", {"prompt": "y" * 40_000_000}, token="huge")
        provider.say(DONE)
        await outcome(huge)
        provider.script[:] = [DONE]
        assert (await outside.turn("thinklsp.chat", {"prompt": "And?"}))["text"] == "Done."
        outside.told()
