"""The token rule: who gives a token waits, who gives none is answered at once and reads a chat document."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.outside.conftest import Begin
from tests.support.raw_client import RawClient
from tests.support.raw_editor import Refusal, capabilities
from tests.support.signing_script import Hold, Text, Thinking, answer

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
