"""`thinklsp.mcp`: the servers of the user and of the workspace, none of which is started by the question."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tests.e2e.conftest import Begin

NOTE = "import pathlib, sys; pathlib.Path(sys.argv[1]).touch()"


async def test_servers_are_described_and_not_started(begin: Begin, tmp_path: Path) -> None:
    started, config = tmp_path / "started", tmp_path / "config.toml"
    argv = json.dumps(["-c", NOTE, str(started)])
    config.write_text(f"[mcp.servers.own]\ncommand = {json.dumps(sys.executable)}\nargs = {argv}\n")
    config.chmod(0o600)
    theirs = {"command": sys.executable, "args": ["-c", "\u202ex"]}
    files = {".mcp.json": json.dumps({"mcpServers": {"theirs": theirs, "own": theirs}})}
    outside = await begin(files=files, env={"THINKLSP_CONFIG": str(config)})
    report = await outside.client.command("thinklsp.mcp")
    own, other = report["servers"]
    assert (own["name"], own["consent"], own["state"], own["tools"]) == ("own", "own", "stopped", [])
    assert (other["name"], other["consent"], other["place"]) == ("theirs", "new", "`.mcp.json`")
    assert "<U+202E>x" in other["description"]
    [problem] = report["problems"]
    assert "your config.toml has a server of that name" in problem
    assert not started.exists()


async def test_without_servers_the_report_is_empty(begin: Begin) -> None:
    outside = await begin()
    assert await outside.client.command("thinklsp.mcp") == {"servers": [], "disabled": [], "problems": []}
