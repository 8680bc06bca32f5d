"""Conversations outlive their server: a restart in order, a kill with an open prompt, two servers side by side."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Begin
from tests.support.outside import said
from tests.support.raw_client import ResponseError
from tests.support.services import WAYS, Service
from tests.support.signing_rules import exact, without_cache_control
from tests.support.signing_script import Hold, Redacted, Text, Thinking, answer, tool

SIMULATED = {"app.py": "x = 1\n" * 30}
FILES = {"a.py": "x = 1\n"}
LOOKS = (
    answer(Thinking("I look."), Redacted(), Text("Let me see. 🙂\u2028"), tool("read_file", path="a.py")),
    answer(Thinking(), Text("It holds one line.")),
)


@pytest.mark.parametrize("by", ["last", "id"])
async def test_the_next_server_goes_on_with_the_whole_history(begin: Begin, by: str) -> None:
    outside = await begin(*LOOKS, answer(Thinking(), Text("Yes.")), files=FILES)
    first = await outside.turn("thinklsp.chat", {"prompt": "What is in a.py?"})
    await outside.client.command("thinklsp.effort", {"value": "low", "sessionId": first["sessionId"]})
    await outside.restart()
    identity = "last" if by == "last" else first["sessionId"]
    result = await outside.turn("thinklsp.chat", {"prompt": "Sure?", "sessionId": identity})
    assert (result["sessionId"], result["text"]) == (first["sessionId"], "Yes.")
    sent = [without_cache_control(request.body) for request in outside.provider.requests]
    assert exact(sent[2]["messages"][:3]) == exact(sent[1]["messages"])
    issued = [
        block for message in sent[2]["messages"] if message["role"] == "assistant" for block in message["content"]
    ]
    assert [block["type"] for block in issued] == [
        "thinking", "redacted_thinking", "text", "tool_use", "thinking", "text",
    ]  # fmt: skip
    # What was chosen for the session counts again, too.
    assert sent[2]["output_config"]["effort"] == "low"


async def test_a_prompt_that_a_kill_left_unanswered_is_told_with_the_next_one(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Text("One.")), answer(Text("Two."), before=hold), answer(Text("Three.")))
    first = await outside.turn("thinklsp.chat", {"prompt": "First prompt."})
    outside.client.command("thinklsp.chat", {"prompt": "Second prompt.", "sessionId": "last"}, token="w")
    await hold.reached.wait()
    await outside.restart(kill=True)
    hold.release()
    third = await outside.turn("thinklsp.chat", {"prompt": "Third prompt.", "sessionId": "last"})
    assert (third["sessionId"], third["text"]) == (first["sessionId"], "Three.")
    told = said(outside.provider.requests[-1].body)
    assert "First prompt." in told
    assert "An earlier prompt of the user has no answer" in told
    assert told.index("has no answer") < told.index("Second prompt.") < told.index("Third prompt.")


async def test_two_servers_take_turns(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Text("One.")), answer(Text("Two."), before=hold), answer(Text("Three.")))
    first = await outside.turn("thinklsp.chat", {"prompt": "One?"})
    other = await outside.beside()
    turn = outside.client.command("thinklsp.chat", {"prompt": "Two?", "sessionId": "last"}, token="w")
    await hold.reached.wait()
    [entry] = await other.client.command("thinklsp.sessions")
    assert entry["busy"] is True
    for command, argument in (
        ("chat", {"prompt": "Three?"}),
        ("effort", {"value": "low"}),
        ("sessions", {"op": "delete"}),
    ):
        asked = other.client.command(f"thinklsp.{command}", argument | {"sessionId": first["sessionId"]}, token=command)
        with pytest.raises(ResponseError, match="in use by another thinklsp") as refused:
            await asked
        assert refused.value.code == -32803
    attach = {"op": "attach", "sessionId": first["sessionId"], "partialResultToken": "p"}
    assert "another thinklsp" in (await other.client.command("thinklsp.sessions", attach))["notice"]
    hold.release()
    await outside.result(turn)
    result = await other.turn("thinklsp.chat", {"prompt": "Three?", "sessionId": "last"})
    assert (result["sessionId"], result["text"]) == (first["sessionId"], "Three.")
    told = said(outside.provider.requests[-1].body)
    assert all(words in told for words in ("One?", "One.", "Two?", "Two."))


async def test_thinking_that_stays_behind_is_told_once_by_all_servers(begin: Begin) -> None:
    """A-9: the user changes the model; another server takes the session over."""
    outside = await begin(
        answer(Thinking(), Text("One.")), answer(Text("Two.")), answer(Text("Three.")), answer(Text("Four."))
    )
    outside.provider.conversations.elsewhere = True
    await outside.turn("thinklsp.chat", {"prompt": "One?"})
    notices = []
    for number, prompt in enumerate(("Two?", "Three?", "Four?")):
        wish = {"prompt": prompt, "sessionId": "last", "model": "claude-opus-4-6"}
        result = await outside.turn("thinklsp.chat", wish)
        notices += [notice for notice in result["notices"] if "thinking" in notice]
        if number == 1:
            await outside.restart()
    assert notices == [
        "claude-opus-4-6 cannot read the thinking of an earlier answer: it came from another model (claude-opus-5-5)."
    ]


async def test_what_a_service_has_refused_once_is_not_tried_by_the_next_server(begin: Begin) -> None:
    service, way = Service(), WAYS["strict gateway"]
    wish = {"provider": way.provider, "model": way.model}
    outside = await begin(files=SIMULATED, provider=service, options=wish)
    notices = []
    for number in range(3):
        result = await outside.turn(
            "thinklsp.chat", {"prompt": f"Go on, {number}."} | ({"sessionId": "last"} if number else {})
        )
        assert result["text"] == "Went on."
        notices += result["notices"]
        await outside.restart(kill=number == 0)
    assert len(notices) == 1
    assert [request.status for request in service.requests if request.status != 200] == [400]
