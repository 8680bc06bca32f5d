"""A server in the sandbox: it sees the workspace, and neither the network nor other processes."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from thinklsp.mcp_client.connection import McpConnection
from thinklsp.mcp_client.server_config import ServerConfig
from thinklsp.sandbox.bubblewrap import find_sandbox_problem

SERVER = """
import json, os, sys
def answer(request, result):
    print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}), flush=True)
def look():
    found = {"pids": [n for n in os.listdir("/proc") if n.isdigit()], "env": dict(os.environ)}
    found["interfaces"] = os.listdir("/sys/class/net") if os.path.isdir("/sys/class/net") else []
    for name in ("written", ".git/config", "/usr/written"):
        try:
            open(name, "w").write("x")
            found[name] = "written"
        except OSError as error:
            found[name] = type(error).__name__
    try:
        found[".env"] = open(".env").read()
    except OSError:
        found[".env"] = ""
    return json.dumps(found)
for line in sys.stdin:
    request = json.loads(line)
    method = request["method"]
    if method == "server/discover":
        error = {"code": -32601, "message": "unknown"}
        print(json.dumps({"jsonrpc": "2.0", "id": request["id"], "error": error}), flush=True)
    elif method == "initialize":
        info = {"name": "s", "version": "1"}
        answer(request, {"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": info})
    elif method == "tools/list":
        answer(request, {"tools": [{"name": "look", "inputSchema": {"type": "object"}}]})
    elif method == "tools/call":
        answer(request, {"content": [{"type": "text", "text": look()}]})
"""
pytestmark = [
    pytest.mark.kernel,
    pytest.mark.skipif(
        find_sandbox_problem(shutil.which("bwrap")) is not None, reason="the sandbox does not work on this machine"
    ),
]


async def decline(_message: str, _schema: Mapping[str, object]) -> None:
    return None


async def never(_seconds: float) -> None:
    await asyncio.Event().wait()


async def test_a_sandboxed_server_writes_only_to_the_workspace(tmp_path: Path) -> None:
    folder = tmp_path / "workspace"
    (folder / ".git").mkdir(parents=True)
    (folder / ".git" / "config").write_text("[core]\n")
    (folder / ".env").write_text("SECRET=1\n")
    (folder / "server.py").write_text(SERVER)
    config = ServerConfig(
        "boxed", (sys.executable, str(folder / "server.py")), env={"MINE": "1"}, is_sandboxed=True,
        start_timeout_seconds=60.0,
    )  # fmt: skip
    connection = McpConnection(config, os.environ, [str(folder)], pause=never)
    try:
        await connection.start()
        [part] = (await connection.call("look", {}, decline)).parts
    finally:
        await connection.aclose()
    assert isinstance(part, str)
    found = json.loads(part)
    assert (folder / "written").read_text() == "x"
    assert found["written"] == "written"
    assert found["/usr/written"] != "written"
    assert found[".git/config"] != "written"
    assert found[".env"] == ""
    assert len(found["pids"]) <= 3
    assert found["env"]["MINE"] == "1"
    assert not any(name.startswith("THINKLSP") for name in found["env"])
