"""Conversations in which LiteLLM itself rejects a request, or loses a part of an answer."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.e2e.providers.test_same_everywhere import TEXT, chat
from tests.gateways.litellm_proxy import GEMINI, GPT, PLAIN, LiteLlm
from tests.gateways.routes import ROUTES, ServicesBehind
from tests.support.client.actions import ResponseError
from tests.support.outside import Outside, statuses
from tests.support.services import Way

# The service of this model has no Responses API.
PLAIN_WAYS = {name: replace(ROUTES[f"{name}, {GPT}"], model=PLAIN) for name in ("messages", "chat")}


async def through(begin: Begin, litellm: LiteLlm, way: Way, **more: Any) -> Outside:
    options = {"provider": way.provider, "model": way.model, **more}
    return await begin(files={"app.py": TEXT}, options=options, provider=ServicesBehind(litellm, way))


@pytest.mark.parametrize("thinking", ["auto", "off"])
@pytest.mark.parametrize("name", PLAIN_WAYS)
async def test_a_model_that_takes_no_effort_answers(begin: Begin, litellm: LiteLlm, name: str, thinking: str) -> None:
    """thinklsp sent the rejected effort again, whatever the user set."""
    outside = await through(begin, litellm, PLAIN_WAYS[name], thinking={"mode": thinking})
    refused = outside.provider.violations
    first = await chat(outside, "Go on.")
    assert (first["stopReason"], first["text"]) == ("end_turn", "Went on.")
    learned = len(refused)
    again = await chat(outside, "Go on.", sessionId=first["sessionId"])
    assert (again["text"], len(refused)) == ("Went on.", learned)
    refused.clear()


async def test_an_unknown_model_is_named(begin: Begin, litellm: LiteLlm) -> None:
    outside = await through(begin, litellm, replace(ROUTES[f"chat, {GPT}"], model="nosuch"))
    with pytest.raises(ResponseError, match="no such model: choose another model with `model`"):
        await chat(outside, "Go on.")


async def test_calls_that_were_joined_on_the_way_run_nothing(begin: Begin, litellm: LiteLlm) -> None:
    """LiteLLM joins two calls of Gemini into one: thinklsp must not run any part of the joined arguments."""
    outside = await through(begin, litellm, replace(ROUTES[f"messages, {GEMINI}"], parallel=True))
    result = await chat(outside, "Is nmae wrong?")
    assert (result["stopReason"], result["text"]) == ("end_turn", "Fixed – 🙂.")
    assert statuses(result) == {"check.py": "applied"}
    # The signature of a call covers its arguments, so the simulated service rejects the joined call.
    outside.provider.violations.clear()
