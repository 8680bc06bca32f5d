"""Chat documents when a turn does not come to its end, or what runs there is no turn: nothing is lost or hidden."""

from __future__ import annotations

import re

import pytest

from tests.e2e.acting import WAYS, begin_talk, cancel, edit_file, reach, refused, release, say, send, sum_usage
from tests.e2e.acting import write_prompt as prompt
from tests.e2e.conftest import Begin
from tests.support.outside import Outside, said
from tests.support.signing_server import Cut, Failure, Hold, Text, Thinking, Tool, answer

SUMMARY = '{"goal": "Count.", "decisions_done": ["Began with one."], "next_action": "Go on."}'
LONG = "word " * 3_000
BUSY = Failure(529, "overloaded_error", "Overloaded", {"retry-after": "1"})
DENIED = Failure(403, "permission_error", "No.")


def reports(outside: Outside, token: str) -> list[str]:
    return [value["message"] for value in outside.client.progress(token) if value["kind"] == "report"]


async def document_with_talk(begin: Begin) -> tuple[Outside, str, str]:
    """A chat document with two long exchanges, so that there is something to shorten; and its session."""
    outside, _, uri = await begin_talk(
        begin, "Count from one.\n", answer(Thinking(), Text(LONG), letters=9_000), answer(Thinking(), Text("Two."))
    )
    await send(outside, uri)
    prompt(outside, uri, f"And on? {LONG}")
    result = await send(outside, uri)
    return outside, uri, result["sessionId"]


async def test_compact_in_document_shows_progress_and_cost(begin: Begin) -> None:
    outside, uri, session = await document_with_talk(begin)
    client, provider = outside.pair
    hold = Hold()
    provider.say(BUSY, answer(Text(SUMMARY), before=hold), say("Three."))
    prompt(outside, uri, "/effort low\n/compact the numbers\nThree?")
    turn = client.command("thinklsp.send", {"uri": uri}, token="t")
    await client.wait_for(
        lambda: any(report.startswith("retrying, 2 of 4, in ") for report in reports(outside, "t")), what="the retry"
    )
    await client.command("thinklsp.sessions", {"op": "attach", "sessionId": session, "partialResultToken": "late"})
    await hold.reached.wait()
    await client.wait_for(
        lambda: re.match(r"compacting · \d+ s", reports(outside, "t")[-1]) is not None, what="the phase after the retry"
    )
    result = await release(hold, outside, turn)
    asked = provider.requests[3:]
    assert len(asked) == 2
    assert all(result["usage"][name] == sum_usage(asked)[name] for name in ("inputTokens", "outputTokens"))
    assert "the numbers" in said(asked[0].body)
    assert "Began with one." in said(asked[1].body)
    text = (client.text(uri) or "").rpartition("Three?")[2]
    told = r"Effort: low\.[^\n]*\n\nThe conversation was compacted from [^\n]+\n\nThree\."
    assert re.fullmatch(rf"\n\n## thinklsp\n\n{told}\n\n## You\n\n", text)
    assert client.progress("late")[-1] == {"kind": "finished", "result": result}


@pytest.mark.parametrize("way", WAYS)
async def test_compacting_in_a_document_can_be_cancelled(begin: Begin, way: str) -> None:
    outside, uri, session = await document_with_talk(begin)
    client = outside.client
    hold = Hold()
    outside.provider.say(answer(Text(SUMMARY), hold))
    prompt(outside, uri, "/effort low\n/compact\n/clear\n/usage\nThree?")
    turn = await reach(hold, client.command("thinklsp.send", {"uri": uri}, token="t"))
    result = await cancel(outside, way, turn, "t")
    assert result is None or result["stopReason"] == "cancelled"
    await client.wait_for(lambda: (client.text(uri) or "").endswith("\n## You\n\nThree?\n"), what="what is not lost")
    text = client.text(uri) or ""
    # What was done is told, what was not is named, and the document stays with its session.
    told = text.rpartition("## thinklsp\n\n")[2]
    assert told.startswith("Effort: low.")
    assert "> - The turn was cancelled.\n> - Not run: `/compact`, `/clear`, `/usage`.\n" in told
    assert text.startswith(f"<!-- thinklsp session: {session} -->")
    shown = await client.command("thinklsp.sessions", {"op": "show", "sessionId": session})
    assert shown["archives"] == []


@pytest.mark.parametrize("way", WAYS)
async def test_a_cancelled_compaction_says_so(begin: Begin, way: str) -> None:
    outside, _, session = await document_with_talk(begin)
    client = outside.client
    hold = Hold()
    outside.provider.say(answer(Text(SUMMARY), hold), say(SUMMARY))
    turn = await reach(hold, client.command("thinklsp.compact", {"sessionId": session}, token="t"))
    result = await cancel(outside, way, turn, "t")
    if result is not None:
        assert (result["stopReason"], result["archiveId"]) == ("cancelled", None)
        assert result["before"] == result["after"] == {"messages": 4, "tokens": None}
    result = await client.command("thinklsp.compact", {"sessionId": session}, token="u")
    assert result["stopReason"] == "end_turn"
    assert result["archiveId"]
    assert result["after"]["messages"] < result["before"]["messages"] == 4
    assert result["usage"]["inputTokens"] > 0
    assert client.progress("u")[-1] == {"kind": "end", "message": "done, compacted 4 messages to 2"}
    for op in ("show", "export"):
        text = (await client.command("thinklsp.sessions", {"op": op, "sessionId": session}))["text"]
        assert text.count("## You") == text.count("## thinklsp") == 2, "all that was ever said, and no summary"
        assert SUMMARY not in text


