"""Starts `driver.py` with servers, and looks for the processes that are left."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parent.parent
HOSTILE = HERE / "hostile_server.py"
_MARK = "LEFT_BEHIND"


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
