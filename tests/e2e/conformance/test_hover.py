"""Why a text stands there: a hover on what a turn wrote, a lens above it, and nothing anywhere else."""

from __future__ import annotations

import asyncio
import re
from typing import Any

from lsprotocol import types

from tests.e2e.acting import begin_file, edit_file, say, write_file
from tests.e2e.conftest import Begin
from tests.support.client.editor import capabilities
from tests.support.client.lsp import named
from tests.support.outside import MODEL, Outside
from tests.support.signing_server import answer
from tests.support.watching import HANG_SECONDS

STATS = "def mean(values):\n    return sum(values) / (len(values) - 1)\n\n\n" + "x = 0\n" * 30 + "last = 1\n"
FIX = edit_file("stats.py", "(len(values) - 1)", "len(values)")
OTHER = edit_file("stats.py", "last = 1", "last = 2")
SAID = "The mean was divided by one too few. See [the proof](https://evil.example/?q=1)! Third.\n\nFourth."
PLAIN = capabilities(textDocument__hover=None)


async def wrote(begin: Begin, **how: Any) -> tuple[Outside, str, Any]:
    outside, _, uri = await begin_file(begin, STATS, answer(FIX, OTHER), say(SAID), name="stats.py", **how)
    assert outside.client.server.hover_provider is not None
    assert await outside.client.hover(uri, "sum(values)") is None
    assert not await outside.client.lenses(uri)
    result = await outside.edit(uri, "Fix the mean.")
    assert result["edits"]["applied"] == "all"
    return outside, uri, result


async def hover_until(outside: Outside, uri: str, part: str, *, is_found: bool) -> Any:
    """Hover until the server has looked up the document."""
    async with asyncio.timeout(HANG_SECONDS):
        while ((told := await outside.client.hover(uri, part)) is not None) != is_found:
            pass
    return told


async def test_a_hover_tells_why_until_the_text_is_rewritten_or_undone(begin: Begin) -> None:
    outside, uri, result = await wrote(begin, announce=PLAIN)
    client, requests = outside.client, len(outside.provider.requests)
    told = await outside.client.hover(uri, "sum(values)")
    assert told.contents.kind == types.MarkupKind.PlainText
    first, why, made, back = told.contents.value.split("\n")
    assert re.fullmatch(r"thinklsp changed this text today at \d\d:\d\d: edit stats\.py", first)
    assert why == "The mean was divided by one too few. See [the proof](https://evil.example/?q=1)! Third."
    assert (made, back) == (f"Model: {MODEL}", "To undo: code action “thinklsp: undo “edit stats.py””")
    assert result["turnId"] not in told.contents.value
    assert named(await client.code_actions(uri, "mean"), "undo “edit stats.py”")
    for elsewhere in ("def mean", "x = 0"):
        assert await outside.client.hover(uri, elsewhere) is None
    client.change(uri, "def mean", "# typed above\n\ndef mean")
    client.change(uri, "sum(values)", "math.fsum(values)")
    assert await outside.client.hover(uri, "math") is None
    assert await outside.client.hover(uri, "/ len") == told
    assert await outside.client.hover(uri, "last") == told
    client.close_document(uri)
    place = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(0, 0))
    assert await client.connection.text_document_hover_async(place) is None
    client.open(uri, STATS.replace("last = 1", "last = 2"))
    found = await hover_until(outside, uri, "last", is_found=True)
    assert found.contents.value.split("\n")[1:] == [why, made, back]
    assert await outside.client.hover(uri, "sum(values)") is None
    await client.command("thinklsp.undo")
    assert await outside.client.hover(uri, "last") is None
    assert len(outside.provider.requests) == requests, "a hover costs nothing"


async def test_code_lenses_mark_each_group_until_saved(begin: Begin) -> None:
    outside, uri, result = await wrote(begin)
    client = outside.client
    await client.wait_for(lambda: client.calls("workspace/codeLens/refresh"), what="the lenses to be asked for")
    lenses = await client.lenses(uri)
    assert [lens.range.start.line for lens in lenses] == [1, 34]
    assert {lens.command.title for lens in lenses} == {"thinklsp: undo “edit stats.py”"}
    assert {lens.command.command for lens in lenses} == {"thinklsp.undo"}
    before = len(client.calls("workspace/codeLens/refresh"))
    client.save(uri)
    assert not await client.lenses(uri)
    await client.wait_for(lambda: len(client.calls("workspace/codeLens/refresh")) > before, what="another refresh")
    assert await outside.client.hover(uri, "last") is not None
    assert lenses[0].command.arguments == ({"turnId": result["turnId"]},)
    await client.run_action(lenses[0])
    assert client.text(uri) == STATS


async def test_a_file_that_was_not_open_is_followed_from_its_opening(begin: Begin) -> None:
    files = {"app.py": "a = 1\n", "stats.py": STATS}
    new = write_file("new.py", "n = 1\n")
    outside = await begin(answer(FIX, new), say("Done."), files=files)
    result = await outside.edit(outside.open("app.py"))
    assert result["edits"]["applied"] == "all"
    stats, made = outside.open("stats.py"), outside.open("new.py")
    for uri, part in ((stats, "sum"), (made, "n = 1")):
        assert "Done." in (await hover_until(outside, uri, part, is_found=True)).contents.value
    assert await outside.client.hover(stats, "def mean") is None


async def test_a_later_server_knows_why_the_text_is_there(begin: Begin) -> None:
    outside, uri, _ = await wrote(begin, announce=PLAIN)
    now = STATS.replace("(len(values) - 1)", "len(values)").replace("last = 1", "last = 2")
    assert outside.client.text(uri) == now
    (outside.root / "stats.py").write_text(now)
    await outside.restart()
    client, requests = outside.client, len(outside.provider.requests)
    outside.open("stats.py")
    told = await hover_until(outside, uri, "sum(values)", is_found=True)
    first, why, made, back = told.contents.value.split("\n")
    assert re.fullmatch(r"thinklsp changed this text today at (\d\d:\d\d): stats\.py \(\1\)", first)
    assert why == "The mean was divided by one too few. See [the proof](https://evil.example/?q=1)! Third."
    assert made == f"Model: {MODEL}"
    [action] = named(await client.code_actions(uri, "mean"), "undo")
    assert back == f"To undo: code action “{action.title}”"
    assert not await client.lenses(uri), "the text is saved"
    await client.command("thinklsp.undo")
    assert await client.hover(uri, "last") is None
    assert len(outside.provider.requests) == requests, "a hover costs nothing"


async def test_a_server_knows_what_another_one_writes_meanwhile(begin: Begin) -> None:
    outside, _, uri = await begin_file(begin, STATS, name="stats.py")
    other = await outside.beside()
    other.open("stats.py")
    assert await other.client.hover(uri, "last") is None
    session = ""
    for number, end in enumerate(("undo", "delete"), 2):
        outside.provider.say(answer(edit_file("stats.py", "last = 1", f"last = {number}")), say("Counted."))
        result = await outside.edit(uri, "Count.")
        assert (result["edits"]["applied"], session != result["sessionId"]) == ("all", True)
        session = result["sessionId"]
        other.client.change(uri, "last = 1", f"last = {number}")
        told = await hover_until(other, uri, "last", is_found=True)
        assert "Counted." in told.contents.value
        assert not await other.client.lenses(uri)
        if end == "undo":
            await outside.client.command("thinklsp.undo")
        else:
            await outside.client.command("thinklsp.sessions", {"op": "delete", "sessionId": session})
        assert await hover_until(other, uri, "last", is_found=False) is None
        other.client.change(uri, f"last = {number}", "last = 1")
