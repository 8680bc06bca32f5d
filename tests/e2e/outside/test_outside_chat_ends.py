"""Chat documents when a turn does not come to its end, or what runs there is no turn: nothing is lost or hidden."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.outside import Outside, said
from tests.support.raw_client import Request, ResponseError
from tests.support.signing_script import Cut, Failure, Hold, Text, Thinking, Tool, answer, tool

SUMMARY = '{"goal": "Count.", "decisions_done": ["Began with one."], "next_action": "Go on."}'
LONG = "word " * 3_000
BUSY = Failure(529, "overloaded_error", "Overloaded", {"retry-after": "1"})
DENIED = Failure(403, "permission_error", "No.")
WAYS = ["request", "progress", "command"]


def prompt(outside: Outside, uri: str, text: str) -> None:
    """The user writes into the empty prompt at the end."""
    document = outside.client.desk.open[uri].text
    assert document.endswith("## You\n\n")
    outside.client.change(uri, "## You\n\n", f"## You\n\n{text}", nth=document.count("## You\n\n") - 1)


async def cancel(outside: Outside, way: str, turn: Request, token: str) -> Any:
    """The TurnResult; None where the request itself was cancelled."""
    client = outside.client
    if way == "request":
        client.cancel(turn)
        with pytest.raises(ResponseError) as refused:
            await turn
        assert refused.value.code == -32800
        return None
    if way == "progress":
        client.notify("window/workDoneProgress/cancel", {"token": token})
    else:
        assert len((await client.command("thinklsp.cancel"))["cancelled"]) == 1
    result = await turn
    assert client.progress(token)[-1]["message"].startswith("cancelled")
    return result


def reports(outside: Outside, token: str) -> list[str]:
    return [value["message"] for value in outside.client.progress(token) if value["kind"] == "report"]


async def document_with_talk(begin: Begin) -> tuple[Outside, str, str]:
    """A chat document with two long exchanges, so that there is something to shorten; and its session."""
    outside = await begin(answer(Thinking(), Text(LONG), letters=9_000), answer(Thinking(), Text("Two.")))
    uri = outside.open("notes.chat.md", "Count from one.\n")
    await outside.turn("thinklsp.send", {"uri": uri})
    prompt(outside, uri, f"And on? {LONG}")
    result = await outside.turn("thinklsp.send", {"uri": uri})
    return outside, uri, result["sessionId"]


async def test_compacting_in_a_document_shows_what_it_does_and_what_it_costs(begin: Begin) -> None:
    outside, uri, session = await document_with_talk(begin)
    client, provider = outside.pair
    hold = Hold()
    provider.say(BUSY, answer(Text(SUMMARY), before=hold), answer(Text("Three.")))
    prompt(outside, uri, "/effort low\n/compact the numbers\nThree?")
    turn = client.command("thinklsp.send", {"uri": uri}, token="t")
    await client.wait_for(
        lambda: any(report.startswith("retrying in") for report in reports(outside, "t")), what="the retry"
    )
    await client.command("thinklsp.sessions", {"op": "attach", "sessionId": session, "partialResultToken": "late"})
    await hold.reached.wait()
    await client.wait_for(
        lambda: re.match(r"compacting · \d+ s", reports(outside, "t")[-1]) is not None, what="the phase after the retry"
    )
    hold.release()
    result = await outside.result(turn)
    asked = provider.requests[3:]
    assert len(asked) == 2
    assert result["usage"]["inputTokens"] == sum(
        seen.usage[name]
        for seen in asked
        for name in ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    )
    assert result["usage"]["outputTokens"] == sum(seen.usage["output_tokens"] for seen in asked)
    assert "the numbers" in said(asked[0].body)
    assert "Began with one." in said(asked[1].body)
    text = (client.text(uri) or "").rpartition("Three?")[2]
    told = r"Effort: low\.[^\n]*\n\nThe conversation was shortened from [^\n]+\n\nThree\."
    assert re.fullmatch(rf"\n\n## thinklsp\n\n{told}\n\n## You\n\n", text)
    assert client.progress("late")[-1] == {"kind": "finished", "result": result}


@pytest.mark.parametrize("way", WAYS)
async def test_compacting_in_a_document_can_be_cancelled(begin: Begin, way: str) -> None:
    outside, uri, session = await document_with_talk(begin)
    client, provider = outside.pair
    hold = Hold()
    provider.say(answer(Text(SUMMARY), hold))
    prompt(outside, uri, "/effort low\n/compact\n/clear\n/usage\nThree?")
    turn = client.command("thinklsp.send", {"uri": uri}, token="t")
    await hold.reached.wait()
    result = await cancel(outside, way, turn, "t")
    assert result is None or result["stopReason"] == "cancelled"
    await client.wait_for(lambda: (client.text(uri) or "").endswith("\n## You\n\nThree?\n"), what="what is not lost")
    text = client.text(uri) or ""
    # What was done is told, what was not is named, and the document stays with its session.
    told = text.rpartition("## thinklsp\n\n")[2]
    assert told.startswith("Effort: low.")
    assert "> - The turn was cancelled.\n> - After this, nothing was run of `/compact`, `/clear`, `/usage`.\n" in told
    assert text.startswith(f"<!-- thinklsp session: {session} -->")
    shown = await client.command("thinklsp.sessions", {"op": "show", "sessionId": session})
    assert shown["archives"] == []


@pytest.mark.parametrize("way", WAYS)
async def test_a_cancelled_compaction_says_so(begin: Begin, way: str) -> None:
    outside, _, session = await document_with_talk(begin)
    client, provider = outside.pair
    hold = Hold()
    provider.say(answer(Text(SUMMARY), hold), answer(Text(SUMMARY)))
    turn = client.command("thinklsp.compact", {"sessionId": session}, token="t")
    await hold.reached.wait()
    result = await cancel(outside, way, turn, "t")
    if result is not None:
        assert (result["stopReason"], result["archiveId"]) == ("cancelled", None)
        assert result["before"] == result["after"] == {"messages": 4, "tokens": None}
    result = await client.command("thinklsp.compact", {"sessionId": session}, token="u")
    assert result["stopReason"] == "end_turn"
    assert result["archiveId"]
    assert result["after"]["messages"] < result["before"]["messages"] == 4
    assert result["usage"]["inputTokens"] > 0
    assert client.progress("u")[-1] == {"kind": "end", "message": "done, 4 messages became 2"}
    for op in ("show", "export"):
        text = (await client.command("thinklsp.sessions", {"op": op, "sessionId": session}))["text"]
        assert text.count("## You") == text.count("## thinklsp") == 2, "all that was ever said, and no summary"
        assert SUMMARY not in text


@pytest.mark.parametrize("way", WAYS)
async def test_what_a_cancelled_turn_had_said_stays_in_the_document(begin: Begin, way: str) -> None:
    first, second = Hold(), Hold()
    outside = await begin(
        answer(Thinking(), Text("Half a sen"), first, Text("tence.")),
        answer(Thinking(), Text("I look."), tool("edit_file", path="a.py", old_text="1", new_text="2")),
        answer(Text("It hol"), second, Text("ds.")),
        answer(Text("Yes.")),
        files={"a.py": "x = 1\n"},
    )
    client, provider = outside.pair
    uri = outside.open("notes.chat.md", "## You\n\nHello?\n")
    turn = client.command("thinklsp.send", {"uri": uri}, token="t")
    await first.reached.wait()
    await client.wait_for(lambda: any("writing" in report for report in reports(outside, "t")), what="the text")
    client.change(uri, "Hello?\n", "Hello?\n\nTyped meanwhile.\n")
    await cancel(outside, way, turn, "t")
    told = (
        "## You\n\nHello?\n\n## thinklsp\n\nHalf a sen\n\n> - The turn was cancelled.\n"
        "> - The session keeps your prompt, but not this text.\n\n## You\n\nHello?\n"
    )
    await client.wait_for(lambda: told in (client.text(uri) or ""), what="what was said")
    assert (client.text(uri) or "").endswith("Typed meanwhile.\n")

    # A step was finished: the conversation holds the prompt and that step, and the prompt is not asked for again.
    turn = client.command("thinklsp.send", {"uri": uri}, token="u")
    await second.reached.wait()
    await client.wait_for(lambda: any("writing" in report for report in reports(outside, "u")), what="the text")
    await cancel(outside, way, turn, "u")
    told = (
        "## thinklsp\n\nI look.\n\nIt hol\n\n> - The turn was cancelled.\n"
        "> - The session does not keep the last words of this text.\n"
        "> - a.py was not changed: the turn was cancelled.\n\n## You\n\n"
    )
    await client.wait_for(lambda: (client.text(uri) or "").endswith(told), what="what was said")
    prompt(outside, uri, "Go on?")
    await outside.turn("thinklsp.send", {"uri": uri})
    heard = said(provider.requests[-1].body)
    assert ("Half a sen" in heard, "It hol" in heard, "I look." in heard) == (False, False, True)
    assert "Typed meanwhile." in heard


async def test_the_pieces_of_a_paused_answer_are_one_text(begin: Begin) -> None:
    piece = answer(Thinking("I look."), Text("Hello w"), stop_reason="pause_turn")
    outside = await begin(
        piece,
        answer(Text("orld.")),
        options={"thinking": {"display": "summary"}},
    )
    client = outside.client
    uri = outside.open("notes.chat.md", "Hello?\n")
    result = await outside.turn("thinklsp.send", {"uri": uri})
    assert (result["text"], result["thinking"]) == ("Hello world.", "I look.")
    assert (client.text(uri) or "").endswith("\n\n## thinklsp\n\nHello world.\n\n## You\n\n")


@pytest.mark.parametrize("watched", [True, False])
async def test_a_failed_turn_is_told_of_in_the_document(begin: Begin, watched: bool) -> None:
    broken = answer(Text("Half a sen"), Cut())
    outside = await begin(DENIED, broken, broken, broken, answer(Text("Yes.")))
    client, provider = outside.pair
    uri = outside.open("notes.chat.md", "Hello?")

    async def failing(token: str) -> None:
        if watched:
            with pytest.raises(ResponseError) as refused:
                await client.command("thinklsp.send", {"uri": uri}, token=token)
            assert refused.value.code == -32803
        else:
            await client.command("thinklsp.send", {"uri": uri})
            await outside.until_told("The ")

    await failing("t")
    await client.wait_for(lambda: (client.text(uri) or "").endswith("\n## You\n\nHello?\n"), what="the prompt again")
    sentence = r"> - The [^\n]*\.\n"
    line = r"<!-- thinklsp session: \w+ -->\n\n"
    not_held = r"> - The session keeps your prompt without an answer\.\n"
    nothing = rf"Hello\?\n\n## thinklsp\n\n{sentence}{not_held}\n## You\n\nHello\?\n"
    assert re.fullmatch(line + nothing, client.text(uri) or "")

    await failing("u")
    neither = r"> - The session keeps your prompt, but not this text\.\n"
    half = rf"\n## thinklsp\n\nHalf a sen\n\n{sentence}(> - [^\n]+\n)*{neither}(> - [^\n]+\n)*\n## You\n\nHello\?\n"
    await client.wait_for(lambda: re.search(half + r"\Z", client.text(uri) or ""), what="what was said")
    await outside.turn("thinklsp.send", {"uri": uri})
    assert len(provider.requests[-1].body["messages"]) == 1


async def test_a_turn_that_reached_a_limit_says_so_in_the_document(begin: Begin) -> None:
    cut = answer(Text("The first words"), Tool("read_file", {"path": "a.py"}, cut=True), stop_reason="max_tokens")
    outside = await begin(cut)
    uri = outside.open("notes.chat.md", "Hello?")
    await outside.turn("thinklsp.send", {"uri": uri})
    told = "> - The answer was cut at the output limit.\n> - The service ended the answer at a limit of its own, [^\n]+"
    text = (outside.client.text(uri) or "").partition("## thinklsp")[2]
    assert re.fullmatch(rf"\n\nThe first words\n\n{told}\n\n## You\n\n", text)


async def test_undo_in_a_document_keeps_to_its_session(begin: Begin) -> None:
    outside = await begin(files={"a.py": "x = 1\n", "b.py": "y = 1\n"})
    client, provider = outside.pair
    uris = []
    for name in ("a", "b"):
        change = tool("edit_file", path=f"{name}.py", old_text="1", new_text="2")
        provider.say(answer(change), answer(Text("Changed.")))
        outside.open(f"{name}.py")
        uris.append(outside.open(f"{name}.chat.md", "Change it."))
        await outside.turn("thinklsp.send", {"uri": uris[-1]})
    texts = [outside.uri("a.py"), outside.uri("b.py")]
    assert [client.text(uri) for uri in texts] == ["x = 2\n", "y = 2\n"]
    prompt(outside, uris[0], "/undo\n/undo")
    first = await outside.turn("thinklsp.send", {"uri": uris[0]})
    assert [client.text(uri) for uri in texts] == ["x = 1\n", "y = 2\n"]
    done, _, none = first["text"].partition("\n\n")
    assert done == "- a.py is as it was before the turn."
    assert none.startswith("There is nothing to undo in this session")
    assert "`thinklsp.undo`" in none
    await client.command("thinklsp.undo")
    assert [client.text(uri) for uri in texts] == ["x = 1\n", "y = 1\n"]


async def test_shutdown_in_the_middle_of_a_turn_sends_the_document_nothing_more(begin: Begin) -> None:
    """The client counts every request after its `shutdown` as a violation."""
    hold = Hold()
    outside = await begin(answer(Text("Half a sen"), hold))
    client, _ = outside.pair
    uri = outside.open("notes.chat.md", "Hello?")
    client.command("thinklsp.send", {"uri": uri}, token="t")
    await hold.reached.wait()
    await client.wait_for(lambda: any("writing" in report for report in reports(outside, "t")), what="the text")
    assert await client.close() == 0
    assert client.edits() == []
