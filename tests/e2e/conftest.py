"""`begin(*answers, files=…)` starts server, editor and provider; the end of every test is the same. With
`connect=listening.connect` the editors share one server, over TCP and over WebSocket."""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.support.canary import Canary
from tests.support.client.actions import Editing
from tests.support.forking import Nursery
from tests.support.listening import Listening
from tests.support.outside import PASSED, ROOT, Connect, Outside, start

Begin = Callable[..., Awaitable[Outside]]


@pytest.fixture
async def begin(tmp_path: Path, servers: Connect, request: pytest.FixtureRequest) -> AsyncIterator[Begin]:
    started: list[Outside] = []

    async def begin(*script: Any, **how: Any) -> Outside:
        started.append(await start(tmp_path / str(len(started)), *script, **({"connect": servers} | how)))
        return started[-1]

    yield begin
    try:
        if request.node.stash.get(PASSED, False):
            for outside in started:
                await outside.finish()
    finally:
        for outside in started:
            await outside.stop()


@pytest.fixture(params=["tcp", "ws"])
async def listening(
    tmp_path: Path, nursery: Nursery | None, client_class: type[Editing], request: pytest.FixtureRequest
) -> AsyncIterator[Listening]:
    """To be named before `begin`, so that it outlives the editors. What it logs but its address is a failure."""
    server = Listening(request.param, nursery=nursery, client=client_class)
    yield server
    try:
        if request.node.stash.get(PASSED, False):
            assert server.process is not None
            assert (server.process.returncode or await server.end()) in (130, 143)
            assert server.log == f"thinklsp: listening on {server.kind}://127.0.0.1:{server.port}\n"
            assert server.leaks() == []
            assert Canary({"token": server.token}).search_tree(tmp_path) == []
    finally:
        await server.stop()


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    """Of a server alone, without a provider."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    kept = {"PATH": os.environ["PATH"], "LANG": "C.UTF-8", "PYTHONPATH": str(ROOT), "HOME": str(tmp_path)}
    return kept | {"THINKLSP_STATE_DIR": str(state), "XDG_CONFIG_HOME": str(tmp_path)}
