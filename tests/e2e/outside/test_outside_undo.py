"""A whole turn is taken back: all its files, nothing that was typed since, and what cannot be is named."""

from __future__ import annotations

import asyncio
import random
import time
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.ledger_rows import Row, digest, rows
from tests.support.outside import Outside, named, said
from tests.support.raw_client import ResponseError
from tests.support.raw_editor import capabilities
from tests.support.signing_script import Hold, Text, Thinking, answer, tool
from tests.support.undo_cases import UndoCase, play

TEN = "".join(f"l{number}\n" for number in range(1, 11))
DONE = answer(Text("Done."))
TURNS = 6
FILES = 10


def status_by_name(result: Any) -> dict[str, str]:
    return {file["uri"].rpartition("/")[2]: file["status"] for file in result["files"]}


async def wrote(outside: Outside, *calls: Any, session: str | None = None) -> Any:
    outside.provider.say(answer(*calls), DONE)
    given = {"prompt": "Change it."} | ({} if session is None else {"sessionId": session})
    result = await outside.turn("thinklsp.chat", given)
    assert result["edits"]["applied"] == "all", result
    return result


async def refused(outside: Outside, argument: Any = None) -> str:
    with pytest.raises(ResponseError) as error:
        await outside.client.command("thinklsp.undo", argument)
    assert error.value.code == -32803
    return error.value.message


async def test_random_turns_are_undone_under_what_was_typed_since(begin: Begin, tmp_path: Path) -> None:
    outside = await begin()
    chance = random.Random(20_261_121)
    outcomes = []
    for number in range(TURNS):
        cases = [UndoCase(f"t{number}-{file}.py", chance) for file in range(FILES)]
        outcomes += await play(outside, cases, tmp_path)
    assert len(outcomes) == TURNS * FILES
    assert 0.1 < outcomes.count(False) / len(outcomes) < 0.6


KINDS = {
    "change": lambda name: tool("edit_file", path=name, old_text="l2\n", new_text="TWO\n"),
    "create": lambda name: tool("write_file", path=name, content=TEN),
    "rename": lambda name: tool("rename_file", path=name, new_path=f"deep/{name}"),
    "delete": lambda name: tool("delete_file", path=name),
}


async def test_every_kind_of_edit_open_or_not_typed_in_or_not(begin: Begin) -> None:
    outside = await begin()
    for kind in KINDS:
        for is_open in (False, True):
            for typed in (False, True):
                await one_kind(outside, kind, is_open=is_open, typed=typed)


async def one_kind(outside: Outside, kind: str, *, is_open: bool, typed: bool) -> None:
    name = f"{kind}-{is_open:d}-{typed:d}.py"
    client, old, new = outside.client, outside.uri(name), outside.uri(f"deep/{name}")
    if kind != "create":
        (outside.root / name).write_text(TEN)
        if is_open:
            outside.open(name)
    turn = await wrote(outside, KINDS[kind](name))
    now = new if kind == "rename" else old
    if is_open and kind in ("rename", "delete"):
        client.notify("textDocument/didClose", {"textDocument": {"uri": old}})
    if is_open and kind in ("rename", "create"):
        client.open(now)
    if typed and is_open and kind != "delete":
        client.change(now, "l9\n", "mine\n")
    elif typed:
        type_on_disk(Path(now.removeprefix("file://")))
    result = await client.command("thinklsp.undo", {"turnId": turn["turnId"]})
    conflict = typed and kind in ("create", "delete")
    assert status_by_name(result) == {name: "conflict" if conflict else "applied"}
    assert result["applied"] == ("none" if conflict else "all")
    assert conflict == bool(result["files"][0]["reason"])
    mine = TEN.replace("l9\n", "mine\n") if typed else TEN
    if conflict:
        assert client.text(now) == ("mine\n" if kind == "delete" else mine), "what the user has stays"
    else:
        assert (client.text(old), client.text(new)) == (None if kind == "create" else mine, None)
        assert client.edits()[-1]["label"] == "thinklsp: undo: Change it."
    if is_open and not conflict and kind in ("create", "rename"):
        client.notify("textDocument/didClose", {"textDocument": {"uri": now}})
    first, *undos = [row for row in rows(outside.home) if row.name == name]
    assert (first.kind, first.outcome, first.undone) == (kind, "applied", not conflict)
    assert [(row.outcome, row.undone) for row in undos] == ([] if conflict else [("applied", True)])


