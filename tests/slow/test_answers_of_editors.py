"""A-14: what tools ask of an editor that announces `hover`, `symbols` and `save`, and how a turn handles any answer."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from tests.e2e.acting import read_before
from tests.e2e.conftest import Begin
from tests.support.client.documents import path_of
from tests.support.client.editor import Refusal, capabilities
from tests.support.client.raw import RawClient
from tests.support.outside import Outside
from tests.support.signing_server import Text, answer, tool

MODES = ("right", "half", "error", "never", "huge", "wrong")
BOX = "box\n  lid 🙂\n"
ONE = "n = 1\n\n\n# end\n"
TWO = ONE.replace("1", "2")


def announcing(*names: str) -> Any:
    return capabilities(experimental={"thinklsp": {"editor": list(names)}})


def mode_of(params: Any) -> str:
    text = json.dumps(params)
    return next(mode for mode in MODES if mode in text)


def span(first: int, last: int) -> Any:
    return {"start": {"line": first, "character": 0}, "end": {"line": last, "character": 3}}


async def respond(mode: str, right: Any, half: Any, huge: Any) -> Any:
    match mode:
        case "right":
            return right
        case "half":
            return half
        case "huge":
            return huge
        case "error":
            raise Refusal("no")
        case "never":
            await asyncio.Event().wait()
    return {"lines": 3}


async def answer_hover(params: Any) -> Any:
    parts = [{"language": "python", "value": "half of it"}, 3, None, {"value": 4}]
    right = {"contents": {"kind": "markdown", "value": "def use(n: int) -> str\n\nUses\u202e it."}}
    return await respond(mode_of(params), right, {"contents": parts, "range": 5}, {"contents": "y" * 1_000_000})


async def answer_symbols(params: Any) -> Any:
    if "query" in params:
        one = {"name": params["query"], "kind": 12, "location": {"uri": "file:///lib/use.zz", "range": span(6, 9)}}
        half = [{"name": params["query"], "kind": 12, "location": {"uri": "file:///lib/use.zz"}}, 7, one]
        return await respond(
            mode_of(params), [one], half, [one | {"name": f"{params['query']}{n}"} for n in range(8_000)]
        )
    lid = {"name": "lid", "kind": 8, "range": span(1, 1), "selectionRange": span(1, 1)}
    box = {"name": "box", "kind": 5, "range": span(0, 1), "selectionRange": span(0, 0), "children": [lid]}
    deep: Any = lid
    for _ in range(20):
        deep = lid | {"children": [deep]}
    half = [{"name": 3, "kind": 5, "range": span(0, 1)}, box | {"kind": 99, "children": [lid, None]}]
    return await respond(mode_of(params), [box], half, [deep, *[box] * 6_000])


async def test_hover_and_symbols_in_every_way(begin: Begin) -> None:
    """`hover` goes with a definition; `symbols` are requested if no grammar and no search finds any."""
    outlines = (tool("outline", path=f"{mode}.zz") for mode in MODES)
    definitions = (tool("definition", path=f"{mode}.py", line=1, symbol=f"use_{mode}") for mode in MODES)
    outside = await begin(
        answer(*outlines, *definitions),
        answer(Text("Seen.")),
        files={f"{mode}.zz": BOX for mode in MODES} | {f"{mode}.py": f"use_{mode}()\n" for mode in MODES},
        announce=announcing("hover", "symbols"),
    )
    client, provider = outside.pair
    open_uris = {outside.open(f"{mode}.{end}") for mode in ("right", "huge") for end in ("zz", "py")}
    client.editor.handlers |= {"thinklsp/editor/hover": answer_hover, "thinklsp/editor/symbols": answer_symbols}
    turn = client.command("thinklsp.chat", {"prompt": "Look."}, token="turn")
    await client.wait_for(lambda: client.calls("thinklsp/editor/hover"), what="the first question")
    # The server answers in the meantime.
    await client.command("thinklsp.effort")
    assert (await outside.result(turn))["text"] == "Seen."
    blocks = provider.requests[-1].tool_results()
    texts = [str(block["content"]) for block in blocks]
    outline, definition = (dict(zip(MODES, part, strict=True)) for part in (texts[:6], texts[6:]))

    by = "from the editor's language server"
    assert outline["right"] == f"right.zz, {by}\nclass box 1-2\n  field lid 2"
    unread = "[omitted: 2 in an unexpected format]"
    assert outline["half"] == f"half.zz, {by}\n{unread}\nsymbol box 1-2\n  field lid 2"
    assert outline["huge"].startswith(f"huge.zz, {by}\nfield lid 2\n  field lid 2\n")
    assert "class box 1-2" in outline["huge"]
    for mode in ("error", "never", "wrong"):
        assert outline[mode] == f"No grammar can read `{mode}.zz`; use search_text to find names in it."
    assert [block.get("is_error", False) for block in blocks[:6]] == [False, False, True, True, False, True]

    by_name = "(symbols of that name from the editor's language servers: check the hits)"
    place = "/lib/use.zz:7 [not in the workspace; not read]"
    shows = "The editor shows:\n| "
    assert definition["right"] == (
        f"1 definition of `use_right` {by_name}\n{shows}def use(n: int) -> str\n| \n| Uses<U+202E> it.\n{place}"
    )
    assert definition["half"] == f"1 definition of `use_half` {by_name}\n{shows}half of it\n{place}"
    assert definition["huge"].startswith("No definition of `use_huge` was found; ")
    assert definition["huge"].endswith("y [cut]")
    for mode in ("error", "never", "wrong"):
        assert definition[mode].startswith(f"No definition of `use_{mode}` was found; ")
        assert shows not in definition[mode]
    assert all(len(text) <= 50_000 for text in texts)

    hovers = [call.params for call in client.calls("thinklsp/editor/hover")]
    assert all(params["position"] == {"line": 0, "character": 0} for params in hovers)
    asked = {call.params.get("uri") for call in client.calls("thinklsp/editor/symbols")}
    assert asked == {None, *(outside.uri(f"{mode}.zz") for mode in MODES)}
    assert {uri for uri in open_uris if uri.endswith(".zz")} < asked


def leave_unsaved(client: RawClient) -> None:
    """Let the editor open the closed files of an edit without saving them, as Neovim does."""

    def apply(params: Any) -> Any:
        uris = [change["textDocument"]["uri"] for change in params["edit"]["documentChanges"] if "edits" in change]
        before = {uri: path_of(uri).read_bytes() for uri in uris if uri not in client.desk.open}
        applied = client.editor.apply_edit(params)
        for uri, content in before.items():
            client.open(uri)
            path_of(uri).write_bytes(content)
        return applied

    client.editor.handlers["workspace/applyEdit"] = apply


async def begin_edit(begin: Begin, *names: str, announced: str = "save") -> Outside:
    """Start a server whose model edits these files, and an editor that leaves them unsaved."""
    edits = [tool("edit_file", path=f"{name}.py", old_text="1", new_text="2") for name in names]
    files = {f"{name}.py": ONE for name in names}
    outside = await begin(answer(*edits), answer(Text("Done.")), files=files, announce=announcing(announced))
    leave_unsaved(outside.client)
    return outside


SAVED = {"right": ("a", "b"), "half": ("a",)}


@pytest.mark.parametrize("mode", ["right", "half", "error", "never", "huge", "wrong", "not announced"])
async def test_files_that_only_the_edit_opened_are_saved(begin: Begin, mode: str) -> None:
    """The notice names the files that the disk does not show, whatever the editor answers."""
    outside = await begin_edit(begin, "a", "b", "seen", announced="hover" if mode == "not announced" else "save")
    client = outside.client
    outside.open("seen.py")

    async def save(params: Any) -> Any:
        uris = params["uris"][: len(SAVED.get(mode, ()))]
        for uri in uris:
            path_of(uri).write_text(client.desk.open[uri].text)
        return await respond(mode, {"saved": uris}, {"saved": uris}, {"saved": ["file:///" + "x" * 1_000_000]})

    client.editor.handlers["thinklsp/editor/save"] = save
    result = await outside.turn("thinklsp.chat", {"prompt": "Make it two."})
    assert result["edits"]["applied"] == "all"
    saved = SAVED.get(mode, ())
    left = [f"{name}.py" for name in ("a", "b") if name not in saved]
    sentence = f"Changed but not saved: {', '.join(left)}. Save all files to keep the change."
    assert result["notices"] == ([sentence] if left else [])
    on_disk = {name: (outside.root / f"{name}.py").read_text() for name in ("a", "b", "seen")}
    assert on_disk == {name: TWO if name in saved else ONE for name in ("a", "b", "seen")}
    asked = [call.params for call in client.calls("thinklsp/editor/save")]
    assert asked == ([] if mode == "not announced" else [{"uris": [outside.uri("a.py"), outside.uri("b.py")]}])
    if mode == "right":
        client.change(outside.uri("b.py"), "# end", "# typed")
        assert (await client.command("thinklsp.undo"))["applied"] == "all"
        assert client.calls("thinklsp/editor/save")[-1].params == {"uris": [outside.uri("a.py")]}
        assert (outside.root / "a.py").read_text() == ONE
        assert (outside.root / "b.py").read_text() == TWO


async def test_a_file_that_the_user_types_in_is_not_saved(begin: Begin) -> None:
    outside = await begin_edit(begin, "a")
    client = outside.client
    apply = client.editor.handlers["workspace/applyEdit"]

    def apply_and_type(params: Any) -> Any:
        applied = apply(params)
        client.change(outside.uri("a.py"), "# end", "# typed")
        return applied

    client.editor.handlers["workspace/applyEdit"] = apply_and_type
    result = await outside.turn("thinklsp.chat", {"prompt": "Make it two."})
    assert result["notices"] == ["Changed but not saved: a.py. Save all files to keep the change."]
    assert client.calls("thinklsp/editor/save") == []


async def test_apply_names_files_that_are_not_saved(begin: Begin) -> None:
    edit = tool("edit_file", path="a.py", old_text="1", new_text="2")
    script = answer(edit), answer(Text("cut"), stop_reason="max_tokens")
    outside = await begin(*script, files={"a.py": ONE}, announce=announcing("hover"))
    leave_unsaved(outside.client)
    await outside.turn("thinklsp.chat", {"prompt": "Make it two."})
    assert (await outside.client.command("thinklsp.apply"))["applied"] == "all"
    await outside.until_told("Changed but not saved: a.py. Save all files to keep the change.")


async def test_the_folder_of_a_deleted_file_became_a_link(begin: Begin) -> None:
    """The path leads out of the workspace then, where the server does not look."""
    delete = tool("delete_file", path="d/a.py")
    script = *read_before(delete), answer(delete), answer(Text("Done."))
    outside = await begin(*script, files={"d/a.py": ONE}, announce=announcing("save"))

    def link(_: Any) -> Any:
        (outside.root / "d").rename(outside.home / "d")
        (outside.root / "d").symlink_to(outside.home / "d")
        return {"applied": True}

    outside.client.editor.handlers["workspace/applyEdit"] = link
    result = await outside.turn("thinklsp.chat", {"prompt": "Delete it."})
    assert result["edits"]["applied"] == "all"
    assert (outside.home / "d" / "a.py").read_text() == ONE


async def test_cancel_while_the_editor_saves(begin: Begin) -> None:
    """The edit is applied by then, and the server stops waiting for the editor."""
    outside = await begin_edit(begin, "a")
    client = outside.client
    client.editor.handlers["thinklsp/editor/save"] = lambda _: asyncio.Event().wait()
    turn = client.command("thinklsp.chat", {"prompt": "Make it two."}, token="turn")
    await client.wait_for(lambda: client.calls("thinklsp/editor/save"), what="the question")
    client.notify("window/workDoneProgress/cancel", {"token": "turn"})
    result = await outside.result(turn)
    assert (result["stopReason"], result["edits"]["applied"]) == ("cancelled", "all")
