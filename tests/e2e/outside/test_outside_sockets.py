"""Many editors on one server, over TCP and over WebSocket: nobody gets what is another's, nobody's end is another's."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.listening import Listening
from tests.support.outside import MODEL, said, statuses
from tests.support.raw_client import ResponseError
from tests.support.raw_wires import WebSocketWire
from tests.support.signing_script import Answer, Hold, Redacted, Text, Thinking, answer, tool

FILES = {"a.py": "x = 1\n", "b.py": "y = 1\n"}


def edits(path: str, old: str, new: str) -> list[Answer]:
    return [
        answer(Thinking(), Redacted(), tool("edit_file", path=path, old_text=old, new_text=new)),
        answer(Thinking(), Text(f"Changed {path}.")),
    ]


def by_file(**courses: list[Answer]) -> Any:
    """Each turn gets the course of the file that its prompt names, whichever asks first."""

    def next_answer(body: Any) -> Answer:
        name = next(name for name in courses if f"{name}.py" in json.dumps(body["messages"][0]))
        return courses[name].pop(0)

    return next_answer


async def test_a_turn_over_a_socket(listening: Listening, begin: Begin) -> None:
    outside = await begin(*edits("a.py", "1", "2"), answer(Text("Grüße 🙂.")), files=FILES, connect=listening.connect)
    uri = outside.open("a.py")
    result = await outside.edit(uri)
    assert statuses(result) == {"a.py": "applied"}
    assert outside.client.text(uri) == "x = 2\n"
    assert (await outside.turn("thinklsp.chat", {"prompt": "é🙂" * 40_000}))["text"] == "Grüße 🙂."
    assert "é🙂" * 40_000 in outside.provider.requests[-1].body["messages"][0]["content"][-1]["text"]


@pytest.mark.parametrize("place", ["another workspace", "the same workspace"])
async def test_two_editors_at_once(listening: Listening, begin: Begin, tmp_path: Path, place: str) -> None:
    script = by_file(a=edits("a.py", "1", "2"), b=edits("b.py", "1", "3"))
    outside = await begin(*[script] * 4, files=FILES, connect=listening.connect)
    root = outside.root
    if place == "another workspace":
        root = tmp_path / "elsewhere"
        root.mkdir()
        (root / "b.py").write_text(FILES["b.py"])
    other = await outside.beside(root)
    one, two = outside.open("a.py"), other.open("b.py")
    results = await asyncio.gather(outside.edit(one, "In a.py."), other.edit(two, "In b.py."))
    assert [statuses(result) for result in results] == [{"a.py": "applied"}, {"b.py": "applied"}]
    assert (outside.client.text(one), other.client.text(two)) == ("x = 2\n", "y = 3\n")
    for editor, name in ((outside, "a.py"), (other, "b.py")):
        [sent] = editor.client.edits()
        assert [change["textDocument"]["uri"] for change in sent["edit"]["documentChanges"]] == [editor.uri(name)]
        # Progress of the other's turn, or an answer to it, would have been blamed by the checker of this one.
        assert {r.params["token"] for r in editor.client.calls("$/progress")} == {"turn-1"}
    shared = place == "the same workspace"
    assert len(await other.client.command("thinklsp.sessions")) == (2 if shared else 1)


async def test_a_session_belongs_to_one_of_them(listening: Listening, begin: Begin) -> None:
    hold = Hold()
    script = (answer(Text("One.")), answer(Text("Two."), before=hold), answer(Text("Three.")))
    outside = await begin(*script, connect=listening.connect)
    first = await outside.turn("thinklsp.chat", {"prompt": "One?"})
    other = await outside.beside()
    turn = outside.client.command("thinklsp.chat", {"prompt": "Two?", "sessionId": "last"}, token="w")
    await hold.reached.wait()
    [entry] = await other.client.command("thinklsp.sessions")
    assert entry["busy"] is True
    mine = r"in use by another thinklsp \(another client of this server\)"
    for command, argument in (("chat", {"prompt": "Three?"}), ("sessions", {"op": "delete"})):
        asked = other.client.command(f"thinklsp.{command}", argument | {"sessionId": first["sessionId"]}, token=command)
        with pytest.raises(ResponseError, match=mine) as refused:
            await asked
        assert refused.value.code == -32803
    attach = {"op": "attach", "sessionId": first["sessionId"], "partialResultToken": "p"}
    answered = await other.client.command("thinklsp.sessions", attach)
    assert answered["attached"] is False
    assert "another thinklsp" in answered["notice"]
    hold.release()
    await outside.result(turn)
    result = await other.turn("thinklsp.chat", {"prompt": "Three?", "sessionId": "last"})
    assert (result["sessionId"], result["text"]) == (first["sessionId"], "Three.")
    assert all(words in said(outside.provider.requests[-1].body) for words in ("One?", "One.", "Two?", "Two."))


@pytest.mark.parametrize("how", ["exit", "exit without shutdown", "lost"])
async def test_the_end_of_one_is_not_the_end_of_another(listening: Listening, begin: Begin, how: str) -> None:
    hold = Hold()
    script = by_file(
        a=edits("a.py", "1", "2"), b=[answer(Text("One.")), answer(Thinking(), hold), answer(Text("Three."))]
    )
    outside = await begin(*[script] * 5, files=FILES, connect=listening.connect)
    leaver = await listening.connect(outside.root, outside.variables)
    await leaver.initialize(outside.root, options=outside.client.editor.settings)
    first = await leaver.command("thinklsp.chat", {"prompt": "In b.py."}, token="v")
    again = {"prompt": "Go on.", "sessionId": first["sessionId"]}
    turn = leaver.command("thinklsp.chat", again, token="w")
    await hold.reached.wait()
    match how:
        case "exit":
            await leaver.request("shutdown")
            leaver.notify("exit")
        case "exit without shutdown":
            leaver.notify("exit")
        case _:
            leaver.kill()
    await leaver.gone()
    if how != "lost":
        with pytest.raises(ResponseError, match="-32800"):
            await turn
        assert leaver.checker.violations == []
    # Its turn has ended, and its session is free for the other editor, which goes on.
    held = outside.provider.requests[1]
    await outside.provider.wait_for(lambda: held.closed_at is not None, what="the end of the turn")
    uri = outside.open("a.py")
    assert statuses(await outside.edit(uri, "In a.py.")) == {"a.py": "applied"}
    assert outside.client.text(uri) == "x = 2\n"
    assert (await outside.turn("thinklsp.chat", again))["text"] == "Three."


async def test_a_signal_ends_all_of_them_in_order(listening: Listening, begin: Begin) -> None:
    holds = [Hold(), Hold()]
    outside = await begin(*(answer(Thinking(), hold) for hold in holds), connect=listening.connect)
    editors = [outside.client, (await outside.beside()).client]
    turns = [editor.command("thinklsp.chat", {"prompt": "Wait."}, token="w") for editor in editors]
    await asyncio.gather(*(hold.reached.wait() for hold in holds))
    assert await listening.end() == 143
    for editor, turn in zip(editors, turns, strict=True):
        with pytest.raises(ResponseError, match="-32800"):
            await turn
        assert editor.progress_kinds("w")[-1] == "end"
        if isinstance(wire := editor.wire, WebSocketWire):
            await editor.gone()
            assert wire.closed == 1001


async def test_the_day_is_paid_by_all_of_them(listening: Listening, begin: Begin) -> None:
    outside = await begin(answer(Text("Dear.")), answer(Text("Cheap.")), connect=listening.connect)
    other = await outside.beside()
    spent = (await outside.turn("thinklsp.chat", {"prompt": "Spend."}))["usage"]["costUsd"]
    assert spent > 0
    # Alone the other one would be far from it: a budget foresees no more than what the call reads.
    other.client.configure({"model": MODEL, "budget": {"usdPerDay": spent}})
    other.client.editor.message_answers = ["Stop"]
    assert (await other.turn("thinklsp.chat", {"prompt": "Spend."}))["stopReason"] == "budget"
    assert len(outside.provider.requests) == 1
    outside.provider.script.clear()
