"""Which modules a turn loads without an MCP server."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def test_a_turn_without_servers_loads_nothing_of_mcp(tmp_path: Path) -> None:
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(tmp_path),
        "PYTHONPATH": os.getcwd(),
        "THINKLSP_PROVIDER": "simulator",
    }
    argv = [sys.executable, "-X", "importtime", "-m", "thinklsp", "ask", "Hello."]
    done = subprocess.run(
        argv, capture_output=True, text=True, check=True, cwd=tmp_path, env=env, stdin=subprocess.DEVNULL
    )
    loaded = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines() if line.startswith("import time:")}
    assert "thinklsp.engine.turn" in loaded
    assert {name for name in loaded if "mcp" in name or name.startswith("httpx2")} == {"thinklsp.engine.mcp_servers"}
