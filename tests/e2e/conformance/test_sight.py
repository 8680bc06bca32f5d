"""Nothing is replaced that the model has not seen, and each prompt begins with what has changed since it looked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.e2e.acting import (
    begin_file,
    chat,
    edit_file,
    never_answer,
    read_file,
    say,
    start_chat,
    start_over,
    write_file,
)
from tests.e2e.conftest import Begin
from tests.support.outside import Outside, said, statuses
from tests.support.signing_server import Hold, Text, Thinking, Tool, answer, tool

BASE = "def add(a, b):\n    return a - b\n"
FIXED = "def add(a, b):\n    return a + b\n"
MINE = "\n\ndef mine():\n    return 1\n"
FIX = edit_file("calc.py", "a - b", "a + b")
REWRITE = write_file("calc.py", '"""Sums."""\n')
DELETE = tool("delete_file", path="calc.py")
DONE = say("Done.")
TOLD = "Files are not as you know them."
CHANGED, NOT_OWN = "Changed since you last saw them: calc.py", "Not as you wrote them: calc.py"


async def play(outside: Outside, *calls: Tool, session: str | None = None, **argument: Any) -> Any:
    """Run a turn in which each call has its own message."""
    outside.provider.say(*(answer(Thinking(), call) for call in calls), DONE)
    return await chat(outside, "Change it.", **({} if session is None else {"sessionId": session}), **argument)


def last_prompt(outside: Outside) -> str:
    """Return the newest prompt as the model got it, with the notes before it."""
    prompts = [m for m in outside.provider.requests[-1].body["messages"] if "tool_result" not in str(m["content"])]
    return said({"messages": [message for message in prompts if message["role"] == "user"][-1:]})


def results(outside: Outside) -> str:
    return str(outside.provider.requests[-1].body["messages"][-1]["content"])


async def type_below(outside: Outside, _: Any) -> None:
    outside.client.change(outside.uri("calc.py"), FIXED, FIXED + MINE)


async def write_below(outside: Outside, _: Any) -> None:
    (outside.root / "calc.py").write_text(FIXED + MINE)


async def edit_in_another_chat(outside: Outside, _: Any) -> None:
    result = await play(outside, edit_file("calc.py", "a + b\n", f"a + b\n{MINE}"))
    assert statuses(result) == {"calc.py": "applied"}


async def undo_in_editor(outside: Outside, _: Any) -> None:
    outside.client.change(outside.uri("calc.py"), "a + b", "a - b")


async def check_out(outside: Outside, _: Any) -> None:
    (outside.root / "calc.py").write_text(BASE)


async def undo_by_command(outside: Outside, turn: Any) -> None:
    assert (await outside.client.command("thinklsp.undo", {"turnId": turn["turnId"]}))["applied"] == "all"


async def close_unsaved(outside: Outside, _: Any) -> None:
    outside.client.close_document(outside.uri("calc.py"))


async def remove(outside: Outside, _: Any) -> None:
    (outside.root / "calc.py").unlink()


Change = Callable[[Outside, Any], Awaitable[None]]
# What happens between two prompts -> whether the file is open, and the text that no call may destroy.
BETWEEN: list[tuple[Change, bool, str]] = [
    (type_below, True, FIXED + MINE),
    (write_below, False, FIXED + MINE),
    (edit_in_another_chat, True, FIXED + MINE),
    (edit_in_another_chat, False, FIXED + MINE),
    (undo_in_editor, True, BASE),
    (check_out, False, BASE),
    (undo_by_command, True, BASE),
    (undo_by_command, False, BASE),
    (close_unsaved, True, BASE),
]


@pytest.mark.parametrize("is_edited", [True, False])
async def test_a_change_between_prompts_is_told_and_kept(begin: Begin, is_edited: bool) -> None:
    outside = await begin()
    for change, is_open, kept in BETWEEN:
        if not is_edited and change in (undo_by_command, close_unsaved):
            continue  # Nothing was written that could be taken back.
        start_over(outside, {"calc.py": BASE if is_edited else FIXED})
        if is_open:
            outside.open("calc.py")
        turn = await play(outside, read_file("calc.py"), *([FIX] if is_edited else []))
        await change(outside, turn)
        session = turn["sessionId"]
        for call in (REWRITE, DELETE):
            result = await play(outside, call, session=session)
            assert result["edits"] is None, change
            assert outside.client.text(outside.uri("calc.py")) == kept, change
            assert "Read the whole file with read_file" in results(outside)
        prompts = said(outside.provider.requests[-1].body)
        assert prompts.count(TOLD) == 1, "told once, and kept where it was told"
        assert (NOT_OWN if is_edited else CHANGED) in prompts, change
        result = await play(outside, read_file("calc.py"), REWRITE, session=session)
        assert statuses(result) == {"calc.py": "applied"}


async def test_a_file_that_is_gone_is_told(begin: Begin) -> None:
    outside = await begin(files={"calc.py": BASE, "same.py": BASE})
    turn = await play(outside, read_file("calc.py"), read_file("same.py"))
    await remove(outside, turn)
    await play(outside, session=turn["sessionId"])
    assert f"{CHANGED} (does not exist)</note>" in last_prompt(outside)


async def go_on(outside: Outside, session: str) -> str:
    return session


async def restart(outside: Outside, session: str) -> str:
    await outside.restart()
    return session


async def fork(outside: Outside, session: str) -> str:
    return str((await outside.client.command("thinklsp.sessions", {"op": "fork", "sessionId": session}))["sessionId"])


async def compact(outside: Outside, session: str) -> str:
    outside.provider.say(DONE, say('{"decisions_done": ["Read it."]}'))
    await chat(outside, "please " * 4_000, sessionId=session)
    done = await outside.client.command("thinklsp.compact", {"sessionId": session}, token=outside.token())
    assert done["archiveId"]
    return session


async def switch(outside: Outside, session: str) -> str:
    outside.provider.conversations.elsewhere = True
    await outside.client.command("thinklsp.model", {"value": "claude-opus-4-6", "sessionId": session})
    return session


Survival = Callable[[Outside, str], Awaitable[str]]


async def test_sight_survives(begin: Begin) -> None:
    outside = await begin()
    # The last one changes what the provider takes.
    for survive in (go_on, fork, compact, restart, switch):
        for is_changed in (False, True):
            start_over(outside, {"calc.py": BASE})
            turn = await play(outside, read_file("calc.py"))
            await play(outside, session=turn["sessionId"])
            session = await survive(outside, turn["sessionId"])
            if is_changed:
                await write_below(outside, turn)
            result = await play(outside, REWRITE, session=session)
            assert (CHANGED in last_prompt(outside)) == is_changed, survive
            assert (result["edits"] is None) == is_changed, survive
            expected = FIXED + MINE if is_changed else REWRITE.input["content"]
            assert outside.client.text(outside.uri("calc.py")) == expected, survive


async def test_an_edit_of_a_killed_turn_is_told(begin: Begin) -> None:
    hold = Hold()
    script = [*map(answer, (read_file("calc.py"), FIX)), answer(Thinking(), hold, Text("Done."))]
    outside = await begin(*script, files={"calc.py": BASE})
    start_chat(outside, "Change it.", token="t")
    await hold.reached.wait()
    await outside.restart(kill=True)
    [session] = await outside.client.command("thinklsp.sessions")
    result = await play(outside, REWRITE, session=session["sessionId"])
    prompts = said(outside.provider.requests[-1].body)
    assert "stopped before it finished" in prompts
    assert NOT_OWN in prompts
    shown = await outside.client.command("thinklsp.sessions", {"op": "show", "sessionId": session["sessionId"]})
    assert TOLD not in shown["text"], "only the model reads it"
    assert result["edits"] is None
    assert (outside.root / "calc.py").read_text() == BASE


@pytest.mark.parametrize("is_applied", [False, True])
async def test_an_edit_without_an_answer_is_told_if_it_never_came(begin: Begin, is_applied: bool) -> None:
    """The files show what became of the edit, so the ledger adds nothing to the message."""
    outside = await begin(*map(answer, (read_file("calc.py"), FIX)), DONE, files={"calc.py": BASE})
    asked = asyncio.Event()

    async def die(params: Any) -> Any:
        if is_applied:
            outside.client.editor.apply_edit(params)
        asked.set()
        await never_answer(params)

    outside.client.editor.handlers["workspace/applyEdit"] = die
    start_chat(outside, "Change it.", token="t")
    await asked.wait()
    await outside.restart(kill=True)
    await outside.until_told("thinklsp stopped while the edit")
    [session] = await outside.client.command("thinklsp.sessions")
    result = await play(outside, REWRITE, session=session["sessionId"])
    assert (NOT_OWN in last_prompt(outside)) == (result["edits"] is None) == (not is_applied)


async def test_a_merged_edit_is_read_again(begin: Begin) -> None:
    hold = Hold()
    script = [*map(answer, (read_file("calc.py"), FIX)), answer(Thinking(), hold, Text("Done."))]
    outside, client, uri = await begin_file(begin, BASE, *script, name="calc.py")
    turn = start_chat(outside, "Change it.", token="t")
    await hold.reached.wait()
    client.change(uri, "def add", "# mine\ndef add")
    hold.release()
    session = (await outside.result(turn))["sessionId"]
    assert client.text(uri) == "# mine\n" + FIXED
    result = await play(outside, REWRITE, session=session)
    assert result["edits"] is None
    assert NOT_OWN in last_prompt(outside)
    assert client.text(uri) == "# mine\n" + FIXED


@pytest.mark.parametrize("call", [REWRITE, DELETE])
async def test_a_line_that_is_typed_while_the_edit_arrives_stays(begin: Begin, call: Tool) -> None:
    """A deletion has no version of its own, so the version of the document goes with it."""
    script = [answer(Thinking(), each) for each in (read_file("calc.py"), call)]
    outside, client, uri = await begin_file(begin, BASE, *script, DONE, name="calc.py")

    def type_first(params: Any) -> Any:
        del client.editor.handlers["workspace/applyEdit"]
        client.change(uri, BASE, BASE + MINE)
        return client.editor.apply_edit(params)

    client.editor.handlers["workspace/applyEdit"] = type_first
    result = await chat(outside, "Change it.")
    assert client.text(uri) == BASE + MINE
    assert statuses(result) == {"calc.py": "conflict"}


# The references of a prompt -> whether they show the whole file.
RANGE = {"start": {"line": 0, "character": 0}, "end": {"line": 1, "character": 0}}
REFERENCES = {"whole": (BASE, None, True), "lines": (BASE, RANGE, False), "marks": (f"{BASE}\f<U+200B>\n", None, False)}


async def test_references_show_a_file(begin: Begin) -> None:
    outside = await begin()
    for name, (text, range_, is_whole) in REFERENCES.items():
        for is_open in (False, True):
            start_over(outside, {"calc.py": text})
            if is_open:
                outside.open("calc.py")
            uri = outside.uri("calc.py")
            reference = uri if range_ is None else {"uri": uri, "range": range_}
            result = await play(outside, REWRITE, references=[reference])
            assert (result["edits"] is not None) == is_whole, name
            assert outside.client.text(uri) == (REWRITE.input["content"] if is_whole else text), name


async def test_an_action_shows_what_it_is_about(begin: Begin) -> None:
    outside = await begin()
    for range_ in (None, RANGE):
        start_over(outside, {"calc.py": BASE})
        uri = outside.open("calc.py")
        outside.provider.say(answer(REWRITE), DONE)
        result = await outside.edit(uri, **({} if range_ is None else {"range": range_, "version": 1}))
        assert (result["edits"] is None) == (range_ is not None)
        assert (outside.client.text(uri) == BASE) == (range_ is not None)
