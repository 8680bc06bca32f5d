"""The main job, from outside: a quick fix runs a thinking tool loop and leaves as one exact workspace edit."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.conftest import Begin
from tests.support.outside import diagnostic, named, said, statuses
from tests.support.raw_client import ResponseError
from tests.support.raw_documents import range_of
from tests.support.raw_editor import capabilities
from tests.support.signing_script import Raw, Redacted, Text, Thinking, answer, tool

DISK = 'NAMES = ["🙂 Ada"]\n\n\ndef greet(name):\n    """Says 🙂."""\n    return "Hello 🙂, " + nmae + "!"  # 🙂\n'
BUFFER = '"""Unsaved 🙂."""\n' + DISK
NEW_FILE = "from app import greet\n\n# 🙂 \u2028 no line end here"


async def test_fix_edits_an_open_document_and_makes_a_file(begin: Begin) -> None:
    outside = await begin(
        answer(
            Thinking("Read and search. 🙂"),
            Redacted(),
            tool("read_file", path="app.py"),
            Thinking("Both at once."),
            tool("search_text", pattern="nmae", literal=True),
        ),
        answer(
            Thinking("Now the edit."),
            tool("edit_file", path="app.py", old_text='🙂, " + nmae', new_text='🙂, " + name'),
            Raw({"type": "future_note", "data": "opaque", "weight": 1.0}),
        ),
        answer(Redacted(), Text("A test, too."), tool("write_file", path="checks/test_app.py", content=NEW_FILE)),
        answer(Thinking("That is all."), Text("Fixed – 🙂.")),
        files={"app.py": DISK},
    )
    client, provider = outside.pair
    uri = outside.open("app.py", BUFFER)
    problem = diagnostic(BUFFER, "nmae", '"nmae" is not defined')

    [fix] = named(await client.code_actions(uri, "nmae", diagnostics=[problem]), "fix")
    assert fix["title"].startswith('thinklsp: fix "nmae" is not defined')
    assert provider.connections == 0
    result = await outside.result(client.run_action(fix, token="fix"))

    # The texts, byte for byte.
    new = outside.uri("checks/test_app.py")
    assert client.text(uri) == BUFFER.replace("nmae", "name")
    assert client.text(new) == NEW_FILE
    assert (outside.root / "app.py").read_text() == DISK

    # One edit, minimal, with exact versions; the user sees what it is.
    [sent] = client.edits()
    assert sent["label"].startswith("thinklsp: ")
    changes = sent["edit"]["documentChanges"]
    [edit] = [c for c in changes if c.get("textDocument", {}).get("uri") == uri]
    assert edit["textDocument"]["version"] == 1
    touched = range_of(BUFFER, "nmae")
    for hunk in edit["edits"]:
        assert hunk["range"]["start"]["line"] == hunk["range"]["end"]["line"] == touched["start"]["line"]
        assert len(hunk["newText"]) <= len('    return "Hello 🙂, " + name + "!"  # 🙂\n')
    assert any(c.get("kind") == "create" and c["uri"] == new for c in changes)

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
    seen = [request.usage for request in outside.provider.requests]
    kinds = ("input_tokens", "cache_read_input_tokens", "cache_creation_input_tokens")
    usage = result["usage"]
    assert usage["inputTokens"] == sum(u[kind] for u in seen for kind in kinds)
    assert usage["cacheReadTokens"] == sum(u["cache_read_input_tokens"] for u in seen)
    assert usage["cacheWriteTokens"] == sum(u["cache_creation_input_tokens"] for u in seen)
    assert usage["outputTokens"] == sum(u["output_tokens"] for u in seen)
    assert usage["thinkingTokens"] == sum(u["thinking_tokens"] for u in seen)
    assert usage["costUsd"] is None or usage["costUsd"] > 0


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
    outside = await begin(*(answer(Text("Done.")) for _ in range(6)), files={"app.py": THREE, "other.py": THREE})
    client, provider = outside.pair
    uri = outside.open("app.py")
    outside.open("other.py")

    async def fixed(*lines: int, **argument: Any) -> None:
        """Runs the action and checks the lines of the problems that the model was told of; none: it is refused."""
        before = len(provider.requests)
        if not lines:
            with pytest.raises(ResponseError, match="nothing to fix") as refused:
                await outside.turn("thinklsp.action", {"name": "fix"} | argument)
            assert (refused.value.code, len(provider.requests)) == (-32803, before)
            return
        await outside.turn("thinklsp.action", {"name": "fix"} | argument)
        told = said(provider.requests[-1].body)
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
    told = said(provider.requests[-1].body)
    assert "The names are wrong." in told
    assert "below" not in told.partition("Place:")[0]


async def test_with_the_bridge_the_model_asks_for_the_diagnostics_of_a_document(begin: Begin) -> None:
    announce = capabilities(experimental={"thinklsp": {"editor": ["diagnostics"]}})
    outside = await begin(answer(Text("Done.")), files={"app.py": THREE}, announce=announce)
    uri = outside.open("app.py")
    with pytest.raises(ResponseError, match="nothing to fix"):
        await outside.turn("thinklsp.action", {"name": "fix", "uri": uri, "range": caret(0)})
    await outside.turn("thinklsp.action", {"name": "fix", "uri": uri})
    [request] = outside.provider.requests
    asked = said(request.body).partition("Place:")[0]
    assert "tool diagnostics" in asked
    assert "below" not in asked


async def test_mistakes_of_the_model_are_told_to_it_and_end_nothing(begin: Begin) -> None:
    outside = await begin(
        answer(
            Thinking(),
            tool("read_file", path="missing.py"),
            tool("read_file", path="../../etc/passwd"),
            tool("read_file", path="app.py", colour="red"),
            tool("edit_file", path="app.py", old_text="not there", new_text="x"),
            tool("edit_file", path="app.py", old_text="name", new_text="x"),
            tool("no_such_tool"),
            tool("write_file", path=".git/hooks/pre-commit", content="#!/bin/sh\n"),
        ),
        answer(Text("I give up.")),
        files={"app.py": "name = 1\nprint(name)\n"},
    )
    client, provider = outside.pair
    uri = outside.open("app.py")
    result = await outside.edit(uri)
    assert result["text"] == "I give up."
    assert result["edits"] is None
    assert client.edits() == []
    results = provider.requests[1].tool_results()
    assert [r.get("is_error") for r in results] == [True] * 7
    for number, part in enumerate(["missing.py", "passwd", "colour", "", "", "no_such_tool", ".git"]):
        assert part in str(results[number]["content"])
    assert "root:" not in str(results)