def type_on_disk(path: Path) -> None:
    path.write_text(path.read_text().replace("l9\n", "mine\n") if path.exists() else "mine\n")


async def test_all_files_of_a_turn_by_the_action_and_the_session_learns_of_it(begin: Begin) -> None:
    outside = await begin(files={"a.py": TEN, "b.py": TEN, "c.py": TEN})
    client = outside.client
    uri = outside.open("a.py")
    assert named(await client.code_actions(uri, "l1"), "undo") == []
    calls = [
        *(tool("edit_file", path=name, old_text="l2\n", new_text="TWO\n") for name in ("a.py", "b.py")),
        tool("delete_file", path="c.py"),
        tool("write_file", path="new/d.py", content="new\n"),
    ]
    turn = await wrote(outside, *calls)
    two = TEN.replace("l2\n", "TWO\n")
    assert rows(outside.home) == [
        *(Row(name, "change", digest(TEN), digest(two), "applied", undone=False) for name in ("a.py", "b.py")),
        Row("c.py", "delete", digest(TEN), None, "applied", undone=False),
        Row("d.py", "create", None, digest("new\n"), "applied", undone=False),
    ]
    took = []
    for _ in range(20):
        start = time.monotonic()
        [action] = named(await client.code_actions(uri, "l1"), "undo")
        took.append(time.monotonic() - start)
    assert sorted(took)[10] < 0.010
    assert action["title"] == "thinklsp: undo: Change it."
    assert (action["kind"], action["command"]["command"]) == ("refactor.rewrite.thinklsp.undo", "thinklsp.undo")
    assert action["command"]["arguments"] == [{"turnId": turn["turnId"]}]
    assert "edit" not in action
    assert (await client.run_action(action))["applied"] == "all"
    assert [client.text(outside.uri(name)) for name in ("a.py", "b.py", "c.py", "new/d.py")] == [TEN, TEN, TEN, None]
    assert named(await client.code_actions(uri, "l1"), "undo") == []
    assert "nothing to undo of this turn" in await refused(outside, {"turnId": turn["turnId"]})
    outside.provider.say(answer(Text("I see.")), answer(Text("Yes.")))
    for _ in range(2):
        await outside.turn("thinklsp.chat", {"prompt": "Go on.", "sessionId": turn["sessionId"]})
    told = [said(request.body).count("Edits of an earlier turn") for request in outside.provider.requests]
    assert told == [0, 0, 1, 1], "said once, and kept where it was said"


EDIT_A = answer(Thinking(), tool("edit_file", path="a.py", old_text="l1\n", new_text="one\n"))
# How a turn ends -> what it needs: that its edit is not in the file.
ENDS: dict[str, dict[str, Any]] = {
    "at its limit of steps": {"options": {"maxSteps": 1}},
    "cut": {"second": answer(Text("Half."), stop_reason="max_tokens")},
    "refused": {},
    "without an editor that takes edits": {"announce": capabilities(workspace__applyEdit=False)},
    "cancelled": {"second": answer(Text("Half."), Hold())},
    "applied": {},
}


@pytest.mark.parametrize("end", ENDS)
async def test_the_model_is_told_that_its_edit_is_not_in_the_file(begin: Begin, end: str) -> None:
    given = dict(ENDS[end])
    second = given.pop("second", answer(Text("Done.")))
    script = [EDIT_A] if "options" in given else [EDIT_A, second]
    outside = await begin(*script, answer(Text("I see.")), files={"a.py": TEN}, **given)
    client = outside.client
    if end == "refused":
        client.editor.handlers["workspace/applyEdit"] = lambda _: {"applied": False}
    turn = client.command("thinklsp.chat", {"prompt": "Change it."}, token="t")
    if end == "cancelled":
        await client.wait_for(lambda: len(outside.provider.requests) == 2, what="the second call")
        client.notify("window/workDoneProgress/cancel", {"token": "t"})
    session = (await outside.result(turn))["sessionId"]
    await outside.turn("thinklsp.chat", {"prompt": "Go on.", "sessionId": session})
    assert ("Edits of an earlier turn" in said(outside.provider.requests[-1].body)) is (end != "applied")


