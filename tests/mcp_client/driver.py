"""Drives connections to MCP servers in its own process, which is watched, and reports what happened.

The argument is a list of cases as JSON, which run one after another. Each case has `command`, `calls` (the arguments
of each call of the tool `work`), `options` of the configuration, and `wait` to keep the server until the process is
killed. The report of each case is a line of JSON.
"""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from tests.mcp_client.driving import decline, never
from tests.support.loop_watch import watch
from thinklsp.core.errors import McpFailed
from thinklsp.mcp_client.connection import McpConnection, load_session_class
from thinklsp.mcp_client.server_config import ServerConfig


async def run(cases: list[Any]) -> None:
    await load_session_class()
    for case in cases:
        tell(await drive(case))


async def drive(case: Any) -> dict[str, Any]:
    config = ServerConfig("hostile", tuple(case["command"]), **case["options"])
    connection = McpConnection(config, os.environ, [os.getcwd()], pause=never)
    report: dict[str, Any] = {"calls": [], "error": ""}
    before = reset_peak()
    try:
        await connection.start()
        for arguments in case["calls"]:
            report["calls"].append(await call(connection, arguments))
    except McpFailed as error:
        report["error"] = str(error)
    if case.get("wait"):
        tell(report)
        await asyncio.Event().wait()
    report |= {"state": connection.state, "tools": len(connection.tools)}
    report["changed"] = connection.are_tools_stale
    begun = time.monotonic()
    await connection.aclose()
    return {**report, "close_seconds": time.monotonic() - begun, "memory": read_status("VmHWM") - before}


def tell(report: dict[str, Any]) -> None:
    sys.stdout.write(f"{json.dumps(report)}\n")
    sys.stdout.flush()


async def call(connection: McpConnection, arguments: Any) -> str:
    try:
        result = await connection.call("work", arguments, decline)
    except McpFailed as error:
        return f"failed: {error}"
    return "".join(part for part in result.parts if isinstance(part, str))[:2000]


def reset_peak() -> float:
    """Begin to measure the largest resident size, and return the present one."""
    Path("/proc/self/clear_refs").write_text("5")
    return read_status("VmRSS")


def read_status(name: str) -> float:
    """Return a size of this process in megabytes."""
    return int(Path("/proc/self/status").read_text().partition(f"{name}:")[2].split()[0]) / 1024


if __name__ == "__main__":
    watch()
    asyncio.run(run(json.loads(sys.argv[1])))
