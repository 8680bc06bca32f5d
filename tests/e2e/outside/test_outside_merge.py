"""Edits meet a document that has moved on, and editors that refuse: merged, or kept for later, never forced."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.outside import Outside, named, statuses
from tests.support.raw_client import Request
from tests.support.raw_editor import capabilities
from tests.support.signing_script import Hold, Item, Text, Thinking, answer, tool

TEXT = "".join(f"line {number} 🙂 = {number}\n" for number in range(1, 31))
MODEL_EDIT = tool("edit_file", path="app.py", old_text="line 15 🙂 = 15", new_text="line 15 🙂 = fifteen")
MODEL_TEXT = TEXT.replace("= 15\n", "= fifteen\n")


async def editing(begin: Begin, *items: Item, announce: Any = None, **files: str) -> tuple[Outside, str, Request, Hold]:
    """A turn that has made its edit and stands before its end."""
    hold = Hold()
    script = (answer(Thinking(), *(items or (MODEL_EDIT,))), answer(Thinking(), hold, Text("Done.")))
    outside = await begin(*script, files={"app.py": TEXT} | files, announce=announce)
    uri = outside.open("app.py")
    action = {"name": "edit", "uri": uri, "instruction": "Write fifteen."}
    turn = outside.client.command("thinklsp.action", action, token=outside.token())
    await hold.reached.wait()
    return outside, uri, turn, hold


async def test_a_change_elsewhere_is_merged(begin: Begin) -> None:
    outside, uri, turn, hold = await editing(begin)
    client = outside.client
    client.change(uri, "line 3 🙂", "line three 🙂🙂")
    client.change(uri, "line 30 🙂 = 30\n", "line 30 🙂 = 30\nand more\n")
    # The answer tells that the changes before it have been read.
    await client.code_actions(uri, "line 1")
    hold.release()
    result = await outside.result(turn)
    assert statuses(result) == {"app.py": "applied"}
    [sent] = client.edits()
    assert sent["edit"]["documentChanges"][0]["textDocument"]["version"] == 3
    assert client.text(uri) == MODEL_TEXT.replace("line 3 🙂", "line three 🙂🙂") + "and more\n"


async def test_a_change_of_the_same_line_is_a_conflict_and_stays(begin: Begin) -> None:
    outside, uri, turn, hold = await editing(
        begin, MODEL_EDIT, tool("edit_file", path="b.py", old_text="b = 1", new_text="b = 2"), **{"b.py": "b = 1\n"}
    )
    client = outside.client
    client.change(uri, "line 15 🙂 = 15", "line 15 🙂 = mine")
    mine = client.text(uri)
    hold.release()
    result = await outside.result(turn)
    assert statuses(result) == {"app.py": "conflict", "b.py": "applied"}
    assert result["edits"]["applied"] == "some"
    assert result["edits"]["proposalId"]
    assert all(file["reason"] for file in result["edits"]["files"] if file["status"] == "conflict")
    assert client.text(uri) == mine
    assert client.text(outside.uri("b.py")) == "b = 2\n"
    assert named(await client.code_actions(uri, "line 15"), "apply")

    # The user gives way: now the kept text fits, and arrives.
    client.change(uri, "line 15 🙂 = mine", "line 15 🙂 = 15")
    applied = await client.command("thinklsp.apply", {"turnId": result["turnId"]})
    assert applied["applied"] in (True, "all")
    assert client.text(uri) == MODEL_TEXT


async def test_a_version_race_is_merged_and_sent_once_more(begin: Begin) -> None:
    outside, uri, turn, hold = await editing(begin)
    client = outside.client

    def type_first(params: Any) -> Any:
        """The user was quicker: the document has changed when the edit arrives."""
        del client.editor.handlers["workspace/applyEdit"]
        client.change(uri, "line 1 🙂", "line one 🙂")
        return client.editor.apply_edit(params)

    client.editor.handlers["workspace/applyEdit"] = type_first
    hold.release()
    result = await outside.result(turn)
    assert client.editor.applied == [False, True]
    assert len(client.edits()) == 2
    assert statuses(result) == {"app.py": "applied"}
    assert client.text(uri) == MODEL_TEXT.replace("line 1 🙂", "line one 🙂", 1)


async def test_an_edit_that_the_user_refuses_is_offered_again(begin: Begin) -> None:
    outside, uri, turn, hold = await editing(begin)
    client = outside.client
    client.editor.handlers["workspace/applyEdit"] = lambda params: {"applied": False}
    hold.release()
    result = await outside.result(turn)
    assert (statuses(result), result["edits"]["applied"]) == ({"app.py": "refused"}, "none")
    assert len(client.edits()) == 1
    assert client.text(uri) == TEXT
    del client.editor.handlers["workspace/applyEdit"]
    [apply] = named(await client.code_actions(uri, "line 15"), "apply")
    assert apply["kind"].startswith("refactor.rewrite.thinklsp.apply")
    if "edit" in apply:
        assert client.editor.apply_edit({"edit": apply["edit"]}) == {"applied": True}
    else:
        await client.run_action(apply)
    assert client.text(uri) == MODEL_TEXT


async def test_a_client_without_apply_edit_is_sent_none(begin: Begin) -> None:
    outside, uri, turn, hold = await editing(begin, announce=capabilities(workspace__applyEdit=None))
    client = outside.client
    hold.release()
    result = await outside.result(turn)
    assert client.edits() == []
    assert result["edits"]["applied"] == "none"
    [apply] = named(await client.code_actions(uri, "line 15"), "apply")
    client.editor.capabilities = capabilities()
    assert client.editor.apply_edit({"edit": apply["edit"]}) == {"applied": True}
    assert client.text(uri) == MODEL_TEXT


async def test_a_client_without_document_changes_gets_changes(begin: Begin) -> None:
    announce = capabilities(
        workspace__workspaceEdit={"failureHandling": "abort"}, general__positionEncodings=["utf-16"]
    )
    new = tool("write_file", path="new.py", content="new\n")
    outside, uri, turn, hold = await editing(begin, MODEL_EDIT, new, announce=announce)
    client = outside.client
    hold.release()
    result = await outside.result(turn)
    [sent] = client.edits()
    assert set(sent["edit"]) == {"changes"}
    assert statuses(result) == {"app.py": "applied", "new.py": "refused"}
    assert all(file["reason"] for file in result["edits"]["files"] if file["status"] == "refused")
    assert client.text(uri) == MODEL_TEXT


@pytest.mark.parametrize("operation", ["rename", "delete"])
async def test_files_are_renamed_and_deleted_by_the_editor(begin: Begin, operation: str) -> None:
    call = {
        "rename": tool("rename_file", path="old.py", new_path="deep/new.py"),
        "delete": tool("delete_file", path="old.py"),
    }[operation]
    outside, _, turn, hold = await editing(begin, call, **{"old.py": "old = '🙂'\n"})
    client = outside.client
    assert client.text(outside.uri("old.py")) == "old = '🙂'\n"
    hold.release()
    result = await outside.result(turn)
    assert result["edits"]["applied"] == "all"
    [sent] = client.edits()
    assert operation in [change.get("kind") for change in sent["edit"]["documentChanges"]]
    assert client.text(outside.uri("old.py")) is None
    assert client.text(outside.uri("deep/new.py")) == ("old = '🙂'\n" if operation == "rename" else None)
