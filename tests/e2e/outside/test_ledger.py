"""Edits whose answer did not come: looked for and told, recorded when it comes late, never sent again unasked."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from tests.e2e.acting import begin_file, chat, edit_file, refused, say, start_chat
from tests.e2e.conftest import Begin
from tests.support.client.raw import RawClient
from tests.support.outside import Outside, named, statuses
from tests.support.signing_server import answer
from tests.support.stored_sessions import rows
from tests.support.watching import HANG_SECONDS

TEN = "".join(f"l{number}\n" for number in range(1, 11))
MORE = TEN.replace("l2\n", "l2\nNEW\n")
DONE = say("Done.")


def adding(*names: str) -> Any:
    return answer(*(edit_file(name, "l2\n", "l2\nNEW\n") for name in names))


class Withheld:
    """The editor's answer to an edit, which waits for `release`. `asked` tells that the edit has come."""

    def __init__(self, client: RawClient, answering: Callable[[Any], Any]) -> None:
        self.asked = asyncio.Event()
        self.release = asyncio.Event()
        self._answering = answering
        client.editor.handlers["workspace/applyEdit"] = self._answer

    async def _answer(self, params: Any) -> Any:
        self.asked.set()
        await self.release.wait()
        return self._answering(params)


def outcomes(outside: Outside) -> list[str | None]:
    return [row.outcome for row in rows(outside.home)]


async def settled(outside: Outside, *expected: str) -> None:
    """The ledger is written behind the answer of a cancel and of a late edit."""
    async with asyncio.timeout(HANG_SECONDS):
        while outcomes(outside) != [*expected]:
            await outside.client.command("thinklsp.cancel")


async def cancelled(outside: Outside, answering: Callable[[Any], Any], name: str = "a.py") -> tuple[Any, Withheld]:
    """A turn that was cancelled while the editor was applying its edit."""
    withheld = Withheld(outside.client, answering)
    outside.provider.say(adding(name), DONE)
    token = outside.token()
    turn = start_chat(outside, "Add a line.", token=token)
    await withheld.asked.wait()
    assert outcomes(outside)[-1] is None, "the intent is there before the edit"
    outside.client.stop(token)
    result = await outside.result(turn)
    assert (result["stopReason"], statuses(result)) == ("cancelled", {name: "unknown"})
    sent = outside.client.calls("workspace/applyEdit")[-1]
    assert outside.client.calls("$/cancelRequest")[-1].params == {"id": sent.message["id"]}
    return {"turnId": result["turnId"]}, withheld


@pytest.mark.parametrize("is_open", [False, True])
async def test_an_answer_that_comes_after_the_cancel_is_recorded(begin: Begin, is_open: bool) -> None:
    outside = await begin(files={"a.py": TEN})
    client = outside.client
    if is_open:
        outside.open("a.py")
    turn, withheld = await cancelled(outside, client.editor.apply_edit)
    first = await client.command("thinklsp.apply", turn)
    assert first["files"][0]["status"] == "unknown"
    assert ("open the file" in first["files"][0]["reason"]) != is_open
    await settled(outside, "unknown")
    withheld.release.set()
    await outside.until_told("after it was cancelled", "a.py")
    await refused(client.command("thinklsp.apply", turn), match="already applied")
    await settled(outside, "applied")
    assert (len(client.edits()), client.text(outside.uri("a.py"))) == (1, MORE)
    del client.editor.handlers["workspace/applyEdit"]
    assert (await client.command("thinklsp.undo"))["applied"] == "all"
    assert client.text(outside.uri("a.py")) == TEN


async def test_a_late_refusal_lets_the_edit_be_applied_once(begin: Begin) -> None:
    outside = await begin(files={"a.py": TEN})
    client = outside.client
    turn, withheld = await cancelled(outside, lambda params: {"applied": False})
    withheld.release.set()
    await settled(outside, "refused")
    del client.editor.handlers["workspace/applyEdit"]
    assert (await client.command("thinklsp.apply", turn))["applied"] == "all"
    assert outcomes(outside) == ["refused", "applied"]
    assert client.text(outside.uri("a.py")) == MORE


