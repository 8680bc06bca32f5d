"""Positions and line ends: three encodings, lines that only some programs break, files without a last line end."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Begin
from tests.support.outside import statuses
from tests.support.raw_editor import capabilities
from tests.support.signing_script import Hold, Text, Thinking, answer, tool

# U+2028, U+0085, form feed and vertical tab end no line in LSP.
TEXT = "# 🙂 begin\r\nval = '\u2028 \x0c\x0b \x85 🙂é' + 'x'\r\nold = '🙂' ; keep = 1\r\nlast = '🙂' + 'e\u0301'"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8", "utf-32"])
async def test_edits_arrive_where_they_belong(begin: Begin, encoding: str) -> None:
    hold = Hold()
    outside = await begin(
        answer(
            Thinking(),
            tool("edit_file", path="a.py", old_text="'x'", new_text="'🙂y'"),
            tool("edit_file", path="a.py", old_text="old = '🙂'", new_text="new = '🙂🙂'\nmore = 2"),
            tool("edit_file", path="a.py", old_text="last = ", new_text="first = 0\nlast = "),
            tool("edit_file", path="a.py", old_text="'e\u0301'", new_text="'é'\nend = '🙂'"),
        ),
        answer(Thinking(), hold, Text("Done.")),
        announce=capabilities(general__positionEncodings=[encoding]),
    )
    client, provider = outside.pair
    assert client.server.get("positionEncoding", "utf-16") == encoding
    uri = outside.open("a.py", TEXT)
    client.change(uri, "keep", "k🙂pt")
    client.change(uri, "begin\r\n", "begin\r\n\r\n")
    turn = client.command("thinklsp.action", {"name": "edit", "uri": uri, "instruction": "Go."}, token="t")
    await hold.reached.wait()
    assert [r.get("is_error", False) for r in provider.requests[1].tool_results()] == [False] * 4
    client.change(uri, "🙂 begin", "🙂🙂 start")
    hold.release()
    result = await outside.result(turn)
    expected = (
        "# 🙂🙂 start\r\n\r\nval = '\u2028 \x0c\x0b \x85 🙂é' + '🙂y'\r\nnew = '🙂🙂'\r\nmore = 2 ; k🙂pt = 1\r\n"
        "first = 0\r\nlast = '🙂' + 'é'\r\nend = '🙂'"
    )
    assert client.text(uri) == expected
    assert statuses(result) == {"a.py": "applied"}


async def test_a_file_that_is_not_open_keeps_its_line_ends_and_its_mark(begin: Begin) -> None:
    outside = await begin(
        answer(
            Thinking(),
            tool("edit_file", path="crlf.txt", old_text="two", new_text="zwei\nund mehr"),
            tool("edit_file", path="bom.txt", old_text="two", new_text="zwei"),
            tool("edit_file", path="cr.txt", old_text="two", new_text="zwei"),
        ),
        answer(Text("Done.")),
        files={
            "crlf.txt": "one\r\ntwo\r\nthree",
            "bom.txt": "\ufeffone\ntwo\n",
            "cr.txt": "one\rtwo\r",
            "a.py": "x = 1\n",
        },
    )
    uri = outside.open("a.py")
    result = await outside.edit(uri)
    assert set(statuses(result).values()) == {"applied"}
    assert (outside.root / "crlf.txt").read_bytes() == b"one\r\nzwei\r\nund mehr\r\nthree"
    assert (outside.root / "bom.txt").read_bytes() == b"\xef\xbb\xbfone\nzwei\n"
    assert (outside.root / "cr.txt").read_bytes() == b"one\rzwei\r"


async def test_an_untitled_document_is_addressed_by_its_uri(begin: Begin) -> None:
    uri = "untitled:Untitled-1"
    outside = await begin(
        answer(Thinking(), tool("edit_file", path=uri, old_text="one", new_text="zwei 🙂")), answer(Text("Done."))
    )
    outside.client.open(uri, "# 🙂 one\r\n")
    result = await outside.edit(uri)
    assert result["edits"]["applied"] == "all"
    assert outside.client.text(uri) == "# 🙂 zwei 🙂\r\n"
