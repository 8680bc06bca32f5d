"""A prompt is never lost (A-1): it is stored when its turn begins, and stays in the session however the turn ends."""

from __future__ import annotations

import asyncio
import json

import pytest

from tests.e2e.conftest import Begin
from tests.support.outside import Outside, said
from tests.support.raw_client import ResponseError
from tests.support.signing_script import Failure, Hold, Text, Thinking, answer

DENIED = Failure(400, "invalid_request_error", "no such luck")
LOST = "Rename the lost function."


async def sessions(outside: Outside, **arguments: object) -> dict[str, object]:
    told: dict[str, object] = await outside.client.command("thinklsp.sessions", arguments)
    return told


async def cancel(outside: Outside, hold: Hold) -> str:
    """Cancel a first turn while the model thinks; its session has no step then."""
    turn = outside.client.command("thinklsp.chat", {"prompt": LOST}, token="t")
    await hold.reached.wait()
    await outside.client.command("thinklsp.cancel")
    return str((await outside.result(turn))["sessionId"])


async def fail(outside: Outside, _: Hold) -> str:
    with pytest.raises(ResponseError) as failed:
        await outside.client.command("thinklsp.chat", {"prompt": LOST, "partialResultToken": "p"}, token="t")
    [finished] = [value for value in outside.client.progress("p") if value["kind"] == "finished"]
    result = finished["result"]
    assert (result["stopReason"], result["text"]) == ("error", str(failed.value.message)), "A-12"
    return str(result["sessionId"])


async def refuse(outside: Outside, _: Hold) -> str:
    result = await outside.turn("thinklsp.chat", {"prompt": LOST})
    assert result["stopReason"] == "refusal"
    return str(result["sessionId"])


ENDS = {
    "cancelled": (cancel, "the user stopped the turn", True),
    "error": (fail, "no such luck", True),
    "refusal": (refuse, "the model declined", False),
}


@pytest.mark.parametrize("end", ENDS)
async def test_a_prompt_without_an_answer_is_listed_shown_exported_and_told(begin: Begin, end: str) -> None:
    act, why, told = ENDS[end]
    hold = Hold()
    first = {
        "cancelled": answer(Thinking("Hm."), hold, Text("Never.")),
        "error": DENIED,
        "refusal": answer(Text("No."), stop_reason="refusal"),
    }[end]
    outside = await begin(first, answer(Text("Done.")), answer(Text("Again.")))
    session = await act(outside, hold)

    [entry] = await outside.client.command("thinklsp.sessions")
    assert (entry["sessionId"], entry["title"], entry["steps"]) == (session, LOST, 0)
    shown = await sessions(outside, op="show", sessionId=session)
    assert f"## You\n\n{LOST}\n\n*No answer: " in str(shown["text"])
    assert why in str(shown["text"])
    exported = await sessions(outside, op="export", sessionId=session, format="json")
    [kept] = json.loads(str(exported["text"]))["unanswered"]
    assert (kept["text"], kept["outcome"], kept["messages"]) == (LOST, end, 0)

    await outside.turn("thinklsp.chat", {"prompt": "And now?", "sessionId": session})
    assert (LOST in said(outside.provider.requests[-1].body)) is told
    await outside.turn("thinklsp.chat", {"prompt": "More.", "sessionId": session})
    assert said(outside.provider.requests[-1].body).count(LOST) == told, "it is told once"
    shown = await sessions(outside, op="show", sessionId=session)
    assert str(shown["text"]).startswith(f"# {LOST}")


async def test_a_prompt_that_is_sent_again_is_not_told_twice(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Thinking(), hold), answer(Text("Done.")))
    session = await cancel(outside, hold)
    await outside.turn("thinklsp.chat", {"prompt": f"{LOST} Please.", "sessionId": session})
    assert said(outside.provider.requests[-1].body).count(LOST) == 1


async def test_a_prompt_survives_kill_9_before_its_first_step(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Thinking(), hold), answer(Text("Done.")))
    outside.client.command("thinklsp.chat", {"prompt": LOST}, token="t")
    async with asyncio.timeout(10):
        await hold.reached.wait()
    await outside.kill()
    await outside.restart(kill=True)
    [entry] = await outside.client.command("thinklsp.sessions")
    shown = await sessions(outside, op="show", sessionId=entry["sessionId"])
    assert f"## You\n\n{LOST}\n\n*No answer: the program ended first*" in str(shown["text"])
    await outside.turn("thinklsp.chat", {"prompt": "And now?", "sessionId": entry["sessionId"]})
    assert LOST in said(outside.provider.requests[-1].body)
