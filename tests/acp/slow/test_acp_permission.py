"""Questions for permission: what they show, and what follows from every answer."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.acp.client import CANCELLED, selected
from tests.acp.conftest import Begin
from tests.acp.fake_zed import CodeCompanion, FakeZed, Toad
from tests.acp.talk import Talk, diffs
from tests.e2e.acting import edit_file, say
from tests.support.shadowing import needs_sandbox
from tests.support.signing_server import answer, tool

Json = Any
FILES = {"a.py": "x = 1\n", "b.py": "y = 1\n"}
EDIT_OPTIONS = ["allow_once", "allow_always", "reject_once"]
COMMANDS = "[commands]\nenabled = true\n"
EDITS = [answer(edit_file("a.py", "1", "2")), say("Done.")]
BOTH = [answer(edit_file("a.py", "1", "2"), edit_file("b.py", "1", "2")), say("Done.")]
ECHO = answer(tool("run_command", argv=["echo", "hello"]))


@pytest.mark.parametrize("peer", [FakeZed, CodeCompanion, Toad])
async def test_question_shows_the_whole_diff(begin: Begin, peer: Any) -> None:
    talk = await begin(*EDITS, files=FILES, peer=peer)
    assert await talk.prompt("Two.") == "end_turn"
    [question] = talk.client.requests("session/request_permission")
    call = question["toolCall"]
    path = str(talk.root / "a.py")
    assert call["content"] == [{"type": "diff", "path": path, "oldText": "x = 1\n", "newText": "x = 2\n"}]
    assert call["locations"] == [{"path": path, "line": 1}]
    assert [option["kind"] for option in question["options"]] == EDIT_OPTIONS
    assert [option["optionId"] for option in question["options"]] == EDIT_OPTIONS
    assert all(option["name"] for option in question["options"])
    assert "a.py" in call["title"]
    assert talk.peer.writes == [(path, "x = 2\n")]
    assert (talk.root / "a.py").read_text() == "x = 2\n"
    assert talk.edit_statuses() == ["completed"]


async def test_every_file_has_its_question(begin: Begin) -> None:
    talk = await begin(*BOTH, files=FILES)
    talk.peer.choices = ["allow_once", "reject_once"]
    assert await talk.prompt("Two.") == "end_turn"
    questions = talk.client.requests("session/request_permission")
    assert [len(diffs(question["toolCall"])) for question in questions] == [1, 1]
    first, second = (diffs(question["toolCall"])[0]["path"] for question in questions)
    assert {first, second} == {str(talk.root / name) for name in FILES}
    assert [path for path, _ in talk.peer.writes] == [first]
    assert sorted(talk.edit_statuses()) == ["completed", "failed"]
    talk.outside.told()


async def test_always_covers_the_turn_and_the_session(begin: Begin) -> None:
    talk = await begin(*BOTH, answer(edit_file("a.py", "2", "3")), say("Done."), *EDITS, files=FILES)
    talk.peer.choices = ["allow_always"]
    assert await talk.prompt("Two.") == "end_turn"
    assert await talk.prompt("Three.") == "end_turn"
    assert len(talk.client.requests("session/request_permission")) == 1
    assert (talk.peer.text("a.py"), talk.peer.text("b.py")) == ("x = 3\n", "y = 2\n")
    (talk.root / "a.py").write_text("x = 1\n")
    talk.peer.buffers.clear()
    await talk.new_session()
    assert await talk.prompt("Two again.") == "end_turn"
    assert len(talk.client.requests("session/request_permission")) == 2


async def test_cancelled_ends_the_turn(begin: Begin) -> None:
    talk = await begin(*BOTH, say("I go on."), files=FILES)
    talk.peer.choices = [CANCELLED]
    assert await talk.prompt("Two.") == "cancelled"
    assert talk.peer.writes == []
    assert len(talk.client.requests("session/request_permission")) == 1
    talk.outside.told()
    talk.provider.script[:] = [say("I go on.")]
    assert await talk.prompt("Go on.") == "end_turn"


async def test_answers_out_of_order(begin: Begin) -> None:
    """The question of one session stays open while another session asks, is answered and ends."""
    talk = await begin(*EDITS, answer(edit_file("b.py", "1", "2")), say("b."), files=FILES)
    late = asyncio.Event()

    async def wait(params: Json) -> Json:
        await late.wait()
        return selected("allow_once")

    talk.peer.choices = [wait, "allow_once"]
    running = talk.send("a")
    await talk.client.wait_for(lambda: talk.client.requests("session/request_permission"))
    other = Talk(talk.outside)
    await other.new_session()
    assert await other.prompt("b") == "end_turn"
    assert talk.peer.text("b.py") == "y = 2\n"
    assert not running.answered
    late.set()
    assert (await running)["stopReason"] == "end_turn"
    assert talk.peer.text("a.py") == "x = 2\n"


@pytest.mark.kernel
@needs_sandbox
@pytest.mark.parametrize(("choice", "status"), [("allow_once", "completed"), ("reject_once", "failed")])
async def test_command_shows_its_words(begin: Begin, choice: str, status: str) -> None:
    talk = await begin(ECHO, ECHO, say("Done."), own=COMMANDS)
    talk.peer.choices = [choice]
    assert await talk.prompt("Run it.") == "end_turn"
    questions = talk.client.requests("session/request_permission")
    assert len(questions) == 2
    call = questions[0]["toolCall"]
    assert "echo hello" in str(call)
    ids = {option["name"]: option["optionId"] for option in questions[0]["options"]}
    assert list(ids.values()) == ["allow_once", "1", "2", "reject_once"], ids
    assert [tool.status for tool in talk.tools("execute")] == [status, status]
    told = str(talk.provider.requests[1].body["messages"][-1])
    assert ("hello" in told) is (choice == "allow_once")
    talk.outside.told()


@pytest.mark.kernel
@needs_sandbox
async def test_rule_of_the_user_asks_nothing(begin: Begin) -> None:
    talk = await begin(ECHO, say("Done."), own=COMMANDS + '[permissions]\nallow = [["echo"]]\n')
    assert await talk.prompt("Run it.") == "end_turn"
    assert talk.client.asked == []
    assert [tool.status for tool in talk.tools("execute")] == ["completed"]
    talk.outside.told()


async def test_commands_are_off_without_the_users_own_file(begin: Begin) -> None:
    talk = await begin(say("No."), own="")
    await talk.prompt("Run it.")
    assert "run_command" not in {tool["name"] for tool in talk.provider.requests[0].body["tools"]}
