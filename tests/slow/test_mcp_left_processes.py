"""Processes of servers after thinklsp was killed: none is left after five seconds."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

from tests.mcp_client.driving import build_case, driver
from tests.support.epilogue import children
from tests.support.watching import seen

MAX_SECONDS = 5.0
pytestmark = [pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc"), pytest.mark.timing]
# The mode of the server, whether it is ready when thinklsp is killed, and whether a call is running.
PHASES = [
    ("silent", False, False), ("half_line", False, False), ("ok", True, False), ("hang", True, True),
    ("daemon", True, False), ("ignore_eof", True, False), ("daemon_ignores_eof", True, False),
]  # fmt: skip


@pytest.mark.parametrize(("mode", "is_ready", "is_calling"), PHASES)
async def test_no_process_outlives_a_killed_client(tmp_path: Path, mode: str, is_ready: bool, is_calling: bool) -> None:
    case = {**build_case(mode, [{}] if is_calling or mode.startswith("daemon") else []), "wait": True}
    async with driver(tmp_path, [case]) as running:
        if is_ready and not is_calling:
            assert (await running.report())["error"] == ""
        await seen(running.list_left, within=60)
        guards = children(running.process.pid)
        assert guards
        running.process.kill()
        await running.process.wait()
        await seen(lambda: not running.list_left() and not any(map(is_running, guards)), within=MAX_SECONDS)


async def test_a_killed_guard_takes_the_server_with_it(tmp_path: Path) -> None:
    async with driver(tmp_path, [{**build_case("ignore_eof", []), "wait": True}]) as running:
        assert (await running.report())["error"] == ""
        for guard in children(running.process.pid):
            os.kill(guard, signal.SIGKILL)
        await seen(lambda: not running.list_left(), within=MAX_SECONDS)


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
