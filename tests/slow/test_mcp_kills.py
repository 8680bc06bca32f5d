"""kill -9 of thinklsp in phases of the life of an MCP server: no process is left, and the next thinklsp goes on.

`stopping_server.py` stops at a point and notes it, so each kill comes at an observed moment. Together with
`test_mcp_left_processes.py`, these are the phases in which a server must not outlive thinklsp.
"""

from __future__ import annotations

import asyncio
import json
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
from tests.mcp_client.holding_relay import holding_call
from tests.slow.test_mcp_left_processes import MAX_SECONDS, is_running
from tests.support.epilogue import check_store, descendants, living_in
from tests.support.forking import Nursery
from tests.support.outside import Connect, Outside, start
from tests.support.signing_server import answer, tool
from tests.support.watching import seen

Json = Any
SERVER = str(Path(__file__).parents[1] / "mcp_client" / "stopping_server.py")
WORKS = "It works."
CALL = answer(tool("mcp__first__work"))
QUESTION = "session/request_permission"
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
class Servers:
    """The folders of the servers `first` and `second`, each with the point at which its server stops."""

    place: Path

    def entry(self, name: str, point: str) -> Json:
        folder = self.place / name
        folder.mkdir(parents=True)
        (folder / "point").write_text(point)
        return {"command": sys.executable, "args": [SERVER, str(folder)]}

    def own(self, name: str, point: str, ask: str = "never") -> str:
        """Return the entry of the user's file."""
        lines = {**self.entry(name, point), "ask": ask}
        text = "".join(f"{key} = {json.dumps(value)}\n" for key, value in lines.items())
        return f"[mcp.servers.{name}]\n{text}"

    def notes(self, name: str = "first") -> list[str]:
        path = self.place / name / "notes"
        return path.read_text().splitlines() if path.exists() else []

    def repair(self) -> None:
        """Let the servers work from their next start."""
        for path in self.place.glob("*/point"):
            path.write_text("never")


@asynccontextmanager
async def talking(place: Path, *script: Any, **how: Any) -> AsyncIterator[Talk]:
    talk = await begin_talk(place, *script, **how)
    try:
        yield talk
    finally:
        await talk.outside.stop()


async def kill(outside: Outside, own: Path) -> None:
    """Kill thinklsp, and wait until all of its processes and the servers' daemons have ended."""
    below = descendants(outside.client.process.pid)
    assert outside.client.process.returncode is None
    await outside.kill()
    await check_ended(below, own)


async def check_ended(below: list[int], own: Path) -> None:
    await seen(lambda: not any(map(is_running, below)) and not living_in(str(own)), within=MAX_SECONDS)


async def check_goes_on(talk: Talk, servers: Servers, own: Path, *, has_other_tools: bool = False) -> None:
    """Check that the next agent loads the session, starts the server, and reads the files of the state folder.

    The provider of the tests binds its answers to the tools. `has_other_tools`: the server had none before the kill.
    """
    servers.repair()
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
    await check_ended([], own)


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
    servers, own = Servers(tmp_path / "servers"), tmp_path / "talk"
    async with talking(own, CALL, say("Done."), own=servers.own("first", point), nursery=nursery) as talk:
        talk.send("Use it.")
        await seen(lambda: servers.notes().count(point) == count)
        await kill(talk.outside, tmp_path)
        await check_goes_on(talk, servers, tmp_path, has_other_tools=point == "crash")


@pytest.mark.parametrize("point", ["never", "ready"])
async def test_kill_between_turns(tmp_path: Path, nursery: Nursery | None, point: str) -> None:
    """With the point `ready`, the server ignores the end of its input and polite signals."""
    servers, own = Servers(tmp_path / "servers"), tmp_path / "talk"
    async with talking(own, say("Hello."), own=servers.own("first", "never"), nursery=nursery) as talk:
        (servers.place / "first" / "point").write_text(point)
        if point == "ready":
            talk.send("Hello.")
            await seen(lambda: "ready" in servers.notes())
        else:
            assert await talk.prompt("Hello.") == "end_turn"
        await kill(talk.outside, tmp_path)
        await check_goes_on(talk, servers, tmp_path)


async def test_kill_after_a_cancel(tmp_path: Path, nursery: Nursery | None) -> None:
    servers, own = Servers(tmp_path / "servers"), tmp_path / "talk"
    async with talking(own, CALL, own=servers.own("first", "cancel"), nursery=nursery) as talk:
        talk.send("Use it.")
        await seen(lambda: "waiting" in servers.notes())
        talk.client.cancel(talk.session)
        await seen(lambda: "cancel" in servers.notes())
        await kill(talk.outside, tmp_path)
        await check_goes_on(talk, servers, tmp_path)


@pytest.mark.parametrize("point", ["call", "question"])
async def test_kill_while_the_user_is_asked(tmp_path: Path, nursery: Nursery | None, point: str) -> None:
    """The user is asked for the permission of a call, or by the server during the call."""
    ask = "once" if point == "call" else "never"
    servers, own = Servers(tmp_path / "servers"), tmp_path / "talk"
    async with talking(own, CALL, own=servers.own("first", point, ask), nursery=nursery) as talk:
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
        talk.peer.handlers[QUESTION] = usual
        await check_goes_on(talk, servers, tmp_path)


