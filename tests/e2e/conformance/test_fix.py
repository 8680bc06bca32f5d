"""The main job: a quick fix runs a thinking tool loop and leaves as one exact workspace edit, in every encoding."""

from __future__ import annotations

from typing import Any

import pytest
from lsprotocol import types

from tests.e2e.acting import begin_file, edit_file, read_file, refused, release, say, sum_usage, write_file
from tests.e2e.conftest import Begin
from tests.support.client.actions import ResponseError
from tests.support.client.documents import range_of
from tests.support.client.editor import capabilities
from tests.support.client.lsp import diagnostic, named
from tests.support.outside import said, statuses
from tests.support.signing_server import Hold, Raw, Redacted, Text, Thinking, answer, tool

DISK = 'NAMES = ["🙂 Ada"]\n\n\ndef greet(name):\n    """Says 🙂."""\n    return "Hello 🙂, " + nmae + "!"  # 🙂\n'
BUFFER = '"""Unsaved 🙂."""\n' + DISK
NEW_FILE = "from app import greet\n\n# 🙂 \u2028 no line end here"


async def test_fix_edits_an_open_document_and_makes_a_file(begin: Begin) -> None:
    outside = await begin(
        answer(
            Thinking("Read and search. 🙂"),
            Redacted(),
            read_file("app.py"),
            Thinking("Both at once."),
            tool("search_text", pattern="nmae", literal=True),
        ),
        answer(
            Thinking("Now the edit."),
            edit_file("app.py", '🙂, " + nmae', '🙂, " + name'),
            Raw({"type": "future_note", "data": "opaque", "weight": 1.0}),
        ),
        answer(Redacted(), Text("A test, too."), write_file("checks/test_app.py", NEW_FILE)),
        answer(Thinking("That is all."), Text("Fixed – 🙂.")),
        files={"app.py": DISK},
    )
    client, provider = outside.pair
    uri = outside.open("app.py", BUFFER)
    problem = diagnostic(BUFFER, "nmae", '"nmae" is not defined')

    [fix] = named(await client.code_actions(uri, "nmae", diagnostics=[problem]), "fix")
    assert fix.title.startswith('thinklsp: fix "nmae" is not defined')
    assert provider.connections == 0
    result = await outside.result(client.run_action(fix, token="fix"))

    # The texts, byte for byte.
    new = outside.uri("checks/test_app.py")
    assert client.text(uri) == BUFFER.replace("nmae", "name")
    assert client.text(new) == NEW_FILE
    assert (outside.root / "app.py").read_text() == DISK

    # One edit, minimal, with exact versions; the user sees what it is.
    [sent] = client.edits()
    assert sent.label.startswith("thinklsp: ")
    changes = sent.edit.document_changes
    [edit] = [c for c in changes if isinstance(c, types.TextDocumentEdit) and c.text_document.uri == uri]
    assert edit.text_document.version == 1
    touched = range_of(BUFFER, "nmae")
    for hunk in edit.edits:
        assert hunk.range.start.line == hunk.range.end.line == touched["start"]["line"]
        assert len(hunk.new_text) <= len('    return "Hello 🙂, " + name + "!"  # 🙂\n')
    assert any(isinstance(c, types.CreateFile) and c.uri == new for c in changes)

    # One begin, one end, and nothing false between.
    kinds = client.progress_kinds("fix")
    assert (kinds[0], kinds.count("begin"), kinds.count("end"), kinds[-1]) == ("begin", 1, 1, "end")
    start = client.progress("fix")[0]
    assert (start["title"], start["cancellable"]) == ("thinklsp", True)
    assert all("percentage" not in value for value in client.progress("fix"))
    assert client.calls("window/workDoneProgress/create") == []

    _check_result(outside, result)
    _check_requests(provider)
    assert "nmae" in said(provider.requests[0].body)


def _check_result(outside: Any, result: Any) -> None:
    assert result["stopReason"] == "end_turn"
    assert result["text"] == "Fixed – 🙂."
    assert result["thinking"] is None
    assert result["verified"] is None
    assert result["edits"]["applied"] == "all"
    assert statuses(result) == {"app.py": "applied", "test_app.py": "applied"}
    cost = result["usage"].pop("costUsd")
    assert result["usage"] == sum_usage(outside.provider.requests)
    assert cost is None or cost > 0


