"""The beginning of a turn while the engine loads."""

from __future__ import annotations

import asyncio
import os
from typing import Any

import pytest

from tests.e2e.acting import say, start_chat
from tests.e2e.conformance.test_begin import CREATE, begins, kinds
from tests.e2e.conftest import Begin
from tests.support.outside import server_with

# Five times the 100 ms of the contract: the machine has other work.
CEILING_SECONDS = 0.5


# Holds back the last part of the engine until the test has opened and closed the pipe that the environment names.
# Servers that are started with it have the raw client: pygls' sends a Content-Type header, for which more is loaded.
GATE = """
import os, sys
class Gate:
    def find_spec(self, name, path=None, target=None):
        if name == "thinklsp.lsp.assistant":
            open(os.environ["GATE"], "rb").close()
sys.meta_path.insert(0, Gate())
"""


@pytest.mark.timing
@pytest.mark.parametrize("token", ["t", None])
async def test_begin_goes_out_while_the_engine_loads(begin: Begin, tmp_path: Any, token: str | None) -> None:
    """For a caller with a token and for one without."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    outside = await begin(say("Hello."), files={"a.py": "x = 1\n"}, env={"GATE": str(gate)}, connect=server_with(GATE))
    client = outside.client
    # The protocol is loaded when this has been answered.
    await client.code_actions(outside.open("a.py"), "x")
    loop = asyncio.get_running_loop()
    sent = loop.time()
    command = start_chat(outside, "Say hello.", token=token)
    await client.wait_for(lambda: begins(outside), what="begin")
    assert not command.answered
    os.close(await asyncio.to_thread(os.open, gate, os.O_WRONLY))
    given = await command
    [begun] = begins(outside)
    assert begun.at - sent < CEILING_SECONDS
    assert begun.message["params"]["token"] == (token or f"thinklsp-{given['turnId']}")
    await client.wait_for(lambda: kinds(outside, begun.message["params"]["token"]) == ["begin", "end"], what="end")


async def test_command_without_turn_shows_no_progress(begin: Begin, tmp_path: Any) -> None:
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    outside = await begin(env={"GATE": str(gate)}, files={"a.py": "x = 1\n"}, connect=server_with(GATE))
    blank = [
        start_chat(outside, None),
        outside.client.command("thinklsp.action", {"name": "edit", "uri": outside.open("a.py")}),
    ]
    os.close(await asyncio.to_thread(os.open, gate, os.O_WRONLY))
    assert [await command for command in blank] == [None, None]
    assert outside.client.calls(CREATE) == outside.client.calls("$/progress") == []
