"""An edit counts as applied, hunk by hunk, only if notifications or the disk show it; so do documents opened again."""

from __future__ import annotations

import asyncio
from typing import Any

from lsprotocol import types

from tests.e2e.acting import begin_file, chat, edit_file, read_file, refused, say, start_chat, write_file
from tests.e2e.conftest import Begin
from tests.support.client.actions import Editing
from tests.support.client.lsp import CONVERTER, named
from tests.support.outside import Outside, said, statuses
from tests.support.signing_server import answer
from tests.support.stored_sessions import rows

Json = Any


def accept_files(client: Editing, *names: str) -> None:
    """From now on only the changes of these files are made."""
    _accept(client, lambda uri, _: uri.endswith(names))


def accept_hunks(client: Editing, *numbers: int) -> None:
    """From now on only these hunks are made, counted from 0 through the whole edit; files are created all the same."""
    _accept(client, lambda _, number: number is None or number in numbers)


def _accept(client: Editing, accepts: Any) -> None:
    client.editor.handlers["workspace/applyEdit"] = lambda params: client.editor.apply_edit(
        {"edit": only(CONVERTER.unstructure(params)["edit"], accepts)}
    )


def only(edit: Json, accepts: Any) -> Json:
    """The accepted part of a workspace edit. `accepts(uri, number)`: `number` counts hunks, None is an operation."""
    kept, number = [], -1
    for change in edit["documentChanges"]:
        if "kind" in change:
            if accepts(change.get("uri") or change["oldUri"], None):
                kept.append(change)
            continue
        hunks = []
        for hunk in change["edits"]:
            number += 1
            if accepts(change["textDocument"]["uri"], number):
                hunks.append(hunk)
        if hunks:
            kept.append({**change, "edits": hunks})
    return {**edit, "documentChanges": kept}


INVOICE = "def gross(net):\n    return net * 1.2\n"
MONEY = "def to_cents(price: str) -> int:\n    return int(price)\n\n\ndef show(cents):\n    return cents\n"
TEN = "".join(f"l{number}\n" for number in range(1, 11))
DONE = say("Done.")
IMPORT = "from decimal import Decimal\n\n\n"
EDIT_ALL = answer(
    edit_file("shop/invoice.py", "1.2", "1.25"),
    edit_file("shop/money.py", "def to_cents", f"{IMPORT}def to_cents"),
    write_file("tests/test_money.py", "def test():\n    assert True\n"),
)
FILES = {"shop/invoice.py": INVOICE, "shop/money.py": MONEY}


def file_of(result: Any, name: str) -> Any:
    return next(file for file in result["edits"]["files"] if file["uri"].endswith(name))


async def half_applied(begin: Begin, *script: Any) -> tuple[Outside, Any]:
    """A turn over three files of which the editor changes the first one alone, and says that it applied the edit."""
    outside = await begin(EDIT_ALL, DONE, *script, files=FILES)
    outside.open("shop/invoice.py")
    accept_files(outside.client, "shop/invoice.py")
    result = await chat(outside, "Use Decimal.")
    del outside.client.editor.handlers["workspace/applyEdit"]
    return outside, result


async def test_files_that_did_not_change_are_not_applied_and_wait(begin: Begin) -> None:
    """`applied: true` for one file of three."""
    outside, result = await half_applied(begin)
    assert statuses(result) == {"invoice.py": "applied", "money.py": "refused", "test_money.py": "refused"}
    assert (result["edits"]["applied"], result["edits"]["proposalId"]) == ("some", result["turnId"])
    hunks = [(file["hunks"]["applied"], file["hunks"]["waiting"]) for file in result["edits"]["files"]]
    assert hunks == [(1, 0), (0, 1), (0, 1)]
    assert "1 of 3 files changed; money.py and test_money.py are waiting." in result["notices"]
    outcomes = {row.name: row.outcome for row in rows(outside.home)}
    assert outcomes == {"invoice.py": "applied", "money.py": "refused", "test_money.py": "refused"}
    [apply] = named(await outside.client.code_actions(outside.open("shop/money.py"), "def show"), "apply")
    assert (await outside.client.run_action(apply))["applied"] == "all"
    assert outside.client.text(outside.uri("shop/money.py")) == IMPORT + MONEY
    assert (outside.root / "tests/test_money.py").read_text() == "def test():\n    assert True\n"


async def test_the_next_turn_reads_and_edits_the_text_that_is_there(begin: Begin) -> None:
    """The second turn put an import inside a function, and wrote a test that never came."""
    look = answer(read_file("shop/money.py"), read_file("tests/test_money.py"))
    edit = answer(edit_file("shop/money.py", "def show", "def shown"))
    outside, first = await half_applied(begin, look, edit, DONE)
    (outside.root / "shop/money.py").write_text(MONEY.replace("return cents", "return cents / 100"))
    result = await chat(outside, "Go on.", sessionId=first["sessionId"])
    prompt, *_ = [request for request in outside.provider.requests if "Go on." in said(request.body)]
    assert "shop/money.py (1 change, at line 1)" in said(prompt.body)
    assert "tests/test_money.py (not created)" in said(prompt.body)
    money, test = outside.provider.requests[-2].tool_results()
    assert "Decimal" not in str(money)
    assert "cents / 100" in str(money)
    assert test["is_error"]
    assert result["edits"]["applied"] == "all"
    expected = MONEY.replace("return cents", "return cents / 100").replace("def show", "def shown")
    assert (outside.root / "shop/money.py").read_text() == expected


