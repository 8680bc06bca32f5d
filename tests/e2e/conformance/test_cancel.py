"""Three ways to cancel are one: one reply, the provider's connection closed, the session goes on."""

from __future__ import annotations

import json
import time

import pytest

from tests.e2e.acting import (
    WAYS,
    begin_talk,
    cancel,
    chat,
    reach,
    read_file,
    say,
    start_chat,
    start_over,
    write_file,
)
from tests.e2e.conftest import Begin
from tests.support.client.lsp import named
from tests.support.outside import Outside, check_turn_result, said
from tests.support.signing_server import Hold, Redacted, Text, Thinking, answer


async def cancelled(outside: Outside, way: str, session: str, hold: Hold) -> float:
    """Start a turn, cancel it while `hold` stands, and check the one reply and the closed connection.

    Return the seconds until the connection was closed.
    """
    client, provider = outside.pair
    token = outside.token()
    turn = await reach(hold, start_chat(outside, f"Stop at {token}.", sessionId=session, token=token))
    at = time.monotonic()
    if (result := await cancel(outside, way, turn, token)) is not None:
        check_turn_result(result)
        assert (result["stopReason"], result["sessionId"]) == ("cancelled", session)
    seen = provider.requests[-1]
    closed: float = await provider.wait_for(lambda: seen.closed_at, what="the provider's connection closed")
    kinds = client.progress_kinds(token)
    assert (kinds.count("begin"), kinds.count("end"), kinds[-1]) == (1, 1, "end")
    return closed - at


async def cancel_twice(begin: Begin, way: str) -> tuple[Outside, str, list[float]]:
    """Cancel a turn in its stream, and one before its answer begins. Return the session and the seconds as well."""
    in_stream, before_head = Hold(), Hold()
    outside = await begin(
        answer(Thinking("Hm."), Redacted(), Text("Ready.")),
        answer(Thinking(), read_file("app.py")),
        answer(Thinking(), Text("Half a sen"), in_stream, Text("tence.")),
        answer(Text("Never begun."), before=before_head),
        answer(Thinking(), read_file("app.py")),
        answer(Thinking(), Text("Still here.")),
        files={"app.py": "x = 1\n"},
    )
    session = (await chat(outside, "Ready?"))["sessionId"]
    return outside, session, [await cancelled(outside, way, session, hold) for hold in (in_stream, before_head)]


@pytest.mark.timing
@pytest.mark.parametrize("way", WAYS)
async def test_connection_is_closed_within_a_second_of_a_cancel(begin: Begin, way: str) -> None:
    _, _, seconds = await cancel_twice(begin, way)
    assert max(seconds) < 1


@pytest.mark.parametrize("way", WAYS)
async def test_cancel(begin: Begin, way: str) -> None:
    outside, session, _ = await cancel_twice(begin, way)
    client, provider = outside.pair
    result = await chat(outside, "Still there?", sessionId=session)
    assert (result["stopReason"], result["text"]) == ("end_turn", "Still here.")
    assert "Ready." in said(provider.requests[-1].body)
    assert "Half a sen" not in said(provider.requests[-1].body)
    assert await client.command("thinklsp.cancel") == {"cancelled": []}
    assert client.edits() == []


