"""Chat documents: slash commands, lenses, completion, and what an `@` brings along."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest
from lsprotocol import types

from tests.e2e.acting import (
    begin_file,
    begin_talk,
    chat,
    edit_file,
    reach,
    read_choices,
    refused,
    say,
    send,
    write_prompt,
)
from tests.e2e.conftest import Begin
from tests.support.client.editor import capabilities
from tests.support.client.lsp import diagnostic
from tests.support.outside import said
from tests.support.signing_server import Hold, Text, Thinking, answer
from tests.support.watching import HANG_SECONDS

ANSWER = "The answer is 🙂 forty-two."
OPUS = "claude-opus-4-6"


def titles(lenses: list[Any]) -> list[str]:
    return [lens.command.title for lens in lenses]


def labels(found: Any) -> list[str]:
    return [item.label for item in found.items]


async def test_commands_alone_are_answered_without_a_model(begin: Begin) -> None:
    outside, _, uri = await begin_talk(begin, "/effort high\n/think manual 8000\n/help\n", options={"model": OPUS})
    result = await send(outside, uri)
    text = outside.client.text(uri) or ""
    assert text.startswith(f"<!-- thinklsp session: {result['sessionId']} -->\n\n/effort high\n")
    assert "## thinklsp\n\nEffort: high.\n\nThinking: manual 8000.\n\n- `/effort [level]`: " in text
    assert text.endswith("- `/help`: shows this list\n\n## You\n\n")
    assert (result["stopReason"], result["edits"]) == ("end_turn", None)
    assert result["text"].startswith("Effort: high.")
    assert outside.provider.connections == 0
    assert len(outside.client.edits()) == 1

    # What was chosen counts for this document and for no other.
    outside.provider.say(answer(Thinking(), Text("One.")), answer(Thinking(), Text("Two.")))
    write_prompt(outside, uri, "Go.")
    again = await send(outside, uri)
    assert again["sessionId"] == result["sessionId"]
    assert read_choices(outside) == ({"type": "enabled", "budget_tokens": 8000}, "high")
    other = outside.open("other.chat.md", "Go.")
    await send(outside, other)
    assert read_choices(outside) == ({"type": "adaptive"}, None)


async def test_what_is_left_is_sent_with_what_the_commands_changed(begin: Begin) -> None:
    outside, _, uri = await begin_talk(
        begin,
        "## You\n\n/effort low\nWhat is it?\n```\n/clear\n```\n",
        answer(Thinking(), Text(ANSWER)),
        options={"model": OPUS},
    )
    result = await send(outside, uri)
    assert result["text"] == ANSWER
    assert read_choices(outside)[1] == "low"
    assert "What is it?\\n```\\n/clear\\n```" in said(outside.provider.requests[0].body)
    assert "/effort" not in said(outside.provider.requests[0].body)
    text = outside.client.text(uri) or ""
    assert text.endswith(f"\n\n## thinklsp\n\nEffort: low.\n\n{ANSWER}\n\n## You\n\n")
    assert len(outside.client.edits()) == 1


@pytest.mark.parametrize("watched", [True, False])
async def test_what_is_no_command_is_said_and_nothing_is_sent(begin: Begin, watched: bool) -> None:
    outside, _, uri = await begin_talk(begin, "/efort high\n/effort high\nDo it.\n")
    if watched:
        result = await send(outside, uri)
        assert result["text"].startswith("There is no command `/efort`.")
    else:
        started = await outside.client.command("thinklsp.send", {"uri": uri})
        assert set(started) == {"turnId", "sessionId"}
    await outside.client.wait_for(lambda: "There is no" in (outside.client.text(uri) or ""), what="the answer")
    text = outside.client.text(uri) or ""
    assert "\n- `/undo`: " in text
    # What could not be sent stands in the next prompt, where it can be mended.
    assert text.endswith("\n\n## You\n\nDo it.\n")
    assert outside.provider.connections == 0
    assert (await outside.client.command("thinklsp.effort", {}))["value"] == "auto"
    tokens = [call.params.token for call in outside.client.calls("window/workDoneProgress/create")]
    await outside.client.wait_for(
        lambda: all(outside.client.progress_kinds(token)[-1:] == ["end"] for token in tokens), what="the end"
    )
    assert len(tokens) == (not watched)


# Commands, and the beginning and the end of what is told of them.
STOPPED = {
    "/effort huge\n/model\n": ("`effort` must be one of auto, low", ""),
    "/compact\n/usage\n/sessions\n": ("Nothing to compact in this session yet.", "Not run: `/usage`, `/sessions`."),
}


async def test_a_command_that_fails_stops_the_rest(begin: Begin) -> None:
    outside = await begin()
    for number, (commands, (start, end)) in enumerate(STOPPED.items()):
        uri = outside.open(f"{number}.chat.md", f"{commands}Do it.\n")
        text = (await send(outside, uri))["text"]
        assert (text.startswith(start), text.endswith(end)) == (True, True)
        assert (outside.client.text(uri) or "").endswith("\n\n## You\n\nDo it.\n")
    assert outside.provider.connections == 0


async def test_clear_begins_a_new_session_in_the_document(begin: Begin) -> None:
    outside, _, uri = await begin_talk(begin, "First?", say("One."), say("Two."), say("Three."))
    first = await send(outside, uri)
    write_prompt(outside, uri, "/usage\n/clear\n/usage")
    cleared = await send(outside, uri)
    used, began, unused = cleared["text"].partition(
        "A new session starts here. The model no longer sees the conversation above."
    )
    assert used.startswith("| | input | cached | output |")
    assert began
    assert "This session has not called a model yet." in unused
    text = outside.client.text(uri) or ""
    assert text.startswith(f"<!-- thinklsp session: {cleared['sessionId']} -->\n")
    assert cleared["sessionId"] != first["sessionId"]
    write_prompt(outside, uri, "Second?")
    second = await send(outside, uri)
    assert second["sessionId"] == cleared["sessionId"]
    assert len(outside.provider.requests[1].body["messages"]) == 1
    # The former session is still there.
    third = await chat(outside, "And?", sessionId=first["sessionId"])
    assert third["text"] == "Three."
    assert len(outside.provider.requests[2].body["messages"]) == 3


async def test_sessions_undo_and_compaction_from_a_document(begin: Begin) -> None:
    change = edit_file("a.py", "1", "2")
    outside, _, code = await begin_file(begin, "x = 1\n", answer(change), say("Changed."))
    uri = outside.open("notes.chat.md", "Change it.")
    first = await send(outside, uri)
    assert outside.client.text(code) == "x = 2\n"
    write_prompt(outside, uri, "/undo")
    undone = await send(outside, uri)
    assert undone["text"] == "- a.py was restored to its state before the turn."
    assert outside.client.text(code) == "x = 1\n"
    write_prompt(outside, uri, "/sessions")
    assert f"`{first['sessionId']}`" in (await send(outside, uri))["text"]
    write_prompt(outside, uri, "/compact the names")
    assert (await send(outside, uri))["text"] == "Nothing to compact in this session yet."
    assert len(outside.provider.requests) == 2


async def test_lenses_of_a_chat_document(begin: Begin) -> None:
    hold = Hold()
    outside, client, plain = await begin_file(
        begin, "x = 1\n", answer(Text(ANSWER), before=hold), options={"model": OPUS}
    )
    uri = outside.open("notes.chat.md", "<!-- thinklsp session: new -->\n\n## You\n\nOld.\n\n## You\n\nNew?\n")
    await client.wait_for(lambda: client.calls("workspace/codeLens/refresh"), what="the first refresh")
    assert not await client.lenses(plain)
    assert not await client.lenses(outside.uri("closed.chat.md"))
    lenses = await client.lenses(uri)
    assert titles(lenses) == ["▶ send", f"{OPUS} · effort auto · thinking adaptive"]
    assert {lens.range.start.line for lens in lenses} == {6}
    announced = client.server.execute_command_provider.commands
    assert {lens.command.command for lens in lenses} <= set(announced)

    refreshes = len(client.calls("workspace/codeLens/refresh"))
    started = await client.run_action(lenses[0])
    await hold.reached.wait()
    await client.wait_for(lambda: len(client.calls("workspace/codeLens/refresh")) > refreshes, what="a refresh")
    stop, using = await client.lenses(uri)
    assert stop.command.title == "■ stop"
    # The session is known before the first line names it.
    assert using.command.arguments == ({"sessionId": started["sessionId"]},)

    refreshes = len(client.calls("workspace/codeLens/refresh"))
    await client.command("thinklsp.effort", {"value": "max", "sessionId": started["sessionId"]})
    await client.wait_for(lambda: len(client.calls("workspace/codeLens/refresh")) > refreshes, what="a refresh")
    _, using = await client.lenses(uri)
    assert using.command.title == f"{OPUS} · effort max · thinking adaptive"
    told = await client.run_action(using)
    assert (told["value"], told["effective"]) == ("max", "max")

    assert await client.run_action(stop) == {"cancelled": [started["turnId"]]}
    await client.wait_for(lambda: started["sessionId"] in (client.text(uri) or ""), what="the session in the document")
    assert titles(await client.lenses(uri))[0] == "▶ send"


async def test_lenses_without_refresh_and_without_a_key(begin: Begin) -> None:
    outside, _, uri = await begin_talk(
        begin, "Hello?", announce=capabilities(workspace__codeLens=None), env={"ANTHROPIC_API_KEY": None}
    )
    await outside.client.command("thinklsp.effort", {})
    assert titles(await outside.client.lenses(uri)) == ["▶ send", "no model: run `thinklsp doctor`"]
    assert outside.client.calls("workspace/codeLens/refresh") == []


@pytest.mark.timing
async def test_a_look_at_a_large_document_takes_no_time(begin: Begin) -> None:
    outside = await begin()
    await outside.client.command("thinklsp.effort", {})
    line = "    some words of a long answer, and `code` – 🙂\n"
    uri = outside.open("notes.chat.md", "## You\n\n" + line * 20_000 + "\n## You\n\nNow?")
    took = []
    for number in range(12):
        # A changed document cannot be answered from what was remembered.
        outside.client.change(uri, "Now", f"Now {number}")
        start = time.monotonic()
        await outside.client.lenses(uri)
        took.append(time.monotonic() - start)
    assert min(took) < 0.050  # ten are promised and measured; the machine may be busy


FILES = {
    ".gitignore": "*.log\n", "src/app.py": "x = 1\n", "src/späß.py": "", "docs/app.md": "", "noise.log": "",
    "a b.txt": "",
}  # fmt: skip


async def test_completion_in_a_chat_document(begin: Begin) -> None:
    outside = await begin(options={"model": OPUS}, files=FILES)
    client = outside.client

    async def complete(prompt: str, *, before: str = "🙂 ") -> Any:
        uri = outside.open("c.chat.md", f"<!-- thinklsp session: new -->\n\n## You\n\n{before}{prompt}")
        return await client.complete(uri, prompt)

    assert labels(await complete("/", before="")) == [
        "/effort", "/think", "/model", "/compact", "/restore", "/clear", "/usage", "/sessions", "/undo", "/help",
    ]  # fmt: skip
    assert labels(await complete("/co", before="")) == ["/compact"]
    assert labels(await complete("/effort h", before="")) == ["high"]
    assert "manual" in labels(await complete("/think ", before=""))
    assert OPUS in labels(await complete("/model claude-", before=""))
    assert labels(await complete("/etc/", before="")) == []
    assert labels(await complete("/")) == []
    assert labels(await complete("/", before="```\n")) == []

    # The files are being listed at first.
    async with asyncio.timeout(HANG_SECONDS):
        while (found := await complete("@")).is_incomplete:
            pass
    assert labels(found) == [
        "@selection", "@diagnostics", "@.gitignore", '@"a b.txt"', "@docs/app.md", "@src/app.py", "@src/späß.py",
    ]  # fmt: skip
    for typed in ("@a b", '@"a b'):
        assert [(item.label, item.filter_text.startswith(typed)) for item in (await complete(typed)).items] == (
            [('@"a b.txt"', True)] if '"' in typed else []
        )
    # An editor has closed the quote by itself: that one is replaced, too.
    closed = outside.open("c.chat.md", '<!-- thinklsp session: new -->\n\n## You\n\n@"a b" x')
    [item] = (await client.complete(closed, '@"a b')).items
    assert item.text_edit.range.end.character == len('@"a b"')
    assert labels(await complete("@app")) == ["@docs/app.md", "@src/app.py"]
    assert labels(await complete("@src/sp")) == ["@src/späß.py"]
    assert labels(await complete("me@ex")) == []
    [item] = (await complete("@docs")).items
    # The smiley before it counts two units in UTF-16.
    assert item.text_edit.range == types.Range(types.Position(4, 3), types.Position(4, 8))
    assert item.text_edit.new_text == item.filter_text == "@docs/app.md"

    above = outside.open("above.chat.md", "## You\n\n/\n\n## thinklsp\n\n/he\n\n## You\n\nNow")
    for typed in ("\n/\n", "/he"):
        place = typed.rstrip("\n")
        assert labels(await client.complete(above, place)) == []
    plain = outside.open("plain.md", "/")
    assert await client.complete(plain, "/") is None
    assert outside.provider.connections == 0


async def test_selection_and_diagnostics_come_along(begin: Begin) -> None:
    text = "a = 1\nb = nmae\nc = 3\n"
    outside, client, uri = await begin_talk(
        begin, "What is @selection, and why @diagnostics?", say("One."), say("Two."), files={"src/app.py": text}
    )
    await send(outside, uri)
    notices = outside.results[-1]["notices"]
    assert [notice.partition(" was ignored")[0] for notice in notices] == ["@selection", "@diagnostics"]
    assert "> - @selection was ignored: no code has been selected yet." in (client.text(uri) or "")

    source = outside.open("src/app.py")
    await client.code_actions(source, "b = nmae", diagnostics=[diagnostic(text, "nmae", "nmae is not defined")])
    # The actions of the chat document itself change nothing about what was selected, and neither does typing above.
    await client.code_actions(uri, "What")
    client.change(source, "a = 1", "first = 1\na = 1")
    write_prompt(outside, uri, "What is @selection, and why @diagnostics?")
    result = await send(outside, uri)
    assert result["notices"] == []
    body = said(outside.provider.requests[-1].body)
    assert "src/app.py, lines 3-3 of 4" in body
    assert "Diagnostics of src/app.py:\\n- line 3: error: nmae is not defined (pyright)" in body


async def test_second_send_of_new_document_reuses_the_session(begin: Begin) -> None:
    hold = Hold()
    outside, client, uri = await begin_talk(begin, "Hello?", answer(Text(ANSWER), before=hold), say("Again."))
    first = await reach(hold, client.command("thinklsp.send", {"uri": uri}, token="first"))
    second = client.command("thinklsp.send", {"uri": uri}, token="second")
    await refused(second, match="already waiting for an answer")
    assert await client.command("thinklsp.cancel", {}) != {"cancelled": []}
    result = await first
    assert result["stopReason"] == "cancelled"
    # The document learns its session although there was no answer; the prompt stands as it was, to be sent again.
    named = f"<!-- thinklsp session: {result['sessionId']} -->\n\nHello?"
    await client.wait_for(lambda: client.text(uri) == named, what="the session in the document")
    again = await send(outside, uri)
    assert again["sessionId"] == result["sessionId"]
    assert outside.provider.requests[-1].body["messages"][-1]["role"] == "user"


async def test_text_typed_during_a_turn_is_the_next_prompt(begin: Begin) -> None:
    outside = await begin()
    client = outside.client
    for number, is_whole in enumerate((False, True), 1):
        hold = Hold()
        outside.provider.say(answer(Text(ANSWER), before=hold), say("Again."))
        uri = outside.open(f"{number}.chat.md", "## You\n\nHello?\n")
        turn = await reach(hold, client.command("thinklsp.send", {"uri": uri}, token=uri))
        if is_whole:
            client.change(uri, "## You\n\nHello?\n", "Some words.\n\n## You\n\nHello?\n\nAnd another\nthing.\n")
        else:
            client.change(uri, "\n", "\n\nAnd another\nthing.\n", nth=2)
            client.change(uri, "## You", "Some words.\n\n## You")
        # Answered in order: the server has read what was typed.
        await client.lenses(uri)
        hold.release()
        result = await turn
        assert client.text(uri) == (
            f"<!-- thinklsp session: {result['sessionId']} -->\n\nSome words.\n\n## You\n\nHello?\n\n"
            f"## thinklsp\n\n{ANSWER}\n\n## You\n\nAnd another\nthing.\n"
        )
        assert len(client.edits()) == 2 * number - 1
        await send(outside, uri)
        newest = outside.provider.requests[-1].body["messages"][-1]["content"]
        assert newest[0]["text"] == "And another\nthing."


async def test_a_document_saved_under_another_name_gets_its_answer(begin: Begin) -> None:
    outside = await begin()
    client = outside.client
    for number, is_running in enumerate((True, False)):
        hold = Hold()
        outside.provider.say(answer(Text(ANSWER), before=hold))
        old, new = outside.open(f"old{number}.chat.md", "Hello?"), outside.uri(f"new{number}.chat.md")
        turn = await reach(hold, client.command("thinklsp.send", {"uri": old}, token=old))

        def rename(old: str = old, new: str = new) -> None:
            client.close_document(old)
            client.open(new, "Hello?")

        def renaming(params: Any, old: str = old, rename: Any = rename) -> Any:
            if old not in client.desk.open:
                return client.editor.apply_edit(params)
            # The edit is for a document that is no longer there, which an editor refuses.
            rename()
            return types.ApplyWorkspaceEditResult(applied=False)

        if is_running:
            rename()
            await client.lenses(new)
        else:
            client.editor.handlers["workspace/applyEdit"] = renaming
        hold.release()
        result = await turn
        assert client.text(new) == (
            f"<!-- thinklsp session: {result['sessionId']} -->\n\nHello?\n\n## thinklsp\n\n{ANSWER}\n\n## You\n\n"
        )


async def test_unchangeable_document_is_answered_in_another_one(begin: Begin) -> None:
    outside, client, uri = await begin_talk(begin, "Hello?", say(ANSWER), say("Again."))

    def read_only(params: Any) -> Any:
        changes = params.edit.document_changes
        if any(isinstance(change, types.TextDocumentEdit) and change.text_document.uri == uri for change in changes):
            return types.ApplyWorkspaceEditResult(applied=False, failure_reason="read-only")
        return client.editor.apply_edit(params)

    client.editor.handlers["workspace/applyEdit"] = read_only
    first = await send(outside, uri)
    second = await send(outside, uri)
    assert first["sessionId"] == second["sessionId"]
    shown = {call.params.uri for call in client.calls("window/showDocument")}
    [other] = shown
    assert (client.text(other) or "").count("## thinklsp") == 2
    assert client.text(uri) == "Hello?"
