"""Moments in which things meet: cancels before the beginning, two turns on one file, ids of both sides, late typing."""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

from tests.e2e.acting import (
    begin_file,
    chat,
    edit_file,
    never_answer,
    reach,
    read_before,
    read_file,
    release,
    say,
    start_chat,
    stop_waiting,
)
from tests.e2e.conftest import Begin
from tests.support.client.actions import Request, ResponseError
from tests.support.client.raw import RawClient
from tests.support.outside import named, said, statuses
from tests.support.signing_server import Hold, Text, Thinking, answer, tool
from tests.support.watching import HANG_SECONDS

TEN = "".join(f"l{number}\n" for number in range(1, 11))


async def test_a_cancel_that_comes_before_the_turn_has_begun(begin: Begin) -> None:
    outside, client, uri = await begin_file(begin, "x = 1\n", say("never"), say("again"))
    started = start_chat(outside, "hello")
    stopped = client.command("thinklsp.cancel")
    turn = await started
    assert await stopped in ({"cancelled": [turn["turnId"]]}, {"cancelled": []})

    async def free() -> bool:
        return not named(await client.code_actions(uri, "x"), "stop")

    async with asyncio.timeout(HANG_SECONDS):
        while not await free():
            pass
    result = await chat(outside, "again", sessionId=turn["sessionId"])
    assert result["stopReason"] == "end_turn"


async def test_requests_cancelled_at_once_leave_no_state(begin: Begin) -> None:
    outside, client, uri = await begin_file(begin, "x = 1\n", *[say("hi")] * 60)
    session = (await chat(outside, "hello"))["sessionId"]
    for number in range(30):
        turn = start_chat(outside, "hello", sessionId=session, token=f"quick-{number}")
        if number % 2:
            await client.wait_for(lambda token=f"quick-{number}": client.progress(token))
        client.cancel(turn)
        # The answer may be quicker than the cancel.
        assert await outcome(turn) in ("end_turn", -32800)
    assert named(await client.code_actions(uri, "x"), "stop") == []
    assert (await chat(outside, "on", sessionId=session))["stopReason"] == "end_turn"


async def outcome(turn: Request) -> str | int:
    try:
        return str((await turn)["stopReason"])
    except ResponseError as error:
        return error.code


async def test_two_turns_on_a_file_that_is_not_open(begin: Begin) -> None:
    def script(body: Any) -> Any:
        text = said(body)
        if "tool_result" in text:
            return say("done")
        if "AAA" in text:
            return answer(edit_file("b.py", "l1\n", "n1\nn2\nl1\n"))
        return answer(edit_file("b.py", "l9\n", "NINE\n"))

    outside = await begin(script, script, script, script, files={"b.py": TEN})
    turns = [start_chat(outside, prompt, token=prompt) for prompt in ("AAA", "BBB")]
    for turn in turns:
        assert statuses(await outside.result(turn)) == {"b.py": "applied"}
    expected = TEN.replace("l1\n", "n1\nn2\nl1\n", 1).replace("l9\n", "NINE\n")
    assert outside.client.text(outside.uri("b.py")) == expected


async def test_pending_edit_reports_its_conflict_before_it_wins(begin: Begin) -> None:
    edits = [*(edit_file(name, "l2\n", "TWO\n") for name in ("a.py", "c.py")), tool("delete_file", path="d.py")]
    files = {"a.py": TEN, "c.py": TEN, "d.py": "keep?\n"}
    script = (*read_before(*edits), answer(*edits), answer(Text("cut"), stop_reason="max_tokens"))
    outside = await begin(*script, files=files)
    a, c = outside.open("a.py"), outside.open("c.py")
    held = await chat(outside, "go")
    assert set(statuses(held).values()) == {"held"}
    outside.client.change(a, "l2\n", "mine\n")
    outside.client.change(c, "l8\n", "mine\n")
    (outside.root / "d.py").write_text("keep me!\n")

    first = await outside.client.command("thinklsp.apply", {"turnId": held["turnId"]})
    assert statuses({"edits": first}) == {"a.py": "conflict", "c.py": "applied", "d.py": "conflict"}
    assert outside.client.text(a) == TEN.replace("l2\n", "mine\n")
    assert outside.client.text(c) == TEN.replace("l2\n", "TWO\n").replace("l8\n", "mine\n")
    assert (outside.root / "d.py").read_text() == "keep me!\n"

    second = await outside.client.command("thinklsp.apply", {"turnId": held["turnId"]})
    assert second["applied"] == "all"
    assert outside.client.text(a) == TEN.replace("l2\n", "TWO\n")
    assert not (outside.root / "d.py").exists()


async def test_edit_of_document_closed_while_applying_is_resolved(begin: Begin) -> None:
    outside = await begin(answer(edit_file("untitled:one", "x", "y")), say("done"))
    client = outside.client
    uri = client.open("untitled:one", "x\n")
    apply = client.editor.apply_edit

    def and_close(params: Any) -> Any:
        reply = apply(params)
        client.close_document(uri)
        return reply

    client.editor.handlers["workspace/applyEdit"] = and_close
    result = await chat(outside, "go")
    assert result["edits"]["applied"] == "all"


