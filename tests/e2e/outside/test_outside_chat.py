"""The token rule: who gives a token waits, who gives none is answered at once and reads a chat document."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.raw_client import RawClient, ResponseError
from tests.support.raw_editor import Refusal, capabilities
from tests.support.signing_script import Hold, Text, Thinking, answer, tool
from tests.support.signing_server import SigningServer

ANSWER = "The answer is 🙂 forty-two."


def chat_uris(client: RawClient) -> list[str]:
    changes = [c for edit in client.edits() for c in edit["edit"].get("documentChanges", [])]
    return [c["uri"] for c in changes if c.get("kind") == "create" and c["uri"].endswith(".chat.md")]


async def chat_document(client: RawClient, part: str) -> str:
    """The text of the one chat document, once it holds `part`."""
    await client.wait_for(lambda: chat_uris(client), what="a chat document")
    [uri] = chat_uris(client)
    await client.wait_for(lambda: part in (client.text(uri) or ""), what=f"{part!r} in the chat document")
    return client.text(uri) or ""


def ended(client: RawClient) -> bool:
    created = [r.params["token"] for r in client.calls("window/workDoneProgress/create")]
    return bool(created) and all(client.progress_kinds(token)[-1:] == ["end"] for token in created)


async def test_without_a_token_the_answer_goes_to_a_chat_document(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Thinking(), Text(ANSWER), before=hold))
    client, _ = outside.pair
    started = await client.command("thinklsp.chat", {"prompt": "What is the answer?"})
    assert set(started) == {"turnId", "sessionId"}
    await hold.reached.wait()
    hold.release()
    text = await chat_document(client, ANSWER)
    await client.wait_for(lambda: ended(client), what="the end of the progress")
    [created] = client.calls("window/workDoneProgress/create")
    kinds = client.progress_kinds(created.params["token"])
    assert (kinds.count("begin"), kinds.count("end")) == (1, 1)

    lines = text.splitlines()
    assert lines[0] == f"<!-- thinklsp session: {started['sessionId']} -->"
    assert text.index("## thinklsp") < text.index(ANSWER) < text.rindex("## You")
    assert text.rstrip().endswith("## You")
    [uri] = chat_uris(client)
    assert uri.startswith(outside.uri(".thinklsp/chat/"))
    assert (client.text(outside.uri(".thinklsp/chat/.gitignore")) or "").strip() == "*"
    assert uri in [r.params["uri"] for r in client.calls("window/showDocument")]


async def test_with_a_token_the_caller_shows_the_text(begin: Begin) -> None:
    outside = await begin(answer(Thinking(), Text(ANSWER)), answer(Text("Again.")), answer(Text("And again.")))
    client, provider = outside.pair
    first = await outside.turn("thinklsp.chat", {"prompt": "What is the answer?"})
    assert (first["text"], first["edits"]) == (ANSWER, None)
    again = await outside.turn("thinklsp.chat", {"prompt": "Sure?", "sessionId": first["sessionId"]})
    last = await outside.turn("thinklsp.chat", {"prompt": "Really?", "sessionId": "last"})
    assert first["sessionId"] == again["sessionId"] == last["sessionId"]
    assert [m["role"] for m in provider.requests[2].body["messages"]].count("assistant") == 2
    assert client.edits() == client.calls("window/showDocument") == []


async def test_a_range_without_a_document_is_in_the_one_where_the_user_was_last(begin: Begin) -> None:
    outside = await begin(answer(Text(ANSWER)), files={"a.py": "first = 1\nsecond = 2\n"})
    client, provider = outside.pair
    asked = {"prompt": "What is this?", "range": {"start": caret(1), "end": caret(1, 6)}}
    for token in ("t", None):
        with pytest.raises(ResponseError, match="field uri") as refused:
            await client.command("thinklsp.chat", asked, token=token)
        assert refused.value.code == -32602
    uri = outside.open("a.py")
    await client.code_actions(uri, "first")
    # Nobody means the text of a chat by it.
    await client.code_actions(client.open(outside.uri("x.chat.md"), "## You\n\nHello\n"), "Hello")
    assert (await outside.turn("thinklsp.chat", asked))["text"] == ANSWER
    assert "second = 2" in last_prompts(provider)[0]
    assert "first = 1" not in last_prompts(provider)[0]


def caret(line: int, character: int = 0) -> Any:
    return {"line": line, "character": character}


async def test_a_partial_result_token_alone_is_answered_at_once_and_streams(begin: Begin) -> None:
    outside = await begin(answer(Thinking(), Text(ANSWER)))
    client, _ = outside.pair
    started = await client.command("thinklsp.chat", {"prompt": "Now?", "partialResultToken": "p"})
    assert set(started) == {"turnId", "sessionId"}
    await client.wait_for(lambda: "finished" in client.progress_kinds("p"), what="finished")
    assert client.progress("p")[-1]["result"]["text"] == ANSWER
    assert client.progress("p")[-1]["result"]["turnId"] == started["turnId"]
    await client.wait_for(lambda: ended(client), what="the end of the progress")
    assert client.edits() == []


@pytest.mark.parametrize("why", ["not announced", "refused"])
async def test_no_progress_without_an_accepted_token(begin: Begin, why: str) -> None:
    announce = capabilities(window__workDoneProgress=None) if why == "not announced" else None
    outside = await begin(answer(Text(ANSWER)), announce=announce)
    client, _ = outside.pair

    def refuse(params: Any) -> None:
        raise Refusal("no progress here")

    if why == "refused":
        client.editor.handlers["window/workDoneProgress/create"] = refuse
    await client.command("thinklsp.chat", {"prompt": "Hello?"})
    await chat_document(client, ANSWER)
    assert client.calls("$/progress") == []
    assert len(client.calls("window/workDoneProgress/create")) == (why == "refused")


async def test_where_no_file_can_be_made_the_text_comes_as_a_message(begin: Begin) -> None:
    outside = await begin(answer(Text(ANSWER)), announce=capabilities(workspace__workspaceEdit__resourceOperations=[]))
    client, _ = outside.pair
    await client.command("thinklsp.chat", {"prompt": "Hello?"})
    await outside.until_told(ANSWER)


async def test_a_suffix_of_ones_own_is_known_however_its_uri_is_spelled(begin: Begin) -> None:
    outside = await begin(answer(Text(ANSWER)), options={"chat.fileSuffix": ".chat+é.md"})
    client, _ = outside.pair
    await client.command("thinklsp.chat")
    [shown] = client.calls("window/showDocument")
    made = client.open(shown.params["uri"])
    assert made.endswith(".chat%2B%C3%A9.md")
    plain = client.open(outside.uri("plain").replace("plain", "plain.chat+é.md"), "## You\n\nWhat?\n")
    for uri in (made, plain):
        assert [action["title"] for action in await client.code_actions(uri, "You")] == ["thinklsp: send"]
    other = client.open(outside.uri("x.chat.md"), "## You\n\nWhat?\n")
    assert "thinklsp: send" not in [action["title"] for action in await client.code_actions(other, "You")]
    assert (await outside.turn("thinklsp.send", {"uri": plain}))["text"] == ANSWER


def last_prompts(provider: SigningServer) -> list[str]:
    """What the user said in the conversation of the newest request, as one text each."""
    users = [m["content"] for m in provider.requests[-1].body["messages"] if m["role"] == "user"]
    return [c if isinstance(c, str) else "".join(b.get("text", "") for b in c) for c in users]


def session_line(text: str) -> str:
    return text.splitlines()[0]


async def test_a_document_begun_by_hand_gets_its_session_and_keeps_it(begin: Begin) -> None:
    """What the user wrote reaches the model to the character, an open fence and odd separators included."""
    outside = await begin(answer(Text(ANSWER)), answer(Text("Again.\n## You")))
    client, provider = outside.pair
    uri = outside.open("notes.chat.md", "  indented\u2028still\x0chere\r\n```\r\nopen")
    first = await outside.turn("thinklsp.send", {"uri": uri})
    text = client.text(uri) or ""
    assert text == (
        f"<!-- thinklsp session: {first['sessionId']} -->\r\n\r\n"
        "  indented\u2028still\x0chere\r\n```\r\nopen\r\n```\r\n"
        f"\r\n## thinklsp\r\n\r\n{ANSWER}\r\n\r\n## You\r\n\r\n"
    )
    assert "  indented\u2028still\x0chere\r\n```\r\nopen" in last_prompts(provider)[0]

    client.change(uri, "## You\r\n\r\n", "## You\r\n\r\nSure?")
    second = await outside.turn("thinklsp.send", {"uri": uri})
    assert second["sessionId"] == first["sessionId"]
    assert len(last_prompts(provider)) == 2
    assert (client.text(uri) or "").endswith("Sure?\r\n\r\n## thinklsp\r\n\r\nAgain.\r\n\\## You\r\n\r\n## You\r\n\r\n")


@pytest.mark.parametrize("identity", ["0123456789abcdef", "last", "no id at all"])
async def test_a_session_that_is_not_known_is_replaced_and_said_so(begin: Begin, identity: str) -> None:
    outside = await begin(answer(Text("First.")), answer(Text(ANSWER)))
    client, _ = outside.pair
    newest = await outside.turn("thinklsp.chat", {"prompt": "Somewhere else."})
    uri = outside.open("notes.chat.md", f"<!-- thinklsp session: {identity} -->\n\n## You\n\nHello?\n")
    started = await client.command("thinklsp.send", {"uri": uri})
    await client.wait_for(lambda: ANSWER in (client.text(uri) or ""), what="the answer")
    text = client.text(uri) or ""
    assert started["sessionId"] != newest["sessionId"]
    assert session_line(text) == f"<!-- thinklsp session: {started['sessionId']} -->"
    assert text.count("thinklsp session:") == 1
    assert text.endswith(
        f"\n{ANSWER}\n\n> - The session of this document is not known here, so a new one was begun.\n\n## You\n\n"
    )
    await client.wait_for(lambda: ended(client), what="the end of the progress")


async def test_a_document_closed_in_mid_turn_loses_no_answer(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Text(ANSWER), before=hold), answer(Text("Again.")))
    client, _ = outside.pair
    uri = outside.open("notes.chat.md", "Hello?")
    turn = client.command("thinklsp.send", {"uri": uri}, token="turn")
    await hold.reached.wait()
    client.close_document(uri)
    hold.release()
    result = await turn
    text = await chat_document(client, ANSWER)
    assert session_line(text) == f"<!-- thinklsp session: {result['sessionId']} -->"
    assert "\n## You\n\nHello?\n\n## thinklsp\n\n" in text

    # Opened again, the document without a session line is still that conversation.
    outside.open("notes.chat.md", "Hello?")
    again = await outside.turn("thinklsp.send", {"uri": uri})
    assert again["sessionId"] == result["sessionId"]
    assert session_line(client.text(uri) or "") == session_line(text)


async def test_where_no_edits_are_taken_the_answer_comes_as_a_message(begin: Begin) -> None:
    """The session is continued all the same; the client fails the test if it is sent an edit."""
    outside = await begin(
        answer(Text(ANSWER)), answer(Text("x" * 10_000)), announce=capabilities(workspace__applyEdit=None)
    )
    client, provider = outside.pair
    uri = outside.open("notes.chat.md", "<!-- thinklsp session: foreign -->\nHello?")
    first = await outside.turn("thinklsp.send", {"uri": uri})
    assert "a new one was begun" in await outside.until_told(ANSWER)
    client.change(uri, "Hello?", "Sure?")
    second = await outside.turn("thinklsp.send", {"uri": uri})
    told = outside.told()
    assert "".join(told) == "x" * 10_000
    assert max(map(len, told)) <= 4_000
    assert second["sessionId"] == first["sessionId"]
    assert len(last_prompts(provider)) == 2
    assert client.edits() == []


async def test_typing_while_an_answer_arrives_loses_neither(begin: Begin) -> None:
    outside = await begin(answer(Text(ANSWER)))
    client, _ = outside.pair
    uri = outside.open("notes.chat.md", "Hello?")
    typed = iter(["one ", "two ", "three "])

    def race(params: Any) -> Any:
        if (word := next(typed, None)) is not None:
            client.change(uri, "Hello?", f"{word}Hello?")
        return client.editor.apply_edit(params)

    client.editor.handlers["workspace/applyEdit"] = race
    await outside.turn("thinklsp.send", {"uri": uri})
    assert client.editor.applied == [False, False, False, True]
    assert f"one two three Hello?\n\n## thinklsp\n\n{ANSWER}\n\n## You\n\n" in (client.text(uri) or "")


async def test_a_chat_from_elsewhere_goes_above_the_draft_in_the_document(begin: Begin) -> None:
    outside = await begin(answer(Text(ANSWER)), answer(Text("Again.")))
    client, _ = outside.pair
    uri = outside.open("notes.chat.md", "## You\r\n\r\nHello?\r\n")
    first = await outside.turn("thinklsp.send", {"uri": uri})
    document = client.desk.open[uri].text
    client.change(uri, "## You\r\n\r\n", "## You\r\n\r\nmy draft", nth=1)
    await client.command("thinklsp.chat", {"prompt": "a\n## You\nb\n```", "sessionId": first["sessionId"]})
    await client.wait_for(lambda: "Again." in (client.text(uri) or ""), what="the second answer")
    above = document.removesuffix("## You\r\n\r\n")
    section = "## You\n\na\n\\## You\nb\n```\n```\n\n## thinklsp\n\nAgain.\n\n## You\n\nmy draft".replace("\n", "\r\n")
    assert client.text(uri) == above + section
    assert chat_uris(client) == []
    await client.wait_for(lambda: ended(client), what="the end of the progress")
    assert [r.params["uri"] for r in client.calls("window/showDocument")] == [uri]


async def test_what_happened_to_the_edits_is_said_below_the_answer(begin: Begin) -> None:
    """The command has been answered long before: the document is where the user learns of a conflict."""
    hold = Hold()
    change = tool("edit_file", path="a.py", old_text="a = 1", new_text="a = 2")
    outside = await begin(answer(change), answer(Text(ANSWER), before=hold), files={"a.py": "a = 1\n"})
    client, _ = outside.pair
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


async def test_what_happened_to_the_edits_is_told_where_no_document_can_be_made(begin: Begin) -> None:
    change = tool("edit_file", path="a.py", old_text="a = 1", new_text="a = 2")
    announce = capabilities(workspace__applyEdit=None)
    outside = await begin(answer(change), answer(Text(ANSWER)), files={"a.py": "a = 1\n"}, announce=announce)
    client, _ = outside.pair
    await client.command("thinklsp.chat", {"prompt": "Change it."})
    assert "a.py was not changed" in await outside.until_told(ANSWER)
    await client.wait_for(lambda: ended(client), what="the end of the progress")
