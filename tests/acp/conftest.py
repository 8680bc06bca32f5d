"""`begin(*answers, files=…)` starts an agent, a client model and a provider; the end of every test is the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.acp.talk import Talk, begin_talk
from tests.support.epilogue import check_left_behind
from tests.support.forking import Nursery
from tests.support.outside import PASSED

Begin = Callable[..., Awaitable[Talk]]


@pytest.fixture
async def begin(tmp_path: Path, nursery: Nursery | None, request: pytest.FixtureRequest) -> AsyncIterator[Begin]:
    started: list[Talk] = []

    async def begin(*script: Any, **how: Any) -> Talk:
        place = tmp_path / str(len(started))
        started.append(await begin_talk(place, *script, **({"nursery": nursery} | how)))
        return started[-1]

    yield begin
    try:
        if request.node.stash.get(PASSED, False):
            for talk in started:
                await talk.outside.finish()
                await check_left_behind(talk.outside)
    finally:
        for talk in started:
            await talk.outside.stop()
