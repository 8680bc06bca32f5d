"""The beginning of a turn as the user sees it: `begin` at once, with a title, even while the engine loads."""

from __future__ import annotations

import asyncio
from itertools import product
from typing import Any

import pytest

from tests.e2e.acting import say, start_chat, start_over
from tests.e2e.conftest import Begin
from tests.support.client.actions import Received
from tests.support.client.editor import Refusal
from tests.support.outside import Outside

CREATE = "window/workDoneProgress/create"
CHAT = "<!-- thinklsp session: -->\n\n## You\n\nWhy is it slow?\n"


def begins(outside: Outside) -> list[Received]:
    return [call for call in outside.client.calls("$/progress") if call.message["params"]["value"]["kind"] == "begin"]


def kinds(outside: Outside, token: str) -> list[str]:
    return [kind for kind in outside.client.progress_kinds(token) if kind != "report"]


# what the client does with the token -> what is shown on it, once the turn has ended and the client has answered
REPLIES: list[tuple[str, list[str]]] = [("late", ["begin", "end"]), ("refused", []), ("never", [])]


@pytest.mark.parametrize(("reply", "shown"), REPLIES)
async def test_the_create_request_holds_up_no_turn(begin: Begin, reply: str, shown: list[str]) -> None:
    """The turn runs although the client has not accepted the token of the progress."""
    outside = await begin(say("Hello."))
    client, accepted = outside.client, asyncio.Event()

    async def create(_: Any) -> None:
        if reply == "refused":
            raise Refusal("no progress here")
        await accepted.wait()

    client.editor.handlers[CREATE] = create
    started = await start_chat(outside, "Say hello.", partialResultToken="p")
    token = f"thinklsp-{started['turnId']}"
    await client.wait_for(lambda: "finished" in client.progress_kinds("p"), what="the result")
    # The server has not given up waiting: that would be told so.
    assert client.calls("$/cancelRequest") == []
    assert client.progress(token) == []
    if reply == "late":
        accepted.set()
        await client.wait_for(lambda: kinds(outside, token) == shown, what="begin and end")
        assert client.progress(token)[0]["message"] == "Say hello."
    await client.command("thinklsp.effort")
    assert kinds(outside, token) == shown


# command, argument -> the message of `begin`
TITLES: list[tuple[str, dict[str, Any], str]] = [
    ("chat", {"prompt": "# Why is `f` slow?\nTell me."}, "Why is f slow?"),
    ("chat", {"prompt": "Tell me of @src/a.py"}, "Tell me of a.py"),
    ("action", {"name": "edit", "uri": "src/a.py", "instruction": "Change it."}, "edit src/a.py"),
    ("action", {"name": "document", "uri": "src/a.py"}, "document src/a.py"),
    ("action", {"name": "review", "uri": "src/a.py"}, "review src/a.py"),
    ("action", {"name": "explain", "uri": "untitled:Untitled-1"}, "explain untitled:Untitled-1"),
    ("action", {"instruction": "Change it."}, "edit src/a.py"),
    ("send", {"uri": "talk.chat.md"}, "Why is it slow?"),
]


async def test_begin_names_the_turn(begin: Begin) -> None:
    """Two turns can be told apart in a status bar."""
    outside = await begin()
    client = outside.client
    for count, ((command, argument, title), token) in enumerate(product(TITLES, ("t", None))):
        start_over(outside, {"src/a.py": "def f():\n    return 1\n", "talk.chat.md": CHAT})
        outside.provider.say(say("Done."))
        outside.open("talk.chat.md")
        client.open("untitled:Untitled-1", "x = 1\n")
        await client.code_actions(outside.open("src/a.py"), "f")
        uri = argument.get("uri", "")
        given = argument | ({"uri": outside.uri(uri)} if uri and not uri.startswith("untitled:") else {})
        token = outside.token() if token else None
        turn = client.command(f"thinklsp.{command}", given, token=token)
        await client.wait_for(lambda count=count: len(begins(outside)) > count, what="begin")
        result = await turn
        shown = token or f"thinklsp-{result['turnId']}"
        await client.wait_for(lambda shown=shown: kinds(outside, shown) == ["begin", "end"], what="end")
        [begun] = begins(outside)[count:]
        value = {"kind": "begin", "title": "thinklsp", "message": title, "cancellable": True}
        assert begun.message["params"]["value"] == value
    outside.told()
