"""Moments in which things meet: cancels before the beginning, two turns on one file, typing after a turn was held."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.e2e.conftest import Begin
from tests.support.outside import named, said, statuses
from tests.support.raw_client import Request, ResponseError
from tests.support.signing_script import Hold, Text, Thinking, answer, tool

TEN = "".join(f"l{number}\n" for number in range(1, 11))


async def test_a_cancel_that_comes_before_the_turn_has_begun(begin: Begin) -> None:
    outside = await begin(answer(Text("never")), answer(Text("again")), files={"a.py": "x = 1\n"})
    client = outside.client
    uri = outside.open("a.py")
    started = client.command("thinklsp.chat", {"prompt": "hello"})
    stopped = client.command("thinklsp.cancel")
    turn = await started
    assert await stopped in ({"cancelled": [turn["turnId"]]}, {"cancelled": []})

    async def free() -> bool:
        return not named(await client.code_actions(uri, "x"), "stop")

    async with asyncio.timeout(5):
        while not await free():
            pass
    result = await outside.turn("thinklsp.chat", {"prompt": "again", "sessionId": turn["sessionId"]})
    assert result["stopReason"] == "end_turn"


async def test_cancel_in_the_progress_while_the_engine_is_loading(begin: Begin) -> None:
    outside = await begin(answer(Text("never")), files={"a.py": "x = 1\n"})
    turn = outside.client.command("thinklsp.chat", {"prompt": "hello"}, token="early")
    await outside.client.wait_for(lambda: outside.client.progress("early"))
    outside.client.notify("window/workDoneProgress/cancel", {"token": "early"})
    assert (await outside.result(turn))["stopReason"] == "cancelled"
    assert outside.provider.requests == []


async def test_requests_that_are_cancelled_at_once_leave_nothing_behind(begin: Begin) -> None:
    outside = await begin(*[answer(Text("hi"))] * 60, files={"a.py": "x = 1\n"})
    client = outside.client
    uri = outside.open("a.py")
    session = (await outside.turn("thinklsp.chat", {"prompt": "hello"}))["sessionId"]
    for number in range(30):
        turn = client.command("thinklsp.chat", {"prompt": "hello", "sessionId": session}, token=f"quick-{number}")
        if number % 2:
            await client.wait_for(lambda token=f"quick-{number}": client.progress(token))
        client.cancel(turn)
        # The answer may be quicker than the cancel.
        assert await outcome(turn) in ("end_turn", -32800)
    assert named(await client.code_actions(uri, "x"), "stop") == []
    assert (await outside.turn("thinklsp.chat", {"prompt": "on", "sessionId": session}))["stopReason"] == "end_turn"


async def outcome(turn: Request) -> str | int:
    try:
        return str((await turn)["stopReason"])
    except ResponseError as error:
        return error.code


async def test_a_choice_for_a_session_in_mid_turn_counts_from_the_next(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(
        answer(Text("first")),
        answer(Thinking(), tool("read_file", path="a.py")),
        answer(Thinking(), hold, Text("done")),
        answer(Text("third")),
        files={"a.py": "x = 1\n"},
    )
    session = (await outside.turn("thinklsp.chat", {"prompt": "one"}))["sessionId"]
    turn = outside.client.command("thinklsp.chat", {"prompt": "two", "sessionId": session}, token="two")
    await hold.reached.wait()
    assert (await outside.client.command("thinklsp.effort", {"value": "low", "sessionId": session}))["value"] == "low"
    hold.release()
    assert (await outside.result(turn))["text"] == "done"
    await outside.turn("thinklsp.chat", {"prompt": "three", "sessionId": session})
    efforts = [request.body.get("output_config") for request in outside.provider.requests]
    assert efforts == [None, None, None, {"effort": "low"}]


async def test_two_turns_on_a_file_that_is_not_open(begin: Begin) -> None:
    def script(body: Any) -> Any:
        text = said(body)
        if "tool_result" in text:
            return answer(Text("done"))
        if "AAA" in text:
            return answer(tool("edit_file", path="b.py", old_text="l1\n", new_text="n1\nn2\nl1\n"))
        return answer(tool("edit_file", path="b.py", old_text="l9\n", new_text="NINE\n"))

    outside = await begin(script, script, script, script, files={"b.py": TEN})
    turns = [outside.client.command("thinklsp.chat", {"prompt": prompt}, token=prompt) for prompt in ("AAA", "BBB")]
    for turn in turns:
        assert statuses(await outside.result(turn)) == {"b.py": "applied"}
    expected = TEN.replace("l1\n", "n1\nn2\nl1\n", 1).replace("l9\n", "NINE\n")
    assert outside.client.text(outside.uri("b.py")) == expected


async def test_what_a_closed_file_holds_is_looked_up_again(begin: Begin) -> None:
    """Opened, changed, saved and closed between two turns: the second edit lands in the text that is there now."""

    def edit(old: str, new: str) -> Any:
        return answer(tool("edit_file", path="b.py", old_text=old, new_text=new))

    done = answer(Text("done"))
    outside = await begin(edit("l3\n", "three\n"), done, edit("l5\n", "five\n"), done, files={"b.py": TEN})
    await outside.turn("thinklsp.chat", {"prompt": "one"})
    (outside.root / "b.py").write_text("first\nsecond\n" + TEN)
    await outside.turn("thinklsp.chat", {"prompt": "two"})
    assert outside.client.text(outside.uri("b.py")) == "first\nsecond\n" + TEN.replace("l5\n", "five\n")


async def test_a_held_edit_is_merged_and_its_conflict_is_told_before_it_wins(begin: Begin) -> None:
    def turn() -> list[Any]:
        edits = [
            tool("edit_file", path="a.py", old_text="l2\n", new_text="TWO\n"),
            tool("edit_file", path="c.py", old_text="l2\n", new_text="TWO\n"),
            tool("delete_file", path="d.py"),
        ]
        return [answer(*edits), answer(Text("cut"), stop_reason="max_tokens")]

    outside = await begin(*turn(), files={"a.py": TEN, "c.py": TEN, "d.py": "keep?\n"})
    a, c = outside.open("a.py"), outside.open("c.py")
    held = await outside.turn("thinklsp.chat", {"prompt": "go"})
    assert set(statuses(held).values()) == {"held"}
    outside.client.change(a, "l2\n", "mine\n")
    outside.client.change(c, "l8\n", "mine\n")
    (outside.root / "d.py").write_text("keep me!\n")

    first = await outside.client.command("thinklsp.apply", {"turnId": held["turnId"]})
    assert {f["uri"].rpartition("/")[2]: f["status"] for f in first["files"]} == {
        "a.py": "conflict",
        "c.py": "applied",
        "d.py": "conflict",
    }
    assert outside.client.text(a) == TEN.replace("l2\n", "mine\n")
    assert outside.client.text(c) == TEN.replace("l2\n", "TWO\n").replace("l8\n", "mine\n")
    assert (outside.root / "d.py").read_text() == "keep me!\n"

    second = await outside.client.command("thinklsp.apply", {"turnId": held["turnId"]})
    assert second["applied"] == "all"
    assert outside.client.text(a) == TEN.replace("l2\n", "TWO\n")
    assert not (outside.root / "d.py").exists()


async def test_an_edit_of_a_document_that_is_closed_while_it_is_applied(begin: Begin) -> None:
    outside = await begin(
        answer(tool("edit_file", path="untitled:one", old_text="x", new_text="y")), answer(Text("done"))
    )
    client = outside.client
    uri = client.open("untitled:one", "x\n")
    apply = client.editor.apply_edit

    def and_close(params: Any) -> Any:
        reply = apply(params)
        client.close_document(uri)
        return reply

    client.editor.handlers["workspace/applyEdit"] = and_close
    result = await outside.turn("thinklsp.chat", {"prompt": "go"})
    assert result["edits"]["applied"] == "all"


async def test_the_editor_is_told_when_its_answer_is_no_longer_awaited(begin: Begin) -> None:
    outside = await begin(answer(tool("ask_user", question="Which?", options=["a", "b"])), answer(Text("never")))
    asked = asyncio.Event()

    async def never(params: Any) -> Any:
        asked.set()
        await asyncio.Event().wait()

    outside.client.editor.handlers["window/showMessageRequest"] = never
    turn = outside.client.command("thinklsp.chat", {"prompt": "go"}, token="asking")
    await asked.wait()
    outside.client.notify("window/workDoneProgress/cancel", {"token": "asking"})
    result = await outside.result(turn)
    assert result["stopReason"] == "cancelled"
    # The answer that asks was paid for.
    today = (await outside.client.command("thinklsp.usage"))["today"]
    assert 0 < result["usage"]["costUsd"] == today["costUsd"]
    [question] = outside.client.calls("window/showMessageRequest")
    [withdrawn] = outside.client.calls("$/cancelRequest")
    assert withdrawn.params == {"id": question.message["id"]}


async def test_shutdown_ends_turns_that_nobody_waits_for(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Text("half"), hold, Text(" done")), files={"a.py": "x = 1\n"})
    await outside.client.command("thinklsp.chat", {"prompt": "go"})
    await hold.reached.wait()
    await outside.client.request("shutdown")
    seen = outside.provider.requests[-1]
    await outside.provider.wait_for(lambda: seen.closed_at, within=3, what="the connection closed")
    hold.release()
    assert outside.client.edits() == []


async def test_prompts_of_stopped_turns_are_told_with_the_next_prompt_and_stay(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(
        answer(Text("half"), hold),
        answer(Thinking(), tool("read_file", path="a.py")),
        answer(Thinking(), Text("half"), hold),
        answer(Text("done")),
        files={"a.py": "x = 1\n"},
    )
    first = outside.client.command("thinklsp.chat", {"prompt": "delete all tests"}, token="one")
    await hold.reached.wait()
    outside.client.notify("window/workDoneProgress/cancel", {"token": "one"})
    session = (await outside.result(first))["sessionId"]
    hold.reached.clear()
    second = outside.client.command("thinklsp.chat", {"prompt": "what is x?", "sessionId": session}, token="two")
    await hold.reached.wait()
    outside.client.notify("window/workDoneProgress/cancel", {"token": "two"})
    assert (await outside.result(second))["stopReason"] == "cancelled"
    await outside.turn("thinklsp.chat", {"prompt": "and now?", "sessionId": session})
    bodies = [json.dumps(request.body["messages"]) for request in outside.provider.requests]
    assert ["delete all tests" in body for body in bodies] == [True, True, True, True]
    assert ["An earlier prompt of the user has no answer" in body for body in bodies] == [False, True, True, True]
    assert "stopped before it had finished" in bodies[3]
    assert "what is x?" in bodies[3]


async def test_a_turn_sees_the_documents_as_they_were_when_it_began(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(
        answer(Thinking(), hold, tool("read_file", path="a.py")), answer(Text("done")), files={"a.py": "x = 1\n"}
    )
    uri = outside.open("a.py")
    turn = outside.client.command("thinklsp.chat", {"prompt": "read"}, token="read")
    await hold.reached.wait()
    outside.client.change(uri, "x = 1", "x = 2")
    await outside.client.code_actions(uri, "x")
    hold.release()
    await outside.result(turn)
    [result] = outside.provider.requests[-1].tool_results()
    assert "x = 1" in json.dumps(result)
    assert "x = 2" not in json.dumps(result)


async def test_an_edit_that_the_editor_drops_but_reports_as_applied(begin: Begin) -> None:
    outside = await begin(
        answer(tool("edit_file", path="a.py", old_text="x = 1", new_text="x = 2")),
        answer(Text("done")),
        files={"a.py": "x = 1\n"},
    )
    client = outside.client
    uri = outside.open("a.py")
    client.editor.handlers["workspace/applyEdit"] = lambda params: {"applied": True}
    result = await outside.turn("thinklsp.chat", {"prompt": "go"})
    assert statuses(result) == {"a.py": "refused"}
    assert "Nothing was changed; a.py is waiting." in result["notices"]
    assert client.text(uri) == "x = 1\n"
    del client.editor.handlers["workspace/applyEdit"]
    [action] = named(await client.code_actions(uri, "x"), "apply")
    await client.run_action(action)
    assert client.text(uri) == "x = 2\n"
    assert named(await client.code_actions(uri, "x"), "apply") == []


async def test_a_conflict_that_was_not_told_is_told_before_the_proposal_wins(begin: Begin) -> None:
    edits = [
        tool("edit_file", path="a.py", old_text="l3\n", new_text="THREE\n"),
        tool("edit_file", path="a.py", old_text="l8\n", new_text="EIGHT\n"),
    ]
    outside = await begin(answer(*edits), answer(Text("cut"), stop_reason="max_tokens"), files={"a.py": TEN})
    uri = outside.open("a.py")
    turn = {"turnId": (await outside.turn("thinklsp.chat", {"prompt": "go"}))["turnId"]}
    outside.client.change(uri, "l3\n", "mine 3\n")
    assert (await outside.client.command("thinklsp.apply", turn))["files"][0]["status"] == "conflict"
    outside.client.change(uri, "l8\n", "mine 8\n")
    again = await outside.client.command("thinklsp.apply", turn)
    assert again["files"][0]["status"] == "conflict", "line 8 was typed after the user had been told of line 3"
    assert outside.client.text(uri) == TEN.replace("l3\n", "mine 3\n").replace("l8\n", "mine 8\n")
    outside.client.change(uri, "l10\n", "mine 10\n")
    assert (await outside.client.command("thinklsp.apply", turn))["applied"] == "all"
    expected = TEN.replace("l3\n", "THREE\n").replace("l8\n", "EIGHT\n").replace("l10\n", "mine 10\n")
    assert outside.client.text(uri) == expected


async def test_a_cancel_while_the_edit_is_looked_for_ends_the_looking(begin: Begin) -> None:
    outside = await begin(
        answer(
            tool("edit_file", path="a.py", old_text="x = 1", new_text="x = 2"),
            tool("edit_file", path="b.py", old_text="l1\n", new_text="l1\nNEW\n"),
        ),
        answer(Text("done")),
        files={"a.py": "x = 1\n", "b.py": TEN},
    )
    client = outside.client
    uri = outside.open("a.py")
    client.editor.handlers["workspace/applyEdit"] = lambda params: {"applied": True}
    turn = client.command("thinklsp.chat", {"prompt": "go"}, token="late")
    await client.wait_for(lambda: client.calls("workspace/applyEdit"))
    # The edit of the open document does not show, so the server looks for it a while: in this while comes the cancel.
    await client.code_actions(uri, "x")
    client.notify("window/workDoneProgress/cancel", {"token": "late"})
    result = await outside.result(turn)
    assert set(statuses(result).values()) == {"refused"}
    assert len(client.edits()) == 1
    del client.editor.handlers["workspace/applyEdit"]
    assert (await client.command("thinklsp.apply"))["applied"] == "all"
    assert client.text(uri) == "x = 2\n"


async def test_a_failed_or_cancelled_turn_ends_on_the_partial_token_too(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Text("half"), hold), files={"a.py": "x = 1\n"})
    client = outside.client
    turn = client.command("thinklsp.chat", {"prompt": "go", "partialResultToken": "text"}, token="work")
    await hold.reached.wait()
    client.cancel(turn)
    assert await outcome(turn) == -32800
    last = client.progress("text")[-1]
    assert (last["kind"], last["result"]["stopReason"]) == ("finished", "cancelled")


async def test_one_token_serves_one_command(begin: Begin) -> None:
    hold = Hold()
    outside = await begin(answer(Text("half"), hold, Text("done")), files={"a.py": "x = 1\n"})
    first = outside.client.command("thinklsp.chat", {"prompt": "one"}, token="same")
    second = outside.client.command("thinklsp.chat", {"prompt": "two"}, token="same")
    assert await outcome(second) == -32602
    await hold.reached.wait()
    hold.release()
    assert (await outside.result(first))["stopReason"] == "end_turn"
    # What the checker saw is this test's own misuse of a token.
    outside.client.checker.violations.clear()
