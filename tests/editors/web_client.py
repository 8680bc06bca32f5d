"""A client of vscode-ws-jsonrpc in node: what an editor in a browser is made of, without the editor."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.editors.programs import node_on_path, npm
from tests.editors.steps import Step
from tests.editors.trial import BROKEN, FILE, FIXED, Trial
from tests.support.listening import Listening

_SOURCES = Path(__file__).parent / "web_client"
_ORIGIN = "https://ide.example.com"
_CANCEL_MS = 1_000
_MAX_SECONDS = 90.0


async def install(room: Path) -> str:
    return await npm(room, _SOURCES, "vscode-ws-jsonrpc")


async def drive(trial: Trial, room: Path) -> None:
    server = Listening("ws", "--allow-origin", _ORIGIN)
    try:
        await server.start(trial.workspace, trial.variables)
        given = {"port": server.port, "token": server.token, "origin": _ORIGIN}
        given |= {"root": str(trial.workspace), "file": FILE, "text": BROKEN}
        await _judge(trial, await run_client(trial, room, given, trial.variables | node_on_path(room)))
        with trial.check("the server ends in order, and its token is in no log"):
            assert await server.end() == 143
            assert server.leaks() == []
    finally:
        await server.stop()


async def run_client(trial: Trial, room: Path, given: Mapping[str, object], variables: dict[str, str]) -> Any:
    """Run `client.mjs` and return what it saw. A token comes by standard input: others can read the arguments."""
    client = await asyncio.create_subprocess_exec(
        str(room / "bin" / "node"), str(room / "client.mjs"), env=variables,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        async with asyncio.timeout(_MAX_SECONDS):
            told, complained = await client.communicate(json.dumps(given).encode())
    finally:
        if client.returncode is None:
            client.kill()
            await client.wait()
    trial.searched(told + complained, "the client")
    assert client.returncode == 0, complained.decode()
    return json.loads(told)


async def _judge(trial: Trial, seen: Any) -> None:
    with trial.check("is refused without the token, and from another origin"):
        assert seen["refused"] == {"a wrong token": 401, "no token": 401, "a wrong origin": 403}
    with trial.check("connects with the token as a subprotocol"):
        assert seen["protocol"] == "lsp"
    fixed = seen["fixed"]
    with trial.check(Step.ACTION):
        assert fixed["title"] == "thinklsp: fix undefined name 'value'"
        assert "The parameter is called `values`" in fixed["answer"]
    with trial.check(Step.THINKING):
        phases = fixed["phases"]
        assert (phases[0], phases[-1]) == ("begin", "end")
        assert set(phases[1:-1]) == {"report"}
    with trial.check(Step.EDIT):
        assert (fixed["applied"], fixed["text"]) == ("all", FIXED)
    with trial.check(Step.CANCEL):
        cancelled = seen["cancelled"]
        assert cancelled["code"] == -32800
        assert cancelled["milliseconds"] < _CANCEL_MS
        await trial.until(lambda: trial.requests[-1].closed_by_client, "the connection closed")
    with trial.check("shuts down, and the connection is closed in order"):
        assert (seen["shutdown"], seen["closed"]) == (None, 1000)
