"""The end of 32 chats, clocks that jump, and a machine that has nothing left to give."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.slow.running import SLACK, Tally, say, spread
from tests.support.client.actions import ResponseError
from tests.support.client.raw import Ear, RawClient
from tests.support.epilogue import check_answers, clock, descendants, faulty, living_in
from tests.support.outside import UNWATCHED, Connect, server_by, server_with
from tests.support.signing_server import Hold, Text, Thinking, answer, tool
from tests.support.sizes import lots, tries
from tests.support.watching import seen
from thinklsp.tools.shadow_runner import explain_missing_sandbox

REPLIED, GONE = 0.5, 1.5
DONE = answer(Thinking(), Text("Done."))


@dataclass(frozen=True)
class End:
    """Seconds until `shutdown` was answered, None if the editor does not read, and until the process had exited."""

    replied: float | None
    gone: float


async def end_of_32(place: Path, connect: Connect, *, deaf: bool) -> End:
    """Shut down a server with 32 chats, one of them with a command that hangs. `deaf`: the editor stops reading."""
    config = place / "own" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text("[commands]\nenabled = true\n")
    hanging, hold = explain_missing_sandbox() is None, Hold()
    async with faulty(place, code=0, connect=connect, env={"THINKLSP_CONFIG": str(config)}) as outside:
        client, provider = outside.pair
        if hanging:
            provider.say(answer(tool("run_command", argv=["sleep", "1000"])))
            client.editor.message_answers = ["Run once"]
            client.command("thinklsp.chat", {"prompt": "Run."}, token="run")
            await seen(lambda: running("sleep", client.process.pid), within=60, what="the command")
        late = [Text("z" * 400_000)] * 5 if deaf else [Text("Late.")]
        asked = len(provider.requests)
        for number in range(32 - hanging):
            provider.say(answer(Thinking(), hold, *(late if number == 0 else [Text("Late.")]), letters=200_000))
            client.command("thinklsp.chat", {"prompt": "x", "partialResultToken": f"p-{number}"}, token=f"t-{number}")
        await provider.wait_for(lambda: len(provider.requests) == asked + 32 - hanging, within=60)
        below, ear = descendants(client.process.pid), Ear(client.wire)
        assert bool(below) is hanging
        if deaf:
            ear.open.clear()
            hold.release()
            await provider.wait_for(lambda: provider.requests[asked].finished, within=60, what="the end of an answer")
        at = time.monotonic()
        shutdown, replied = client.request("shutdown"), None
        if not deaf:
            await shutdown
            replied = time.monotonic() - at
        at = time.monotonic()
        client.notify("exit")
        async with asyncio.timeout(GONE * SLACK):
            assert await client.process.wait() == 0
        end = End(replied, time.monotonic() - at)
        await seen(lambda: not any(map(lives, below)), within=GONE * SLACK, what="the end of what it had started")
        ear.open.set()
        await client.gone()
        if deaf:
            # The last message breaks off, and later ones have no answer.
            client.checker.violations.clear()
        assert client.checker.violations == []
    return end


def running(program: str, above: int) -> bool:
    return any(state(process)[:1] == [program] for process in descendants(above))


def lives(process: int) -> bool:
    return state(process)[1:2] not in ([], ["Z"])


def state(process: int) -> list[str]:
    try:
        name, rest = Path(f"/proc/{process}/stat").read_text().partition("(")[2].rsplit(") ", 1)
    except OSError:
        return []
    return [name, rest[0]]


@pytest.mark.timing
@pytest.mark.parametrize(("lot", "count"), list(enumerate(lots(tries("A-09"), 10))))
async def test_shutdown_in_the_middle_of_32_chats(
    tmp_path: Path, lot: int, count: int, servers: Connect, tally: Tally
) -> None:
    ends = [await end_of_32(tmp_path / str(number), servers, deaf=(lot + number) % 2 == 1) for number in range(count)]
    replied = [end.replied for end in ends if end.replied is not None]
    say(f"shutdown answered: {spread(replied)}; gone after exit: {spread(end.gone for end in ends)}")
    assert max(replied) < REPLIED * SLACK
    tally("A-09", count)


# Another program than the command of `end_of_32`, which waits for that one.
ORPHAN = """
import subprocess
subprocess.Popen(["tail", "-f", "/dev/null"], start_new_session=True, stdin=subprocess.DEVNULL,
                 stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
"""
SLOW_END = "import os, time\nreal = os._exit\nos._exit = lambda code: (time.sleep(60), real(code))\n"


@pytest.mark.timing
@pytest.mark.parametrize("program", [ORPHAN, SLOW_END], ids=["a child stays", "the process stays"])
async def test_an_end_that_leaves_something_is_noticed(tmp_path: Path, program: str) -> None:
    with pytest.raises((AssertionError, TimeoutError)):
        await end_of_32(tmp_path, server_with(program), deaf=False)
    for process in living_in(str(tmp_path)):
        os.kill(process, signal.SIGKILL)


NOBODY = 64_731
_MAY = "+dac_override,+dac_read_search"
AS_NOBODY = [
    "setpriv", f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups",
    f"--inh-caps=-all,{_MAY}", f"--ambient-caps=-all,{_MAY}", f"--bounding-set=-all,{_MAY}",
]  # fmt: skip
SHELL = ["bash", "-c"]
JUMPS = {"a day ahead": (86_400.0, 0.0), "a day back": (-86_400.0, 0.0), "an hour asleep": (3_600.0, 3_600.0)}


@pytest.mark.parametrize("kind", JUMPS)
async def test_clocks_that_jump(tmp_path: Path, kind: str) -> None:
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
            outside.provider.say(DONE)
        else:
            told = len(client.progress("t"))
            await client.wait_for(lambda: len(client.progress("t")) > told + 1, what="progress after the jump")
            hold.release()
            assert (await outside.result(turn))["text"] == "First."
        result = await outside.turn("thinklsp.chat", {"prompt": "And?", "sessionId": "last"})
        assert result["text"] == "Done."


def limited(limits: str) -> Any:
    return server_by(["bash", "-c", f'{limits}; exec "$0" -m thinklsp', sys.executable])


@pytest.mark.timing
async def test_hardly_any_descriptors(tmp_path: Path) -> None:
    hold = Hold()
    count = 60
    async with faulty(tmp_path, connect=limited("ulimit -n 64")) as outside:
        client, provider = outside.pair
        # The first turn loads modules, which needs descriptors.
        provider.say(DONE, *[answer(Thinking(), hold, Text("Late.")) for _ in range(count)])
        await outside.turn("thinklsp.chat", {"prompt": "x"})
        turns = [client.command("thinklsp.chat", {"prompt": f"{n}"}, token=f"t-{n}") for n in range(count)]
        await client.wait_for(lambda: len(provider.requests) + sum(t.answered for t in turns) >= 20, within=60)
        await check_answers(outside)
        await client.command("thinklsp.cancel")
        hold.release()
        ended = [await outcome(turn) for turn in turns]
        assert set(ended) - {"end_turn", "cancelled"} <= {s for s in ended if "Too many files" in s}, set(ended)
        provider.script[:] = [DONE]
        assert (await outside.turn("thinklsp.chat", {"prompt": "x"}))["text"] == "Done."
        outside.told()


def as_nobody(limits: str) -> Connect:
    """Start the server as another user: root has no limit on processes, and a limit counts all processes of a user."""
    if (problem := other_user_problem()) is not None:
        pytest.skip(problem)

    async def connect(root: Path, variables: Mapping[str, str]) -> RawClient:
        for place in (root.parent, *root.parent.rglob("*")):
            os.chown(place, NOBODY, NOBODY)
        return await RawClient.start(
            [*AS_NOBODY, *SHELL, f'{limits}; exec "$0" -m thinklsp', sys.executable], cwd=root, env=variables
        )

    return connect


@cache
def other_user_problem() -> str | None:
    if os.getuid() != 0 or shutil.which("setpriv") is None:
        return "only root, by setpriv, can be somebody whose threads can be counted"
    tried = subprocess.run([*AS_NOBODY, sys.executable, "-c", "import thinklsp"], capture_output=True, check=False)
    return None if tried.returncode == 0 else f"no other user here: {tried.stderr.decode()[-200:]}"


async def outcome(turn: Any) -> str:
    try:
        return str((await turn)["stopReason"])
    except ResponseError as error:
        return error.message


# The limit is too low for the writer, the engine or the store, or high enough: a pool may start another thread before
# the previous one is idle.
THREADS = {1: "gone", 2: "refused", 3: "refused", 6: "answered"}


@pytest.mark.kernel
@pytest.mark.timing
@pytest.mark.parametrize("most", THREADS)
async def test_no_more_threads(tmp_path: Path, most: int) -> None:
    gone = THREADS[most] == "gone"
    async with faulty(
        tmp_path, code=1 if gone else 0, connect=as_nobody(f"ulimit -u {most}"), env=UNWATCHED
    ) as outside:
        client = outside.client
        outside.provider.say(*[DONE] * (THREADS[most] == "answered"))
        if gone:
            await asyncio.wait_for(client.process.wait(), 60)
            assert b"start another thread" in client.stderr
            client.checker.violations.clear()
        else:
            came = await outcome(client.command("thinklsp.chat", {"prompt": "x"}, token="t"))
            assert came == "end_turn" if THREADS[most] == "answered" else "start another thread" in came
            with pytest.raises(ResponseError, match="-32601"):
                await client.request("thinklsp/echo", {})
            assert await client.close() == 0
        assert client.checker.violations == []
        assert b"Traceback" not in client.stderr or THREADS[most] == "refused"


@pytest.mark.timing
async def test_little_memory(tmp_path: Path) -> None:
    connect = limited("ulimit -d 262144")
    # A prompt of 40 MB is decoded in one step.
    async with faulty(tmp_path, files={"a.py": "x" * 4_000_000}, connect=connect, env=UNWATCHED) as outside:
        look = answer(Thinking(), tool("search_text", pattern="x+"), tool("read_file", path="a.py"))
        outside.provider.say(look, DONE)
        assert (await outside.turn("thinklsp.chat", {"prompt": "Look."}))["text"] == "Done."
        huge = outside.client.command("thinklsp.chat", {"prompt": "y" * 40_000_000}, token="huge")
        outside.provider.say(DONE)
        await outcome(huge)
        outside.provider.script[:] = [DONE]
        assert (await outside.turn("thinklsp.chat", {"prompt": "And?"}))["text"] == "Done."
        outside.told()
