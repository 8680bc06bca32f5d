"""A whole turn is taken back: all its files, nothing that was typed since, and what cannot be is named."""

from __future__ import annotations

import asyncio
import time
from itertools import product
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types

from tests.e2e import acting
from tests.e2e.acting import begin_file, chat, edit_file, read_before, say, start_chat, write_file
from tests.e2e.conformance.test_partial import accept_files
from tests.e2e.conftest import Begin
from tests.support.client.editor import capabilities
from tests.support.client.lsp import named
from tests.support.outside import Outside, said, statuses
from tests.support.signing_server import Hold, Text, Thinking, answer, tool
from tests.support.stored_sessions import Row, digest, rows
from tests.support.watching import HANG_SECONDS

TEN = "".join(f"l{number}\n" for number in range(1, 11))
DONE = say("Done.")


async def wrote(outside: Outside, *calls: Any, session: str | None = None) -> Any:
    outside.provider.say(*read_before(*calls), answer(*calls), DONE)
    given = {"prompt": "Change it."} | ({} if session is None else {"sessionId": session})
    result = await outside.turn("thinklsp.chat", given)
    assert result["edits"]["applied"] == "all", result
    return result


async def refused(outside: Outside, argument: Any = None) -> str:
    return await acting.refused(outside.client.command("thinklsp.undo", argument))


