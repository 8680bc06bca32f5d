"""The end of an edit: what is recorded and told if it is cancelled, rejected without an answer, or one of several."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.acp.client import CANCELLED, NoAnswer, Refuse
from tests.acp.conftest import Begin
from tests.acp.fake_zed import CodeCompanion, FakeZed, Toad
from tests.acp.talk import Talk, refusal
from tests.e2e.acting import edit_file, say
from tests.support.signing_server import Failure, answer

Json = Any
LINES = "".join(f"line {number}\n" for number in range(9))
FILES = {"a.py": LINES, "b.py": "y = 1\n"}
EDIT = edit_file("a.py", "line 7", "changed 7")
BOTH = answer(edit_file("a.py", "line 7", "changed 7"), edit_file("b.py", "1", "2"))


def last_prompt(talk: Talk) -> str:
    return str(talk.provider.requests[-1].body["messages"][-1]["content"])


def refuse(_: Json) -> Json:
    raise Refuse(-32603, "The user has closed the window.")


REJECTED: dict[str, tuple[Any, str]] = {
    "by its id": ("reject_once", "you rejected it"),
    "by its kind": ("reject_once", "you rejected it"),
    "an error": (refuse, "the editor could not ask you"),
    "an unknown option": ("no-such-option", "the editor gave no valid answer"),
    "nothing": (lambda _: None, "the editor gave no valid answer"),
    "nothing chosen": ({"outcome": {"outcome": "selected"}}, "the editor gave no valid answer"),
    "another outcome": ({"outcome": {"outcome": "later", "optionId": "allow_once"}}, "the editor gave no valid answer"),
    "another form": ({"optionId": "allow_once"}, "the editor gave no valid answer"),
    "a number": ({"outcome": 7}, "the editor gave no valid answer"),
    "a list of options": (
        {"outcome": {"outcome": "selected", "optionId": ["allow_once"]}},
        "the editor gave no valid answer",
    ),
}


async def test_every_other_answer_rejects_with_its_reason(begin: Begin) -> None:
    edits = [step for _ in REJECTED for step in (answer(EDIT), say("Done."))]
    talk = await begin(*edits, files=FILES)
    for choice, reason in REJECTED.values():
        if callable(choice):
            talk.peer.handlers["session/request_permission"] = choice
        else:
            talk.peer.handlers["session/request_permission"] = talk.peer.choose
            talk.peer.choices = [choice]
        assert await talk.prompt("Change it.") == "end_turn"
        assert talk.outside.told()[-1] == f"Note: a.py was not changed: {reason}."
    assert talk.peer.writes == []
    assert talk.edit_statuses() == ["failed"] * len(REJECTED)
    assert talk.peer.text("a.py") == (talk.root / "a.py").read_text() == LINES


async def test_written_file_is_not_called_unapplied_after_a_cancel(begin: Begin) -> None:
    talk = await begin(BOTH, say("Done."), say("Here."), files=FILES)
    talk.peer.choices = ["allow_once", CANCELLED]
    assert await talk.prompt("Change both.") == "cancelled"
    assert talk.edit_statuses() == ["completed", "failed"]
    assert (talk.root / "a.py").read_text() != LINES
    assert await talk.prompt("Go on.") == "end_turn"
    assert "Not applied: b.py." in last_prompt(talk)
    talk.outside.told()


async def test_cancel_counts_until_the_write_is_sent(begin: Begin) -> None:
    """The answer to the last read comes after the cancel. Nothing may be written then."""
    talk = await begin(answer(EDIT), say("Done."), say("Here."), files=FILES)
    asked, go_on = asyncio.Event(), asyncio.Event()
    read = talk.peer.handlers["fs/read_text_file"]

    async def wait(params: Json) -> Json:
        asked.set()
        await go_on.wait()
        return read(params)

    def choose(_: Json) -> Json:
        talk.peer.handlers["fs/read_text_file"] = wait
        return {"outcome": {"outcome": "selected", "optionId": "allow_once"}}

    talk.peer.choices = [choose]
    running = talk.send("Change it.")
    await asked.wait()
    talk.client.cancel(talk.session)
    assert (await running)["stopReason"] == "cancelled"
    talk.peer.handlers["fs/read_text_file"] = read
    go_on.set()
    assert await talk.prompt("Go on.") == "end_turn"
    assert talk.peer.writes == []
    assert talk.edit_statuses() == ["failed"]
    talk.outside.told()


async def test_write_that_ends_after_the_cancel_can_be_undone(begin: Begin) -> None:
    talk = await begin(answer(EDIT), say("Done."), say("Here."), files=FILES)
    written, go_on = asyncio.Event(), asyncio.Event()
    write = talk.peer.handlers["fs/write_text_file"]

    async def wait(params: Json) -> Json:
        written.set()
        await go_on.wait()
        return write(params)

    talk.peer.handlers["fs/write_text_file"] = wait
    running = talk.send("Change it.")
    await written.wait()
    talk.client.cancel(talk.session)
    go_on.set()
    assert (await running)["stopReason"] == "cancelled"
    assert talk.edit_statuses() == ["completed"]
    assert await talk.prompt("Go on.") == "end_turn"
    assert "Not applied" not in last_prompt(talk)
    talk.peer.handlers["fs/write_text_file"] = write
    assert await talk.prompt("/undo") == "end_turn"
    assert talk.peer.text("a.py") == LINES


@pytest.mark.parametrize("peer", [FakeZed, CodeCompanion, Toad])
async def test_sessions_do_not_overwrite_each_other(begin: Begin, peer: Any) -> None:
    """Both are allowed at once. The second waits for the write of the first before it reads the file."""
    edits = [answer(edit_file("a.py", f"line {number}", f"changed {number}")) for number in (1, 7)]
    talk = await begin(edits[0], say("Done."), edits[1], say("Done."), files=FILES, peer=peer)
    both = asyncio.Event()

    async def wait(_: Json) -> Json:
        if len(talk.client.requests("session/request_permission")) == 2:
            both.set()
        await both.wait()
        return {"outcome": {"outcome": "selected", "optionId": "allow_once"}}

    talk.peer.choices = [wait]
    first = talk.send("Change it.")
    await talk.client.wait_for(lambda: talk.client.requests("session/request_permission"))
    other = Talk(talk.outside)
    await other.new_session()
    second = other.send("Change it, too.")
    assert (await first)["stopReason"] == (await second)["stopReason"] == "end_turn"
    assert talk.peer.text("a.py") == LINES.replace("line 1", "changed 1").replace("line 7", "changed 7")


async def test_file_that_became_a_link_is_refused(begin: Begin) -> None:
    talk = await begin(answer(EDIT), say("Done."), files=FILES)
    file = talk.root / "a.py"

    def replace(_: Any) -> Any:
        file.unlink()
        file.symlink_to("/etc/hostname")
        return {"outcome": {"outcome": "selected", "optionId": "allow_once"}}

    talk.peer.choices = [replace]
    assert await talk.prompt("Change it.") == "end_turn"
    assert talk.peer.writes == []
    [told] = talk.outside.told()
    assert told.startswith("Note: a.py was not changed: ")


async def test_part_of_a_change_is_not_called_applied(begin: Begin) -> None:
    """The client confirms the write, and keeps only its second half."""
    edits = answer(edit_file("a.py", "line 1", "changed 1"), edit_file("a.py", "line 7", "changed 7"))
    talk = await begin(edits, say("Done."), files=FILES, peer=Toad)

    def write(params: Json) -> Json:
        (talk.root / "a.py").write_text(params["content"].replace("changed 1", "line 1"))
        return {}

    talk.peer.handlers["fs/write_text_file"] = write
    assert await talk.prompt("Change it.") == "end_turn"
    assert talk.edit_statuses() == ["failed"]
    assert talk.outside.told() == [
        "Note: a.py may have been changed: the editor did not keep the whole change. Look at the file."
    ]


async def test_question_without_answer_does_not_end_the_session(begin: Begin) -> None:
    talk = await begin(answer(EDIT), say("Done."), say("Here."), files=FILES)

    def unanswered(_: Json) -> Json:
        raise NoAnswer

    talk.peer.choices = [unanswered]
    running = talk.send("Change it.")
    await talk.client.wait_for(lambda: talk.client.requests("session/request_permission"))
    await talk.client.request("session/close", {"sessionId": talk.session})
    assert (await running)["stopReason"] == "cancelled"
    resumed = {"sessionId": talk.session, "cwd": str(talk.root), "mcpServers": []}
    await talk.client.request("session/resume", resumed)
    assert await talk.prompt("Go on.") == "end_turn"


async def test_model_learns_of_rejected_edits_after_a_failed_turn(begin: Begin) -> None:
    """The first prompt after the rejection never reaches the model."""
    failure = Failure(403, "permission_error", "Not for you.")
    talk = await begin(answer(EDIT), say("Done."), failure, say("Here."), files=FILES)
    talk.peer.choices = ["reject_once"]
    assert await talk.prompt("Change it.") == "end_turn"
    await refusal(talk.send("Go on."))
    assert await talk.prompt("Again.") == "end_turn"
    assert "Not applied: a.py." in str(talk.provider.requests[-1].body["messages"])
    talk.outside.told()
