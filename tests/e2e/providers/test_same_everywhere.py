"""One suite, every provider: the same prompt, tools, faults and stops come to the same end, through the real server."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from tests.e2e.acting import refused
from tests.e2e.conftest import Begin
from tests.support.outside import Outside, diagnostic, named, statuses
from tests.support.services import WAYS, Service, Way
from thinklsp.agent.request_fallbacks import NEVER_NOTICE

TEXT = 'NAMES = ["🙂 Ada"]\n\n\ndef greet(name):\n    return "Hello 🙂, " + nmae + "!"  # 🙂\n\nX = 1\n'


# One way for each dialect but Anthropic's, which the other end-to-end tests speak; `tests/slow` goes the others.
MAIN = ("openai", "google", "openrouter")


@pytest.fixture(params=MAIN)
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


@pytest.fixture
def service() -> Service:
    return Service()


@pytest.fixture
async def outside(begin: Begin, way: Way, service: Service) -> Outside:
    options = {"provider": way.provider, "model": way.model}
    return await begin(files={"app.py": TEXT}, options=options, provider=service)


async def chat(outside: Outside, prompt: str, **more: Any) -> Any:
    return await outside.turn("thinklsp.chat", {"prompt": prompt} | more)


def said_so_far(outside: Outside) -> str:
    values = outside.client.progress("text")
    return "".join(value["delta"] for value in values if value["kind"] == "text")


async def test_fix(outside: Outside, way: Way) -> None:
    """Interleaved and hidden thinking, parallel calls, a call that fails, an astral edit, a new file."""
    client, service = outside.pair
    uri = outside.open("app.py", TEXT)
    [fix] = named(await client.code_actions(uri, "nmae", diagnostics=[diagnostic(TEXT, "nmae", "nmae?")]), "fix")
    assert service.requests == []
    result = await outside.result(client.run_action(fix, token="fix"))
    end = "Fixed – 🙂\u2028." if way.separators else "Fixed – 🙂."
    assert (result["stopReason"], result["text"]) == ("end_turn", end)
    assert result["notices"] == [NEVER_NOTICE] * way.learned + list(way.notices)
    assert result["thinking"] is None
    assert statuses(result) == {"app.py": "applied", "check.py": "applied"}
    assert client.text(uri) == TEXT.replace("nmae", "name")
    assert client.text(outside.uri("check.py")) == "from app import greet\n"
    assert len(client.edits()) == 1
    kinds = client.progress_kinds("fix")
    assert (kinds[0], kinds.count("begin"), kinds.count("end"), kinds[-1]) == ("begin", 1, 1, "end")
    usage = result["usage"]
    assert usage["inputTokens"] > 100
    assert usage["outputTokens"] > 20
    assert (usage["thinkingTokens"] is not None) is way.counts_thinking
    assert len(service.requests) == 4 + way.learned + way.reorders


async def test_a_turn_that_ends_early_applies_nothing(outside: Outside, way: Way) -> None:
    """A refused answer is dropped, a cut one is kept; neither runs a tool or takes effect."""
    client, service = outside.pair
    for prompt, reason, text, written, is_kept in (
        ("Please refuse.", "refusal", way.refusal, "Partly written", False),
        ("Please run out.", "max_tokens", "Half an answer", "Half an answer", True),
    ):
        result = await chat(outside, prompt)
        assert (result["stopReason"], result["text"]) == (reason, text)
        assert statuses(result) == {"app.py": "held"}
        again = await chat(outside, "Go on.", sessionId=result["sessionId"])
        assert (again["stopReason"], again["text"]) == ("end_turn", "Went on.")
        assert (written in service.requests[-1].raw.decode()) == is_kept
    assert client.edits() == []


async def cancel_answer(outside: Outside, way: Way) -> tuple[Any, float]:
    """Cancel a turn in its text. Return its result, and the seconds until the connection was closed."""
    client, service = outside.pair
    token = outside.token()
    turn = client.command("thinklsp.chat", {"prompt": "Please wait.", "partialResultToken": "text"}, token=token)
    await client.wait_for(lambda: "Half a sen" in said_so_far(outside), what="the text before the wait")
    assert len(service.requests) == 2 + way.learned
    at = time.monotonic()
    client.stop(token)
    result = await outside.result(turn)
    assert result["stopReason"] == "cancelled"
    await service.simulator.wait_for(lambda: service.requests[-1].closed_by_client)
    return result, service.requests[-1].closed_at - at


@pytest.mark.timing
async def test_cancel_closes_the_connection_within_a_second(outside: Outside, way: Way) -> None:
    _, seconds = await cancel_answer(outside, way)
    assert seconds < 1


async def test_cancel_closes_the_connection_and_the_session_goes_on(outside: Outside, way: Way) -> None:
    result, _ = await cancel_answer(outside, way)
    again = await chat(outside, "Go on.", sessionId=result["sessionId"])
    assert (again["stopReason"], again["text"]) == ("end_turn", "Went on.")


async def test_stumbles_are_retried_and_leave_no_trace(outside: Outside, way: Way) -> None:
    _, service = outside.pair
    result = await chat(outside, "Please stumble.")
    assert result["stopReason"] == "end_turn"
    assert result["text"] == "Through at last, after three stumbles on the way to this end."
    assert len(service.requests) == 6 + way.learned + way.reorders


async def test_queued_prompt_joins_the_turn_in_every_form(outside: Outside) -> None:
    client, service = outside.pair
    asked, answered = asyncio.Event(), asyncio.Event()

    async def answer_late(params: Any) -> Any:
        asked.set()
        await answered.wait()
        return params["actions"][0]

    client.editor.handlers["window/showMessageRequest"] = answer_late
    turn = client.command("thinklsp.chat", {"prompt": "Please ask."}, token=outside.token())
    await asked.wait()
    [entry] = await client.command("thinklsp.sessions")
    session = entry["sessionId"]
    await client.command("thinklsp.chat", {"prompt": "Also say hello.", "sessionId": session, "queue": True})
    answered.set()
    assert (await outside.result(turn))["text"] == "Both done."
    assert "Also say hello." in service.requests[-1].raw.decode()
    again = await chat(outside, "Go on.", sessionId=session)
    assert (again["stopReason"], again["text"]) == ("end_turn", "Went on.")
    assert service.requests[-1].raw.decode().count("Also say hello.") == 1


async def test_a_refused_key_is_said_and_harms_nothing(outside: Outside) -> None:
    await refused(
        outside.client.command("thinklsp.chat", {"prompt": "Please fail."}, token=outside.token()), match="key"
    )
    again = await chat(outside, "Go on.", sessionId="last")
    assert again["text"] == "Went on."


async def test_used_up_budget_ends_the_turn_at_once(outside: Outside) -> None:
    for prompt, words in (
        ("Spend more than LiteLLM allows.", r"budget at this service is used up \(429\).*Max budget: 10\.0\."),
        ("Spend more than a gateway allows.", r"resets at midnight\)\. Try again in 5 hours\."),
        ("Spend without credit.", r"no credit left \(402\).*Pay first\."),
    ):
        before = len(outside.provider.requests)
        await refused(outside.client.command("thinklsp.chat", {"prompt": prompt}, token=outside.token()), match=words)
        assert len(outside.provider.requests) == before + 1
    assert (await chat(outside, "Go on."))["text"] == "Went on."


async def test_a_long_loop_goes_through_and_is_cached(outside: Outside, way: Way) -> None:
    _, service = outside.pair
    result = await chat(outside, "Please take long.")
    assert (result["stopReason"], result["text"]) == ("end_turn", "Twenty-four steps later.")
    assert len(service.requests) == 25 + way.learned
    # History only grows: what was sent stays the same bytes, so that signatures and caches hold.
    assert result["usage"]["inputTokens"] > 25 * 100


async def test_summaries_come_only_when_asked_for(begin: Begin, way: Way, service: Service) -> None:
    options = {"provider": way.provider, "model": way.model, "thinking": {"display": "summary"}}
    outside = await begin(files={"app.py": TEXT}, options=options, provider=service)
    result = await outside.turn("thinklsp.chat", {"prompt": "Is nmae wrong?"})
    assert bool(result["thinking"]) is way.summaries
    assert result["edits"]["applied"] == "all"