KINDS = {
    "change": lambda name: edit_file(name, "l2\n", "TWO\n"),
    "create": lambda name: write_file(name, TEN),
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
        client.close_document(old)
    if is_open and kind in ("rename", "create"):
        client.open(now)
    if typed and is_open and kind != "delete":
        client.change(now, "l9\n", "mine\n")
    elif typed:
        type_on_disk(Path(now.removeprefix("file://")))
    result = await client.command("thinklsp.undo", {"turnId": turn["turnId"]})
    conflict = typed and kind in ("create", "delete")
    assert statuses({"edits": result}) == {name: "conflict" if conflict else "applied"}
    assert result["applied"] == ("none" if conflict else "all")
    assert conflict == bool(result["files"][0]["reason"])
    mine = TEN.replace("l9\n", "mine\n") if typed else TEN
    if conflict:
        assert client.text(now) == ("mine\n" if kind == "delete" else mine), "what the user has stays"
    else:
        assert (client.text(old), client.text(new)) == (None if kind == "create" else mine, None)
        assert client.edits()[-1].label == "thinklsp: undo: Change it."
    if is_open and not conflict and kind in ("create", "rename"):
        client.close_document(now)
    first, *undos = [row for row in rows(outside.home) if row.name == name]
    assert (first.kind, first.outcome, first.undone) == (kind, "applied", not conflict)
    assert [(row.outcome, row.undone) for row in undos] == ([] if conflict else [("applied", True)])


def type_on_disk(path: Path) -> None:
    path.write_text(path.read_text().replace("l9\n", "mine\n") if path.exists() else "mine\n")


async def wrote_four_files(begin: Begin) -> tuple[Outside, str, Any]:
    """Let a turn change, delete and create files. Return the URI of one that is open, and the turn's result as well."""
    files, options = {"b.py": TEN, "c.py": TEN}, {"edits": {"review": "always"}}
    outside, client, uri = await begin_file(begin, TEN, files=files, options=options)
    assert named(await client.code_actions(uri, "l1"), "undo") == []
    calls = [
        *(edit_file(name, "l2\n", "TWO\n") for name in ("a.py", "b.py")),
        tool("delete_file", path="c.py"),
        write_file("new/d.py", "new\n"),
    ]
    return outside, uri, await wrote(outside, *calls)


@pytest.mark.timing
async def test_undo_action_is_offered_at_once(begin: Begin) -> None:
    outside, uri, _ = await wrote_four_files(begin)
    took = []
    for _ in range(20):
        start = time.monotonic()
        [_] = named(await outside.client.code_actions(uri, "l1"), "undo")
        took.append(time.monotonic() - start)
    assert sorted(took)[10] < 0.010


async def test_undo_action_is_the_last_of_the_menu(begin: Begin) -> None:
    """N19: it was the first, so who chose the first entry from habit undid the turn."""
    outside, uri, _ = await wrote_four_files(begin)
    titles = [action.title for action in await outside.client.code_actions(uri, "l1")]
    assert len(titles) > 2
    assert titles[-1].startswith("thinklsp: undo ")


async def test_undo_action_reverts_all_files_and_tells_the_model(begin: Begin) -> None:
    outside, uri, turn = await wrote_four_files(begin)
    client = outside.client
    two = TEN.replace("l2\n", "TWO\n")
    assert rows(outside.home) == [
        *(Row(name, "change", digest(TEN), digest(two), "applied", undone=False) for name in ("a.py", "b.py")),
        Row("c.py", "delete", digest(TEN), None, "applied", undone=False),
        Row("d.py", "create", None, digest("new\n"), "applied", undone=False),
    ]
    [action] = named(await client.code_actions(uri, "l1"), "undo")
    assert action.title == "thinklsp: undo “Change it.”"
    assert (action.kind, action.command.command) == ("refactor.rewrite.thinklsp.undo", "thinklsp.undo")
    assert action.command.arguments == ({"turnId": turn["turnId"]},)
    assert action.edit is None
    assert (await client.run_action(action))["applied"] == "all"
    # T-m5: an undo over several files asks for nothing, whatever the review of edits is.
    notes = client.edits()[-1].edit.change_annotations or {}
    assert not any(note.needs_confirmation for note in notes.values())
    assert client.calls("window/showMessageRequest") == []
    assert [client.text(outside.uri(name)) for name in ("a.py", "b.py", "c.py", "new/d.py")] == [TEN, TEN, TEN, None]
    assert named(await client.code_actions(uri, "l1"), "undo") == []
    assert "Nothing to undo: this turn" in await refused(outside, {"turnId": turn["turnId"]})
    outside.provider.say(say("I see."), say("Yes."))
    for _ in range(2):
        await chat(outside, "Go on.", sessionId=turn["sessionId"])
    told = [said(request.body).count("Edits from an earlier turn") for request in outside.provider.requests]
    assert told == [0, 0, 0, 1, 1], "said once, and kept where it was said"


EDIT_A = answer(Thinking(), edit_file("a.py", "l1\n", "one\n"))
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
    second = given.pop("second", say("Done."))
    script = [EDIT_A] if "options" in given else [EDIT_A, second]
    outside = await begin(*script, say("I see."), files={"a.py": TEN}, **given)
    client = outside.client
    if end == "refused":
        client.editor.handlers["workspace/applyEdit"] = lambda _: types.ApplyWorkspaceEditResult(applied=False)
    turn = start_chat(outside, "Change it.", token="t")
    if end == "cancelled":
        await client.wait_for(lambda: len(outside.provider.requests) == 2, what="the second call")
        client.stop("t")
    session = (await outside.result(turn))["sessionId"]
    await chat(outside, "Go on.", sessionId=session)
    assert ("Edits from an earlier turn" in said(outside.provider.requests[-1].body)) is (end != "applied")


async def test_turns_are_undone_from_the_newest_or_by_name(begin: Begin) -> None:
    outside, _, uri = await begin_file(begin, TEN)
    turns = [await wrote(outside, edit_file("a.py", f"l{n}\n", f"L{n}\n")) for n in (2, 5, 8)]
    undo = outside.client.command
    assert (await undo("thinklsp.undo", {"turnId": turns[1]["turnId"]}))["applied"] == "all"
    assert outside.client.text(uri) == TEN.replace("l2", "L2").replace("l8", "L8")
    assert (await undo("thinklsp.undo"))["applied"] == "all"
    [action] = named(await outside.client.code_actions(uri, "l1"), "undo")
    assert action.command.arguments == ({"turnId": turns[0]["turnId"]},)
    assert (await undo("thinklsp.undo"))["applied"] == "all"
    assert outside.client.text(uri) == TEN
    assert "Nothing to undo" in await refused(outside)
    assert "Nothing to undo: this turn" in await refused(outside, {"turnId": "never"})


async def test_a_conflict_is_named_and_can_be_undone_when_it_is_gone(begin: Begin) -> None:
    outside = await begin(files={"a.py": TEN, "b.py": TEN})
    a, b = outside.open("a.py"), outside.open("b.py")
    await wrote(outside, *(edit_file(n, "l2\n", "TWO\n") for n in ("a.py", "b.py")))
    outside.client.change(a, "TWO\n", "mine\n")
    result = await outside.client.command("thinklsp.undo")
    assert (result["applied"], statuses({"edits": result})) == ("some", {"a.py": "conflict", "b.py": "applied"})
    assert "line 2" in result["files"][0]["reason"]
    assert outside.client.text(a) == TEN.replace("l2\n", "mine\n")
    assert named(await outside.client.code_actions(a, "l1"), "apply") == []
    assert len(named(await outside.client.code_actions(a, "l1"), "undo")) == 1
    assert named(await outside.client.code_actions(b, "l1"), "undo") == []
    outside.client.change(a, "mine\n", "TWO\n")
    assert statuses({"edits": await outside.client.command("thinklsp.undo")}) == {"a.py": "applied"}
    assert (outside.client.text(a), outside.client.text(b)) == (TEN, TEN)


async def test_undo_after_the_own_undo_says_so(begin: Begin) -> None:
    """B-1: it answered `applied: all` although nothing changed."""
    outside, client, uri = await begin_file(begin, TEN, files={"b.py": TEN})
    older, newer = [
        await wrote(outside, *(edit_file(name, f"l{line}\n", f"L{line}\n") for name in ("a.py", "b.py")))
        for line in (2, 5)
    ]
    client.change(uri, "L5\n", "l5\n")
    client.change(uri, "l9\n", "mine\n")
    by_hand = outside.root / "b.py"
    by_hand.write_text(by_hand.read_text().replace("L5", "l5"))
    count = len(client.edits())
    assert "Nothing was left to undo" in await refused(outside, {"turnId": newer["turnId"]})
    assert len(client.edits()) == count
    # The next undo takes the turn before it.
    assert (await client.command("thinklsp.undo"))["applied"] == "all"
    assert (client.text(uri), by_hand.read_text()) == (TEN.replace("l9\n", "mine\n"), TEN)
    assert "Nothing to undo: this turn" in await refused(outside, {"turnId": older["turnId"]})


async def test_created_file_in_any_state_is_deleted_again(begin: Begin) -> None:
    outside = await begin()
    for left in (b"", b"\n", b"x\r\ny\r\n"):
        await wrote(outside, write_file("new.py", "x\ny"))
        (outside.root / "new.py").write_bytes(left)
        assert (await outside.client.command("thinklsp.undo"))["applied"] == "all"
        assert not (outside.root / "new.py").exists()


BYTES = [b"\xef\xbb\xbfx = 1\n", b"x = 1\r\ny = 2\r\n", b"no line end", b"\n\n", "\tä\n".encode(), b""]


async def test_undo_of_a_deletion_restores_every_byte(begin: Begin) -> None:
    outside = await begin()
    for is_open, (number, data) in product((False, True), enumerate(BYTES)):
        path = outside.root / f"{number}.py"
        path.write_bytes(data)
        if is_open:
            # Editors keep the byte order mark of a file and do not send it.
            outside.open(path.name, data.decode("utf-8-sig"))
        await wrote(outside, tool("delete_file", path=path.name))
        assert not path.exists()
        if is_open:
            outside.client.close_document(outside.uri(path.name))
        assert (await outside.client.command("thinklsp.undo"))["applied"] == "all"
        assert path.read_bytes() == data


async def test_undo_drops_the_pending_rest(begin: Begin) -> None:
    """N7: *Apply* was still offered after an undo."""
    outside, client, uri = await begin_file(begin, TEN, files={"c.py": TEN})
    delete = tool("delete_file", path="c.py")
    outside.provider.say(*read_before(delete), answer(edit_file("a.py", "l2\n", "TWO\n"), delete), DONE)
    accept_files(client, "a.py")
    result = await chat(outside, "Change it.")
    assert statuses(result) == {"a.py": "applied", "c.py": "refused"}
    del client.editor.handlers["workspace/applyEdit"]
    waiting = outside.open("c.py")
    assert len(named(await client.code_actions(waiting, "l1"), "apply")) == 1
    assert (await client.command("thinklsp.undo"))["applied"] == "all"
    assert named(await client.code_actions(waiting, "l1"), "apply") == []
    await acting.refused(client.command("thinklsp.apply", {"turnId": result["turnId"]}), match="No edit is waiting")
    assert (client.text(uri), client.text(outside.uri("c.py"))) == (TEN, TEN)


async def test_another_server_undoes_what_the_first_one_wrote(begin: Begin) -> None:
    outside = await begin(files={"a.py": TEN, "b.py": TEN})
    outside.open("a.py")
    new = write_file("new.py", "new\n")
    await wrote(outside, *(edit_file(n, "l2\n", "TWO\n") for n in ("a.py", "b.py")), new)
    text = outside.client.text(outside.uri("a.py"))
    assert await outside.client.close() == 0
    limited = capabilities(workspace__workspaceEdit={"failureHandling": "abort"})
    client = await outside.reopen(announce=limited)
    uri = outside.open("a.py", text)

    async def action() -> Any:
        return named(await client.code_actions(uri, "l1"), "undo")

    async with asyncio.timeout(HANG_SECONDS):
        while not await action():
            pass
    result = await client.command("thinklsp.undo")
    assert statuses({"edits": result}) == {"a.py": "applied", "b.py": "applied", "new.py": "refused"}
    assert "does not let thinklsp delete files" in result["files"][2]["reason"]
    assert client.edits()[0].edit.document_changes is None
    assert (client.text(uri), client.text(outside.uri("b.py"))) == (TEN, TEN)
    assert client.text(outside.uri("new.py")) == "new\n"


async def test_an_editor_that_takes_no_edits_undoes_by_the_action(begin: Begin) -> None:
    outside, _, uri = await begin_file(begin, TEN)
    await wrote(outside, edit_file("a.py", "l2\n", "TWO\n"))
    text = outside.client.text(uri)
    assert await outside.client.close() == 0
    client = await outside.reopen(announce=capabilities(workspace__applyEdit=None))
    outside.open("a.py", text)
    result = await client.command("thinklsp.undo")
    assert statuses({"edits": result}) == {"a.py": "refused"}
    [apply] = named(await client.code_actions(uri, "l1"), "apply: undo")
    client.editor.capabilities = capabilities()
    assert client.editor.apply_edit(types.ApplyWorkspaceEditParams(apply.edit)).applied
    assert apply.command is None
    assert client.text(uri) == TEN
    assert "Nothing to undo" in await refused(outside)
    assert [row.undone for row in rows(outside.home)] == [True]


async def test_an_edit_that_an_action_carried_can_be_undone(begin: Begin) -> None:
    outside, client, uri = await begin_file(begin, TEN, announce=capabilities(workspace__applyEdit=None))
    outside.provider.say(answer(edit_file("a.py", "l2\n", "TWO\n")), DONE)
    await chat(outside, "Change it.")
    [apply] = named(await client.code_actions(uri, "l1"), "apply")
    client.editor.capabilities = capabilities()
    client.editor.apply_edit(types.ApplyWorkspaceEditParams(apply.edit))
    # The server finds it when it is asked for actions next, by whichever of several questions, and offers its undo from
    # then on; the outcome is on disk a little later.
    async with asyncio.timeout(HANG_SECONDS):
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
    written = await wrote(outside, edit_file("a.py", "l2\n", "TWO\n"))
    held = [answer(edit_file("b.py", "l2\n", "TWO\n"))]
    outside.provider.say(*held, answer(Text("cut"), stop_reason="max_tokens"))
    waiting = await chat(outside, "Change the other.")
    assert len(named(await outside.client.code_actions(a, "l1"), "undo")) == 1
    assert len(named(await outside.client.code_actions(b, "l1"), "apply")) == 1
    for turn in (written, waiting):
        await outside.client.command("thinklsp.sessions", {"op": "delete", "sessionId": turn["sessionId"]})
    assert named(await outside.client.code_actions(a, "l1"), "undo") == []
    assert named(await outside.client.code_actions(b, "l1"), "apply") == []
    assert "Nothing to undo" in await refused(outside)


async def test_undo_of_another_server_ends_the_offer(begin: Begin) -> None:
    outside, _, uri = await begin_file(begin, TEN)
    turn = await wrote(outside, edit_file("a.py", "l2\n", "TWO\n"))
    other = await outside.beside()
    other.open("a.py", outside.client.text(uri))
    assert (await other.client.command("thinklsp.undo"))["applied"] == "all"
    [action] = named(await outside.client.code_actions(uri, "l1"), "undo")
    assert "Nothing to undo: this turn" in await refused(outside, {"turnId": turn["turnId"]})
    assert action.command.arguments == ({"turnId": turn["turnId"]},)
    assert named(await outside.client.code_actions(uri, "l1"), "undo") == []
