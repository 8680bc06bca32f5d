"""Courses of conversations that nobody plans: killed while shortening, forked, moved and undone at the wrong moment."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.outside import Outside, said, server_by
from tests.support.raw_client import ResponseError
from tests.support.signing_script import Hold, Text, Thinking, answer, tool

LONG = "word " * 2_000
EDIT = tool("edit_file", path="a.py", old_text="1", new_text="2")


async def send(outside: Outside, uri: str) -> Any:
    return await outside.turn("thinklsp.send", {"uri": uri})


def prompt(outside: Outside, uri: str, text: str) -> None:
    """The user writes into the empty prompt at the end."""
    count = (outside.client.text(uri) or "").count("## You\n\n")
    outside.client.change(uri, "## You\n\n", f"## You\n\n{text}", nth=count - 1)


async def sessions(outside: Outside, op: str, session: str) -> Any:
    return await outside.client.command("thinklsp.sessions", {"op": op, "sessionId": session})


async def test_a_kill_in_mid_compaction_leaves_the_conversation_as_it_was(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Thinking(), Text(LONG), letters=9_000), answer(Thinking(), Text("Two.")))
    uri = outside.open("notes.chat.md", "One?")
    await send(outside, uri)
    prompt(outside, uri, "Two?")
    session = (await send(outside, uri))["sessionId"]
    before = await sessions(outside, "show", session)
    text = outside.client.text(uri)
    outside.provider.say(answer(Text("They asked"), hold, Text("much.")), answer(Text("Three.")))
    prompt(outside, uri, "/compact")
    outside.client.command("thinklsp.send", {"uri": uri}, token="lost")
    await hold.reached.wait()
    await outside.restart(kill=True)
    outside.client.open(uri, text)
    assert await sessions(outside, "show", session) == before
    prompt(outside, uri, "Three?")
    result = await send(outside, uri)
    assert (result["sessionId"], result["text"], result["notices"]) == (session, "Three.", [])
    assert LONG in said(outside.provider.requests[-1].body)


async def test_a_fork_of_a_running_session_goes_on_from_its_last_whole_step(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(EDIT), answer(Text("mid"), hold, Text("end")), files={"a.py": "x = 1\n"})
    uri = outside.open("notes.chat.md", "Change it.")
    turn = outside.client.command("thinklsp.send", {"uri": uri}, token="first")
    await hold.reached.wait()
    busy = (await outside.client.command("thinklsp.sessions"))[0]["sessionId"]
    with pytest.raises(ResponseError, match="is running"):
        await sessions(outside, "delete", busy)
    fork = await sessions(outside, "fork", busy)
    assert fork["steps"] == 1
    outside.provider.say(answer(Text("In the fork.")))
    there = await outside.turn("thinklsp.chat", {"prompt": "And?", "sessionId": fork["sessionId"]})
    assert (there["text"], outside.client.text(outside.uri("a.py"))) == ("In the fork.", "x = 1\n")
    assert "mid" not in said(outside.provider.requests[-1].body)
    hold.release()
    assert (await outside.result(turn))["edits"]["applied"] == "all"
    assert outside.client.text(outside.uri("a.py")) == "x = 2\n"


async def test_a_document_that_is_renamed_in_mid_turn_gets_its_answer_under_the_new_name(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Text("mid"), hold, Text("end")), answer(Text("Two.")), files={"old.chat.md": "One?"})
    client, old = outside.client, outside.open("old.chat.md")
    turn = client.command("thinklsp.send", {"uri": old}, token="first")
    await hold.reached.wait()
    text = client.text(old)
    (outside.root / "old.chat.md").rename(outside.root / "new.chat.md")
    client.close_document(old)
    new = outside.open("new.chat.md", text)
    hold.release()
    session = (await outside.result(turn))["sessionId"]
    assert (client.text(new) or "").endswith("\n\nOne?\n\n## thinklsp\n\nmidend\n\n## You\n\n")
    assert [path.name for path in outside.root.iterdir()] == ["new.chat.md"]
    prompt(outside, new, "Two?")
    assert (await send(outside, new))["sessionId"] == session


async def test_undo_behind_clear_leaves_what_the_session_before_has_written(begin: Begin) -> None:
    outside = await begin(answer(EDIT), answer(Text("Done.")), files={"a.py": "x = 1\n"})
    code, uri = outside.open("a.py"), outside.open("notes.chat.md", "Change it.")
    await send(outside, uri)
    prompt(outside, uri, "/clear\n/undo")
    assert "nothing to undo in this session" in (await send(outside, uri))["text"]
    assert outside.client.text(code) == "x = 2\n"
    assert (await outside.client.command("thinklsp.undo"))["applied"] == "all"
    assert outside.client.text(code) == "x = 1\n"


async def test_on_a_full_disk_the_conversation_goes_on_and_edits_can_be_undone(begin: Begin) -> None:
    limited = ["bash", "-c", 'ulimit -f 250; exec "$0" -m thinklsp', sys.executable]
    outside = await begin(files={"a.py": "x = 1\n"}, connect=server_by(limited))
    code, uri = outside.open("a.py"), outside.open("notes.chat.md", "Go.")
    for number in range(4):
        outside.provider.say(answer(Text(f"{number}: {LONG * 6}"), letters=20_000))
        assert (await send(outside, uri))["stopReason"] == "end_turn"
        prompt(outside, uri, "On.")
    [told] = outside.told()
    assert "cannot be written" in told
    assert "kept in memory" in told
    outside.provider.say(answer(EDIT), answer(Text("Done.")))
    result = await send(outside, uri)
    assert outside.client.text(code) == "x = 2\n"
    assert all(f"{number}: word" in said(outside.provider.requests[-1].body) for number in range(4))
    assert (await outside.client.command("thinklsp.undo", {"turnId": result["turnId"]}))["applied"] == "all"
    assert outside.client.text(code) == "x = 1\n"
