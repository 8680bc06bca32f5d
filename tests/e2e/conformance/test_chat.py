"""The token rule: who gives a token shows the text, who gives none is answered at once and reads a chat document."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lsprotocol import types

from tests.e2e.acting import begin_file, begin_talk, chat, edit_file, reach, refused, say, send, start_chat
from tests.e2e.conftest import Begin
from tests.support.client.editor import capabilities
from tests.support.client.raw import RawClient
from tests.support.signing_server import Hold, SigningServer, Text, Thinking, answer

ANSWER = "The answer is 🙂 forty-two."


def chat_uris(client: RawClient) -> list[str]:
    changes = [change for sent in client.edits() for change in sent.edit.document_changes]
    return [c.uri for c in changes if isinstance(c, types.CreateFile) and c.uri.endswith(".chat.md")]


async def chat_document(client: RawClient, part: str) -> str:
    """The text of the one chat document, once it holds `part`."""
    await client.wait_for(lambda: chat_uris(client), what="a chat document")
    [uri] = chat_uris(client)
    await client.wait_for(lambda: part in (client.text(uri) or ""), what=f"{part!r} in the chat document")
    return client.text(uri) or ""


def ended(client: RawClient) -> bool:
    created = [r.params.token for r in client.calls("window/workDoneProgress/create")]
    return bool(created) and all(client.progress_kinds(token)[-1:] == ["end"] for token in created)


async def test_without_a_token_the_answer_goes_to_a_chat_document(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Thinking(), Text(ANSWER), before=hold))
    client = outside.client
    started = await start_chat(outside, "What is the answer?")
    assert set(started) == {"turnId", "sessionId"}
    await hold.reached.wait()
    hold.release()
    text = await chat_document(client, ANSWER)
    await client.wait_for(lambda: ended(client), what="the end of the progress")
    [created] = client.calls("window/workDoneProgress/create")
    kinds = client.progress_kinds(created.params.token)
    assert (kinds.count("begin"), kinds.count("end")) == (1, 1)

    lines = text.splitlines()
    assert lines[0] == f"<!-- thinklsp session: {started['sessionId']} -->"
    assert text.index("## thinklsp") < text.index(ANSWER) < text.rindex("## You")
    assert text.rstrip().endswith("## You")
    [uri] = chat_uris(client)
    assert uri.startswith(outside.uri(".thinklsp/chat/"))
    # The server writes this one file itself, so that no editor has it open or unsaved (T-M9).
    assert (outside.root / ".thinklsp/chat/.gitignore").read_text() == "*\n"
    assert ".gitignore" not in str(client.edits())
    assert uri in [r.params.uri for r in client.calls("window/showDocument")]


async def test_with_a_token_the_caller_shows_the_text(begin: Begin) -> None:
    outside = await begin(answer(Thinking(), Text(ANSWER)), say("Again."), say("And again."))
    client = outside.client
    first = await chat(outside, "What is the answer?")
    assert (first["text"], first["edits"]) == (ANSWER, None)
    again = await chat(outside, "Sure?", sessionId=first["sessionId"])
    last = await chat(outside, "Really?", sessionId="last")
    assert first["sessionId"] == again["sessionId"] == last["sessionId"]
    assert [m["role"] for m in outside.provider.requests[2].body["messages"]].count("assistant") == 2
    assert client.edits() == client.calls("window/showDocument") == []


async def test_range_without_uri_is_in_the_last_active_document(begin: Begin) -> None:
    outside = await begin(say(ANSWER), files={"a.py": "first = 1\nsecond = 2\n"})
    client, provider = outside.pair
    asked = {"prompt": "What is this?", "range": {"start": caret(1), "end": caret(1, 6)}}
    for token in ("t", None):
        await refused(client.command("thinklsp.chat", asked, token=token), -32602, match="field uri")
    uri = outside.open("a.py")
    await client.code_actions(uri, "first")
    # Nobody means the text of a chat by it.
    await client.code_actions(client.open(outside.uri("x.chat.md"), "## You\n\nHello\n"), "Hello")
    assert (await outside.turn("thinklsp.chat", asked))["text"] == ANSWER
    assert "second = 2" in last_prompts(provider)[0]
    assert "first = 1" not in last_prompts(provider)[0]


def caret(line: int, character: int = 0) -> Any:
    return {"line": line, "character": character}


async def test_no_progress_where_it_is_not_announced(begin: Begin) -> None:
    outside = await begin(say(ANSWER), announce=capabilities(window__workDoneProgress=None))
    await start_chat(outside, "Hello?")
    await chat_document(outside.client, ANSWER)
    assert outside.client.calls("$/progress") == outside.client.calls("window/workDoneProgress/create") == []


async def test_where_no_file_can_be_made_the_text_comes_as_a_message(begin: Begin) -> None:
    outside = await begin(say(ANSWER), announce=capabilities(workspace__workspaceEdit__resourceOperations=[]))
    await start_chat(outside, "Hello?")
    await outside.until_told(ANSWER)


async def test_custom_chat_suffix_matches_any_uri_spelling(begin: Begin) -> None:
    outside = await begin(say(ANSWER), options={"chat.fileSuffix": ".chat+é.md"})
    client = outside.client
    await client.command("thinklsp.chat")
    [shown] = client.calls("window/showDocument")
    made = client.open(shown.params.uri)
    assert made.endswith(".chat%2B%C3%A9.md")
    plain = client.open(outside.uri("plain").replace("plain", "plain.chat+é.md"), "## You\n\nWhat?\n")
    for uri in (made, plain):
        assert [action.title for action in await client.code_actions(uri, "You")] == ["thinklsp: send"]
    other = client.open(outside.uri("x.chat.md"), "## You\n\nWhat?\n")
    assert "thinklsp: send" not in [action.title for action in await client.code_actions(other, "You")]
    assert (await send(outside, plain))["text"] == ANSWER


def last_prompts(provider: SigningServer) -> list[str]:
    """What the user said in the conversation of the newest request, as one text each."""
    users = [m["content"] for m in provider.requests[-1].body["messages"] if m["role"] == "user"]
    return [c if isinstance(c, str) else "".join(b.get("text", "") for b in c) for c in users]


def session_line(text: str) -> str:
    return text.splitlines()[0]


async def test_a_document_begun_by_hand_gets_its_session_and_keeps_it(begin: Begin) -> None:
    """What the user wrote reaches the model to the character, an open fence and odd separators included."""
    outside, client, uri = await begin_talk(
        begin, "  indented\u2028still\x0chere\r\n```\r\nopen", say(ANSWER), say("Again.\n## You")
    )
    first = await send(outside, uri)
    text = client.text(uri) or ""
    assert text == (
        f"<!-- thinklsp session: {first['sessionId']} -->\r\n\r\n"
        "  indented\u2028still\x0chere\r\n```\r\nopen\r\n```\r\n"
        f"\r\n## thinklsp\r\n\r\n{ANSWER}\r\n\r\n## You\r\n\r\n"
    )
    assert "  indented\u2028still\x0chere\r\n```\r\nopen" in last_prompts(outside.provider)[0]

    client.change(uri, "## You\r\n\r\n", "## You\r\n\r\nSure?")
    second = await send(outside, uri)
    assert second["sessionId"] == first["sessionId"]
    assert len(last_prompts(outside.provider)) == 2
    assert (client.text(uri) or "").endswith("Sure?\r\n\r\n## thinklsp\r\n\r\nAgain.\r\n\\## You\r\n\r\n## You\r\n\r\n")


async def test_a_session_that_is_not_known_is_replaced_and_said_so(begin: Begin) -> None:
    outside = await begin(say("First."))
    client = outside.client
    newest = await chat(outside, "Somewhere else.")
    for identity in ("0123456789abcdef", "last", "no id at all"):
        text = f"<!-- thinklsp session: {identity} -->\n\n## You\n\nHello?\n"
        uri = outside.open(f"{identity[:4]}.chat.md", text)
        outside.provider.say(say(ANSWER))
        started = await client.command("thinklsp.send", {"uri": uri})
        await client.wait_for(lambda uri=uri: ANSWER in (client.text(uri) or ""), what="the answer")
        text = client.text(uri) or ""
        assert started["sessionId"] != newest["sessionId"]
        assert session_line(text) == f"<!-- thinklsp session: {started['sessionId']} -->"
        assert text.count("thinklsp session:") == 1
        notice = "The session of this document was not found, so a new session was started."
        assert text.endswith(f"\n{ANSWER}\n\n> - {notice}\n\n## You\n\n")
        await client.wait_for(lambda: ended(client), what="the end of the progress")


async def test_a_document_closed_in_mid_turn_loses_no_answer(begin: Begin) -> None:
    hold = Hold()
    outside, client, uri = await begin_talk(begin, "Hello?", answer(Text(ANSWER), before=hold), say("Again."))
    turn = await reach(hold, client.command("thinklsp.send", {"uri": uri}, token="turn"))
    client.close_document(uri)
    hold.release()
    result = await turn
    text = await chat_document(client, ANSWER)
    assert session_line(text) == f"<!-- thinklsp session: {result['sessionId']} -->"
    assert "\n## You\n\nHello?\n\n## thinklsp\n\n" in text

    # Opened again, the document without a session line is still that conversation.
    outside.open("notes.chat.md", "Hello?")
    again = await send(outside, uri)
    assert again["sessionId"] == result["sessionId"]
    assert session_line(client.text(uri) or "") == session_line(text)


async def test_where_no_edits_are_taken_the_answer_comes_as_a_message(begin: Begin) -> None:
    """The session is continued all the same; the client fails the test if it is sent an edit."""
    outside, client, uri = await begin_talk(
        begin,
        "<!-- thinklsp session: foreign -->\nHello?",
        say(ANSWER),
        say("x" * 10_000),
        announce=capabilities(workspace__applyEdit=None),
    )
    first = await send(outside, uri)
    assert "a new session was started" in await outside.until_told(ANSWER)
    client.change(uri, "Hello?", "Sure?")
    second = await send(outside, uri)
    told = outside.told()
    assert "".join(told) == "x" * 10_000
    assert max(map(len, told)) <= 4_000
    assert second["sessionId"] == first["sessionId"]
    assert len(last_prompts(outside.provider)) == 2
    assert client.edits() == []


async def test_typing_while_an_answer_arrives_loses_neither(begin: Begin) -> None:
    outside, client, uri = await begin_talk(begin, "Hello?", say(ANSWER))
    typed = iter(["one ", "two ", "three "])

    def race(params: Any) -> Any:
        if (word := next(typed, None)) is not None:
            client.change(uri, "Hello?", f"{word}Hello?")
        return client.editor.apply_edit(params)

    client.editor.handlers["workspace/applyEdit"] = race
    await send(outside, uri)
    assert client.editor.applied == [False, False, False, True]
    assert f"one two three Hello?\n\n## thinklsp\n\n{ANSWER}\n\n## You\n\n" in (client.text(uri) or "")


async def test_chat_from_elsewhere_is_inserted_above_the_draft(begin: Begin) -> None:
    outside, client, uri = await begin_talk(begin, "## You\r\n\r\nHello?\r\n", say(ANSWER), say("Again."))
    first = await send(outside, uri)
    document = client.desk.open[uri].text
    client.change(uri, "## You\r\n\r\n", "## You\r\n\r\nmy draft", nth=1)
    await start_chat(outside, "a\n## You\nb\n```", sessionId=first["sessionId"])
    await client.wait_for(lambda: "Again." in (client.text(uri) or ""), what="the second answer")
    above = document.removesuffix("## You\r\n\r\n")
    section = "## You\n\na\n\\## You\nb\n```\n```\n\n## thinklsp\n\nAgain.\n\n## You\n\nmy draft".replace("\n", "\r\n")
    assert client.text(uri) == above + section
    assert chat_uris(client) == []
    await client.wait_for(lambda: ended(client), what="the end of the progress")
    assert [r.params.uri for r in client.calls("window/showDocument")] == [uri]


async def test_what_happened_to_the_edits_is_said_below_the_answer(begin: Begin) -> None:
    """The command has been answered long before: the document is where the user learns of a conflict."""
    hold = Hold()
    change = edit_file("a.py", "a = 1", "a = 2")
    outside = await begin(answer(change), answer(Text(ANSWER), before=hold), files={"a.py": "a = 1\n"})
    client = outside.client
    uri, source = outside.open("notes.chat.md", "Change it."), outside.open("a.py")
    await client.command("thinklsp.send", {"uri": uri})
    await hold.reached.wait()
    client.change(source, "a = 1", "a = 3")
    hold.release()
    await client.wait_for(lambda: ANSWER in (client.text(uri) or ""), what="the answer")
    below = (client.text(uri) or "").partition(ANSWER)[2]
    assert below.startswith("\n\n> - a.py was not changed: ")
    assert client.text(source) == "a = 3\n"
    await client.wait_for(lambda: ended(client), what="the end of the progress")


async def test_edit_results_are_shown_without_chat_document(begin: Begin) -> None:
    change = edit_file("a.py", "a = 1", "a = 2")
    announce = capabilities(workspace__applyEdit=None)
    outside = await begin(answer(change), say(ANSWER), files={"a.py": "a = 1\n"}, announce=announce)
    client = outside.client
    await start_chat(outside, "Change it.")
    new_text = "In `a.py`, replace line 1"
    await client.wait_for(lambda: any(new_text in message for message in client.messages()), what="the new text")
    assert any(ANSWER in message and "a.py was not changed" in message for message in outside.told())
    await client.wait_for(lambda: ended(client), what="the end of the progress")


OWN = """
[[actions]]
title = "Look at it"
name = "look"
prompt = "Look."
tools = "read"
scope = "file"

