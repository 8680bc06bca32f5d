"""Which document `send` sends, whether it can, and where the user finds what was made for them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from lsprotocol import types

from tests.e2e.acting import begin_talk, reach, release, say, send, start_chat, write_file
from tests.e2e.conftest import Begin
from tests.support.client.actions import ResponseError
from tests.support.client.editor import Refusal, capabilities
from tests.support.client.lsp import named
from tests.support.outside import Outside
from tests.support.signing_server import Hold, Text, answer

SHOW = "window/showDocument"


def prompts(outside: Outside) -> list[str]:
    """The newest words of the user, of each request."""
    said = [[m["content"] for m in r.body["messages"] if m["role"] == "user"][-1] for r in outside.provider.requests]
    return [text if isinstance(text, str) else text[-1]["text"] for text in said]


async def refused(outside: Outside, **argument: Any) -> str:
    with pytest.raises(ResponseError) as error:
        await outside.client.command("thinklsp.send", argument)
    assert error.value.code == -32803
    return str(error.value)


async def test_send_without_uri_uses_the_last_active_document(begin: Begin) -> None:
    outside = await begin(*(say("Yes.") for _ in range(4)))
    client = outside.client
    assert "no open chat document" in await refused(outside)
    x = outside.open("x.chat.md", "## You\n\nfirst in x\n")
    outside.open("app.py", "x = 1\n")
    await outside.turn("thinklsp.send")
    client.change(x, "\n## You\n\n", "\n## You\n\nnot ready", nth=1)
    y = outside.open("y.chat.md", "## You\n\nopened\n")
    await outside.turn("thinklsp.send")
    client.change(y, "\n## You\n\n", "\n## You\n\ntyped", nth=1)
    await outside.turn("thinklsp.send")
    # Neither an answer nor a look is lost sight of: the cursor went back to x.
    await client.code_actions(x, "## You")
    await outside.turn("thinklsp.send")
    assert prompts(outside) == ["first in x", "opened", "typed", "not ready"]
    client.close_document(x)
    assert "write your prompt below the last ## You" in await refused(outside)


@pytest.mark.parametrize("tells", ["before it replies", "after it has replied"])
async def test_an_answer_that_arrives_does_not_take_the_users_place(begin: Begin, tells: str) -> None:
    hold = Hold()
    outside = await begin(answer(Text("Late."), before=hold), say("Soon."))
    slow, quick = (outside.open(f"{name}.chat.md", f"## You\n\n{name}\n") for name in ("slow", "quick"))
    client = outside.client

    def later(params: Any) -> Any:
        asyncio.get_running_loop().call_soon(client.editor.apply_edit, params)
        return types.ApplyWorkspaceEditResult(applied=True)

    if tells == "after it has replied":
        client.editor.handlers["workspace/applyEdit"] = later
    first = await reach(hold, client.command("thinklsp.send", {"uri": slow}, token="slow"))
    await client.code_actions(quick, "## You")
    await release(hold, outside, first)
    await client.wait_for(lambda: "Late." in (client.text(slow) or ""), what="the answer")
    await outside.turn("thinklsp.send")
    assert prompts(outside) == ["slow", "quick"]


async def test_what_is_no_chat_document_is_left_alone(begin: Begin) -> None:
    outside = await begin()
    for name in ("app.py", "notes.md"):
        uri = outside.open(name, "x = 1\n")
        assert "not a chat document: the name of a chat document ends in .chat.md" in await refused(outside, uri=uri)
        assert outside.client.text(uri) == "x = 1\n"
    assert outside.provider.requests == []


@pytest.mark.parametrize("can_say_why", [True, False])
async def test_why_nothing_can_be_sent_is_said_beforehand(begin: Begin, can_say_why: bool) -> None:
    """Where the client cannot show a reason, what cannot run is not offered."""
    hold = Hold()
    announce = capabilities() if can_say_why else capabilities(textDocument__codeAction__disabledSupport=None)
    outside, _, uri = await begin_talk(
        begin, "## You\n\n\n", answer(Text("Yes."), before=hold), name="a.chat.md", announce=announce
    )

    async def why() -> list[str | None]:
        offered = named(await outside.client.code_actions(uri, "## You"), "send")
        return [action.disabled and action.disabled.reason for action in offered]

    # Nothing is known before the engine is there.
    await outside.client.command("thinklsp.sessions")
    assert await why() == (["Write your prompt below the last ## You."] if can_say_why else [])
    outside.client.change(uri, "## You\n\n", "## You\n\nHello")
    assert await why() == [None]
    turn = await reach(hold, outside.client.command("thinklsp.send", {"uri": uri}, token="t"))
    assert await why() == (["This document is already waiting for an answer."] if can_say_why else [])
    await release(hold, outside, turn)


async def test_there_is_always_a_name_for_another_document(begin: Begin) -> None:
    outside = await begin()
    folder = outside.root / ".thinklsp/chat"
    folder.mkdir(parents=True)
    for number in ("", *(f"-{number}" for number in range(2, 60))):
        (folder / f"new{number}.chat.md").touch()
    (folder / "new-60.chat.md").symlink_to("nowhere")
    assert await outside.client.command("thinklsp.chat") is None
    assert outside.client.calls(SHOW)[-1].params.uri == outside.uri(".thinklsp/chat/new-61.chat.md")


@pytest.mark.parametrize("how", ["shown", "cannot", "fails", "declines"])
async def test_where_an_answer_stands_is_shown_or_said(begin: Begin, how: str) -> None:
    outside = await begin(
        say("Because."),
        answer(write_file("b.py", "b = 1\n")),
        say("Made."),
        announce=capabilities(
            workspace__workspaceEdit__changeAnnotationSupport=None,
            **({"window__showDocument": None} if how == "cannot" else {}),
        ),
    )

    def fail(_: Any) -> Any:
        raise Refusal("no window")

    if how in ("fails", "declines"):
        outside.client.editor.handlers[SHOW] = (
            fail if how == "fails" else lambda _: types.ShowDocumentResult(success=False)
        )
    outside.open("app.py", "x = 1\n")
    await outside.client.command("thinklsp.chat")
    started = await start_chat(outside, "Why?")
    names = [".thinklsp/chat/new.chat.md", f".thinklsp/chat/{started['sessionId'][:12]}.chat.md"]
    if how == "shown":
        await outside.client.wait_for(lambda: len(outside.client.calls(SHOW)) == 2, what="both to be shown")
        assert not any(name in text for text in outside.client.messages() for name in names)
    else:
        for name in names:
            await outside.until_told(f"The chat document is in {name}. Open that file to see it.")
    outside.client.editor.message_answers = ["Show the diff", "Not now"]
    asked = {"name": "edit", "uri": outside.uri("app.py"), "instruction": "Make b."}
    await outside.turn("thinklsp.action", asked)
    if how != "shown":
        await outside.until_told("The review is in .thinklsp/review/")


NAMES = ["a b.py", "we:ird.py", "a@b.py", "pkg/@types/x.py", 'q".py', "untitled:U-1", "outside"]


async def test_the_place_that_a_blank_document_names_is_sent_along(begin: Begin) -> None:
    outside = await begin(*(say("A function.") for _ in NAMES), files={"a": "another\n", "x.py": "x = 1\n"})
    client = outside.client
    for number, name in enumerate(NAMES):
        text = f"def here():\n    return THIS_{number}\n"
        uri = {"untitled:U-1": name, "outside": (outside.home / "away.py").as_uri()}.get(name) or outside.uri(name)
        client.open(uri, text)
        [edit] = [one for one in await client.code_actions(uri, f"return THIS_{number}") if "edit the" in one.title]
        await client.run_action(edit)
        chat = client.calls(SHOW)[-1].params.uri
        client.change(chat, ":2-2 ", ":2-2 what is this? And @none.py:3 or @nobody?")
        result = await send(outside, chat)
        sent = str(outside.provider.requests[-1].body["messages"])
        assert (name, f"return THIS_{number}" in sent, "another" in sent) == (name, True, False)
        assert result["notices"] == ["@none.py:3 is neither a workspace file nor an open document."]
