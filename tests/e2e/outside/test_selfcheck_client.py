"""The raw client against a tiny server of 60 lines: it answers as an editor does, and its checks can fail."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.raw_client import RawClient, ResponseError
from tests.support.raw_documents import BadEdit, apply_text_edits, offset_at, position_at, range_of
from tests.support.raw_editor import Refusal, capabilities

# `thinklsp.do` with {"send": [...]} sends each item as it is, then answers; {"wait": id} waits for the client's answer.
SERVER = textwrap.dedent("""
    import json, sys
    def read():
        size = 0
        while (line := sys.stdin.buffer.readline()) not in (b"\\r\\n", b""):
            size = int(line.split(b":")[1])
        return json.loads(sys.stdin.buffer.read(size)) if size else None
    def send(message):
        body = json.dumps({"jsonrpc": "2.0"} | message).encode()
        sys.stdout.buffer.write(b"Content-Length: %d\\r\\n\\r\\n" % len(body) + body)
        sys.stdout.buffer.flush()
    texts, seen = {}, []
    while (message := read()) is not None:
        seen.append(message)
        method = message.get("method")
        if method == "exit":
            break
        elif method == "initialize":
            send({"id": message["id"], "result": {"capabilities": {"positionEncoding": "utf-16"}}})
        elif method == "workspace/executeCommand":
            for item in message["params"]["arguments"][0]["send"]:
                if item == "wait":
                    while "method" in (answer := read()):
                        seen.append(answer)
                    seen.append(answer)
                elif item == "answer":
                    send({"id": message["id"], "result": seen})
                else:
                    send(item)
        elif "id" in message and method:
            send({"id": message["id"], "result": None})
