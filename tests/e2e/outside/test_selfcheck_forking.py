"""A forked server is a process of its own: it ends as one, and what one of them was given is unknown to the next."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pytest

from tests.support.outside import Connect

pytestmark = pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="servers are started here, not forked")


async def test_it_ends_as_one_that_was_started(tmp_path: Path, servers: Connect) -> None:
    variables = {"THINKLSP_STATE_DIR": str(tmp_path / "state"), "HOME": str(tmp_path)}
    first, second, third, fourth = [await servers(tmp_path, variables) for _ in range(4)]
    assert len({first.process.pid, second.process.pid, third.process.pid, fourth.process.pid, os.getpid()}) == 5
    await first.initialize(tmp_path)
    await second.initialize(tmp_path)
    await fourth.initialize(tmp_path)
    first.kill()
    assert await first.gone() == -signal.SIGKILL
    assert await second.close() == 0
    # The exit without `shutdown`, and a signal before anything else.
    fourth.notify("exit")
    assert await fourth.gone() == 1
    third.process.send_signal(signal.SIGTERM)
    assert await third.gone() in (-signal.SIGTERM, 128 + signal.SIGTERM)


async def test_it_sees_the_folder_and_the_variables_that_it_was_given(tmp_path: Path, servers: Connect) -> None:
    """The state folder and the log in it are made where they say, and nothing of another server's is left."""
    for name in ("one", "two"):
        state = tmp_path / name
        client = await servers(tmp_path, {"THINKLSP_STATE_DIR": str(state), "HOME": str(tmp_path)})
        await client.initialize(tmp_path)
        assert os.readlink(f"/proc/{client.process.pid}/cwd") == str(tmp_path)
        open_files = {os.readlink(f"/proc/{client.process.pid}/fd/{place}") for place in range(3)}
        assert all(file.startswith("pipe:") for file in open_files)
        assert await client.close() == 0
        assert state.is_dir()
