"""`transport`: HTTP with limits of time that suit a server of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from thinklsp.http.transport import Timeouts, Transport


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    timeouts = Timeouts(connect=2, write=2, pool=2, first_byte_local=3, idle=3, total=10, drain=0.05)
    transport = Transport(timeouts=timeouts)
    yield transport
    await transport.aclose()