def _check_requests(provider: Any) -> None:
    """The signing server has judged the replay; here: what the tools said, and what was not asked for."""
    _, second, third, last = provider.requests
    read, found = second.tool_results()
    assert "Unsaved 🙂" in str(read["content"])
    assert "nmae" in str(found["content"])
    assert all(not r.get("is_error") for r in (read, found, *third.tool_results(), *last.tool_results()))
    for request in provider.requests:
        assert request.body["stream"] is True
        assert request.body["thinking"]["type"] == "adaptive"
        assert request.body["thinking"].get("display") != "summarized"
        assert all(tool["input_schema"]["additionalProperties"] is False for tool in request.body["tools"])


THREE = "one = nmae\ntwo = nmae2\nthree = 3\n"


def caret(line: int) -> Any:
    return {"start": {"line": line, "character": 0}, "end": {"line": line, "character": 0}}


async def test_a_fix_without_diagnostics_is_of_those_that_are_known(begin: Begin) -> None:
    outside, client, uri = await begin_file(
        begin, THREE, *(say("Done.") for _ in range(6)), name="app.py", files={"other.py": THREE}
    )
    outside.open("other.py")

    async def fixed(*lines: int, **argument: Any) -> None:
        """Runs the action and checks the lines of the problems that the model was told of; none: it is refused."""
        before = len(outside.provider.requests)
        if not lines:
            with pytest.raises(ResponseError, match="nothing to fix") as refused:
                await outside.turn("thinklsp.action", {"name": "fix"} | argument)
            assert (refused.value.code, len(outside.provider.requests)) == (-32803, before)
            return
        await outside.turn("thinklsp.action", {"name": "fix"} | argument)
        told = said(outside.provider.requests[-1].body)
        assert [line for line in range(1, 5) if f"line {line}: error: problem" in told] == list(lines)

    await fixed(uri=uri)
    await fixed(uri=uri, diagnostics=[])
    await client.code_actions(uri, "nmae", diagnostics=[diagnostic(THREE, "nmae", "problem one")])
    await client.code_actions(uri, "nmae2", diagnostics=[diagnostic(THREE, "nmae2", "problem two")])
    await client.code_actions(uri, "three")
    await fixed(1, 2, uri=uri)
    await fixed(2, uri=uri, range=caret(1), diagnostics=[])
    # The document and the range of the latest look, which a range of one's own takes the place of.
    await fixed()
    await fixed(1, range=caret(0))
    await fixed(uri=uri, range=caret(2))
    await fixed(uri=outside.uri("other.py"))
    # They move with their text, and are gone when it has changed.
    client.change(uri, "one = nmae", "zero = 0\none = name")
    await fixed(3, uri=uri)
    client.change(uri, "nmae2", "name2")
    await fixed(uri=uri)
    # What is said to be wrong can be mended without them.
    await outside.turn("thinklsp.action", {"name": "fix", "uri": uri, "instruction": "The names are wrong."})
    told = said(outside.provider.requests[-1].body)
    assert "The names are wrong." in told
    assert "below" not in told.partition("Place:")[0]


async def test_model_gets_document_diagnostics_from_the_bridge(begin: Begin) -> None:
    announce = capabilities(experimental={"thinklsp": {"editor": ["diagnostics"]}})
    outside, _, uri = await begin_file(begin, THREE, say("Done."), name="app.py", announce=announce)
    await refused(
        outside.turn("thinklsp.action", {"name": "fix", "uri": uri, "range": caret(0)}), match="nothing to fix"
    )
    await outside.turn("thinklsp.action", {"name": "fix", "uri": uri})
    [request] = outside.provider.requests
    asked = said(request.body).partition("Place:")[0]
    assert "diagnostics tool" in asked
    assert "below" not in asked


