"""The first answer, given before anything is loaded: it is what the whole server would say, or is left to that."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Hashable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.lsp.test_start import run_server
from tests.support.client.raw import framed
from tests.support.sizes import examples
from thinklsp.lsp.protocol.fast_initialize import answer_initialize, build_initialize_reply
from thinklsp.lsp.transport.connection import create_server

CORPUS = Path(__file__).parents[1] / "slow" / "corpus.jsonl"
PLAIN = {"processId": None, "rootUri": None, "capabilities": {}}


class Collected:
    """What the server writes, body by body."""

    is_full = False

    def __init__(self) -> None:
        self.bodies: list[bytes] = []

    def write(self, body: bytes, *, coalesce_key: Hashable = None) -> None:
        self.bodies.append(body)


def whole(body: bytes) -> bytes:
    """What the whole server answers to this as its first message."""
    server, out = create_server(), Collected()
    server.protocol.connect(out)
    server.protocol.receive(body)
    [answer] = out.bodies
    return answer


def message(params: Any = None, **more: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": PLAIN if params is None else params} | more


def encoded(value: Any) -> bytes:
    return json.dumps(value).encode()


def frame(value: Any) -> bytes:
    return framed(encoded(value))


def general(**members: Any) -> dict[str, Any]:
    return message(PLAIN | {"capabilities": {"general": members}})


# Clients as they are: all of these are answered at once.
USUAL = {
    "nothing but what must be there": message(),
    "a text as id": message(id="first"),
    "utf-8": general(positionEncodings=["utf-8", "utf-16"]),
    "utf-32": general(positionEncodings=["utf-32"]),
    "an encoding that nobody knows": general(positionEncodings=["utf-7", "utf-16"]),
    "none that anybody knows": general(positionEncodings=["utf-7"]),
    "all of the general part": general(
        staleRequestSupport={"cancel": True, "retryOnContentModified": ["textDocument/hover"]},
        regularExpressions={"engine": "ECMAScript", "version": "ES2020"},
        markdown={"parser": "marked", "version": "1.1.0", "allowedTags": ["ul"]},
        positionEncodings=["utf-16"],
    ),
    "folders": message(
        PLAIN
        | {
            "processId": 12,
            "rootPath": "/ws",
            "rootUri": "file:///ws",
            "workspaceFolders": [{"uri": "file:///ws", "name": "ws"}],
            "trace": "off",
            "workDoneToken": "t",
            "locale": "en",
            "clientInfo": {"name": "Visual Studio Code", "version": "1.100.0"},
            "initializationOptions": {"thinklsp": {"effort": "high", "nested": [1, {"jsonrpc": "2.0"}]}},
        }
    ),
    "capabilities of a later version": message(PLAIN | {"capabilities": {"textDocument": {"hover": "yes", "new": []}}}),
    "no capabilities": message({"processId": None, "rootUri": None}),
    "a process that is none": message(PLAIN | {"processId": "1"}),
    "a root elsewhere": message(PLAIN | {"rootUri": "http://host/ws"}),
    "a folder without a name": message(PLAIN | {"workspaceFolders": [{"uri": "file:///ws"}]}),
    "encodings in one text": general(positionEncodings="utf-8"),
    "an encoding that is a number": general(positionEncodings=["utf-8", 8]),
    "a general part that does not fit": general(positionEncodings=["utf-8"], markdown={"version": "1"}),
    "a general part of another kind": message(PLAIN | {"capabilities": {"general": []}}),
    "a general part of a later version": general(positionEncodings=["utf-8"], new={}),
    "a member of it of another kind": general(markdown="marked"),
    "a field of it of another kind": general(markdown={"parser": 1}),
    "numbers in it for names": general(staleRequestSupport={"cancel": True, "retryOnContentModified": [1]}),
}
# Whatever is odd is left to the whole server.
ODD = {
    "no JSON": b"{",
    "not UTF-8": b'{"id":"\xff"}',
    "a number": b"1",
    "a batch": b"[]",
    "another method": encoded(message(method="shutdown")),
    "a notification": encoded({"jsonrpc": "2.0", "method": "initialize", "params": PLAIN}),
    "an id that is none": encoded(message(id=None)),
    "true as id": encoded(message(id=True)),
    "a fraction as id": encoded(message(id=1.5)),
    "a huge id": encoded(message(id="x" * 300)),
    "an id of more than ASCII": encoded(message(id="\U00010000")),
    "another version": encoded(message(jsonrpc="1.0")),
    "no params": encoded({"jsonrpc": "2.0", "id": 1, "method": "initialize"}),
    "params in a list": encoded(message([])),
    "a number too many": b'{"jsonrpc":"2.0","id":NaN,"method":"initialize","params":{}}',
    "a member twice": b'{"jsonrpc":"2.0","id":1,"id":1,"method":"initialize","params":{"capabilities":{}}}',
    "nesting": encoded(message(PLAIN | {"x": json.loads("[" * 90 + "]" * 90)})),
}


@pytest.mark.parametrize("sent", USUAL.values(), ids=USUAL)
def test_the_usual_client_is_answered_as_the_whole_server_would(sent: dict[str, Any]) -> None:
    body = encoded(sent)
    assert build_initialize_reply(body) == whole(body)


@pytest.mark.parametrize("body", ODD.values(), ids=ODD)
def test_what_is_odd_is_left_to_the_whole_server(body: bytes) -> None:
    assert build_initialize_reply(body) is None


def test_recorded_clients_are_answered_at_once() -> None:
    bodies = [line.encode() for line in CORPUS.read_text().splitlines() if '"method": "initialize"' in line]
    assert bodies
    for body in bodies:
        assert build_initialize_reply(body) == whole(body)


anything = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 2**40) | st.floats(allow_nan=False) | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=8,
)
encodings = st.lists(st.sampled_from(["utf-8", "utf-16", "utf-32", "utf-7"]) | anything, max_size=3)
generals = st.fixed_dictionaries(
    {},
    optional={
        "positionEncodings": encodings | anything,
        "markdown": st.fixed_dictionaries({}, optional={"parser": anything, "version": anything}) | anything,
        "regularExpressions": st.fixed_dictionaries({"engine": anything}) | anything,
        "staleRequestSupport": st.fixed_dictionaries({"cancel": anything, "retryOnContentModified": anything}),
        "new": anything,
    },
)
capabilities = st.fixed_dictionaries(
    {},
    optional={
        "general": generals | anything,
        "workspace": st.dictionaries(st.sampled_from(["applyEdit", "workspaceFolders", "new"]), anything),
        "textDocument": st.dictionaries(st.sampled_from(["synchronization", "codeAction", "hover"]), anything),
        "experimental": anything,
    },
)
uris = st.sampled_from(["file:///ws", "file:///a%20b", "file:///%zz", "untitled:x", "", "file://host/ws"]) | anything
folders = st.lists(st.fixed_dictionaries({"uri": uris, "name": anything}), max_size=2)
params = st.fixed_dictionaries(
    {"capabilities": capabilities | anything},
    optional={
        "processId": anything,
        "rootUri": uris,
        "rootPath": anything,
        "workspaceFolders": folders | anything,
        "initializationOptions": anything,
        "clientInfo": anything,
        "trace": anything,
        "new": anything,
    },
)


@given(params, st.integers() | st.text(max_size=4))
@settings(max_examples=examples(300), deadline=None)
def test_fast_initialize_reply_equals_the_full_reply(given_params: Any, identity: Any) -> None:
    body = encoded(message(given_params, id=identity))
    answer = build_initialize_reply(body)
    assert answer is None or answer == whole(body)


FIRST = {
    "lower case": frame(message()).replace(b"Content-Length", b"content-length"),
    "a type": b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\n" + frame(message()),
    "line feeds": frame(message()).replace(b"\r\n", b"\n"),
    "nonsense before": b"Content-Length: 0\r\n\r\n" + frame(message()),
    "a request too early": frame({"jsonrpc": "2.0", "id": 5, "method": "shutdown"}) + frame(message()),
    "a message that is too long": b"Content-Length: 9999999\r\n\r\n",
    "half a header": b"Content-Le",
    "half a message": frame(message())[:-3],
    "nothing": b"",
}


@pytest.mark.parametrize("pieces", [1, 7, 10_000])
@pytest.mark.parametrize("name", [*FIRST, "the usual"])
def test_every_byte_that_was_read_is_handed_on(name: str, pieces: int) -> None:
    sent = FIRST.get(name, frame(message())) + frame({"jsonrpc": "2.0", "method": "initialized", "params": {}})
    if name in ("half a header", "half a message", "nothing"):
        sent = FIRST[name]
    ours, theirs = os.pipe()
    back, out = os.pipe()
    for start in range(0, len(sent), pieces):
        os.write(theirs, sent[start : start + pieces])
    os.close(theirs)
    greeting = answer_initialize(ours, out)
    os.close(out)
    said = os.read(back, 10_000)
    assert greeting.data + os.read(ours, 10_000) == sent
    assert greeting.is_answered == (name == "the usual")
    assert said.endswith(build_initialize_reply(encoded(message())) or b"none") if greeting.is_answered else said == b""
    os.close(ours)
    os.close(back)


@pytest.mark.parametrize("gone", ["before it is read", "before it is answered"])
def test_a_client_that_goes_away_is_no_error(gone: str) -> None:
    ours, theirs = os.pipe()
    back, out = os.pipe()
    os.write(theirs, frame(message()))
    os.close(back)
    if gone == "before it is read":
        os.close(ours)
    greeting = answer_initialize(ours, out)
    assert (greeting.data, greeting.is_answered) == (b"" if gone == "before it is read" else frame(message()), False)
    for descriptor in {theirs, out, ours} - ({ours} if gone == "before it is read" else set()):
        os.close(descriptor)


def test_what_comes_right_behind_is_dealt_with_as_ever(tmp_path: Path) -> None:
    behind = (
        {"jsonrpc": "2.0", "id": 2, "method": "textDocument/hover", "params": {}},
        {"jsonrpc": "2.0", "method": "$/cancelRequest", "params": {"id": 1}},
        message(id=3),
        {"jsonrpc": "2.0", "id": 9, "method": "shutdown"},
        {"jsonrpc": "2.0", "method": "exit"},
    )
    for server in run_server(["-m", "thinklsp"], tmp_path):
        server.send(frame(message()) + b"".join(map(frame, behind)))
        answers = [server.receive() for _ in range(4)]
        assert [answer["id"] for answer in answers] == [1, 2, 3, 9]
        assert answers[0]["result"]["serverInfo"]["name"] == "thinklsp"
        assert answers[2]["error"]["code"] == -32600
        assert server.end() == (0, "")


def test_an_unusual_beginning_is_answered_all_the_same(tmp_path: Path) -> None:
    for server in run_server(["-m", "thinklsp", "--stdio"], tmp_path):
        server.send(FIRST["a request too early"])
        assert server.receive()["error"]["code"] == -32002
        assert server.receive()["result"]["serverInfo"]["name"] == "thinklsp"
        server.leave()


@pytest.mark.parametrize("sent", [b"", frame(message())], ids=["at once", "after the greeting"])
def test_an_input_that_ends_early_ends_the_server(tmp_path: Path, sent: bytes) -> None:
    for server in run_server(["-m", "thinklsp"], tmp_path):
        server.send(sent)
        assert server.end()[0] == 1


def test_signals_count_from_the_answer_on(tmp_path: Path) -> None:
    """Everything else is still being loaded then."""
    for server in run_server(["-m", "thinklsp"], tmp_path):
        server.send(frame(message()))
        server.receive()
        server.process.send_signal(signal.SIGTERM)
        assert server.end() == (143, "")
