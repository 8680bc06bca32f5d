"""`connect(name)`: a connection to a real server, which is started in an empty git repository without a network.

python -m tests.mcp_servers.install servers
MCP_SERVERS=servers pytest -m '' tests/mcp_servers -n 0
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from thinklsp.mcp_client.connection import McpConnection
from thinklsp.mcp_client.server_config import ServerConfig

Connect = Callable[..., McpConnection]

PYTHON_SERVERS = ("fetch", "git", "time")
NODE_SERVERS = ("everything", "filesystem", "memory")
SERVERS = (*PYTHON_SERVERS, *NODE_SERVERS)
FOLDER = Path(os.environ.get("MCP_SERVERS", "servers")).absolute()
SECRET = "sk-canary-0123456789"
# The server may start while other tests run.
SECONDS = 60.0


def build_command(name: str, folder: str) -> tuple[str, ...]:
    """Return the command line of a server that works in a folder."""
    if name in PYTHON_SERVERS:
        # The page of a test is on this machine.
        options = ("--allow-private-ips",) if name == "fetch" else ()
        return (str(FOLDER / "bin" / f"mcp-server-{name}"), *options)
    program = str(FOLDER / "node_modules" / ".bin" / f"mcp-server-{name}")
    return (str(FOLDER / "bin" / "node"), program, *((folder,) if name == "filesystem" else ()))


def pytest_configure() -> None:
    """Report missing servers once, not in every test."""
    programs = {name: build_command(name, "/") for name in SERVERS}
    missing = [
        name
        for name, words in programs.items()
        if not all(os.path.exists(word) for word in words if word.startswith(str(FOLDER)))
    ]
    if missing:
        advice = "Run `python -m tests.mcp_servers.install servers` and set MCP_SERVERS=servers"
        raise pytest.UsageError(f"The servers {', '.join(missing)} are not in {FOLDER}. {advice}.")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    work = tmp_path / "work"
    work.mkdir()
    subprocess.run(["git", "init", "-q", "-b", "main", work], check=True)  # noqa: S607 - the git of the machine
    return work


@pytest.fixture
async def connect(folder: Path) -> AsyncIterator[Connect]:
    """Return a function that builds the connection to a server. The server ends with the test."""
    async with AsyncExitStack() as stack:

        async def restart_at_once(seconds: float) -> None:
            """Replace the pause before a restart."""

        def build(name: str, pause: Callable[[float], Awaitable[None]] = restart_at_once) -> McpConnection:
            limits: dict[str, Any] = {"timeout_seconds": SECONDS, "start_timeout_seconds": SECONDS}
            env = {"MEMORY_FILE_PATH": str(folder / "memory.json")} if name == "memory" else {}
            config = ServerConfig(name, build_command(name, str(folder)), env, **limits)
            environment = os.environ | {"OPENAI_API_KEY": SECRET, "THINKLSP_X": SECRET, "PRIVATE": SECRET}
            connection = McpConnection(config, environment, [str(folder)], pause=pause)
            stack.push_async_callback(connection.aclose)
            return connection

        yield build