async def test_rejected_hunks_are_merged_onto_the_current_text(begin: Begin) -> None:
    calls = [edit_file("a.py", f"l{n}\n", f"L{n}\n") for n in (2, 5, 8)]
    outside, _, uri = await begin_file(begin, TEN, answer(*calls), DONE)
    accept_hunks(outside.client, 1)
    result = await chat(outside, "Change three lines.")
    del outside.client.editor.handlers["workspace/applyEdit"]
    assert file_of(result, "a.py")["status"] == "some"
    assert file_of(result, "a.py")["hunks"] == {"applied": 1, "waiting": 2}
    half = TEN.replace("l5", "L5")
    assert outside.client.text(uri) == half
    half = half.replace("l10\n", "mine\n")
    outside.client.change(uri, "l10\n", "mine\n")
    assert (await outside.client.command("thinklsp.apply"))["applied"] == "all"
    assert outside.client.text(uri) == half.replace("l2", "L2").replace("l8", "L8")
    assert (await outside.client.command("thinklsp.undo"))["applied"] == "all"
    assert outside.client.text(uri) == TEN.replace("l10\n", "mine\n")


async def test_file_created_empty_is_completed_or_removed(begin: Begin) -> None:
    """Neovim leaves a file of 0 bytes if its prompt is answered with No."""
    outside = await begin()
    for way, text in (("apply", TEN), ("undo", None)):
        name = f"{way}.py"
        outside.provider.say(answer(write_file(name, TEN)), DONE)
        accept_hunks(outside.client)
        result = await chat(outside, "Make it.")
        del outside.client.editor.handlers["workspace/applyEdit"]
        assert (outside.root / name).read_text() == ""
        file = file_of(result, name)
        assert (file["status"], file["hunks"]) == ("some", {"applied": 0, "waiting": 1})
        assert "empty" in file["reason"]
        assert (await outside.client.command(f"thinklsp.{way}", {"turnId": result["turnId"]}))["applied"] == "all"
        assert outside.client.text(outside.uri(name)) == text


async def test_a_client_that_gave_no_token_gets_one_message(begin: Begin) -> None:
    outside = await begin(EDIT_ALL, DONE, files=FILES)
    outside.open("shop/invoice.py")
    accept_files(outside.client, "shop/invoice.py")
    await start_chat(outside, "Use Decimal.")
    await outside.client.wait_for(lambda: [m for m in outside.client.messages() if "waiting" in m], what="the message")
    [message] = [message for message in outside.told() if "waiting" in message]
    assert message.startswith("1 of 3 files changed; money.py and test_money.py are waiting. The code action ")


TWO = TEN.replace("l10\n", "TEN\n")
BOM = "\ufeff"


def crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


def script() -> list[Any]:
    return [answer(edit_file("a.py", "l10\n", "TEN\n")), say("Done.")]


async def undone(outside: Outside, uri: str, text: str) -> None:
    """Undo the turn. If the document does not contain the edit, the server says so."""
    if outside.client.text(uri) == text:
        await refused(outside.client.command("thinklsp.undo"), match="Nothing was left to undo")
    else:
        result = await outside.client.command("thinklsp.undo")
        assert [(file["status"], file["reason"]) for file in result["files"]] == [("applied", None)]
    assert (outside.client.text(uri), rows(outside.home)[-1].undone) == (text, True)


# How the document is opened again: its text, its version, and the text after the undo.
REOPENED: dict[str, tuple[str, int, str]] = {
    "saved": (TWO, 40, TEN),
    "saved, versions from 0": (TWO, 0, TEN),
    "saved with other line ends": (crlf(TWO), 40, crlf(TEN)),
    "saved without the last line's end": (TWO[:-1], 40, TEN[:-1]),
    "saved with a mark": (BOM + TWO, 40, BOM + TEN),
    "not saved": (TEN, 40, TEN),
    "not saved, with other line ends": (crlf(TEN), 40, crlf(TEN)),
    "not saved, without the last line's end": (TEN[:-1], 1, TEN[:-1]),
}


async def test_a_turn_is_undone_however_its_document_was_opened_again(begin: Begin) -> None:
    outside = await begin(files={"a.py": TEN})
    for text, version, after in REOPENED.values():
        for times in (1, 2):
            (outside.root / "a.py").write_text(TEN)
            uri = outside.open("a.py")
            outside.provider.say(*script())
            assert statuses(await chat(outside, "Go.")) == {"a.py": "applied"}
            (outside.root / "a.py").write_bytes(text.removeprefix(BOM).encode())
            outside.client.close_document(uri)
            for _ in range(times):
                outside.client.open(uri, text, version=version)
            await undone(outside, uri, after)
            outside.client.close_document(uri)


async def test_opened_again_with_the_new_text_in_place_of_a_change(begin: Begin) -> None:
    """The editor says yes and shows the text by opening the document once more."""
    outside = await begin(*script(), files={"a.py": TEN})
    client, uri = outside.client, outside.open("a.py")

    def apply(_: Any) -> Any:
        # After the answer has been sent.
        asyncio.get_running_loop().call_soon(lambda: client.open(uri, TWO, version=4))
        return types.ApplyWorkspaceEditResult(applied=True)

    client.editor.handlers["workspace/applyEdit"] = apply
    result = await chat(outside, "Go.")
    del client.editor.handlers["workspace/applyEdit"]
    assert (statuses(result), result["notices"]) == ({"a.py": "applied"}, [])
    assert named(await client.code_actions(uri, "l1"), "apply") == []
    await undone(outside, uri, TEN)