""")


@pytest.fixture
async def client(tmp_path: Path) -> AsyncIterator[RawClient]:
    client = await RawClient.start([sys.executable, "-u", "-c", SERVER], cwd=tmp_path, env={})
    await client.initialize(tmp_path, announce=capabilities(window__workDoneProgress=True))
    yield client
    await client.close()


def progress(token: str, **value: Any) -> dict[str, Any]:
    return {"method": "$/progress", "params": {"token": token, "value": value}}


def apply(edit: dict[str, Any]) -> dict[str, Any]:
    return {"id": "e", "method": "workspace/applyEdit", "params": {"edit": edit}}


BEGIN, END = progress("t", kind="begin", title="x"), progress("t", kind="end")


@pytest.mark.parametrize(
    ("send", "blame"),
    [
        ([BEGIN, END, "answer"], None),
        ([BEGIN, progress("t", kind="report", percentage=1), END, "answer"], None),
        ([BEGIN, "answer"], "answered before the progress"),
        ([BEGIN, END, "answer", progress("t", kind="report")], "while expired"),
        ([progress("t", kind="report"), BEGIN, END, "answer"], "'report' while offered"),
        ([BEGIN, BEGIN, END, "answer"], "'begin' while begun"),
        ([BEGIN, END, END, "answer"], "'end' while ended"),
        ([BEGIN, END, progress("t", kind="report"), "answer"], "'report' while ended"),
        (
            [BEGIN, *(progress("t", kind="report", percentage=n) for n in (5, 4)), END, "answer"],
            "percentage 4 after 5",
        ),
        ([progress("other", kind="begin", title="x"), "answer"], "nobody offered"),
        (["answer", "answer"], "answered twice"),
        (["answer", {"id": 77, "result": 1}], "never sent"),
        (["answer", {"id": 78, "result": 1, "error": {}}], "either result or error"),
    ],
)
async def test_the_checker_sees_what_the_protocol_forbids(
    client: RawClient, send: list[Any], blame: str | None
) -> None:
    await client.command("do", {"send": send}, token="t")
    await client.request("barrier")
    if blame is None:
        assert client.checker.violations == []
    else:
        assert any(blame in violation for violation in client.checker.violations)


async def test_an_unanswered_request_is_noted_at_the_end(tmp_path: Path) -> None:
    client = await RawClient.start([sys.executable, "-u", "-c", SERVER], cwd=tmp_path, env={})
    await client.initialize(tmp_path)
    client.command("do", {"send": []})
    assert await client.close() == 0
    assert any("never answered" in violation for violation in client.checker.violations)


async def test_a_refused_token_may_not_be_used(client: RawClient) -> None:
    create = {"id": 1, "method": "window/workDoneProgress/create", "params": {"token": "s"}}
    await client.command("do", {"send": [create, "wait", progress("s", kind="begin", title="x"), "answer"]})
    assert client.checker.violations == []
    client.editor.handlers["window/workDoneProgress/create"] = _refuse
    create = create | {"id": 2, "params": {"token": "r"}}
    await client.command("do", {"send": [create, "wait", progress("r", kind="begin", title="x"), "answer"]})
    assert "nobody offered" in client.checker.violations[0]
    client.checker.tokens.clear()


def _refuse(params: Any) -> Any:
    raise Refusal("no")


async def test_it_answers_as_an_editor_and_applies_edits(client: RawClient, tmp_path: Path) -> None:
    (tmp_path / "b.py").write_bytes(b"one\r\ntwo\r\n")
    uri, other, new = ((tmp_path / name).as_uri() for name in ("a.py", "b.py", "deep/c.py"))
    client.editor.settings = {"effort": "low"}
    client.open(uri, "x = '🙂'\ny = 1\n")
    client.change(uri, "'🙂'", "'🙂🙂'")
    edit = {
        "documentChanges": [
            {
                "textDocument": {"uri": uri, "version": 2},
                "edits": [{"range": range_of("x = '🙂🙂'\ny = 1\n", "'🙂🙂'"), "newText": "0"}],
            },
            {
                "textDocument": {"uri": other, "version": None},
                "edits": [{"range": range_of("one\r\ntwo\r\n", "two"), "newText": "2"}],
            },
            {"kind": "create", "uri": new},
            {
                "textDocument": {"uri": new, "version": None},
                "edits": [{"range": range_of("", ""), "newText": "made"}],
            },
        ]
    }
    items = {"items": [{"section": "thinklsp"}, {"section": "thinklsp.effort"}]}
    send = [{"id": 9, "method": "workspace/configuration", "params": items}, "wait", apply(edit), "wait", "answer"]
    seen = await client.command("do", {"send": send})
    answers = {m["id"]: m["result"] for m in seen if "method" not in m}
    assert answers == {9: [{"effort": "low"}, "low"], "e": {"applied": True}}
    assert client.text(uri) == "x = 0\ny = 1\n"
    assert (tmp_path / "b.py").read_bytes() == b"one\r\n2\r\n"
    assert client.text(new) == "made"
    changes = [m["params"] for m in seen if m.get("method") == "textDocument/didChange"]
    assert [c["textDocument"]["version"] for c in changes] == [2, 3]
    assert changes[0]["contentChanges"][0]["range"]["end"]["character"] == 8
    assert client.checker.violations == []


@pytest.mark.parametrize(
    ("version", "edits", "applied", "blame"),
    [
        (1, [(0, 0, 0, 1, "")], False, None),  # Stale: the document is at 2 by then.
        (2, [(0, 0, 0, 2, "a"), (0, 1, 0, 3, "b")], False, "overlap"),
        (2, [(0, 9, 0, 9, "a")], False, "no place"),
        (2, [(7, 0, 7, 0, "a")], False, "line 7"),
        (0, [(0, 0, 0, 1, "")], False, "never had"),
        (2, [(0, 0, 0, 0, "a"), (0, 0, 0, 0, "b")], True, None),
    ],
)
async def test_edits_are_judged(
    client: RawClient, tmp_path: Path, version: int, edits: list[Any], applied: bool, blame: str | None
) -> None:
    uri = client.open((tmp_path / "a.py").as_uri(), "abd\n")
    client.change(uri, "bd", "bcd")
    written = [
        {
            "range": {"start": {"line": a, "character": b}, "end": {"line": c, "character": d}},
            "newText": text,
        }
        for a, b, c, d, text in edits
    ]
    edit = {"documentChanges": [{"textDocument": {"uri": uri, "version": version}, "edits": written}]}
    await client.command("do", {"send": [apply(edit), "wait", "answer"]})
    assert client.editor.applied == [applied]
    assert client.text(uri) == ("ababcd\n" if applied else "abcd\n")
    assert [v for v in client.checker.violations if blame is None or blame not in v] == []
    assert bool(client.checker.violations) == (blame is not None)


async def test_errors_and_the_end_of_the_server_are_told(tmp_path: Path) -> None:
    client = await RawClient.start([sys.executable, "-u", "-c", SERVER], cwd=tmp_path, env={})
    await client.initialize(tmp_path)
    error = {"id": 2, "error": {"code": -32803, "message": "no"}}
    with pytest.raises(ResponseError) as failed:
        await client.command("do", {"send": [error]})
    assert failed.value.code == -32803
    client.notify("exit")
    with pytest.raises(ResponseError, match="the server has gone"):
        await client.request("anything")
    assert await client.gone() == 0


@pytest.mark.parametrize(("encoding", "character"), [("utf-8", 1 + 4 + 3), ("utf-16", 1 + 2 + 1), ("utf-32", 3)])
def test_positions(encoding: Any, character: int) -> None:
    text = "a\r\nb🙂\u2028c\x0cd\r\n"
    offset = text.index("c")
    assert position_at(text, offset, encoding) == {"line": 1, "character": character}
    assert offset_at(text, {"line": 1, "character": character}, encoding) == offset
    assert position_at(text, len(text), encoding) == {"line": 2, "character": 0}


@pytest.mark.parametrize("character", [2, 99])
def test_a_place_inside_a_character_or_outside_the_line_is_refused(character: int) -> None:
    with pytest.raises(BadEdit):
        offset_at("b🙂\n", {"line": 0, "character": character})


def test_edits_keep_the_order_of_inserts() -> None:
    place = {"start": {"line": 0, "character": 1}, "end": {"line": 0, "character": 1}}
    edits: list[Any] = [{"range": place, "newText": text} for text in "xyz"]
    assert apply_text_edits("ab", edits) == "axyzb"
