"""Conversations and prompts outlive their server: restarts, kills, two servers at once, turns without an answer."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.e2e.acting import chat, reach, read_file, refused, release, say, start_chat
from tests.e2e.conftest import Begin
from tests.support.outside import Outside, said
from tests.support.signing_rules import exact, without_cache_control
from tests.support.signing_server import Failure, Hold, Redacted, Text, Thinking, answer

FILES = {"a.py": "x = 1\n"}
LOOKS = (
    answer(Thinking("I look."), Redacted(), Text("Let me see. 🙂\u2028"), read_file("a.py")),
    answer(Thinking(), Text("It holds one line.")),
)


@pytest.mark.parametrize("by", ["last", "id"])
async def test_the_next_server_goes_on_with_the_whole_history(begin: Begin, by: str) -> None:
    outside = await begin(*LOOKS, answer(Thinking(), Text("Yes.")), files=FILES)
    first = await chat(outside, "What is in a.py?")
    await outside.client.command("thinklsp.effort", {"value": "low", "sessionId": first["sessionId"]})
    await outside.restart()
    identity = "last" if by == "last" else first["sessionId"]
    result = await chat(outside, "Sure?", sessionId=identity)
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


async def test_prompt_unanswered_after_kill_is_sent_with_the_next(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(say("One."), answer(Text("Two."), before=hold), say("Three."))
    first = await chat(outside, "First prompt.")
    await reach(hold, start_chat(outside, "Second prompt.", sessionId="last", token="w"))
    await outside.restart(kill=True)
    hold.release()
    third = await chat(outside, "Third prompt.", sessionId="last")
    assert (third["sessionId"], third["text"]) == (first["sessionId"], "Three.")
    told = said(outside.provider.requests[-1].body)
    assert "First prompt." in told
    assert "An earlier user prompt has no answer" in told
    assert told.index("has no answer") < told.index("Second prompt.") < told.index("Third prompt.")


async def test_two_servers_take_turns(begin: Begin) -> None:
    await take_turns(begin, "in use by another thinklsp")


async def take_turns(begin: Begin, refusal: str, **how: Any) -> None:
    """Two editors use one session; the second is refused while a turn of the first runs."""
    hold = Hold()
    outside = await begin(say("One."), answer(Text("Two."), before=hold), say("Three."), **how)
    session = {"sessionId": (await chat(outside, "One?"))["sessionId"]}
    other = await outside.beside()
    turn = await reach(hold, start_chat(outside, "Two?", sessionId="last", token="w"))
    [entry] = await other.client.command("thinklsp.sessions")
    assert entry["busy"] is True
    wishes = {"chat": {"prompt": "Three?"}, "effort": {"value": "low"}, "sessions": {"op": "delete"}}
    for command, argument in wishes.items():
        await refused(other.client.command(f"thinklsp.{command}", argument | session, token=command), match=refusal)
    attach = {"op": "attach", "partialResultToken": "p"} | session
    answered = await other.client.command("thinklsp.sessions", attach)
    assert (answered["attached"], "another thinklsp" in answered["notice"]) == (False, True)
    await release(hold, outside, turn)
    result = await chat(other, "Three?", sessionId="last")
    assert (result["sessionId"], result["text"]) == (session["sessionId"], "Three.")
    assert all(words in said(outside.provider.requests[-1].body) for words in ("One?", "One.", "Two?", "Two."))


async def test_thinking_that_stays_behind_is_told_once_by_all_servers(begin: Begin) -> None:
    """The user changes the model; another server takes the session over."""
    outside = await begin(answer(Thinking(), Text("One.")), say("Two."), say("Three."), say("Four."))
    outside.provider.conversations.elsewhere = True
    await chat(outside, "One?")
    notices = []
    for number, prompt in enumerate(("Two?", "Three?", "Four?")):
        result = await chat(outside, prompt, sessionId="last", model="claude-opus-4-6")
        notices += [notice for notice in result["notices"] if "thinking" in notice]
        if number == 1:
            await outside.restart()
    reason = "because it came from another model (claude-opus-5-5)"
    assert notices == [f"claude-opus-4-6 cannot read the thinking in an earlier answer, {reason}."]


DENIED = Failure(400, "invalid_request_error", "no such luck")
LOST = "Rename the lost function."


async def sessions(outside: Outside, **arguments: object) -> dict[str, object]:
    told: dict[str, object] = await outside.client.command("thinklsp.sessions", arguments)
    return told


async def cancel(outside: Outside, hold: Hold) -> str:
    """Cancel a first turn while the model thinks; its session has no step then."""
    turn = await reach(hold, start_chat(outside, LOST, token="t"))
    await outside.client.command("thinklsp.cancel")
    return str((await outside.result(turn))["sessionId"])


async def fail(outside: Outside, _: Hold) -> str:
    message = await refused(start_chat(outside, LOST, partialResultToken="p", token="t"))
    [finished] = [value for value in outside.client.progress("p") if value["kind"] == "finished"]
    result = finished["result"]
    assert (result["stopReason"], result["text"]) == ("error", message), "A-12"
    return str(result["sessionId"])


async def refuse(outside: Outside, _: Hold) -> str:
    result = await chat(outside, LOST)
    assert result["stopReason"] == "refusal"
    return str(result["sessionId"])


ENDS = {
    "cancelled": (cancel, "the user stopped the turn", True),
    "error": (fail, "no such luck", True),
    "refusal": (refuse, "the model declined", False),
}


@pytest.mark.parametrize("end", ENDS)
async def test_unanswered_prompt_is_listed_shown_and_exported(begin: Begin, end: str) -> None:
    act, why, told = ENDS[end]
    hold = Hold()
    first = {
        "cancelled": answer(Thinking("Hm."), hold, Text("Never.")),
        "error": DENIED,
        "refusal": answer(Text("No."), stop_reason="refusal"),
    }[end]
    outside = await begin(first, say("Done."), say("Again."))
    session = await act(outside, hold)

    [entry] = await outside.client.command("thinklsp.sessions")
    assert (entry["sessionId"], entry["title"], entry["steps"]) == (session, LOST, 0)
    shown = await sessions(outside, op="show", sessionId=session)
    # The text that came before a refusal is kept.
    outcome = f"## thinklsp\n\nNo.\n\n*Not finished: {why}" if end == "refusal" else "*No answer: "
    assert f"## You\n\n{LOST}\n\n{outcome}" in str(shown["text"])
    assert why in str(shown["text"])
    exported = await sessions(outside, op="export", sessionId=session, format="json")
    [kept] = json.loads(str(exported["text"]))["unanswered"]
    assert (kept["text"], kept["outcome"], kept["messages"]) == (LOST, end, 0)

    await chat(outside, "And now?", sessionId=session)
    assert (LOST in said(outside.provider.requests[-1].body)) is told
    await chat(outside, "More.", sessionId=session)
    assert said(outside.provider.requests[-1].body).count(LOST) == told, "it is told once"
    shown = await sessions(outside, op="show", sessionId=session)
    assert str(shown["text"]).startswith(f"# {LOST}")


async def test_a_prompt_that_is_sent_again_is_not_told_twice(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Thinking(), hold), say("Done."))
    session = await cancel(outside, hold)
    await chat(outside, f"{LOST} Please.", sessionId=session)
    assert said(outside.provider.requests[-1].body).count(LOST) == 1
