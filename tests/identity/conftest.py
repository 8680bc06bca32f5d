from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from tests.support.identity_provider import IdentityProvider, providing


@pytest.fixture
async def provider() -> AsyncIterator[IdentityProvider]:
    async with providing() as provider:
        yield provider