@pytest.mark.parametrize("steps", [0, 1])
async def test_the_text_of_a_stopped_answer_is_kept(begin: Begin, steps: int) -> None:
    hold = Hold()
    read = [answer(Thinking(), read_file("app.py"))][:steps]
    script = (*read, answer(Thinking(), Text("Half a sen"), hold, Text("tence.")), answer(Thinking(), Text("Again.")))
    outside = await begin(*script, files={"app.py": "x = 1\n"})
    client = outside.client
    uri = outside.open("app.py")
    turn = start_chat(outside, "Write.", token="t", partialResultToken="p", references=[uri])
    await client.wait_for(lambda: [one for one in client.progress("p") if one["kind"] == "text"], what="its text")
    client.stop("t")
    result = await outside.result(turn)
    named_session = {"sessionId": result["sessionId"]}
    exported = await client.command("thinklsp.sessions", {"op": "export", "format": "json", **named_session})
    [stopped] = json.loads(exported["text"])["unanswered"]
    assert (stopped["outcome"], stopped["partial"]) == ("cancelled", "Half a sen")
    assert (stopped["turn"], stopped["text"]) == (result["turnId"], "" if steps else "Write.")
    assert stopped["references"] == ([] if steps else ["app.py"])
    assert "Half a sen" in (await client.command("thinklsp.sessions", {"op": "show", **named_session}))["text"]
    await chat(outside, "Again?", **named_session)
    assert "Half a sen" not in said(outside.provider.requests[-1].body), "the model never reads it"


@pytest.mark.parametrize("is_loaded", [True, False])
async def test_a_cancel_in_the_same_breath_counts(begin: Begin, is_loaded: bool) -> None:
    """The command has been read by then, and has not begun; maybe the engine is not even loaded."""
    outside = await begin(say("Never."))
    if is_loaded:
        await outside.client.command("thinklsp.sessions")
    for token in ("a", "b", "c"):
        turn = start_chat(outside, "Stop.", token=token)
        outside.client.stop(token)
        assert (await outside.result(turn))["stopReason"] == "cancelled"
        assert outside.client.progress_kinds(token)[-1] == "end"
    assert outside.provider.requests == []


async def test_cancelled_turn_offers_its_edit_in_its_document(begin: Begin) -> None:
    """The file that it makes is not open, and cannot be opened yet."""
    outside = await begin()
    client = outside.client
    for way in (*WAYS, "action"):
        start_over(outside, {"app.py": "def f():\n    return 1\n"})
        text = Text("Half a sen"), Hold(), Text("tence.")
        outside.provider.say(answer(Thinking(), write_file("test_app.py", "assert True\n")), answer(*text))
        uri, other, part = outside.open("app.py"), outside.open("other.py", "x = 1\n"), f"part of {way}"
        asked = {"name": "test", "uri": uri, "partialResultToken": part}
        turn = client.command("thinklsp.action", asked, token=way)
        await client.wait_for(lambda part=part: "Half a sen" in str(client.progress(part)), what="the text")
        if way == "action":
            [stop] = named(await client.code_actions(uri, "def"), "stop")
            await client.run_action(stop)
            result = await outside.result(turn)
        else:
            result = await cancel(outside, way, turn, way)
        assert result is None or result["text"] == "Half a sen"
        assert client.progress(way)[-1] == {"kind": "end", "message": "cancelled; the edit is held"}
        assert client.progress(part)[-1]["result"]["text"] == "Half a sen"
        assert named(await client.code_actions(other, "x"), "apply") == []
        [apply] = named(await client.code_actions(uri, "def"), "apply")
        assert apply.edit is None
        assert (await client.run_action(apply))["applied"] == "all"
        assert client.text(outside.uri("test_app.py")) == "assert True\n"
        assert named(await client.code_actions(uri, "def"), "apply") == []


@pytest.mark.parametrize("command", ["chat", "chat, not waited for", "send"])
async def test_shutdown_in_the_middle_of_a_turn_ends_it(begin: Begin, command: str) -> None:
    """That a command was answered, and that no request comes behind `shutdown`, is seen by the protocol checker."""
    hold = Hold()
    outside, client, uri = await begin_talk(
        begin, "Wait.", answer(Thinking(), Text("Half a sen"), hold, Text("Never."))
    )
    argument = {"uri": uri} if command == "send" else {"prompt": "Wait."}
    client.command(f"thinklsp.{command.partition(',')[0]}", argument, token=None if "," in command else "t")
    await hold.reached.wait()
    assert await client.close() == 0
    requests = outside.provider.requests
    await outside.provider.wait_for(lambda: requests[0].closed_at, what="the connection closed")
    assert client.edits() == []
