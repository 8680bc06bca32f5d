"""`editor`: the real server inside the test's process, with a session that has begun."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.in_process import InProcess, in_process


@pytest.fixture
async def editor() -> AsyncIterator[InProcess]:
    async with in_process() as made:
        await made.initialize()
        yield made
