"""`chat` with `queue: true`: the prompt joins the running turn or starts a turn after it, and is never lost."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence
from typing import Any

import pytest

from tests.e2e.acting import read_file, refused, say
from tests.e2e.conftest import Begin
from tests.support.client.actions import ResponseError
from tests.support.outside import Outside, said
from tests.support.signing_server import Answer, Failure, Hold, Item, Text, Thinking, answer
from tests.support.watching import HANG_SECONDS

FILES = {"a.py": "x = 1\n"}
READ = read_file("a.py")
Running = tuple[Outside, Hold, Any, str]


def queue(outside: Outside, session: str, prompt: str, token: str | None = None, **more: Any) -> Any:
    argument = {"prompt": prompt, "sessionId": session, "queue": True} | more
    return outside.client.command("thinklsp.chat", argument, token=token)


async def begin_running(begin: Begin, *items: Item, then: Sequence[Answer | Failure] = ()) -> Running:
    """Begin a turn whose model call holds before these parts of its answer. `then`: what is answered afterwards."""
    hold = Hold()
    outside = await begin(answer(Thinking("I look."), hold, *items), *then, files=FILES)
    turn = outside.client.command("thinklsp.chat", {"prompt": "Look."}, token="running")
    await hold.reached.wait()
    [entry] = await outside.client.command("thinklsp.sessions")
    return outside, hold, turn, entry["sessionId"]


async def stored(outside: Outside, session: str) -> list[tuple[str, str]]:
    """The prompts of the session that no step has answered."""
    exported = await outside.client.command(
        "thinklsp.sessions", {"op": "export", "sessionId": session, "format": "json"}
    )
    return [(entry["text"], entry["outcome"]) for entry in json.loads(exported["text"])["unanswered"]]


async def wait_until_queued(outside: Outside, session: str, *prompts: str) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while [text for text, outcome in await stored(outside, session) if outcome == "queued"] != list(prompts):
            pass


@pytest.mark.parametrize("watched", [True, False])
async def test_a_prompt_joins_the_running_turn(begin: Begin, *, watched: bool) -> None:
    last = Hold()
    then = answer(Thinking(), last, Text("Both done."))
    outside, hold, turn, session = await begin_running(begin, READ, then=[then])
    client, provider = outside.pair
    asked = queue(outside, session, "Also say hello.", "joined" if watched else None, partialResultToken="p")
    await wait_until_queued(outside, session, "Also say hello.")
    assert client.progress("p") == []
    hold.release()
    await last.reached.wait()
    assert client.progress("p")[0] == {
        "kind": "notice",
        "level": "info",
        "text": "Your prompt joined the running turn.",
    }
    assert await stored(outside, session) == []
    content = provider.requests[-1].body["messages"][-1]["content"]
    assert [block["type"] for block in content] == ["tool_result", "text"]
    assert content[-1]["text"] == "Also say hello."
    last.release()
    result = await outside.result(turn)
    if watched:
        assert await outside.result(asked) == result
    else:
        begun = await asked
        assert begun["sessionId"] == session
        assert begun["turnId"] != result["turnId"]
    await client.wait_for(lambda: client.progress("p")[-1]["kind"] == "finished", what="the result")
    assert client.progress("p")[-1]["result"] == result
    assert "Both done." in str(client.progress("p"))
    again = await client.command("thinklsp.sessions", {"op": "show", "sessionId": session})
    assert again["text"].index("Look.") < again["text"].index("Also say hello.") < again["text"].index("Both done.")


async def test_prompts_start_turns_in_order(begin: Begin) -> None:
    second = Hold()
    then = [answer(Thinking(), second, Text("Two.")), say("Three.")]
    outside, hold, turn, session = await begin_running(begin, Text("One."), then=then)
    provider = outside.provider
    two = queue(outside, session, "Second?", "two")
    await wait_until_queued(outside, session, "Second?")
    three = queue(outside, session, "Third?", "three", mode="ask")
    await wait_until_queued(outside, session, "Second?", "Third?")
    hold.release()
    assert (await outside.result(turn))["text"] == "One."
    await second.reached.wait()
    await refused(outside.client.command("thinklsp.chat", {"prompt": "Now?", "sessionId": session}, token="w"))
    second.release()
    results = [await outside.result(two), await outside.result(three)]
    assert [result["text"] for result in results] == ["Two.", "Three."]
    assert len({result["turnId"] for result in results}) == 2
    assert "Second?" not in said(provider.requests[0].body)
    assert "Third?" not in said(provider.requests[1].body)
    assert await stored(outside, session) == []


async def test_other_settings_need_a_turn_of_their_own(begin: Begin) -> None:
    outside, hold, turn, session = await begin_running(begin, READ, then=[say("One."), say("Two.")])
    two = queue(outside, session, "Only explain.", "two", mode="ask")
    await wait_until_queued(outside, session, "Only explain.")
    hold.release()
    assert (await outside.result(turn))["text"] == "One."
    assert (await outside.result(two))["text"] == "Two."
    assert "Only explain." not in said(outside.provider.requests[1].body)


@pytest.mark.parametrize("way", ["request", "progress", "command", "at once"])
async def test_a_waiting_prompt_is_taken_back(begin: Begin, way: str) -> None:
    outside, hold, turn, session = await begin_running(begin, Text("One."), then=[say("Next.")])
    client, provider = outside.pair
    asked = queue(outside, session, "Never mind.", None if way == "command" else "back")
    if way != "at once":
        await wait_until_queued(outside, session, "Never mind.")
    if way in ("request", "at once"):
        client.cancel(asked)
        await refused(asked, -32800)
    elif way == "progress":
        client.stop("back")
        assert (await outside.result(asked))["stopReason"] == "cancelled"
    else:
        turn_id = (await asked)["turnId"]
        assert await client.command("thinklsp.cancel", {"turnId": turn_id}) == {"cancelled": [turn_id]}
    await wait_until_queued(outside, session)
    assert await stored(outside, session) == [("Look.", "running")] or await stored(outside, session) == []
    hold.release()
    assert (await outside.result(turn))["stopReason"] == "end_turn"
    after = await outside.turn("thinklsp.chat", {"prompt": "Next?", "sessionId": session})
    assert after["text"] == "Next."
    assert "Never mind." not in said(provider.requests[-1].body)


async def test_a_cancel_without_an_id_stops_the_running_turn(begin: Begin) -> None:
    outside, _, turn, session = await begin_running(begin, Text("One."), then=[say("Mine.")])
    client, provider = outside.pair
    asked = queue(outside, session, "Then this.", "next")
    await wait_until_queued(outside, session, "Then this.")
    await client.command("thinklsp.cancel")
    assert (await outside.result(turn))["stopReason"] == "cancelled"
    assert (await outside.result(asked))["text"] == "Mine."
    assert "Then this." in said(provider.requests[-1].body)


async def test_cancelling_a_prompt_that_has_joined_stops_its_turn(begin: Begin) -> None:
    last = Hold()
    then = [answer(Thinking(), last, Text("Never.")), say("Next.")]
    outside, hold, turn, session = await begin_running(begin, READ, then=then)
    client, provider = outside.pair
    asked = queue(outside, session, "And this.", "joined")
    await wait_until_queued(outside, session, "And this.")
    hold.release()
    await last.reached.wait()
    client.cancel(asked)
    await refused(asked, -32800)
    assert (await outside.result(turn))["stopReason"] == "cancelled"
    assert (await outside.turn("thinklsp.chat", {"prompt": "Next?", "sessionId": session}))["text"] == "Next."
    assert "And this." in said(provider.requests[-1].body)


@pytest.mark.parametrize("kill", [True, False])
async def test_a_waiting_prompt_outlives_the_server(begin: Begin, *, kill: bool) -> None:
    outside, _, _, session = await begin_running(begin, Text("Never."), then=[say("Next.")])
    queue(outside, session, "Do not forget me.", "waits")
    await wait_until_queued(outside, session, "Do not forget me.")
    await outside.restart(kill=kill)
    assert ("Do not forget me.", "interrupted") in await stored(outside, session)
    assert (await outside.turn("thinklsp.chat", {"prompt": "Next?", "sessionId": session}))["text"] == "Next."
    assert "Do not forget me." in said(outside.provider.requests[-1].body)


async def test_a_session_takes_at_most_16_waiting_prompts(begin: Begin) -> None:
    outside, hold, turn, session = await begin_running(begin, Text("One."))
    client = outside.client
    started = [await queue(outside, session, f"Prompt {number}.") for number in range(16)]
    await refused(queue(outside, session, "One more.", "w"), match="16 prompts")
    for begun in started:
        await client.command("thinklsp.cancel", {"turnId": begun["turnId"]})
    await wait_until_queued(outside, session)
    hold.release()
    await outside.result(turn)


@pytest.mark.parametrize("watched", [True, False])
async def test_failure_of_a_turn_with_two_prompts_is_one_message(begin: Begin, *, watched: bool) -> None:
    hold = Hold()
    refusal = Failure(400, "invalid_request_error", "No.")
    outside = await begin(answer(Thinking("I look."), hold, READ), refusal, refusal, files=FILES)
    client = outside.client
    turn = client.command("thinklsp.chat", {"prompt": "Look."}, token="running" if watched else None)
    await hold.reached.wait()
    [entry] = await client.command("thinklsp.sessions")
    session = entry["sessionId"]
    await queue(outside, session, "Also say hello.", partialResultToken="p")
    await wait_until_queued(outside, session, "Also say hello.")
    hold.release()
    if watched:
        await refused(turn, match="No")
    else:
        await turn
    await client.wait_for(lambda: "finished" in client.progress_kinds("p"), what="the end of the joined prompt")
    await outside.until_told("No.")
    await client.command("thinklsp.usage")
    assert outside.told() == []


@pytest.mark.timing
async def test_flood_of_large_prompts_is_bounded(begin: Begin) -> None:
    """An attacker queues hundreds of prompts, many of a megabyte: few wait, and the others get one sentence each."""
    outside, hold, turn, session = await begin_running(begin, Text("One."))
    client, provider = outside.pair
    uri = outside.open("a.py")
    asked = [queue(outside, session, f"{number} " + "x" * (2**20 if number < 24 else 9)) for number in range(150)]
    answers = await asyncio.gather(*asked, return_exceptions=True)
    begun = [each for each in answers if not isinstance(each, BaseException)]
    refused = {str(each) for each in answers if isinstance(each, ResponseError)}
    assert len(begun) == 16
    # The last sentence is about all commands of a client.
    limits = "16 prompts are already waiting", "at most 4,000,000 characters together", "Too many requests are running"
    assert {limit for limit in limits if any(limit in each for each in refused)} >= {*limits[:2]}
    assert len(refused) <= len(limits)

    took = []
    for each in begun:
        cancelled = client.command("thinklsp.cancel", {"turnId": each["turnId"]})
        began = time.monotonic()
        await client.code_actions(uri, "x")
        took.append(time.monotonic() - began)
        assert (await cancelled)["cancelled"] == [each["turnId"]]
    assert sorted(took)[8] < 0.25, took
    await wait_until_queued(outside, session)
    hold.release()
    await outside.result(turn)
    assert len(provider.requests) == 1