@pytest.mark.parametrize("is_open", [False, True])
async def test_an_edit_that_can_be_seen_is_not_sent_again(begin: Begin, is_open: bool) -> None:
    outside = await begin(files={"a.py": TEN})
    client = outside.client
    if is_open:
        outside.open("a.py")
    turn, _ = await cancelled(outside, lambda params: {"applied": True})
    # The editor has done it and does not say so.
    client.editor.apply_edit(client.edits()[0])
    if is_open:
        client.change(outside.uri("a.py"), "l9\n", "mine\n")
    assert named(await client.code_actions(outside.uri("a.py"), "l1"), "apply") == [] if is_open else True
    result = await client.command("thinklsp.apply", turn)
    file = {"uri": outside.uri("a.py"), "status": "applied", "hunks": {"applied": 1, "waiting": 0}, "reason": None}
    assert result == {"applied": "all", "files": [file]}
    assert (len(client.edits()), outcomes(outside)) == (1, ["applied"])
    del client.editor.handlers["workspace/applyEdit"]
    assert (await client.command("thinklsp.undo", turn))["applied"] == "all"
    assert client.text(outside.uri("a.py")) == (TEN.replace("l9\n", "mine\n") if is_open else TEN)


async def test_an_edit_in_doubt_is_sent_again_when_the_user_asks_twice(begin: Begin) -> None:
    outside = await begin(files={"a.py": TEN})
    client = outside.client
    turn, _ = await cancelled(outside, lambda params: {"applied": False})
    assert (await client.command("thinklsp.apply", turn))["applied"] == "none"
    assert len(client.edits()) == 1
    del client.editor.handlers["workspace/applyEdit"]
    assert (await client.command("thinklsp.apply", turn))["applied"] == "all"
    assert (len(client.edits()), client.text(outside.uri("a.py"))) == (2, MORE)
    assert outcomes(outside) == ["unknown", "applied"]


async def kill_while_applying(outside: Outside, *, arrives: bool = True) -> None:
    """A turn whose server is killed when the editor is sent the edit, which the editor applies or does not."""
    killed = asyncio.Event()

    def and_kill(params: Any) -> Any:
        outside.client.process.kill()
        killed.set()
        if arrives:
            outside.client.editor.apply_edit(params)
        return {"applied": arrives}

    outside.client.editor.handlers["workspace/applyEdit"] = and_kill
    start_chat(outside, "Add a line.", token="t")
    await killed.wait()
    await outside.client.gone()


AFTER_A_CRASH: dict[str, tuple[bool, str, str, str]] = {
    "applied": (True, "", "appears to be applied in a.py, b.py", "applied"),
    "not applied": (False, "", "appears not to be applied in a.py, b.py", "refused"),
    "typed since": (True, "more\n", "cannot be distinguished from other changes in a.py, b.py", "unknown"),
}


@pytest.mark.parametrize("case", AFTER_A_CRASH)
async def test_a_server_that_is_killed_before_the_answer(begin: Begin, case: str) -> None:
    arrives, typed, sentence, settled_as = AFTER_A_CRASH[case]
    outside = await begin(adding("a.py", "b.py"), DONE, files={"a.py": TEN, "b.py": TEN})
    a, b = outside.open("a.py"), outside.uri("b.py")
    await kill_while_applying(outside, arrives=arrives)
    assert outcomes(outside) == [None, None]
    text = (MORE if arrives else TEN) + typed
    (outside.root / "b.py").write_text(text)

    client = await outside.reopen()
    client.open(a, text)
    told = await outside.until_told("was being applied", sentence)
    assert "not be sent again" in told
    assert outcomes(outside) == [settled_as, settled_as]
    assert (client.text(a), client.text(b), client.edits()) == (text, text, [])
    if case == "applied":
        assert (await client.command("thinklsp.undo"))["applied"] == "all"
        assert (client.text(a), client.text(b)) == (TEN, TEN)
    assert await client.close() == 0
    await (await outside.reopen()).command("thinklsp.cancel")
    assert outside.told() == [], "it is said once"


