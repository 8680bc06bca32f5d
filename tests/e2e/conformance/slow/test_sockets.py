"""Many editors on one server, over TCP and over WebSocket: nobody gets what is another's, nobody's end is another's."""

from __future__ import annotations

import asyncio
import json
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.acting import chat, edit_file, refused, say
from tests.e2e.conformance.slow.test_restarts import take_turns
from tests.e2e.conftest import Begin
from tests.support.listening import Listening
from tests.support.outside import MODEL, statuses
from tests.support.signing_server import Answer, Hold, Redacted, Text, Thinking, answer

FILES = {"a.py": "x = 1\n", "b.py": "y = 1\n"}


def edits(path: str, old: str, new: str) -> list[Answer]:
    return [answer(Thinking(), Redacted(), edit_file(path, old, new)), answer(Thinking(), Text(f"Changed {path}."))]


def by_file(**courses: list[Answer]) -> Any:
    """Each turn gets the course of the file that its prompt names, whichever asks first."""

    def next_answer(body: Any) -> Answer:
        name = next(name for name in courses if f"{name}.py" in json.dumps(body["messages"][0]))
        return courses[name].pop(0)

    return next_answer


async def test_a_turn_over_a_socket(listening: Listening, begin: Begin) -> None:
    outside = await begin(*edits("a.py", "1", "2"), say("Grüße 🙂."), files=FILES, connect=listening.connect)
    uri = outside.open("a.py")
    result = await outside.edit(uri)
    assert statuses(result) == {"a.py": "applied"}
    assert outside.client.text(uri) == "x = 2\n"
    assert (await chat(outside, "é🙂" * 40_000))["text"] == "Grüße 🙂."
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
        assert [change.text_document.uri for change in sent.edit.document_changes] == [editor.uri(name)]
        # Progress of the other's turn, or an answer to it, would have been blamed by the checker of this one.
        assert {r.params.token for r in editor.client.calls("$/progress")} == {"turn-1"}
    shared = place == "the same workspace"
    assert len(await other.client.command("thinklsp.sessions")) == (2 if shared else 1)


async def test_a_session_belongs_to_one_of_them(listening: Listening, begin: Begin) -> None:
    refusal = r"in use by another thinklsp \(another client of this server\)"
    await take_turns(begin, refusal, connect=listening.connect)


@pytest.mark.parametrize("how", ["exit", "exit without shutdown", "lost"])
async def test_the_end_of_one_is_not_the_end_of_another(listening: Listening, begin: Begin, how: str) -> None:
    hold = Hold()
    script = by_file(a=edits("a.py", "1", "2"), b=[say("One."), answer(Thinking(), hold), say("Three.")])
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
        await refused(turn, -32800)
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
    assert await listening.end(signal.SIGINT) == 130
    for editor, turn in zip(editors, turns, strict=True):
        await refused(turn, -32800)
        assert editor.progress_kinds("w")[-1] == "end"
        if listening.kind == "ws":
            await editor.gone()
            assert editor.connection.wire.close_code == 1001


async def test_turns_may_finish_before_the_server_stops(listening: Listening, begin: Begin) -> None:
    """SIGTERM ends clients without a turn at once. The others are told, may finish their turn, and start no other."""
    hold = Hold()
    script = answer(Thinking(), hold, edit_file("a.py", "1", "2")), say("Changed.")
    outside = await begin(*script, files=FILES, connect=listening.connect)
    idle = await outside.beside()
    uri = outside.open("a.py")
    turn = asyncio.create_task(outside.edit(uri))
    await hold.reached.wait()
    assert listening.process is not None
    listening.process.send_signal(signal.SIGTERM)
    await idle.client.gone()
    assert idle.told() == ["This server is about to stop. Connect again in a moment."]
    other = outside.client.command("thinklsp.chat", {"prompt": "Another."}, token="other")
    assert "about to stop" in await refused(other)
    assert listening.process.returncode is None
    hold.release()
    assert statuses(await turn) == {"a.py": "applied"}
    await outside.client.gone()
    assert outside.told() == ["This server is about to stop. It first finishes the running turn and starts no new one."]
    if listening.kind == "ws":
        assert outside.client.connection.wire.close_code == 1001


async def test_turns_that_take_too_long_are_cancelled(listening: Listening, begin: Begin, tmp_path: Path) -> None:
    config, hold = tmp_path / "short.toml", Hold()
    config.write_text("[serve]\ndrain_seconds = 1\n")
    config.chmod(0o600)
    environment = {"THINKLSP_CONFIG": str(config)}
    outside = await begin(answer(Thinking(), hold), connect=listening.connect, env=environment)
    turn = outside.client.command("thinklsp.chat", {"prompt": "Wait."}, token="w")
    await hold.reached.wait()
    assert await listening.end() == 143
    await refused(turn, -32800)
    assert outside.client.progress_kinds("w")[-1] == "end"
    [told] = outside.told()
    assert "It first finishes the running turn" in told


async def test_the_day_is_paid_by_all_of_them(listening: Listening, begin: Begin) -> None:
    outside = await begin(say("Dear."), say("Cheap."), connect=listening.connect)
    other = await outside.beside()
    spent = (await chat(outside, "Spend."))["usage"]["costUsd"]
    assert spent > 0
    # Alone the other one would be far from it: a budget foresees no more than what the call reads.
    other.client.configure({"model": MODEL, "budget": {"usdPerDay": spent}})
    other.client.editor.message_answers = ["Stop"]
    assert (await chat(other, "Spend."))["stopReason"] == "budget"
    assert len(outside.provider.requests) == 1
    outside.provider.script.clear()
