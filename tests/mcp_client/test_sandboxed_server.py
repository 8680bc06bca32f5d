"""A server in the sandbox: it sees the workspace, and neither the network nor other processes."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import pytest

from tests.mcp_client.driving import HOSTILE, connect, decline
from thinklsp.mcp_client.server_config import ServerConfig
from thinklsp.sandbox.bubblewrap import find_sandbox_problem

pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(
        find_sandbox_problem(shutil.which("bwrap")) is not None, reason="the sandbox does not work on this machine"
    ),
]


async def test_a_sandboxed_server_writes_only_to_the_workspace(tmp_path: Path) -> None:
    folder = tmp_path / "workspace"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text("[core]\n")
    (folder / ".env").write_text("SECRET=1\n")
    shutil.copy(HOSTILE, folder / "server.py")
    config = ServerConfig(
        "boxed", (sys.executable, str(folder / "server.py"), "look"), env={"MINE": "1"}, is_sandboxed=True,
        start_timeout_seconds=60.0,
    )  # fmt: skip
    async with connect(config, str(folder)) as connection:
        [part] = (await connection.call("work", {}, decline)).parts
    assert isinstance(part, str)
    found = json.loads(part)
    assert (folder / "written").read_text() == "x"
    assert found["written"] == "written 1"
    assert not found["/usr/written"].startswith("written")
    assert not found[".git/config"].startswith("written")
    assert "SECRET" not in found[".env"]
    assert len(found["pids"]) <= 3
    assert found["env"]["MINE"] == "1"
    assert not any(name.startswith("THINKLSP") for name in found["env"])
