"""Courses of conversations that nobody plans: killed while shortening, forked, moved and undone at the wrong moment."""

from __future__ import annotations

import sys
from typing import Any

from tests.e2e.acting import begin_talk, chat, edit_file, reach, refused, release, say, send, write_prompt
from tests.e2e.conftest import Begin
from tests.support.outside import Outside, said, server_by
from tests.support.signing_server import Hold, Text, Thinking, answer

LONG = "word " * 2_000
EDIT = edit_file("a.py", "1", "2")


async def sessions(outside: Outside, op: str, session: str) -> Any:
    return await outside.client.command("thinklsp.sessions", {"op": op, "sessionId": session})


async def test_kill_during_compaction_keeps_the_conversation(begin: Begin) -> None:
    hold = Hold()
    outside, _, uri = await begin_talk(
        begin, "One?", answer(Thinking(), Text(LONG), letters=9_000), answer(Thinking(), Text("Two."))
    )
    await send(outside, uri)
    write_prompt(outside, uri, "Two?")
    session = (await send(outside, uri))["sessionId"]
    before = await sessions(outside, "show", session)
    text = outside.client.text(uri)
    outside.provider.say(answer(Text("They asked"), hold, Text("much.")), say("Three."))
    write_prompt(outside, uri, "/compact")
    await reach(hold, outside.client.command("thinklsp.send", {"uri": uri}, token="lost"))
    await outside.restart(kill=True)
    outside.client.open(uri, text)
    assert await sessions(outside, "show", session) == before
    write_prompt(outside, uri, "Three?")
    result = await send(outside, uri)
    assert (result["sessionId"], result["text"], result["notices"]) == (session, "Three.", [])
    assert LONG in said(outside.provider.requests[-1].body)


async def test_fork_of_running_session_has_its_complete_steps(begin: Begin) -> None:
    hold = Hold()
    outside, _, uri = await begin_talk(
        begin, "Change it.", answer(EDIT), answer(Text("mid"), hold, Text("end")), files={"a.py": "x = 1\n"}
    )
    turn = await reach(hold, outside.client.command("thinklsp.send", {"uri": uri}, token="first"))
    busy = (await outside.client.command("thinklsp.sessions"))[0]["sessionId"]
    await refused(sessions(outside, "delete", busy), match="is running")
    fork = await sessions(outside, "fork", busy)
    assert fork["steps"] == 1
    outside.provider.say(say("In the fork."))
    there = await chat(outside, "And?", sessionId=fork["sessionId"])
    assert (there["text"], outside.client.text(outside.uri("a.py"))) == ("In the fork.", "x = 1\n")
    assert "mid" not in said(outside.provider.requests[-1].body)
    assert (await release(hold, outside, turn))["edits"]["applied"] == "all"
    assert outside.client.text(outside.uri("a.py")) == "x = 2\n"


async def test_undo_after_clear_keeps_edits_of_previous_session(begin: Begin) -> None:
    outside = await begin(answer(EDIT), say("Done."), files={"a.py": "x = 1\n"})
    code, uri = outside.open("a.py"), outside.open("notes.chat.md", "Change it.")
    await send(outside, uri)
    write_prompt(outside, uri, "/clear\n/undo")
    assert "Nothing to undo in this session" in (await send(outside, uri))["text"]
    assert outside.client.text(code) == "x = 2\n"
    assert (await outside.client.command("thinklsp.undo"))["applied"] == "all"
    assert outside.client.text(code) == "x = 1\n"


async def test_full_disk_allows_conversation_and_undo(begin: Begin) -> None:
    limited = ["bash", "-c", 'ulimit -f 250; exec "$0" -m thinklsp', sys.executable]
    outside = await begin(files={"a.py": "x = 1\n"}, connect=server_by(limited))
    code, uri = outside.open("a.py"), outside.open("notes.chat.md", "Go.")
    for number in range(4):
        outside.provider.say(answer(Text(f"{number}: {LONG * 6}"), letters=20_000))
        assert (await send(outside, uri))["stopReason"] == "end_turn"
        write_prompt(outside, uri, "On.")
    [told] = outside.told()
    assert "cannot be written" in told
    assert "kept in memory" in told
    outside.provider.say(answer(EDIT), say("Done."))
    result = await send(outside, uri)
    assert outside.client.text(code) == "x = 2\n"
    assert all(f"{number}: word" in said(outside.provider.requests[-1].body) for number in range(4))
    assert (await outside.client.command("thinklsp.undo", {"turnId": result["turnId"]}))["applied"] == "all"
    assert outside.client.text(code) == "x = 1\n"
