"""Why a text stands there: a hover on what a turn wrote, a lens above it, and nothing anywhere else."""

from __future__ import annotations

from typing import Any

from tests.e2e.conftest import Begin
from tests.support.outside import MODEL, Outside, named
from tests.support.raw_documents import range_of
from tests.support.raw_editor import capabilities
from tests.support.signing_script import Text, answer, tool

STATS = "def mean(values):\n    return sum(values) / (len(values) - 1)\n\n\n" + "x = 0\n" * 30 + "last = 1\n"
FIX = tool("edit_file", path="stats.py", old_text="(len(values) - 1)", new_text="len(values)")
OTHER = tool("edit_file", path="stats.py", old_text="last = 1", new_text="last = 2")
SAID = "The mean was divided by one too few. See [the proof](https://evil.example/?q=1)! Third.\n\nFourth."
MARKDOWN = capabilities(textDocument__hover={"contentFormat": ["markdown", "plaintext"]})


async def hover(outside: Outside, uri: str, part: str) -> Any:
    place = range_of(outside.client.text(uri) or "", part)["start"]
    params = {"textDocument": {"uri": uri}, "position": place}
    return await outside.client.request("textDocument/hover", params)


async def wrote(begin: Begin, **how: Any) -> tuple[Outside, str, Any]:
    outside = await begin(answer(FIX, OTHER), answer(Text(SAID)), files={"stats.py": STATS}, **how)
    uri = outside.open("stats.py")
    assert outside.client.server["hoverProvider"] is not None
    assert await hover(outside, uri, "sum(values)") is None
    assert await outside.client.lenses(uri) == []
    result = await outside.edit(uri, "Fix the mean.")
    assert result["edits"]["applied"] == "all"
    return outside, uri, result


async def test_a_hover_tells_why_until_the_text_is_rewritten_or_undone(begin: Begin) -> None:
    outside, uri, result = await wrote(begin)
    client, requests = outside.client, len(outside.provider.requests)
    told = await hover(outside, uri, "sum(values)")
    assert told["contents"]["kind"] == "plaintext"
    first, why, made, back = told["contents"]["value"].split("\n")
    assert first == "Written by thinklsp: edit stats.py"
    assert why == "The mean was divided by one too few. See [the proof](https://evil.example/?q=1)! Third."
    assert made.startswith(f"{MODEL}, 20")
    assert ("thinklsp: undo: edit stats.py" in back, result["turnId"] in back) == (True, True)
    assert named(await client.code_actions(uri, "mean"), "undo: edit stats.py")
    for elsewhere in ("def mean", "x = 0"):
        assert await hover(outside, uri, elsewhere) is None
    client.change(uri, "def mean", "# typed above\n\ndef mean")
    client.change(uri, "sum(values)", "math.fsum(values)")
    assert await hover(outside, uri, "math") is None
    assert await hover(outside, uri, "/ len") == told
    assert await hover(outside, uri, "last") == told
    client.close_document(uri)
    assert await client.request(
        "textDocument/hover", {"textDocument": {"uri": uri}, "position": {"line": 0, "character": 0}}
    ) is None  # fmt: skip
    client.open(uri, STATS.replace("last = 1", "last = 2"))
    assert await hover(outside, uri, "last") == told
    assert await hover(outside, uri, "sum(values)") is None
    await client.command("thinklsp.undo")
    assert await hover(outside, uri, "last") is None
    assert len(outside.provider.requests) == requests, "a hover costs nothing"


async def test_in_a_fence_for_editors_that_render(begin: Begin) -> None:
    outside, uri, _ = await wrote(begin, announce=MARKDOWN)
    told = (await hover(outside, uri, "sum(values)"))["contents"]
    assert told["kind"] == "markdown"
    assert told["value"].startswith("```text\nWritten by thinklsp: edit stats.py\n")
    assert told["value"].endswith("\n```")


async def test_lenses_stand_above_each_group_until_the_document_is_saved(begin: Begin) -> None:
    outside, uri, result = await wrote(begin)
    client = outside.client
    await client.wait_for(lambda: client.calls("workspace/codeLens/refresh"), what="the lenses to be asked for")
    lenses = await client.lenses(uri)
    assert [lens["range"]["start"]["line"] for lens in lenses] == [1, 34]
    assert {lens["command"]["title"] for lens in lenses} == {"thinklsp: undo: edit stats.py"}
    assert {lens["command"]["command"] for lens in lenses} == {"thinklsp.undo"}
    before = len(client.calls("workspace/codeLens/refresh"))
    client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
    assert await client.lenses(uri) == []
    await client.wait_for(lambda: len(client.calls("workspace/codeLens/refresh")) > before, what="another refresh")
    assert await hover(outside, uri, "last") is not None
    undo = {"command": "thinklsp.undo", "arguments": lenses[0]["command"]["arguments"]}
    assert undo["arguments"] == [{"turnId": result["turnId"]}]
    await client.request("workspace/executeCommand", undo)
    assert client.text(uri) == STATS


async def test_a_file_that_was_not_open_is_followed_from_its_opening(begin: Begin) -> None:
    files = {"app.py": "a = 1\n", "stats.py": STATS}
    new = tool("write_file", path="new.py", content="n = 1\n")
    outside = await begin(answer(FIX, new), answer(Text("Done.")), files=files)
    result = await outside.edit(outside.open("app.py"))
    assert result["edits"]["applied"] == "all"
    stats, made = outside.open("stats.py"), outside.open("new.py")
    assert "Done." in (await hover(outside, stats, "sum"))["contents"]["value"]
    assert "Done." in (await hover(outside, made, "n = 1"))["contents"]["value"]
    assert await hover(outside, stats, "def mean") is None
