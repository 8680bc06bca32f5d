"""Both test clients notice what a server may not do, and refuse edits that do not fit their documents."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.client.editor import capabilities
from tests.support.client.lsp import LspClient
from tests.support.client.raw import RawClient

# `thinklsp.do` with {"send": [...]} sends each item as it is, then answers; {"wait": id} waits for the client's answer.
SERVER = textwrap.dedent("""
    import json, sys
    def read():
        size = 0
        while (line := sys.stdin.buffer.readline()) not in (b"\\r\\n", b""):
            if line.startswith(b"Content-Length:"):
                size = int(line.split(b":")[1])
        message = json.loads(sys.stdin.buffer.read(size)) if size else None
        if message:
            del message["jsonrpc"]  # pygls takes any object with it for a message.
        return message
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
                elif item == "fail":
                    send({"id": message["id"], "error": {"code": -32803, "message": "no"}})
                else:
                    send(item)
        elif "id" in message and method:
            send({"id": message["id"], "result": None})
""")


@pytest.fixture(params=[RawClient, LspClient])
async def client(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[RawClient | LspClient]:
    client = await request.param.start([sys.executable, "-u", "-c", SERVER], cwd=tmp_path, env={})
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
        ([BEGIN, *(progress("t", kind="report", percentage=n) for n in (5, 4)), END, "answer"], "percentage 4 after 5"),
        ([progress("other", kind="begin", title="x"), "answer"], "nobody offered"),
        (["answer", "answer"], "answered twice"),
        (["answer", {"id": 77, "result": 1}], "never sent"),
        (["answer", {"id": 78, "result": 1, "error": {}}], "either result or error"),
    ],
)
async def test_the_checker_sees_what_the_protocol_forbids(
    client: RawClient | LspClient, send: list[Any], blame: str | None
) -> None:
    await client.command("do", {"send": send}, token="t")
    await client.request("barrier")
    if blame is None:
        assert client.checker.violations == []
    else:
        assert any(blame in violation for violation in client.checker.violations)


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
    client: RawClient | LspClient, tmp_path: Path, version: int, edits: list[Any], applied: bool, blame: str | None
) -> None:
    uri = client.open((tmp_path / "a.py").as_uri(), "abd\n")
    client.change(uri, "bd", "bcd")
    written = [
        {"range": {"start": {"line": a, "character": b}, "end": {"line": c, "character": d}}, "newText": text}
        for a, b, c, d, text in edits
    ]
    edit = {"documentChanges": [{"textDocument": {"uri": uri, "version": version}, "edits": written}]}
    await client.command("do", {"send": [apply(edit), "wait", "answer"]})
    assert client.editor.applied == [applied]
    assert client.text(uri) == ("ababcd\n" if applied else "abcd\n")
    assert [v for v in client.checker.violations if blame is None or blame not in v] == []
    assert bool(client.checker.violations) == (blame is not None)