async def test_kill_while_a_second_server_starts(tmp_path: Path, nursery: Nursery | None) -> None:
    servers, own = Servers(tmp_path / "servers"), tmp_path / "talk"
    both = servers.own("first", "never") + servers.own("second", "start")
    async with talking(own, CALL, say("Done."), own=both, nursery=nursery) as talk:
        talk.send("Use it.")
        await seen(lambda: "ready" in servers.notes() and "start" in servers.notes("second"))
        await kill(talk.outside, tmp_path)
        await check_goes_on(talk, servers, tmp_path)


async def test_kill_at_the_end(tmp_path: Path, nursery: Nursery | None) -> None:
    """The server keeps running after its input has ended, and thinklsp is killed while it waits."""
    servers, own = Servers(tmp_path / "servers"), tmp_path / "talk"
    async with talking(own, say("Hello."), own=servers.own("first", "end of input"), nursery=nursery) as talk:
        assert await talk.prompt("Hello.") == "end_turn"
        talk.client.process.stdin.close()
        await seen(lambda: "end of input" in servers.notes())
        await kill(talk.outside, tmp_path)
        await check_goes_on(talk, servers, tmp_path)


@pytest.mark.parametrize("name", ["mcp-pins.json", "permissions.toml", "mcp-approvals.json"])
async def test_kill_before_a_file_is_replaced(tmp_path: Path, name: str) -> None:
    """The files keep the pin of a new tool, a permission for always, and the approval of a project's server."""

    async def connect(root: Path, variables: Mapping[str, str]) -> AcpClient:
        argv = [sys.executable, "-c", STOP_AT_RENAME, "acp"]
        return await AcpClient.start(argv, cwd=root, env=variables, peer=Agreeing(root))

    servers, own = Servers(tmp_path / "servers"), tmp_path / "talk"
    if name == "mcp-approvals.json":
        entries = {"mcpServers": {"first": servers.entry("first", "never")}}
        how: Json = {"files": {".mcp.json": json.dumps(entries)}}
    else:
        how = {"own": servers.own("first", "never", "once")}
    async with talking(own, CALL, say("Done."), connect=connect, **how) as talk:
        point = talk.outside.home / "stop" / name
        point.mkdir(parents=True, mode=0o700)
        talk.send("Use it.")
        await seen(lambda: point.with_name(f"{name}.reached").exists())
        await kill(talk.outside, tmp_path)
        await check_goes_on(talk, servers, tmp_path)


class Agreeing(FakeZed):
    """A client whose user uses the servers of a project, and allows their tools for always."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.choices = [agree]


def agree(params: Json) -> Json:
    option = next(each for each in params["options"] if each["name"].startswith(("Use it", "Always allow")))
    return selected(option["optionId"])


@pytest.mark.parametrize("point", ["call", "second page"])
async def test_kill_over_lsp(tmp_path: Path, connect_lsp: Connect, point: str) -> None:
    servers, config = Servers(tmp_path / "servers"), tmp_path / "config.toml"
    config.write_text(servers.own("first", point))
    config.chmod(0o600)
    outside = await start(
        tmp_path / "lsp", CALL, say("Done."), env={"THINKLSP_CONFIG": str(config)}, connect=connect_lsp
    )
    try:
        outside.client.command("thinklsp.chat", {"prompt": "Use it."}, token="w")
        await seen(lambda: point in servers.notes())
        await kill(outside, tmp_path)
        servers.repair()
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


@pytest.fixture
def connect_lsp(servers: Connect) -> Connect:
    return servers


async def test_kill_during_a_test_of_a_server(tmp_path: Path) -> None:
    """`thinklsp mcp test` starts a server outside of any turn."""
    servers, config = Servers(tmp_path / "servers"), tmp_path / "config.toml"
    config.write_text(servers.own("first", "never"))
    config.chmod(0o600)
    async with talking(tmp_path / "talk", say("Hello."), env={"THINKLSP_CONFIG": str(config)}) as talk:
        assert await talk.prompt("Hello.") == "end_turn"
        (servers.place / "first" / "point").write_text("second page")
        (servers.place / "first" / "notes").unlink()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "thinklsp", "mcp", "test", "first",
            env=talk.outside.variables, cwd=talk.root, stdout=asyncio.subprocess.DEVNULL,
        )  # fmt: skip
        await seen(lambda: "second page" in servers.notes())
        below = descendants(process.pid)
        assert below
        process.kill()
        await process.wait()
        await seen(lambda: not any(map(is_running, below)), within=MAX_SECONDS)
        await check_goes_on(talk, servers, tmp_path)


async def test_kill_with_an_open_stream(tmp_path: Path, nursery: Nursery | None) -> None:
    """The server over HTTP sees that its connection ends. It works for the next thinklsp."""
    held: list[str] = []
    async with holding_call(held, WORKS) as url:
        own = f'[mcp.servers.first]\nurl = "{url}"\nask = "never"\n'
        async with talking(tmp_path / "talk", CALL, say("Done."), own=own, nursery=nursery) as talk:
            talk.send("Use it.")
            await seen(lambda: held == ["open"])
            await kill(talk.outside, tmp_path)
            await seen(lambda: held == ["open", "closed"], within=MAX_SECONDS)
            await check_goes_on(talk, Servers(tmp_path / "servers"), tmp_path)
