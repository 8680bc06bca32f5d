"""Edits meet a document that has moved on, and editors that refuse: merged, or kept for later, never forced."""

from __future__ import annotations

from typing import Any

from lsprotocol import types

from tests.e2e.acting import edit_file, reach, read_before, release, write_file
from tests.e2e.conftest import Begin
from tests.support.client.actions import Request
from tests.support.client.editor import capabilities
from tests.support.client.lsp import named
from tests.support.outside import Outside, statuses
from tests.support.signing_server import Hold, Item, Text, Thinking, Tool, answer

TEXT = "".join(f"line {number} 🙂 = {number}\n" for number in range(1, 31))
MODEL_EDIT = edit_file("app.py", "line 15 🙂 = 15", "line 15 🙂 = fifteen")
MODEL_TEXT = TEXT.replace("= 15\n", "= fifteen\n")


async def editing(
    begin: Begin, *items: Item, announce: Any = None, **files: str
) -> tuple[Outside, Any, str, Request, Hold]:
    """A turn that has made its edit and stands before its end."""
    hold = Hold()
    first = read_before(*(item for item in items if isinstance(item, Tool)))
    script = (*first, answer(Thinking(), *(items or (MODEL_EDIT,))), answer(Thinking(), hold, Text("Done.")))
    outside = await begin(*script, files={"app.py": TEXT} | files, announce=announce)
    uri = outside.open("app.py")
    action = {"name": "edit", "uri": uri, "instruction": "Write fifteen."}
    turn = await reach(hold, outside.client.command("thinklsp.action", action, token=outside.token()))
    return outside, outside.client, uri, turn, hold


async def test_a_change_elsewhere_is_merged(begin: Begin) -> None:
    outside, client, uri, turn, hold = await editing(begin)
    client.change(uri, "line 3 🙂", "line three 🙂🙂")
    client.change(uri, "line 30 🙂 = 30\n", "line 30 🙂 = 30\nand more\n")
    # The answer tells that the changes before it have been read.
    await client.code_actions(uri, "line 1")
    result = await release(hold, outside, turn)
    assert statuses(result) == {"app.py": "applied"}
    [sent] = client.edits()
    assert sent.edit.document_changes[0].text_document.version == 3
    assert client.text(uri) == MODEL_TEXT.replace("line 3 🙂", "line three 🙂🙂") + "and more\n"


async def test_a_change_of_the_same_line_is_a_conflict_and_stays(begin: Begin) -> None:
    outside, client, uri, turn, hold = await editing(
        begin, MODEL_EDIT, edit_file("b.py", "b = 1", "b = 2"), **{"b.py": "b = 1\n"}
    )
    client.change(uri, "line 15 🙂 = 15", "line 15 🙂 = mine")
    mine = client.text(uri)
    result = await release(hold, outside, turn)
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
    outside, client, uri, turn, hold = await editing(begin)

    def type_first(params: Any) -> Any:
        """The user was quicker: the document has changed when the edit arrives."""
        del client.editor.handlers["workspace/applyEdit"]
        client.change(uri, "line 1 🙂", "line one 🙂")
        return client.editor.apply_edit(params)

    client.editor.handlers["workspace/applyEdit"] = type_first
    result = await release(hold, outside, turn)
    assert client.editor.applied == [False, True]
    assert len(client.edits()) == 2
    assert statuses(result) == {"app.py": "applied"}
    assert client.text(uri) == MODEL_TEXT.replace("line 1 🙂", "line one 🙂", 1)


async def test_an_edit_that_the_user_refuses_is_offered_again(begin: Begin) -> None:
    outside, client, uri, turn, hold = await editing(begin)
    client.editor.handlers["workspace/applyEdit"] = lambda params: types.ApplyWorkspaceEditResult(applied=False)
    result = await release(hold, outside, turn)
    assert (statuses(result), result["edits"]["applied"]) == ({"app.py": "refused"}, "none")
    assert len(client.edits()) == 1
    assert client.text(uri) == TEXT
    del client.editor.handlers["workspace/applyEdit"]
    [apply] = named(await client.code_actions(uri, "line 15"), "apply")
    assert apply.kind.startswith("refactor.rewrite.thinklsp.apply")
    if apply.edit is not None:
        assert client.editor.apply_edit(types.ApplyWorkspaceEditParams(apply.edit)).applied
    else:
        await client.run_action(apply)
    assert client.text(uri) == MODEL_TEXT


async def test_a_client_without_document_changes_gets_changes(begin: Begin) -> None:
    announce = capabilities(
        workspace__workspaceEdit={"failureHandling": "abort"}, general__positionEncodings=["utf-16"]
    )
    new = write_file("new.py", "new\n")
    outside, client, uri, turn, hold = await editing(begin, MODEL_EDIT, new, announce=announce)
    result = await release(hold, outside, turn)
    [sent] = client.edits()
    assert sent.edit.document_changes is None
    assert statuses(result) == {"app.py": "applied", "new.py": "refused"}
    assert all(file["reason"] for file in result["edits"]["files"] if file["status"] == "refused")
    assert client.text(uri) == MODEL_TEXT
