"""The report about MCP servers: the state of a server that runs, and texts of a server that nobody can see."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from tests.settings.test_sources import user
from thinklsp.engine.mcp_report import describe_servers, inspect_connection
from thinklsp.mcp_client.connection import McpConnection
from thinklsp.mcp_client.consent import Pins
from thinklsp.mcp_client.server_entries import list_user_servers

SERVER = Path(__file__).parents[1] / "cli" / "small_mcp_server.py"
TOOLS = [
    {"name": "add", "description": "Add\u200b numbers.", "inputSchema": {"type": "object"}},
    {"name": "secret", "description": "Not wanted.", "inputSchema": {"type": "object"}},
]


async def test_a_running_server_is_described_with_its_tools(tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    argv = json.dumps([str(SERVER), str(tmp_path / "tools.json")])
    toml = f'[mcp.servers.small]\ncommand = {json.dumps(sys.executable)}\nargs = {argv}\ndeny = ["sec*"]\n'
    mine = user(toml + 'start_timeout_s = 60\n[mcp.servers.idle]\ncommand = "x"\n', tmp_path)
    config = next(config for config in list_user_servers(mine)[0] if config.name == "small")
    connection = McpConnection(config, os.environ, [str(tmp_path)])
    state = str(tmp_path / "state")
    try:
        await connection.start()
        report = await describe_servers(mine, (), state, [connection])
        idle, small = report["servers"]
        assert (idle["state"], idle["tools"]) == ("stopped", [])
        assert (small["state"], small["era"], small["lastError"]) == ("ready", "2025-11-25", None)
        assert small["startSeconds"] > 0
        [tool] = small["tools"]
        assert (tool["modelName"], tool["pin"]) == ("mcp__small__add", "new")
        assert tool["description"] == "Add<U+200B> numbers."
        Pins(state).accept(config, connection.tools)
        inspected = await inspect_connection(connection, Pins(state))
        assert inspected.pins is not None
        assert {pin.state for pin in inspected.pins.tools.values()} == {"same"}
        # A server whose entry changed in the meantime is described as it will be started.
        changed = user(toml.replace("deny", "tools"), tmp_path)
        [after] = (await describe_servers(changed, (), state, [connection]))["servers"]
        assert after["state"] == "stopped"
    finally:
        await connection.aclose()
    assert json.loads(json.dumps(report)) == report
