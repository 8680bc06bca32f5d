"""Clients that take no edits from a server: the change comes in an action, or as text, and that is said first."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.e2e.acting import begin_file, chat, edit_file, reach, read_before, release, say, start_chat, write_file
from tests.e2e.conftest import Begin
from tests.support.client.editor import capabilities
from tests.support.outside import Outside, statuses
from tests.support.signing_server import Hold, Text, Thinking, answer, tool
from tests.support.watching import HANG_SECONDS

TEXT = "def area(radius):\n    return 3 * raduis ** 2\n"
FIXED = TEXT.replace("raduis", "radius")
FIX = edit_file("a.py", "raduis", "radius")
NEW_LINE = "    return 3 * radius ** 2"
FIRST = "Your editor does not accept edits from a server. If"
LITERALS = {"textDocument": {"codeAction": {"codeActionLiteralSupport": {"codeActionKind": {"valueSet": [""]}}}}}
Json = Any


async def titles(outside: Outside, uri: str) -> list[str]:
    return [action["title"] for action in await outside.client.code_actions(uri, "raduis")]


@pytest.mark.parametrize("announce", [{}, {"textDocument": {"codeAction": {}}}, {"workspace": {"applyEdit": False}}])
async def test_a_plain_client_gets_the_new_text(begin: Begin, announce: Json) -> None:
    """The browser's plain client: it runs the command of the menu and shows messages."""
    hold = Hold()
    outside, client, uri = await begin_file(
        begin,
        TEXT,
        answer(Thinking(), FIX, before=hold),
        say("Fixed."),
        answer(FIX),
        say("Once more."),
        announce=announce,
    )
    action = {"name": "edit", "uri": uri, "instruction": "Fix it."}
    run = await reach(hold, client.command("thinklsp.action", action, token="turn"))
    # It is said before the model has answered anything.
    assert FIRST in (await outside.until_told(FIRST))
    result = await release(hold, outside, run)
    assert result["text"].startswith("Fixed.\n\n")
    assert f"In `a.py`, replace line 2:\n\n```\n{NEW_LINE}\n```" in result["text"]
    assert statuses(result) == {"a.py": "refused"}
    assert result["edits"]["files"][0]["reason"].endswith("insert the new text yourself")
    assert NEW_LINE in await outside.until_told("replace line 2")
    assert client.text(uri) == TEXT
    assert not [title for title in await titles(outside, uri) if "apply" in title]
    # A plug-in that asks all the same gets the text, too.
    assert (await client.command("thinklsp.apply", {"turnId": result["turnId"]}))["applied"] == "none"
    assert NEW_LINE in await outside.until_told("replace line 2")
    # Without a token the caller is answered at once, and it is not said again.
    await client.command("thinklsp.action", action)
    assert NEW_LINE in await outside.until_told("replace line 2")
    assert (await outside.until_told("a.py was not changed")).endswith("Once more.")
    assert len([message for message in client.messages() if FIRST in message]) == 1
    # What the user has inserted counts as the turn's.
    client.change(uri, "raduis", "radius")
    async with asyncio.timeout(HANG_SECONDS):
        while "thinklsp: undo" not in str(await client.code_actions(uri, "radius")):
            pass
    await client.command("thinklsp.undo", {"turnId": result["turnId"]})
    assert "raduis" in await outside.until_told("replace line 2")


async def test_closed_and_new_files_come_as_text(begin: Begin) -> None:
    outside, client, uri = await begin_file(
        begin,
        TEXT,
        *read_before(tool("delete_file", path="old.py")),
        answer(
            FIX,
            edit_file("b.py", "two\n", "TWO\nmore\n"),
            write_file("new.py", "# ```\n"),
            tool("delete_file", path="old.py"),
        ),
        say("Done."),
        files={"b.py": "one\ntwo\nthree\n", "old.py": "x\n"},
        announce=LITERALS,
    )
    chat_uri = outside.open("talk.chat.md", "## You\n\nFix all.\n")
    result = await outside.turn("thinklsp.send", {"uri": chat_uri})
    assert set(statuses(result).values()) == {"refused"}
    text = await outside.until_told("replace line 2")
    assert result["text"].endswith(text)
    for part in (
        "In `b.py`, replace line 2:\n\n```\nTWO\nmore\n```",
        "Create `new.py`:\n\n````\n# ```\n\n````",
        "Delete `old.py`.",
    ):
        assert part in text
    assert "a.py" not in text
    outside.told()
    [apply] = [action for action in await client.code_actions(uri, "raduis") if "apply" in action["title"]]
    assert "command" not in apply
    client.editor.capabilities = capabilities()
    assert client.editor.apply_edit({"edit": apply["edit"]})["applied"]
    assert client.text(uri) == FIXED
    # Where no action can carry anything, none is offered that would only say so.
    assert not [action for action in await client.code_actions(chat_uri, "Fix") if "apply" in action["title"]]
    # Once it is open, the other file has its action.
    other = outside.open("b.py")
    [apply] = [action for action in await client.code_actions(other, "two") if "apply" in action["title"]]
    assert "TWO" in str(apply["edit"])


async def test_a_held_edit_comes_as_text(begin: Begin) -> None:
    outside, _, _ = await begin_file(
        begin, TEXT, answer(FIX), answer(Text("cut"), stop_reason="max_tokens"), announce={}
    )
    result = await chat(outside, "Fix it.")
    await outside.until_told(FIRST)
    assert (result["stopReason"], statuses(result)) == ("max_tokens", {"a.py": "held"})
    assert NEW_LINE in result["text"]


async def test_a_conflict_comes_as_text(begin: Begin) -> None:
    hold = Hold()
    outside, client, uri = await begin_file(begin, TEXT, answer(FIX), answer(Text("Done."), before=hold), announce={})
    turn = await reach(hold, start_chat(outside, "Fix it.", token="turn"))
    client.change(uri, "raduis", "typed")
    result = await release(hold, outside, turn)
    await outside.until_told(FIRST)
    assert statuses(result) == {"a.py": "conflict"}
    assert NEW_LINE in result["text"]


async def test_partial_results_have_the_new_text(begin: Begin) -> None:
    outside, client, _ = await begin_file(begin, TEXT, answer(FIX), say("Fixed."), announce={})
    result = await chat(outside, "Fix it.", partialResultToken="part")
    await outside.until_told(FIRST)
    *values, finished = client.progress("part")
    streamed = "".join(value["delta"] for value in values if value["kind"] == "text")
    assert streamed == result["text"] == finished["result"]["text"]


async def test_a_question_has_no_word_about_edits(begin: Begin) -> None:
    outside, _, _ = await begin_file(begin, TEXT, say("It computes."), announce={})
    assert (await chat(outside, "What is it?", mode="ask"))["text"] == "It computes."
    assert outside.told() == []