async def test_the_editor_is_told_when_its_answer_is_no_longer_awaited(begin: Begin) -> None:
    outside = await begin(answer(tool("ask_user", question="Which?", options=["a", "b"])), say("never"))
    outside.client.editor.handlers["window/showMessageRequest"] = never_answer
    result = await stop_waiting(outside, start_chat(outside, "go", token="asking"), "asking")
    # The answer that asks was paid for.
    today = (await outside.client.command("thinklsp.usage"))["today"]
    assert 0 < result["usage"]["costUsd"] == today["costUsd"]
    [question] = outside.client.calls("window/showMessageRequest")
    [withdrawn] = outside.client.calls("$/cancelRequest")
    assert withdrawn.params == {"id": question.message["id"]}


async def test_a_turn_sees_the_documents_as_they_were_when_it_began(begin: Begin) -> None:
    hold = Hold()
    outside, _, uri = await begin_file(begin, "x = 1\n", answer(Thinking(), hold, read_file("a.py")), say("done"))
    turn = await reach(hold, start_chat(outside, "read", token="read"))
    outside.client.change(uri, "x = 1", "x = 2")
    await outside.client.code_actions(uri, "x")
    await release(hold, outside, turn)
    [result] = outside.provider.requests[-1].tool_results()
    assert "x = 1" in json.dumps(result)
    assert "x = 2" not in json.dumps(result)


async def test_an_edit_that_the_editor_drops_but_reports_as_applied(begin: Begin) -> None:
    outside, client, uri = await begin_file(begin, "x = 1\n", answer(edit_file("a.py", "x = 1", "x = 2")), say("done"))
    client.editor.handlers["workspace/applyEdit"] = lambda params: {"applied": True}
    result = await chat(outside, "go")
    assert statuses(result) == {"a.py": "refused"}
    assert "Nothing was changed; a.py is waiting." in result["notices"]
    assert client.text(uri) == "x = 1\n"
    del client.editor.handlers["workspace/applyEdit"]
    [action] = named(await client.code_actions(uri, "x"), "apply")
    await client.run_action(action)
    assert client.text(uri) == "x = 2\n"
    assert named(await client.code_actions(uri, "x"), "apply") == []


async def test_a_cancel_while_the_edit_is_looked_for_ends_the_looking(begin: Begin) -> None:
    script = (answer(edit_file("a.py", "x = 1", "x = 2"), edit_file("b.py", "l1\n", "l1\nNEW\n")), say("done"))
    outside, client, uri = await begin_file(begin, "x = 1\n", *script, files={"b.py": TEN})
    client.editor.handlers["workspace/applyEdit"] = lambda params: {"applied": True}
    turn = start_chat(outside, "go", token="late")
    await client.wait_for(lambda: client.calls("workspace/applyEdit"))
    # The edit of the open document does not show, so the server looks for it a while: in this while comes the cancel.
    await client.code_actions(uri, "x")
    client.stop("late")
    result = await outside.result(turn)
    assert set(statuses(result).values()) == {"refused"}
    assert len(client.edits()) == 1
    del client.editor.handlers["workspace/applyEdit"]
    assert (await client.command("thinklsp.apply"))["applied"] == "all"
    assert client.text(uri) == "x = 2\n"


async def test_failed_turn_ends_its_partial_results(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Text("half"), hold), files={"a.py": "x = 1\n"})
    client = outside.client
    turn = await reach(hold, start_chat(outside, "go", partialResultToken="text", token="work"))
    client.cancel(turn)
    assert await outcome(turn) == -32800
    last = client.progress("text")[-1]
    assert (last["kind"], last["result"]["stopReason"]) == ("finished", "cancelled")


async def test_one_token_serves_one_command(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Text("half"), hold, Text("done")), files={"a.py": "x = 1\n"})
    first = start_chat(outside, "one", token="same")
    second = start_chat(outside, "two", token="same")
    assert await outcome(second) == -32602
    await hold.reached.wait()
    assert (await release(hold, outside, first))["stopReason"] == "end_turn"
    # What the checker saw is this test's own misuse of a token.
    outside.client.checker.violations.clear()


Json = Any
PROGRESS: Json = {"workspace": {"applyEdit": True, "workspaceFolders": True}, "window": {"workDoneProgress": True}}


class VimClient(RawClient):
    """Takes every message with the id of its own pending request for the answer, as Vim before 9.0.1927 does."""

    def _take(self, body: bytes) -> None:
        message = json.loads(body)
        future = self._futures.get(message.get("id"))
        if "method" in message and future is not None and not future.done():
            self.checker.blame(f"{message['method']} has the id of a pending request: {message['id']}")
        super()._take(body)


async def test_server_request_ids_never_match_pending_client_ids(begin: Begin) -> None:

    async def connect(root: Path, variables: Any) -> RawClient:
        return await VimClient.start([sys.executable, "-m", "thinklsp"], cwd=root, env=variables)

    outside = await begin(say("One."), say("Two."), connect=connect, announce=PROGRESS)
    for number in range(2):
        started = await start_chat(outside, f"Go on, {number}.")
        token = f"thinklsp-{started['turnId']}"
        await outside.client.wait_for(lambda token=token: "end" in outside.client.progress_kinds(token))
    ids = [one.message["id"] for one in outside.client.received if {"id", "method"} <= one.message.keys()]
    assert ids
    assert outside.told() == ["One.", "Two."]
    assert all(type(number) is int and number >= 1_000_000 for number in ids)
