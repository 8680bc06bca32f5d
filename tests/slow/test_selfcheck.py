"""What the tests rely on finds what is wrong: both clients, the search for secrets, and the reader of traces."""

from __future__ import annotations

import base64
import gzip
import json
import random
import secrets
import sqlite3
import sys
import textwrap
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.slow.tracing import Changed, Reached, Started, parse, read_trace, text_of
from tests.support.canary import WINDOW, Canary
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


SECRET = base64.b64encode(secrets.token_bytes(120)).decode()
OTHER = "sk-ant-" + secrets.token_hex(20)

FORMS: dict[str, Callable[[bytes], bytes]] = {
    "raw": lambda s: s,
    "json": lambda s: json.dumps({"a": s.decode()}).encode(),
    "json with escaped slashes": lambda s: s.replace(b"/", b"\\/"),
    "every character escaped": lambda s: "".join(f"\\u{c:04x}" for c in s).encode(),
    "escaped twice": lambda s: "".join(f"\\\\u{c:04X}" for c in s).encode(),
    "base64": base64.b64encode,
    "base64 after one byte": lambda s: base64.b64encode(b"x" + s + b"yz"),
    "base64 after two bytes": lambda s: base64.b64encode(b"xx" + s + b"y"),
    "base64url": lambda s: base64.urlsafe_b64encode(b"xyz" + s),
    "hex": lambda s: s.hex().encode(),
    "hex, upper case, after a digit": lambda s: b"f" + s.hex().upper().encode(),
    "hex dump": lambda s: s.hex(" ").encode(),
    "percent": lambda s: quote(s.decode(), safe="").encode(),
    "percent, every byte": lambda s: "".join(f"%{c:02X}" for c in s).encode(),
    "utf-16": lambda s: s.decode().encode("utf-16-le"),
    "utf-16 be": lambda s: s.decode().encode("utf-16-be"),
    "gzip": lambda s: b"log" + gzip.compress(b"before " + s),
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("part", ["whole", "window"])
def test_a_planted_leak_is_found(form: str, part: str) -> None:
    canary = Canary({"signature": SECRET, "api key": OTHER})
    chance = random.Random(form)
    for _ in range(10):
        start = chance.randrange(len(SECRET) - WINDOW)
        # Nothing is base64 of less than the window once its torn first and last groups are gone.
        size = WINDOW + (8 if "base64" in form else 0)
        text = SECRET if part == "whole" else SECRET[start : start + size]
        data = b"INFO some log line\n" * 3 + FORMS[form](text.encode()) + b"\n tail"
        assert {leak.secret for leak in canary.search(data, "log")} == {"signature"}


def test_leaks_cut_over_messages_are_found() -> None:
    pieces = [SECRET[n : n + 7] for n in range(0, len(SECRET), 7)]
    messages = [{"method": "$/progress", "params": {"token": 1, "value": {"kind": "text", "delta": p}}} for p in pieces]
    canary = Canary({"signature": SECRET})
    assert canary.search(json.dumps(messages).encode(), "stdout") == []
    assert [leak.where for leak in canary.search_messages(messages, "stdout")] == ["stdout, member 'delta'"]


def test_the_store_may_hold_signatures_and_nothing_else_may(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "sessions.db") as store:
        store.execute("create table block (raw text)")
        store.execute("insert into block values (?)", (SECRET,))
    store.close()
    canary = Canary({"signature": SECRET, "api key": OTHER})
    assert canary.search_tree(tmp_path) == []
    assert len(canary.search_tree(tmp_path, store_may_hold=False)) == 1
    (tmp_path / "sessions.db").write_bytes((tmp_path / "sessions.db").read_bytes() + OTHER.encode())
    (tmp_path / "server.log").write_text(f"key {OTHER} signature {SECRET}")
    assert len(canary.search_tree(tmp_path)) == 3


def written(data: bytes) -> str:
    """As strace writes a string."""
    plain = {byte: chr(byte) for byte in range(32, 127)} | {0x22: '\\"', 0x5C: "\\\\", 0x0A: "\\n", 0x09: "\\t"}
    return "".join(plain.get(byte, f"\\{byte:03o}") for byte in data)


@given(st.binary(max_size=40), st.binary(max_size=40))
def test_any_bytes_come_back(first: bytes, second: bytes) -> None:
    call = parse(f'1.5 rename("{written(first)}", "{written(second)}") = 0')
    assert call is not None
    assert [text_of(part).encode("utf-8", "surrogateescape") for part in call.arguments] == [first, second]


THREADS = {
    # Numbers begin anew: the first by time has a higher one.
    900: """
1.0 execve("/s", ["/s", "-x"], ["A=1"]) = 0
1.1 openat(AT_FDCWD</w>, "read", O_RDONLY) = 3</w/read>
1.2 openat(AT_FDCWD</w>, "O_CREAT", O_RDONLY) = 3</w/O_CREAT>
1.3 openat(AT_FDCWD</w>, "link", O_WRONLY|O_CREAT, 0600) = 3</real>
1.4 openat(7</w/sub>, "../new", O_RDWR) = -1 ENOENT (No such file or directory)
1.5 mkdir("made", 0700) = 0
1.6 renameat(7</w/sub>, "a", AT_FDCWD</w>, "b") = 0
1.7 symlink("/target", "link") = 0
1.8 fchmod(3</w/\\303\\251>, 0600) = 0
1.9 clone3({flags=CLONE_VM|CLONE_THREAD}, 88) = 30
2.0 vfork() = 31
2.1 connect(4<socket:[1]>, {sa_family=AF_INET, sin_port=htons(80), sin_addr=inet_addr("127.0.0.1")}, 16) = 0
2.2 connect(4<socket:[1]>, {sa_family=AF_INET6, sin6_port=htons(81), sin6_flowinfo=htonl(0), inet_pton(AF_INET6, "::1", &sin6_addr), sin6_scope_id=0}, 28) = 0
2.3 sendto(4<socket:[1]>, "sa_family=AF_INET", 17, 0, NULL, 0) = 3
2.4 utimensat(AT_FDCWD</w>, NULL, NULL, 0) = 0
""",  # noqa: E501 - strace writes it so
    31: """
2.05 chdir("/elsewhere") = 0
2.06 execve("/c", ["/c"], []) = -1 ENOENT (No such file or directory)
2.07 unlink("x") = 0
""",
    30: "",
}


def test_a_trace_tells_who_did_what(tmp_path: Path) -> None:
    for number, text in THREADS.items():
        (tmp_path / f"thread.{number}").write_text(text.lstrip())
    trace = read_trace(tmp_path, Path("/w"))
    assert trace.started == [Started(900, "/s", ("/s", "-x"), ("A=1",)), Started(31, "/c", ("/c",), ())]
    assert trace.forked == 1
    assert trace.reached == [Reached(900, "connect", "127.0.0.1:80"), Reached(900, "connect", "::1:81")]
    assert trace.changed == [
        Changed(900, "openat", "/real"),
        Changed(900, "openat", "/w/new"),
        Changed(900, "mkdir", "/w/made"),
        Changed(900, "renameat", "/w/sub/a"),
        Changed(900, "renameat", "/w/b"),
        Changed(900, "symlink", "/w/link"),
        Changed(900, "fchmod", "/w/é"),
        Changed(900, "utimensat", "/w"),
        Changed(31, "unlink", "/elsewhere/x"),
    ]
