"""Three ways to cancel are one: one reply, the provider's connection closed within a second, the session goes on."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.outside import Outside, named, said
from tests.support.raw_client import RawClient, Request, ResponseError
from tests.support.signing_script import Hold, Redacted, Text, Thinking, answer, tool

Cancel = Callable[[RawClient, Request, str], Any]

WAYS: dict[str, Cancel] = {
    "request": lambda client, request, token: client.cancel(request),
    "progress": lambda client, request, token: client.notify("window/workDoneProgress/cancel", {"token": token}),
    "command": lambda client, request, token: client.command("thinklsp.cancel"),
}


async def cancelled(outside: Outside, way: str, session: str, hold: Hold) -> None:
    """Starts a turn, cancels it while `hold` stands, and checks the one reply and the closed connection."""
    client, provider = outside.pair
    token = outside.token()
    turn = client.command("thinklsp.chat", {"prompt": f"Stop at {token}.", "sessionId": session}, token=token)
    await hold.reached.wait()
    at = time.monotonic()
    answered = WAYS[way](client, turn, token)
    if way == "request":
        with pytest.raises(ResponseError) as refused:
            await turn
        assert refused.value.code == -32800
    else:
        result = await outside.result(turn)
        assert (result["stopReason"], result["sessionId"]) == ("cancelled", session)
        if way == "command":
            assert await answered == {"cancelled": [result["turnId"]]}
    seen = provider.requests[-1]
    closed = await provider.wait_for(lambda: seen.closed_at, within=3, what="the provider's connection closed")
    assert closed is not None
    assert closed - at < 1
    kinds = client.progress_kinds(token)
    assert (kinds.count("begin"), kinds.count("end"), kinds[-1]) == (1, 1, "end")


@pytest.mark.parametrize("way", WAYS)
async def test_cancel(begin: Begin, way: str) -> None:
    in_stream, before_head = Hold(), Hold()
    outside = await begin(
        answer(Thinking("Hm."), Redacted(), Text("Ready.")),
        answer(Thinking(), tool("read_file", path="app.py")),
        answer(Thinking(), Text("Half a sen"), in_stream, Text("tence.")),
        answer(Text("Never begun."), before=before_head),
        answer(Thinking(), tool("read_file", path="app.py")),
        answer(Thinking(), Text("Still here.")),
        files={"app.py": "x = 1\n"},
    )
    client, provider = outside.pair
    session = (await outside.turn("thinklsp.chat", {"prompt": "Ready?"}))["sessionId"]
    await cancelled(outside, way, session, in_stream)
    await cancelled(outside, way, session, before_head)
    result = await outside.turn("thinklsp.chat", {"prompt": "Still there?", "sessionId": session})
    assert (result["stopReason"], result["text"]) == ("end_turn", "Still here.")
    assert "Ready." in said(provider.requests[-1].body)
    assert "Half a sen" not in said(provider.requests[-1].body)
    assert await client.command("thinklsp.cancel") == {"cancelled": []}
    assert client.edits() == []


async def test_a_cancelled_turn_holds_what_it_had_written(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(
        answer(Thinking(), tool("edit_file", path="app.py", old_text="1", new_text="2")),
        answer(Thinking(), hold, Text("Never.")),
        files={"app.py": "x = 1\n"},
    )
    client, _ = outside.pair
    uri = outside.open("app.py")
    turn = client.command("thinklsp.action", {"name": "edit", "uri": uri, "instruction": "Two."}, token="t")
    await hold.reached.wait()
    [stop] = named(await client.code_actions(uri, "x"), "stop")
    await client.run_action(stop)
    result = await outside.result(turn)
    assert result["stopReason"] == "cancelled"
    assert (result["edits"]["applied"], result["edits"]["files"][0]["status"]) == ("none", "held")
    assert result["edits"]["files"][0]["reason"]
    assert client.edits() == []
    assert client.text(uri) == "x = 1\n"
    assert (await client.command("thinklsp.apply", {"turnId": result["turnId"]}))["applied"] in (True, "all")
    assert client.text(uri) == "x = 2\n"


async def test_a_cancel_in_the_same_breath_counts(begin: Begin) -> None:
    """The command has been read by then, and has not begun."""
    outside = await begin(answer(Text("Never.")))
    await outside.client.command("thinklsp.sessions")
    for token in ("a", "b", "c"):
        turn = outside.client.command("thinklsp.chat", {"prompt": "Stop."}, token=token)
        outside.client.notify("window/workDoneProgress/cancel", {"token": token})
        assert (await outside.result(turn))["stopReason"] == "cancelled"
        assert outside.client.progress_kinds(token)[-1] == "end"
    assert outside.provider.requests == []


@pytest.mark.parametrize("way", WAYS)
async def test_what_a_cancelled_turn_had_come_to_is_told_and_offered_where_it_was_asked(begin: Begin, way: str) -> None:
    """The file that it makes is not open, and cannot be opened yet."""
    hold = Hold()
    outside = await begin(
        answer(Thinking(), tool("write_file", path="test_app.py", content="assert True\n")),
        answer(Text("Half a sen"), hold, Text("tence.")),
        files={"app.py": "def f():\n    return 1\n"},
    )
    client, _ = outside.pair
    uri, other = outside.open("app.py"), outside.open("other.py", "x = 1\n")
    asked = {"name": "test", "uri": uri, "partialResultToken": "p"}
    turn = client.command("thinklsp.action", asked, token="t")
    await client.wait_for(lambda: "Half a sen" in str(client.progress("p")), what="the text")
    WAYS[way](client, turn, "t")
    if way == "request":
        with pytest.raises(ResponseError):
            await turn
    else:
        assert (await outside.result(turn))["text"] == "Half a sen"
    assert client.progress("t")[-1] == {"kind": "end", "message": "cancelled; the edit is held"}
    assert client.progress("p")[-1]["result"]["text"] == "Half a sen"
    assert named(await client.code_actions(other, "x"), "apply") == []
    [apply] = named(await client.code_actions(uri, "def"), "apply")
    assert "edit" not in apply
    assert (await client.run_action(apply))["applied"] == "all"
    assert client.text(outside.uri("test_app.py")) == "assert True\n"
    assert named(await client.code_actions(uri, "def"), "apply") == []


async def test_shutdown_in_the_middle_of_a_turn_ends_it(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Thinking(), hold, Text("Never.")))
    client, provider = outside.pair
    client.command("thinklsp.chat", {"prompt": "Wait."}, token="t")
    await hold.reached.wait()
    assert await client.close() == 0  # That the command was answered too is seen by the protocol checker.
    await provider.wait_for(lambda: provider.requests[0].closed_at, within=2, what="the connection closed")
