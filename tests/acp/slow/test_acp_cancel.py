"""Cancelling: in time, once, and the session goes on. `test_acp_cancel_phases.py` has every phase of a turn."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest

from tests.acp.client import CANCELLED, NoAnswer
from tests.acp.conftest import Begin
from tests.acp.talk import Talk
from tests.acp.turn_phases import OLD
from tests.e2e.acting import edit_file, say
from tests.support.client.actions import Request, ResponseError
from tests.support.signing_server import Hold, Text, answer

Json = Any
MAX_SECONDS = 1.0
FILES = {"a.py": OLD}
EDIT = edit_file("a.py", "1", "2")
YES = {"outcome": {"outcome": "selected", "optionId": "allow_once"}}
NO = {"outcome": {"outcome": "selected", "optionId": "reject_once"}}


def leave_unanswered(_: Json) -> Json:
    raise NoAnswer


async def check_cancelled(talk: Talk, running: Request) -> None:
    begun = time.monotonic()
    talk.client.cancel(talk.session)
    assert (await running)["stopReason"] == "cancelled"
    assert time.monotonic() - begun < MAX_SECONDS


async def check_goes_on(talk: Talk) -> None:
    """The provider refuses a transcript that is not valid."""
    talk.provider.script[:] = [say("Here.")]
    assert await talk.prompt("Are you there?") == "end_turn"
    assert talk.text.endswith("Here.")
    talk.outside.told()


@pytest.mark.timing
@pytest.mark.parametrize("late", [CANCELLED, YES])
async def test_late_answer_does_not_answer_the_next_question(begin: Begin, late: Json) -> None:
    talk = await begin(answer(EDIT), say("a"), files=FILES)
    talk.peer.handlers["session/request_permission"] = leave_unanswered
    running = talk.send("Go.")
    await talk.client.wait_for(lambda: talk.client.requests("session/request_permission"))
    [first] = talk.client.calls("session/request_permission")
    await check_cancelled(talk, running)
    talk.provider.script[:] = [answer(EDIT), say("a")]
    running = talk.send("Again.")
    await talk.client.wait_for(lambda: len(talk.client.requests("session/request_permission")) == 2)
    talk.client.send({"id": first.message["id"], "result": late})
    second = talk.client.calls("session/request_permission")[1]
    talk.client.send({"id": second.message["id"], "result": NO})
    assert (await running)["stopReason"] == "end_turn"
    assert talk.peer.writes == []
    await check_goes_on(talk)


async def test_cancel_of_nothing_is_ignored(begin: Begin) -> None:
    talk = await begin(say("a"), say("b"))
    for _ in range(3):
        talk.client.cancel(talk.session)
    talk.client.cancel("no-such-session")
    assert await talk.prompt("Go.") == "end_turn"
    talk.client.cancel(talk.session)
    assert await talk.prompt("Go.") == "end_turn"


async def test_more_cancels_change_nothing(begin: Begin) -> None:
    """The cancels come in one read. What the model is told next shows that the first one was recorded."""
    talk = await begin(answer(EDIT), say("a"), files=FILES)
    talk.peer.handlers["session/request_permission"] = leave_unanswered
    running = talk.send("Go.")
    await talk.client.wait_for(lambda: talk.client.requests("session/request_permission"))
    cancel = json.dumps({"jsonrpc": "2.0", "method": "session/cancel", "params": {"sessionId": talk.session}})
    talk.client.send_line("\n".join([cancel] * 5).encode())
    assert (await running)["stopReason"] == "cancelled"
    await check_goes_on(talk)
    assert "Not applied: a.py." in json.dumps(talk.provider.requests[-1].body["messages"])


@pytest.mark.timing
async def test_cancel_reaches_one_session(begin: Begin) -> None:
    holds = Hold(), Hold()
    talk = await begin(*[answer(Text("a"), hold, Text("b")) for hold in holds])
    first = talk.send("Go.")
    await holds[0].reached.wait()
    other = Talk(talk.outside)
    await other.new_session()
    second = other.send("Go.")
    await holds[1].reached.wait()
    await check_cancelled(talk, first)
    holds[1].release()
    assert (await second)["stopReason"] == "end_turn"
    assert other.text == "ab"


@pytest.mark.parametrize("identity", ["a text", 10_000])
async def test_cancel_request_ends_a_prompt(begin: Begin, identity: Json) -> None:
    """The answer is the error -32800, or a result that says `cancelled`."""
    hold = Hold()
    talk = await begin(answer(Text("a"), hold))
    params = {"sessionId": talk.session, "prompt": [{"type": "text", "text": "Go."}]}
    running = talk.client.request("session/prompt", params, identity=identity)
    await hold.reached.wait()
    talk.client.notify("$/cancel_request", {"requestId": "unknown"})
    talk.client.notify("$/cancel_request", {"requestId": [7]})
    talk.client.notify("$/cancel_request", {"requestId": running.id})
    try:
        assert (await running)["stopReason"] == "cancelled"
    except ResponseError as error:
        assert error.code == -32800  # noqa: PT017 - both are right
    await check_goes_on(talk)