[[actions]]
title = "Write a haiku"
name = "haiku"
prompt = "Write."
tools = "none"
scope = "file"
"""
WORK, PARTIAL = {"token": "work"}, {"partialResultToken": "partial"}
CALLERS: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "neither": ({}, {}),
    "work-done token": (WORK, {}),
    "partial-result token": ({}, PARTIAL),
    "both": (WORK, PARTIAL),
}
ONLY_WITHOUT = {"neither"}
# By what is asked for: the callers for which a chat document is shown.
SHOWN: dict[str, tuple[str, dict[str, Any], set[str]]] = {
    "chat": ("chat", {"prompt": "Hello."}, ONLY_WITHOUT),
    "explain": ("action", {"name": "explain"}, {"neither", "work-done token"}),
    "ask": ("action", {"name": "ask", "instruction": "Why?"}, {"neither", "work-done token"}),
    "review": ("action", {"name": "review"}, ONLY_WITHOUT),
    "an own action that reads": ("action", {"name": "look"}, ONLY_WITHOUT),
    "an own action without tools": ("action", {"name": "haiku"}, ONLY_WITHOUT),
    "an action that edits": ("action", {"name": "edit", "instruction": "Leave it."}, set()),
}
SHOW = "window/showDocument"


async def test_a_caller_that_shows_the_text_gets_no_document(begin: Begin, tmp_path: Path) -> None:
    """`review` and own actions that read showed a document to a caller that shows the text."""
    path = tmp_path / "config.toml"
    path.write_text(OWN)
    path.chmod(0o600)
    cases = [(what, caller) for what in SHOWN for caller in CALLERS]
    outside, client, uri = await begin_file(
        begin,
        "x = 1\n",
        *(say(f"Answer {number}.") for number in range(len(cases))),
        name="app.py",
        env={"THINKLSP_CONFIG": str(path)},
    )
    for number, (what, caller) in enumerate(cases):
        command, argument, shown_to = SHOWN[what]
        before = len(client.calls(SHOW))
        work, partial = CALLERS[caller]
        token = f"work-{number}" if work else None
        fields = {"partialResultToken": f"partial-{number}"} if partial else {}
        request = client.command(f"thinklsp.{command}", {"uri": uri} | argument | fields, token=token)
        if token:
            assert (await outside.result(request))["text"] == f"Answer {number}."
        else:
            started = await request
            await client.wait_for(
                lambda ended=f"thinklsp-{started['turnId']}": client.progress_kinds(ended)[-1:] == ["end"],
                what="the end",
            )
        if partial and not work:
            result = client.progress(f"partial-{number}")[-1]["result"]
            assert (result["text"], result["turnId"]) == (f"Answer {number}.", started["turnId"])
        assert (len(client.calls(SHOW)) > before) == (caller in shown_to), (what, caller)
        if caller in shown_to:
            assert f"Answer {number}." in (client.text(client.calls(SHOW)[-1].params.uri) or "")
        messages = [text for text in client.messages() if f"Answer {number}." in text]
        assert bool(messages) == (what == "an action that edits" and caller == "neither"), (what, caller, messages)
    assert (outside.root / "app.py").read_text() == "x = 1\n"
    outside.told()


async def test_text_of_an_editing_action_is_one_short_message(begin: Begin) -> None:
    """A window opened for each edit. The session keeps the whole text."""
    text = "It is done. " + "word " * 100 + "end"
    outside, client, uri = await begin_file(begin, "x = 1\n", say(text), name="app.py")
    started = await client.command("thinklsp.action", {"name": "edit", "instruction": "Leave it.", "uri": uri})
    message = await outside.until_told("It is done.")
    assert len(message) <= 300
    assert message.endswith("…")
    shown = await client.command("thinklsp.sessions", {"op": "show", "sessionId": started["sessionId"]})
    assert text in shown["text"]
    assert client.edits() == client.calls(SHOW) == []