async def test_mistakes_of_the_model_are_told_to_it_and_end_nothing(begin: Begin) -> None:
    outside, client, uri = await begin_file(
        begin,
        "name = 1\nprint(name)\n",
        answer(
            Thinking(),
            read_file("missing.py"),
            read_file("../../etc/passwd"),
            tool("read_file", path="app.py", colour="red"),
            edit_file("app.py", "not there", "x"),
            edit_file("app.py", "name", "x"),
            tool("no_such_tool"),
            write_file(".git/hooks/pre-commit", "#!/bin/sh\n"),
        ),
        say("I give up."),
        name="app.py",
    )
    result = await outside.edit(uri)
    assert result["text"] == "I give up."
    assert result["edits"] is None
    assert client.edits() == []
    results = outside.provider.requests[1].tool_results()
    assert [r.get("is_error") for r in results] == [True] * 7
    for number, part in enumerate(["missing.py", "passwd", "colour", "", "", "no_such_tool", ".git"]):
        assert part in str(results[number]["content"])
    assert "root:" not in str(results)


# U+2028, U+0085, form feed and vertical tab end no line in LSP.
TEXT = "# 🙂 begin\r\nval = '\u2028 \x0c\x0b \x85 🙂é' + 'x'\r\nold = '🙂' ; keep = 1\r\nlast = '🙂' + 'e\u0301'"


@pytest.mark.parametrize("encoding", ["utf-16", "utf-8", "utf-32"])
async def test_edits_arrive_where_they_belong(begin: Begin, encoding: str) -> None:
    hold = Hold()
    outside = await begin(
        answer(
            Thinking(),
            edit_file("a.py", "'x'", "'🙂y'"),
            edit_file("a.py", "old = '🙂'", "new = '🙂🙂'\nmore = 2"),
            edit_file("a.py", "last = ", "first = 0\nlast = "),
            edit_file("a.py", "'e\u0301'", "'é'\nend = '🙂'"),
        ),
        answer(Thinking(), hold, Text("Done.")),
        announce=capabilities(general__positionEncodings=[encoding]),
    )
    client = outside.client
    assert client.server.position_encoding == encoding
    uri = outside.open("a.py", TEXT)
    client.change(uri, "keep", "k🙂pt")
    client.change(uri, "begin\r\n", "begin\r\n\r\n")
    turn = client.command("thinklsp.action", {"name": "edit", "uri": uri, "instruction": "Go."}, token="t")
    await hold.reached.wait()
    assert [r.get("is_error", False) for r in outside.provider.requests[1].tool_results()] == [False] * 4
    client.change(uri, "🙂 begin", "🙂🙂 start")
    result = await release(hold, outside, turn)
    expected = (
        "# 🙂🙂 start\r\n\r\nval = '\u2028 \x0c\x0b \x85 🙂é' + '🙂y'\r\nnew = '🙂🙂'\r\nmore = 2 ; k🙂pt = 1\r\n"
        "first = 0\r\nlast = '🙂' + 'é'\r\nend = '🙂'"
    )
    assert client.text(uri) == expected
    assert statuses(result) == {"a.py": "applied"}


async def test_closed_file_keeps_line_endings_and_bom(begin: Begin) -> None:
    outside, _, uri = await begin_file(
        begin,
        "x = 1\n",
        answer(
            Thinking(),
            edit_file("crlf.txt", "two", "zwei\nund mehr"),
            edit_file("bom.txt", "two", "zwei"),
            edit_file("cr.txt", "two", "zwei"),
        ),
        say("Done."),
        files={"crlf.txt": "one\r\ntwo\r\nthree", "bom.txt": "\ufeffone\ntwo\n", "cr.txt": "one\rtwo\r"},
    )
    result = await outside.edit(uri)
    assert set(statuses(result).values()) == {"applied"}
    assert (outside.root / "crlf.txt").read_bytes() == b"one\r\nzwei\r\nund mehr\r\nthree"
    assert (outside.root / "bom.txt").read_bytes() == b"\xef\xbb\xbfone\nzwei\n"
    assert (outside.root / "cr.txt").read_bytes() == b"one\rzwei\r"


async def test_an_untitled_document_is_addressed_by_its_uri(begin: Begin) -> None:
    uri = "untitled:Untitled-1"
    outside = await begin(answer(Thinking(), edit_file(uri, "one", "zwei 🙂")), say("Done."))
    outside.client.open(uri, "# 🙂 one\r\n")
    result = await outside.edit(uri)
    assert result["edits"]["applied"] == "all"
    assert outside.client.text(uri) == "# 🙂 zwei 🙂\r\n"
