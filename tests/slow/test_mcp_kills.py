"""kill -9 of thinklsp in phases of the life of an MCP server: no process is left, and the next thinklsp goes on.

`stopping_server.py` stops at a point and notes it, so each kill comes at an observed moment.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.acp.client import AcpClient, NoAnswer, selected
from tests.acp.fake_zed import FakeZed
from tests.acp.talk import Talk, begin_talk
from tests.e2e.acting import say
from tests.mcp_client.driving import build_case, driver
from tests.mcp_client.http_stub import hold_first_call, serve
from tests.support.epilogue import check_store, children, descendants, living_in
from tests.support.forking import Nursery
from tests.support.outside import Connect, Outside, start
from tests.support.signing_server import answer, tool
from tests.support.watching import seen

Json = Any
SERVER = str(Path(__file__).parents[1] / "mcp_client" / "stopping_server.py")
WORKS = "It works."
CALL = answer(tool("mcp__first__work"))
QUESTION = "session/request_permission"
MAX_SECONDS = 5.0
pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc"), pytest.mark.timing]
# Stops before a file of the state folder is replaced, as long as a file with the name of the point exists.
STOP_AT_RENAME = """
import os, sys, threading
def stop(event, arguments):
    if event == "os.rename":
        name = os.path.basename(str(arguments[1]))
        point = os.path.join(os.environ["HOME"], "stop", name)
        if os.path.exists(point):
            os.rmdir(point)
            os.mkdir(point + ".reached")
            threading.Event().wait()
sys.addaudithook(stop)
import runpy
runpy.run_module("thinklsp", run_name="__main__", alter_sys=True)
"""


@dataclass
class StoppingServer:
    """A server that stops at a point."""

    folder: Path
    point: str

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.stop_at(self.point)

    @property
    def entry(self) -> Json:
        return {"command": sys.executable, "args": [SERVER, str(self.folder)]}

    def configure(self, ask: str = "never") -> str:
        """Return the server's entry in the user's file."""
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in {**self.entry, "ask": ask}.items())
        return f"[mcp.servers.first]\n{text}"

    def notes(self) -> list[str]:
        path = self.folder / "notes"
        return path.read_text().splitlines() if path.exists() else []

    def stop_at(self, point: str) -> None:
        """Stop at this point from the next start. With the point `never`, the server works."""
        (self.folder / "point").write_text(point)


@asynccontextmanager
async def talking(place: Path, *script: Any, **how: Any) -> AsyncIterator[Talk]:
    talk = await begin_talk(place / "talk", *script, **how)
    try:
        yield talk
    finally:
        await talk.outside.stop()


async def kill(outside: Outside, place: Path) -> None:
    """Kill thinklsp, and wait until all of its processes and the server's daemons have ended."""
    below = descendants(outside.client.process.pid)
    assert outside.client.process.returncode is None
    await outside.kill()
    await check_ended(below, place)


async def check_ended(below: list[int], place: Path) -> None:
    await seen(lambda: not any(map(is_running, below)) and not living_in(str(place)), within=MAX_SECONDS)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


async def check_goes_on(talk: Talk, place: Path, *, has_other_tools: bool = False) -> None:
    """Check that the next agent loads the session, starts the server, and reads the files of the state folder.

    The provider of the tests binds its answers to the tools. `has_other_tools`: the server had none before the kill.
    """
    assert check_store(talk.outside.home) in ("ok", "none")
    talk.outside.told()
    await talk.outside.restart(kill=True)
    await talk.client.request("session/load", {"sessionId": talk.session, "cwd": str(talk.root), "mcpServers": []})
    if has_other_tools:
        await talk.new_session()
    talk.provider.script[:] = [CALL, say("Here.")]
    asked = len(talk.provider.requests)
    assert await talk.prompt("Are you there?") == "end_turn"
    last = talk.provider.requests[asked + 1].body["messages"][-1]
    assert WORKS in str(last)
    assert talk.outside.told() == []
    await talk.outside.finish()
    await check_ended([], place)


# The point at which the server stops.
POINTS = {
    "not initialized": "start",
    "half a handshake": "half handshake",
    "initialized": "initialized",
    "listing the second page": "second page",
    "waiting for a restart": "crash",
    "call sent": "call",
    "half a result": "half result",
    "flooding": "flood",
    "with a daemon": "daemon",
}


@pytest.mark.parametrize("phase", POINTS)
async def test_kill_over_acp(tmp_path: Path, nursery: Nursery | None, phase: str) -> None:
    point = POINTS[phase]
    # The third crash is followed by a wait of 4 seconds.
    count = 3 if point == "crash" else 1
    server = StoppingServer(tmp_path / "server", point)
    async with talking(tmp_path, CALL, say("Done."), own=server.configure(), nursery=nursery) as talk:
        talk.send("Use it.")
        await seen(lambda: server.notes().count(point) == count)
        await kill(talk.outside, tmp_path)
        server.stop_at("never")
        await check_goes_on(talk, tmp_path, has_other_tools=point == "crash")


@pytest.mark.parametrize("point", ["call", "question"])
async def test_kill_while_the_user_is_asked(tmp_path: Path, nursery: Nursery | None, point: str) -> None:
    """The user is asked for the permission of a call, or by the server during the call."""
    server = StoppingServer(tmp_path / "server", point)
    own = server.configure("once" if point == "call" else "never")
    async with talking(tmp_path, CALL, own=own, nursery=nursery) as talk:
        usual = talk.peer.handlers[QUESTION]
        asked = asyncio.Event()

        def ignore(_params: Json) -> Json:
            asked.set()
            raise NoAnswer

        talk.peer.handlers[QUESTION] = ignore
        talk.send("Use it.")
        async with asyncio.timeout(60):
            await asked.wait()
        await kill(talk.outside, tmp_path)
        server.stop_at("never")
        talk.peer.handlers[QUESTION] = usual
        await check_goes_on(talk, tmp_path)


