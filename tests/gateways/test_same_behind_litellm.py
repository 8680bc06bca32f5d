"""The suite of `tests/e2e/providers` through LiteLLM: every course ends as it does without a gateway."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.providers.test_same_everywhere import *  # noqa: F403 - every test of it, whatever it is called
from tests.e2e.providers.test_same_everywhere import outside
from tests.gateways.litellm_proxy import LiteLlm
from tests.gateways.routes import ROUTES, ServicesBehind
from tests.support.services import Service, Way

__all__ = ["outside"]


@pytest.fixture(params=ROUTES)
def way(request: pytest.FixtureRequest) -> Way:
    return ROUTES[request.param]


@pytest.fixture
def service(way: Way, litellm: LiteLlm) -> Service:
    return ServicesBehind(litellm, way)


@pytest.fixture(autouse=True)
def counted(tally: Callable[[str, int], None]) -> None:
    tally("A-36", 1)
