"""One fixture: `begin(*answers, files=…)` starts server, editor and provider; the end of every test is the same."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from tests.support.outside import Outside, start

Begin = Callable[..., Awaitable[Outside]]
_passed = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Generator[None, Any, Any]:
    report = yield
    if report.when == "call":
        item.stash[_passed] = report.passed
    return report


@pytest.fixture
async def begin(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Begin]:
    started: list[Outside] = []

    async def begin(*script: Any, **how: Any) -> Outside:
        started.append(await start(tmp_path / str(len(started)), *script, **how))
        return started[-1]

    yield begin
    try:
        if request.node.stash.get(_passed, False):
            for outside in started:
                await outside.finish()
    finally:
        for outside in started:
            await outside.stop()