async def test_turns_are_undone_from_the_newest_or_by_name(begin: Begin) -> None:
    outside = await begin(files={"a.py": TEN})
    uri = outside.open("a.py")
    turns = [
        await wrote(outside, tool("edit_file", path="a.py", old_text=f"l{n}\n", new_text=f"L{n}\n")) for n in (2, 5, 8)
    ]
    undo = outside.client.command
    assert (await undo("thinklsp.undo", {"turnId": turns[1]["turnId"]}))["applied"] == "all"
    assert outside.client.text(uri) == TEN.replace("l2", "L2").replace("l8", "L8")
    assert (await undo("thinklsp.undo"))["applied"] == "all"
    [action] = named(await outside.client.code_actions(uri, "l1"), "undo")
    assert action["command"]["arguments"] == [{"turnId": turns[0]["turnId"]}]
    assert (await undo("thinklsp.undo"))["applied"] == "all"
    assert outside.client.text(uri) == TEN
    assert "nothing to undo" in await refused(outside)
    assert "nothing to undo of this turn" in await refused(outside, {"turnId": "never"})


async def test_a_conflict_is_named_and_can_be_undone_when_it_is_gone(begin: Begin) -> None:
    outside = await begin(files={"a.py": TEN, "b.py": TEN})
    a, b = outside.open("a.py"), outside.open("b.py")
    await wrote(outside, *(tool("edit_file", path=n, old_text="l2\n", new_text="TWO\n") for n in ("a.py", "b.py")))
    outside.client.change(a, "TWO\n", "mine\n")
    result = await outside.client.command("thinklsp.undo")
    assert (result["applied"], status_by_name(result)) == ("some", {"a.py": "conflict", "b.py": "applied"})
    assert "line 2" in result["files"][0]["reason"]
    assert outside.client.text(a) == TEN.replace("l2\n", "mine\n")
    assert named(await outside.client.code_actions(a, "l1"), "apply") == []
    assert len(named(await outside.client.code_actions(a, "l1"), "undo")) == 1
    assert named(await outside.client.code_actions(b, "l1"), "undo") == []
    outside.client.change(a, "mine\n", "TWO\n")
    assert status_by_name(await outside.client.command("thinklsp.undo")) == {"a.py": "applied"}
    assert (outside.client.text(a), outside.client.text(b)) == (TEN, TEN)


async def test_another_server_undoes_what_the_first_one_wrote(begin: Begin) -> None:
    outside = await begin(files={"a.py": TEN, "b.py": TEN})
    outside.open("a.py")
    new = tool("write_file", path="new.py", content="new\n")
    await wrote(outside, *(tool("edit_file", path=n, old_text="l2\n", new_text="TWO\n") for n in ("a.py", "b.py")), new)
    text = outside.client.text(outside.uri("a.py"))
    assert await outside.client.close() == 0
    limited = capabilities(workspace__workspaceEdit={"failureHandling": "abort"})
    client = await outside.reopen(announce=limited)
    uri = outside.open("a.py", text)

    async def action() -> Any:
        return named(await client.code_actions(uri, "l1"), "undo")

    async with asyncio.timeout(10):
        while not await action():
            pass
    result = await client.command("thinklsp.undo")
    assert status_by_name(result) == {"a.py": "applied", "b.py": "applied", "new.py": "refused"}
    assert "cannot delete files" in result["files"][2]["reason"]
    assert set(client.edits()[0]["edit"]) == {"changes"}
    assert (client.text(uri), client.text(outside.uri("b.py"))) == (TEN, TEN)
    assert client.text(outside.uri("new.py")) == "new\n"


