"""The suite of `tests/e2e/providers` over the ways that it leaves out: other models, other compatible servers."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import begin
from tests.e2e.providers.test_same_everywhere import *  # noqa: F403 - every test of it, whatever it is called
from tests.e2e.providers.test_same_everywhere import MAIN, outside, service
from tests.support.services import WAYS, Way

__all__ = ["begin", "outside", "service"]


@pytest.fixture(params=[name for name in WAYS if name not in MAIN])
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]