@pytest.mark.parametrize("name", ["mcp-pins.json", "permissions.toml", "mcp-approvals.json"])
async def test_kill_before_a_file_is_replaced(tmp_path: Path, name: str) -> None:
    """The files keep the pin of a new tool, a permission for always, and the approval of a project's server."""

    async def connect(root: Path, variables: Mapping[str, str]) -> AcpClient:
        argv = [sys.executable, "-c", STOP_AT_RENAME, "acp"]
        return await AcpClient.start(argv, cwd=root, env=variables, peer=Agreeing(root))

    server = StoppingServer(tmp_path / "server", "never")
    how: Json = {"own": server.configure("once")}
    if name == "mcp-approvals.json":
        how = {"files": {".mcp.json": json.dumps({"mcpServers": {"first": server.entry}})}}
    async with talking(tmp_path, CALL, say("Done."), connect=connect, **how) as talk:
        point = talk.outside.home / "stop" / name
        point.mkdir(parents=True, mode=0o700)
        talk.send("Use it.")
        await seen(lambda: point.with_name(f"{name}.reached").exists())
        await kill(talk.outside, tmp_path)
        await check_goes_on(talk, tmp_path)


class Agreeing(FakeZed):
    """A client whose user uses the servers of a project, and allows their tools for always."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.choices = [agree]


def agree(params: Json) -> Json:
    option = next(each for each in params["options"] if each["name"].startswith(("Use it", "Always allow")))
    return selected(option["optionId"])


def write_config(place: Path, server: StoppingServer) -> dict[str, str | None]:
    """Write the user's file, and return the variable that names it."""
    config = place / "config.toml"
    config.write_text(server.configure())
    config.chmod(0o600)
    return {"THINKLSP_CONFIG": str(config)}


@pytest.mark.parametrize("point", ["call", "second page"])
async def test_kill_over_lsp(tmp_path: Path, servers: Connect, point: str) -> None:
    server = StoppingServer(tmp_path / "server", point)
    env = write_config(tmp_path, server)
    outside = await start(tmp_path / "lsp", CALL, say("Done."), env=env, connect=servers)
    try:
        outside.client.command("thinklsp.chat", {"prompt": "Use it."}, token="w")
        await seen(lambda: point in server.notes())
        await kill(outside, tmp_path)
        server.stop_at("never")
        assert check_store(outside.home) in ("ok", "none")
        await outside.reopen()
        outside.provider.script[:] = [CALL, say("Here.")]
        assert (await outside.turn("thinklsp.chat", {"prompt": "Are you there?"}))["text"] == "Here."
        [report] = (await outside.client.command("thinklsp.mcp"))["servers"]
        assert (report["state"], report["problems"]) == ("ready", [])
        await outside.finish()
        await check_ended([], tmp_path)
    finally:
        await outside.stop()


async def test_kill_during_a_test_of_a_server(tmp_path: Path) -> None:
    """`thinklsp mcp test` starts a server outside of any turn."""
    server = StoppingServer(tmp_path / "server", "second page")
    async with talking(tmp_path, env=write_config(tmp_path, server), session=False) as talk:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "thinklsp", "mcp", "test", "first",
            env=talk.outside.variables, cwd=talk.root, stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        await seen(lambda: "second page" in server.notes())
        below = descendants(process.pid)
        assert below
        process.kill()
        await process.wait()
        await seen(lambda: not any(map(is_running, below)), within=MAX_SECONDS)


async def test_kill_with_an_open_stream(tmp_path: Path, nursery: Nursery | None) -> None:
    """The server over HTTP sees that its connection ends. It works for the next thinklsp."""
    held: list[str] = []
    async with serve(hold_first_call(held, WORKS)) as stub:
        own = f'[mcp.servers.first]\nurl = "{stub.url}/mcp"\nask = "never"\n'
        async with talking(tmp_path, CALL, say("Done."), own=own, nursery=nursery) as talk:
            talk.send("Use it.")
            await seen(lambda: held == ["open"])
            await kill(talk.outside, tmp_path)
            await seen(lambda: held == ["open", "closed"], within=MAX_SECONDS)
            await check_goes_on(talk, tmp_path)


# The mode of a hostile server, whether it is ready when its client is killed, and whether a call is running.
PHASES = [
    ("silent", False, False), ("half_line", False, False), ("ok", True, False), ("hang", True, True),
    ("daemon", True, False), ("ignore_eof", True, False), ("daemon_ignores_eof", True, False),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "is_ready", "is_calling"), PHASES)
async def test_no_process_outlives_a_killed_client(tmp_path: Path, mode: str, is_ready: bool, is_calling: bool) -> None:
    case = {**build_case(mode, [{}] if is_calling or mode.startswith("daemon") else []), "wait": True}
    async with driver(tmp_path, [case]) as running:
        if is_ready and not is_calling:
            assert (await running.report())["error"] == ""
        await seen(running.list_left, within=60)
        guards = children(running.process.pid)
        assert guards
        running.process.kill()
        await running.process.wait()
        await seen(lambda: not running.list_left() and not any(map(is_running, guards)), within=MAX_SECONDS)


async def test_a_killed_guard_takes_the_server_with_it(tmp_path: Path) -> None:
    async with driver(tmp_path, [{**build_case("ignore_eof", []), "wait": True}]) as running:
        assert (await running.report())["error"] == ""
        for guard in children(running.process.pid):
            os.kill(guard, signal.SIGKILL)
        await seen(lambda: not running.list_left(), within=MAX_SECONDS)
