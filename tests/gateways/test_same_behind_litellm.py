"""The suite of `tests/e2e/providers` through LiteLLM: each conversation ends as it does without a gateway."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.e2e.providers.test_same_everywhere import *  # noqa: F403 - all tests of that module
from tests.e2e.providers.test_same_everywhere import chat, outside, refused
from tests.gateways.litellm_proxy import LiteLlm
from tests.gateways.routes import ROUTES, ServicesBehind
from tests.support.outside import Outside
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


async def test_used_up_budget_ends_the_turn_at_once(outside: Outside) -> None:
    """The words are wrapped by LiteLLM, which answers for the service behind it."""
    spent = outside.client.command(
        "thinklsp.chat", {"prompt": "Spend more than LiteLLM allows."}, token=outside.token()
    )
    await refused(spent, match=r"budget at this service is used up \(429\).*Max budget: 10\.0")
    assert (await chat(outside, "Go on."))["text"] == "Went on."