async def test_an_editor_that_takes_no_edits_undoes_by_the_action(begin: Begin) -> None:
    outside = await begin(files={"a.py": TEN})
    uri = outside.open("a.py")
    await wrote(outside, tool("edit_file", path="a.py", old_text="l2\n", new_text="TWO\n"))
    text = outside.client.text(uri)
    assert await outside.client.close() == 0
    client = await outside.reopen(announce=capabilities(workspace__applyEdit=None))
    outside.open("a.py", text)
    result = await client.command("thinklsp.undo")
    assert status_by_name(result) == {"a.py": "refused"}
    [apply] = named(await client.code_actions(uri, "l1"), "apply: undo")
    client.editor.capabilities = capabilities()
    assert client.editor.apply_edit({"edit": apply["edit"]}) == {"applied": True}
    assert "command" not in apply
    assert client.text(uri) == TEN
    assert "nothing to undo" in await refused(outside)
    assert [row.undone for row in rows(outside.home)] == [True]


async def test_an_edit_that_an_action_carried_can_be_undone(begin: Begin) -> None:
    outside = await begin(files={"a.py": TEN}, announce=capabilities(workspace__applyEdit=None))
    client = outside.client
    uri = outside.open("a.py")
    outside.provider.say(answer(tool("edit_file", path="a.py", old_text="l2\n", new_text="TWO\n")), DONE)
    await outside.turn("thinklsp.chat", {"prompt": "Change it."})
    [apply] = named(await client.code_actions(uri, "l1"), "apply")
    client.editor.capabilities = capabilities()
    client.editor.apply_edit({"edit": apply["edit"]})
    # The server finds it when it is asked for actions next, by whichever of several questions, and offers its undo from
    # then on; the outcome is on disk a little later.
    async with asyncio.timeout(30):
        await asyncio.gather(*(client.code_actions(uri, "l1") for _ in range(5)))
        while not named(await client.code_actions(uri, "l1"), "undo"):
            pass
        while [row.outcome for row in rows(outside.home)] == [None]:
            await client.code_actions(uri, "l1")
    assert len(named(await client.code_actions(uri, "l1"), "undo")) == 1
    assert [(row.outcome, row.undone) for row in rows(outside.home)] == [("applied", False)]


async def test_what_a_deleted_session_wrote_is_offered_to_nobody(begin: Begin) -> None:
    outside = await begin(files={"a.py": TEN, "b.py": TEN})
    a, b = outside.open("a.py"), outside.open("b.py")
    written = await wrote(outside, tool("edit_file", path="a.py", old_text="l2\n", new_text="TWO\n"))
    held = [answer(tool("edit_file", path="b.py", old_text="l2\n", new_text="TWO\n"))]
    outside.provider.say(*held, answer(Text("cut"), stop_reason="max_tokens"))
    waiting = await outside.turn("thinklsp.chat", {"prompt": "Change the other."})
    assert len(named(await outside.client.code_actions(a, "l1"), "undo")) == 1
    assert len(named(await outside.client.code_actions(b, "l1"), "apply")) == 1
    for turn in (written, waiting):
        await outside.client.command("thinklsp.sessions", {"op": "delete", "sessionId": turn["sessionId"]})
    assert named(await outside.client.code_actions(a, "l1"), "undo") == []
    assert named(await outside.client.code_actions(b, "l1"), "apply") == []
    assert "nothing to undo" in await refused(outside)


async def test_what_another_server_has_undone_is_offered_until_it_is_asked_for(begin: Begin) -> None:
    outside = await begin(files={"a.py": TEN})
    uri = outside.open("a.py")
    turn = await wrote(outside, tool("edit_file", path="a.py", old_text="l2\n", new_text="TWO\n"))
    other = await outside.beside()
    other.open("a.py", outside.client.text(uri))
    assert (await other.client.command("thinklsp.undo"))["applied"] == "all"
    [action] = named(await outside.client.code_actions(uri, "l1"), "undo")
    assert "nothing to undo of this turn" in await refused(outside, {"turnId": turn["turnId"]})
    assert action["command"]["arguments"] == [{"turnId": turn["turnId"]}]
    assert named(await outside.client.code_actions(uri, "l1"), "undo") == []