@pytest.mark.parametrize("way", WAYS)
async def test_what_a_cancelled_turn_had_said_stays_in_the_document(begin: Begin, way: str) -> None:
    first, second = Hold(), Hold()
    outside, client, uri = await begin_talk(
        begin,
        "## You\n\nHello?\n",
        answer(Thinking(), Text("Half a sen"), first, Text("tence.")),
        answer(Thinking(), Text("I look."), edit_file("a.py", "1", "2")),
        answer(Text("It hol"), second, Text("ds.")),
        say("Yes."),
        files={"a.py": "x = 1\n"},
    )
    turn = await reach(first, client.command("thinklsp.send", {"uri": uri}, token="t"))
    await client.wait_for(lambda: any("writing" in report for report in reports(outside, "t")), what="the text")
    client.change(uri, "Hello?\n", "Hello?\n\nTyped meanwhile.\n")
    await cancel(outside, way, turn, "t")
    told = (
        "## You\n\nHello?\n\n## thinklsp\n\nHalf a sen\n\n> - The turn was cancelled.\n"
        "> - Your prompt was saved, but this text was not.\n\n## You\n\nHello?\n"
    )
    await client.wait_for(lambda: told in (client.text(uri) or ""), what="what was said")
    assert (client.text(uri) or "").endswith("Typed meanwhile.\n")

    # A step was finished: the conversation holds the prompt and that step, and the prompt is not asked for again.
    turn = await reach(second, client.command("thinklsp.send", {"uri": uri}, token="u"))
    await client.wait_for(lambda: any("writing" in report for report in reports(outside, "u")), what="the text")
    await cancel(outside, way, turn, "u")
    told = (
        "## thinklsp\n\nI look.\n\nIt hol\n\n> - The turn was cancelled.\n"
        "> - The end of this text was not saved.\n"
        "> - a.py was not changed: the turn was cancelled.\n\n## You\n\n"
    )
    await client.wait_for(lambda: (client.text(uri) or "").endswith(told), what="what was said")
    prompt(outside, uri, "Go on?")
    await send(outside, uri)
    heard = said(outside.provider.requests[-1].body)
    assert ("Half a sen" in heard, "It hol" in heard, "I look." in heard) == (False, False, True)
    assert "Typed meanwhile." in heard


@pytest.mark.parametrize("watched", [True, False])
async def test_a_failed_turn_is_told_of_in_the_document(begin: Begin, watched: bool) -> None:
    broken = answer(Text("Half a sen"), Cut())
    outside, client, uri = await begin_talk(begin, "Hello?", DENIED, broken, broken, broken, say("Yes."))

    async def failing(token: str) -> None:
        if watched:
            await refused(client.command("thinklsp.send", {"uri": uri}, token=token))
        else:
            await client.command("thinklsp.send", {"uri": uri})
            await outside.until_told("The ")

    await failing("t")
    await client.wait_for(lambda: (client.text(uri) or "").endswith("\n## You\n\nHello?\n"), what="the prompt again")
    sentence = r"> - The [^\n]*\.\n"
    line = r"<!-- thinklsp session: \w+ -->\n\n"
    not_held = r"> - Your prompt was saved without an answer\.\n"
    nothing = rf"Hello\?\n\n## thinklsp\n\n{sentence}{not_held}\n## You\n\nHello\?\n"
    assert re.fullmatch(line + nothing, client.text(uri) or "")

    await failing("u")
    neither = r"> - Your prompt was saved, but this text was not\.\n"
    half = rf"\n## thinklsp\n\nHalf a sen\n\n{sentence}(> - [^\n]+\n)*{neither}(> - [^\n]+\n)*\n## You\n\nHello\?\n"
    await client.wait_for(lambda: re.search(half + r"\Z", client.text(uri) or ""), what="what was said")
    await send(outside, uri)
    assert len(outside.provider.requests[-1].body["messages"]) == 1


async def test_a_turn_that_reached_a_limit_says_so_in_the_document(begin: Begin) -> None:
    cut = answer(Text("The first words"), Tool("read_file", {"path": "a.py"}, cut=True), stop_reason="max_tokens")
    outside, _, uri = await begin_talk(begin, "Hello?", cut)
    await send(outside, uri)
    told = "> - The answer reached the output limit.\n> - The provider ended the answer at its own limit, [^\n]+"
    text = (outside.client.text(uri) or "").partition("## thinklsp")[2]
    assert re.fullmatch(rf"\n\nThe first words\n\n{told}\n\n## You\n\n", text)


async def test_undo_in_a_document_keeps_to_its_session(begin: Begin) -> None:
    outside = await begin(files={"a.py": "x = 1\n", "b.py": "y = 1\n"})
    client = outside.client
    uris = []
    for name in ("a", "b"):
        change = edit_file(f"{name}.py", "1", "2")
        outside.provider.say(answer(change), say("Changed."))
        outside.open(f"{name}.py")
        uris.append(outside.open(f"{name}.chat.md", "Change it."))
        await send(outside, uris[-1])
    texts = [outside.uri("a.py"), outside.uri("b.py")]
    assert [client.text(uri) for uri in texts] == ["x = 2\n", "y = 2\n"]
    prompt(outside, uris[0], "/undo\n/undo")
    first = await send(outside, uris[0])
    assert [client.text(uri) for uri in texts] == ["x = 1\n", "y = 2\n"]
    done, _, none = first["text"].partition("\n\n")
    assert done == "- a.py was restored to its state before the turn."
    assert none.startswith("Nothing to undo in this session")
    assert "`thinklsp.undo`" in none
    await client.command("thinklsp.undo")
    assert [client.text(uri) for uri in texts] == ["x = 1\n", "y = 1\n"]