async def test_undo_at_once_after_a_crash_takes_the_newest_turn_back(begin: Begin) -> None:
    """The open edit of the newest turn is settled before anybody looks for what to undo."""
    newer = (answer(edit_file("a.py", "l5\n", "five\n")), DONE)
    outside, _, a = await begin_file(begin, TEN, adding("a.py"), DONE, *newer)
    await chat(outside, "Add a line.")
    older = outside.client.text(a) or ""
    await kill_while_applying(outside)
    newest = outside.client.text(a) or ""
    assert newest != older
    client = await outside.reopen()
    client.open(a, newest)
    assert (await client.command("thinklsp.undo"))["applied"] == "all"
    assert client.text(a) == older
    await outside.until_told("was being applied", "appears to be applied in a.py")


async def test_an_undo_that_was_cancelled_is_not_sent_again_unasked(begin: Begin) -> None:
    outside = await begin(adding("a.py"), DONE, files={"a.py": TEN})
    client = outside.client
    await chat(outside, "Add a line.")
    withheld = Withheld(client, client.editor.apply_edit)
    undo = client.command("thinklsp.undo")
    await withheld.asked.wait()
    client.cancel(undo)
    await refused(undo, -32800)
    await refused(client.command("thinklsp.undo"), match="did not confirm")
    assert len(client.edits()) == 2
    withheld.release.set()
    await outside.until_told("after it was cancelled", "a.py")
    async with asyncio.timeout(HANG_SECONDS):
        while not all(row.undone for row in rows(outside.home)):
            await client.command("thinklsp.cancel")
    assert outcomes(outside) == ["applied", "applied"]
    await refused(client.command("thinklsp.undo"), match="Nothing to undo")
    assert (len(client.edits()), client.text(outside.uri("a.py"))) == (2, TEN)


async def test_two_servers_on_one_workspace(begin: Begin) -> None:
    outside = await begin(adding("a.py"), DONE, files={"a.py": TEN})
    first = outside.client
    withheld = Withheld(first, first.editor.apply_edit)
    turn = first.command("thinklsp.chat", {"prompt": "Add a line."}, token="t")
    await withheld.asked.wait()
    second = await outside.uninitialized()
    await second.initialize(outside.root)
    await refused(second.command("thinklsp.undo"), match="Nothing to undo")
    assert (second.messages(), outcomes(outside)) == ([], [None]), "the first one still waits for its answer"
    withheld.release.set()
    await outside.result(turn)
    undone = await second.command("thinklsp.undo")
    assert undone["applied"] == "all", undone
    assert second.text(outside.uri("a.py")) == TEN
    await refused(first.command("thinklsp.undo"), match="Nothing to undo")
    assert (len(first.edits()), len(second.edits()), second.messages()) == (1, 1, [])
    assert await second.close() == 0
    assert second.checker.violations == []


async def test_unanswered_edit_is_resolved_by_the_next_server(begin: Begin) -> None:
    outside = await begin(adding("a.py"), DONE, files={"a.py": TEN})
    withheld = Withheld(outside.client, outside.client.editor.apply_edit)
    start_chat(outside, "Add a line.", token="t")
    await withheld.asked.wait()
    assert await outside.client.close() == 0
    assert outcomes(outside) == [None]
    client = await outside.reopen()
    await outside.until_told("appears not to be applied in a.py")
    assert (outcomes(outside), client.edits()) == (["refused"], [])


async def test_an_editor_that_stops_in_the_middle_of_several_files(begin: Begin) -> None:
    outside = await begin(adding("a.py", "b.py"), DONE, files={"a.py": TEN, "b.py": TEN})
    client = outside.client

    def half(params: Any) -> Any:
        [first, _] = params["edit"]["documentChanges"]
        client.editor.apply_edit({"edit": {**params["edit"], "documentChanges": [first]}})
        return {"applied": False, "failureReason": "disk full", "failedChange": 1}

    client.editor.handlers["workspace/applyEdit"] = half
    result = await chat(outside, "Add a line.")
    assert statuses(result) == {"a.py": "applied", "b.py": "refused"}
    assert outcomes(outside) == ["applied", "refused"]
    del client.editor.handlers["workspace/applyEdit"]
    assert (await client.command("thinklsp.undo"))["applied"] == "all"
    assert (client.text(outside.uri("a.py")), client.text(outside.uri("b.py"))) == (TEN, TEN)
