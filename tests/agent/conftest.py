"""`transport`: HTTP with limits of time that suit a server of a test."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from thinklsp.http.transport import Timeouts, Transport


@pytest.fixture
async def transport() -> AsyncIterator[Transport]:
    timeouts = Timeouts(connect=60, write=60, pool=60, first_byte_local=60, idle=60, total=60, drain=0.05)
    transport = Transport(timeouts=timeouts)
    yield transport
    await transport.aclose()
