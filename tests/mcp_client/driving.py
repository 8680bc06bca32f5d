"""Connections to servers in this process and, by `driver.py`, in a watched one."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from thinklsp.mcp_client.connection import McpConnection
from thinklsp.mcp_client.server_config import ServerConfig

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
HOSTILE = HERE / "hostile_server.py"
_MARK = "LEFT_BEHIND"


async def decline(_message: str, _schema: Mapping[str, Any]) -> None:
    """Decline a server's question."""


async def never(_seconds: float) -> None:
    """Wait forever in place of the pause before a restart."""
    await asyncio.Event().wait()


@asynccontextmanager
async def connect(config: ServerConfig, *folders: str) -> AsyncIterator[McpConnection]:
    """Start a server, which ends with the context."""
    connection = McpConnection(config, os.environ, folders, pause=never)
    try:
        await connection.start()
        yield connection
    finally:
        await connection.aclose()


def build_case(mode: str, calls: Sequence[Any] = ({},), **options: Any) -> dict[str, Any]:
    """Return a case for a mode of the hostile server."""
    limits = {"start_timeout_seconds": 60.0, "timeout_seconds": 60.0}
    return {"command": [sys.executable, str(HOSTILE), mode], "calls": calls, "options": {**limits, **options}}


@dataclass
class Driver:
    """A driver's process. All processes of its servers carry `mark` in their environment."""

    process: asyncio.subprocess.Process
    mark: str
    held: Path

    async def report(self) -> Any:
        """Wait for the report of the next case."""
        assert self.process.stdout is not None
        async with asyncio.timeout(60):
            line = await self.process.stdout.readline()
        assert line, "the driver has failed"
        return json.loads(line)

    def list_left(self) -> list[int]:
        """Return the processes of servers that are running."""
        return [pid for pid in map(int, filter(str.isdigit, os.listdir("/proc"))) if self._is_ours(pid)]

    def _is_ours(self, pid: int) -> bool:
        try:
            return f"{_MARK}={self.mark}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            return False

    def read_held(self) -> str:
        """Return what kept the event loop for too long."""
        return self.held.read_text() if self.held.exists() else ""


@asynccontextmanager
async def driver(folder: Path, cases: Sequence[dict[str, Any]]) -> AsyncIterator[Driver]:
    mark = uuid.uuid4().hex
    marked = [{**case, "options": {**case["options"], "env": {_MARK: mark}}} for case in cases]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.mcp_client.driver", json.dumps(marked), cwd=ROOT, stdout=asyncio.subprocess.PIPE,
        env={**os.environ, "LOOP_WATCH": str(folder / "held")},
    )  # fmt: skip
    try:
        yield Driver(process, mark, folder / "held")
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()
