"""Documents that are closed and opened again around a turn's edit: nobody has typed, so nothing may speak of it."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.ledger_rows import rows
from tests.support.outside import Outside, named, statuses
from tests.support.signing_script import Text, answer, tool

TEN = "".join(f"l{number}\n" for number in range(1, 11))
TWO = TEN.replace("l10\n", "TEN\n")
BOM = "\ufeff"


def crlf(text: str) -> str:
    return text.replace("\n", "\r\n")


def script() -> list[Any]:
    return [answer(tool("edit_file", path="a.py", old_text="l10\n", new_text="TEN\n")), answer(Text("Done."))]


async def undone(outside: Outside, uri: str, text: str) -> None:
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
            assert statuses(await outside.turn("thinklsp.chat", {"prompt": "Go."})) == {"a.py": "applied"}
            (outside.root / "a.py").write_bytes(text.removeprefix(BOM).encode())
            outside.client.close_document(uri)
            for _ in range(times):
                outside.client.open(uri, text, version=version)
            await undone(outside, uri, after)
            outside.client.close_document(uri)


@pytest.mark.parametrize("text", [TWO, crlf(TWO), TWO[:-1], TEN], ids=["as it is", "CRLF", "no last end", "not saved"])
async def test_an_edit_of_a_file_that_is_opened_afterwards(begin: Begin, text: str) -> None:
    """Neovim ends the last line of a text whose file does not."""
    outside = await begin(*script(), files={"a.py": TEN})
    uri = outside.open("a.py")
    outside.client.close_document(uri)
    assert statuses(await outside.turn("thinklsp.chat", {"prompt": "Go."})) == {"a.py": "applied"}
    outside.client.open(uri, text, version=7)
    assert len(named(await outside.client.code_actions(uri, "l1"), "undo")) == 1
    await undone(outside, uri, text.replace("TEN", "l10"))


async def test_a_created_file_that_was_saved_in_another_form_can_be_undone(begin: Begin) -> None:
    outside = await begin(answer(tool("write_file", path="new.py", content="x\ny")), answer(Text("Done.")))
    assert statuses(await outside.turn("thinklsp.chat", {"prompt": "Go."})) == {"new.py": "applied"}
    (outside.root / "new.py").write_bytes(b"x\r\ny\r\n")
    result = await outside.client.command("thinklsp.undo")
    assert (result["applied"], (outside.root / "new.py").exists()) == ("all", False)


async def test_opened_again_with_the_new_text_in_place_of_a_change(begin: Begin) -> None:
    """The editor says yes and shows the text by opening the document once more."""
    outside = await begin(*script(), files={"a.py": TEN})
    client, uri = outside.client, outside.open("a.py")

    def apply(_: Any) -> Any:
        # After the answer has been sent.
        asyncio.get_running_loop().call_soon(lambda: client.open(uri, TWO, version=4))
        return {"applied": True}

    client.editor.handlers["workspace/applyEdit"] = apply
    result = await outside.turn("thinklsp.chat", {"prompt": "Go."})
    del client.editor.handlers["workspace/applyEdit"]
    assert (statuses(result), result["notices"]) == ({"a.py": "applied"}, [])
    assert named(await client.code_actions(uri, "l1"), "apply") == []
    await undone(outside, uri, TEN)


@pytest.mark.parametrize("version", [1, 9])
async def test_opened_again_with_another_text_before_the_edit_is_made(begin: Begin, version: int) -> None:
    """Versions begin anew: the same one may be another text."""
    outside = await begin(*script(), files={"a.py": TEN})
    client, uri = outside.client, outside.open("a.py")

    def refuse(_: Any) -> Any:
        del client.editor.handlers["workspace/applyEdit"]
        client.close_document(uri)
        client.open(uri, "new\n" + TEN, version=version)
        return {"applied": False, "failureReason": "closed"}

    client.editor.handlers["workspace/applyEdit"] = refuse
    assert statuses(await outside.turn("thinklsp.chat", {"prompt": "Go."})) == {"a.py": "applied"}
    assert client.text(uri) == "new\n" + TWO
    await undone(outside, uri, "new\n" + TEN)


async def test_the_edit_of_an_action_is_made_for_the_text_that_is_open_now(begin: Begin) -> None:
    first, _ = script()
    outside = await begin(first, answer(Text("cut"), stop_reason="max_tokens"), files={"a.py": TEN})
    client, uri = outside.client, outside.open("a.py")
    assert statuses(await outside.turn("thinklsp.chat", {"prompt": "Go."})) == {"a.py": "held"}
    assert len(named(await client.code_actions(uri, "l1"), "apply")) == 1
    client.close_document(uri)
    client.open(uri, "new\n" + TEN)
    [apply] = named(await client.code_actions(uri, "l1"), "apply")
    assert client.editor.apply_edit({"edit": apply["edit"]}) == {"applied": True}
    assert client.text(uri) == "new\n" + TWO
