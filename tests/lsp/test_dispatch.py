"""From bodies to handlers and back: exactly one answer to every request, and errors instead of pop-ups."""

from __future__ import annotations

import asyncio
import json
import logging
import math
from typing import Any

import pytest

from tests.lsp.bodies import ACTION, OPEN, RESULT, URI, Codes, answers, call, check_decent, told
from tests.support.in_process import InProcess, in_process
from thinklsp.jsonrpc import rpc_messages
from thinklsp.jsonrpc.rpc_messages import ClientError

PARSE, INVALID, UNKNOWN, PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603
TOO_MUCH = -32803


def command(arguments: Any, name: Any = "thinklsp.cancel") -> bytes:
    return call("workspace/executeCommand", {"command": name, "arguments": arguments})


def action(start: Any, end: Any) -> bytes:
    return call("textDocument/codeAction", ACTION | {"range": {"start": start, "end": end}})


def nested(depth: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":7,"method":"x","params":' + b"[" * depth + b"]" * depth + b"}"


# Name -> body and the errors that must come back; `RESULT` in place of a code where it must succeed.
BAD: dict[str, tuple[bytes, Codes]] = {
    "B-01 no JSON": (b"{nope", [(None, PARSE)]),
    "B-01 nothing": (b" ", [(None, PARSE)]),
    "B-02 no UTF-8": (b'{"a":"\xff"}', [(None, PARSE)]),
    "B-03 empty object": (b"{}", [(None, INVALID)]),
    "B-04 number": (b"3", [(None, INVALID)]),
    "B-04 null": (b"null", [(None, INVALID)]),
    "B-04 text": (b'"x"', [(None, INVALID)]),
    "B-05 NaN": (b'{"jsonrpc":"2.0","id":7,"method":"x","params":NaN}', [(None, PARSE)]),
    "B-05 Infinity": (b'{"jsonrpc":"2.0","id":7,"method":"x","params":[-Infinity]}', [(None, PARSE)]),
    "B-06 batch": (b"[%b,%b]" % (call("shutdown"), call("shutdown", identity=8)), [(None, INVALID)]),
    "B-07 other version": (call("shutdown", jsonrpc="1.0"), [(7, INVALID)]),
    "B-07 no version": (b'{"id":7,"method":"shutdown"}', [(7, INVALID)]),
    "B-08 a member twice": (b'{"jsonrpc":"2.0","id":7,"method":"shutdown","method":"x"}', [(7, INVALID)]),
    "B-08 deep inside": (command([]).replace(b'"arguments"', b'"command":"x","arguments"'), [(7, INVALID)]),
    "B-09 long integer": (b'{"jsonrpc":"2.0","id":7,"method":"x","params":' + b"9" * 5000 + b"}", [(None, PARSE)]),
    "B-10 deep": (nested(100_000), [(None, PARSE)]),
    "B-10 a little too deep": (nested(70), [(7, PARSE)]),
    "B-11 id null": (call("shutdown", identity=None), [(None, INVALID)]),
    "B-12 id with a fraction": (call("shutdown", identity=1.5), [(None, INVALID)]),
    "B-12 id true": (call("shutdown", identity=True), [(None, INVALID)]),
    "B-13 id an object": (call("shutdown", identity={"a": 1}), [(None, INVALID)]),
    "B-13 id a list": (call("shutdown", identity=[1]), [(None, INVALID)]),
    "B-14 long id": (call("shutdown", identity="i" * 1_000_000), [(None, INVALID)]),
    "B-16 method a number": (call(5), [(7, INVALID)]),
    "B-16 method empty": (call(""), [(7, INVALID)]),
    "B-16 method long": (call("m" * 1_000_000), [(7, INVALID)]),
    "B-16 notification of that kind": (b'{"jsonrpc":"2.0","method":5}', []),
    "B-17 unknown method": (call("no/such"), [(7, UNKNOWN)]),
    "B-17 unknown, odd params": (call("no/such", "x"), [(7, UNKNOWN)]),
    "B-17 unknown $/": (call("$/no/such"), [(7, UNKNOWN)]),
    "B-17 known but not ours": (call("textDocument/rename", {}), [(7, UNKNOWN)]),
    "B-18 unknown notification": (told("no/such", {"a": 1}), []),
    "B-18 unknown $/ notification": (told("$/no/such", 5), []),
    "B-19 no params": (b'{"jsonrpc":"2.0","id":7,"method":"workspace/executeCommand"}', [(7, PARAMS)]),
    "B-20 params text": (call("workspace/executeCommand", "x"), [(7, PARAMS)]),
    "B-20 params list": (call("textDocument/codeAction", [1]), [(7, PARAMS)]),
    "B-22 unknown command": (command([], "no.such"), [(7, PARAMS)]),
    "B-23 arguments an object": (command({"turnId": "x"}), [(7, PARAMS)]),
    "B-23 many arguments": (command([{}] * 200_000), [(7, PARAMS)]),
    "B-23 argument a text": (command(["x"]), [(7, PARAMS)]),
    "B-23 wrong type": (command([{"turnId": 5}]), [(7, PARAMS)]),
    "B-23 unknown field": (command([{"turn": "x"}]), [(7, PARAMS)]),
    "B-24 answer nobody waits for": (b'{"jsonrpc":"2.0","id":99,"result":1}', []),
    "B-24 with result and error": (b'{"jsonrpc":"2.0","id":99,"result":1,"error":{"code":1,"message":"x"}}', []),
    "B-24 odd id": (b'{"jsonrpc":"2.0","id":[1],"result":1}', []),
    "B-25 cancel without id": (told("$/cancelRequest", {}), []),
    "B-25 cancel of nothing": (told("$/cancelRequest", {"id": 5}), []),
    "B-25 cancel odd": (told("$/cancelRequest", {"id": [5]}), []),
    "B-27 didOpen without fields": (told("textDocument/didOpen", {"textDocument": {"uri": URI}}), []),
    "B-29 didChange of nothing": (
        told("textDocument/didChange", {"textDocument": {"uri": "file:///no", "version": 2}, "contentChanges": []}),
        [],
    ),
    "B-32 negative position": (action({"line": -1, "character": 0}, {"line": 0, "character": 0}), [(7, PARAMS)]),
    "B-32 huge position": (action({"line": 0, "character": 0}, {"line": 2**31, "character": 0}), [(7, RESULT)]),
    "B-33 second initialize": (call("initialize", {"capabilities": {}, "processId": None}), [(7, INVALID)]),
    "a progress cancel of nothing": (told("window/workDoneProgress/cancel", {"token": "x"}), []),
    "settings of another kind": (told("workspace/didChangeConfiguration", {"settings": [1, 2]}), []),
    "folders removed that never were": (
        told("workspace/didChangeWorkspaceFolders", {"event": {"added": [], "removed": [{"uri": "x", "name": "y"}]}}),
        [],
    ),
    "a long text for a list of objects": (
        told("workspace/didChangeWorkspaceFolders", {"event": {"added": "y" * 1_000_000, "removed": []}}),
        [],
    ),
    "trace": (told("$/setTrace", {"value": "verbose"}), []),
    "a good request": (call("textDocument/codeAction", ACTION), [(7, RESULT)]),
}


@pytest.mark.parametrize("case", BAD)
async def test_bad_input_is_answered_with_an_error_and_no_pop_up(editor: InProcess, case: str) -> None:
    body, expected = BAD[case]
    editor.notify("textDocument/didOpen", OPEN)
    editor.send(body)
    received = await editor.settled()
    assert answers(received) == expected
    check_decent(received)
    editor.request("alive", "textDocument/codeAction", ACTION)
    actions = (await editor.answer("alive"))["result"]
    assert "thinklsp: review this file" in [action["title"] for action in actions]


async def test_the_phases_of_a_connection() -> None:
    async with in_process() as editor:
        for identity, method in ((7, "textDocument/codeAction"), (8, "shutdown"), (9, "no/such")):
            editor.request(identity, method, ACTION)
        editor.notify("textDocument/didOpen", OPEN)
        editor.notify("initialized", {})
        editor.send(call("initialize", None, identity=10))
        editor.send(call("initialize", [{"capabilities": {}}], identity=11))
        await editor.answer(11)
        assert answers(editor.received) == [(7, -32002), (8, -32002), (9, -32002), (10, PARAMS), (11, PARAMS)]
        check_decent(editor.received)
        assert editor.server.state.documents.list_documents() == ()
        editor.received.clear()
        # A refused attempt does not use up the one that is allowed.
        await editor.initialize()
        editor.request(1, "shutdown")
        editor.send(call("textDocument/codeAction", ACTION))
        editor.request(2, "shutdown")
        editor.send(call("initialize", {"capabilities": {}}, identity=3))
        editor.notify("textDocument/didOpen", OPEN)
        await editor.answer(3)
        assert answers(editor.received) == [(1, RESULT), (7, INVALID), (2, INVALID), (3, INVALID)]
        assert editor.server.state.documents.list_documents() == ()
        assert editor.codes == []
        editor.notify("exit")
        assert editor.codes == [0]


@pytest.mark.parametrize("initialized", [False, True])
async def test_exit_without_shutdown_is_a_failure(initialized: bool) -> None:
    async with in_process() as editor:
        if initialized:
            await editor.initialize()
        editor.notify("exit")
        assert editor.codes == [1]


CAPABILITIES: list[Any] = [
    {},
    {"general": {"positionEncodings": ["utf-7", "utf-8"]}, "of": {"the": "future"}},
    {"workspace": {"workspaceEdit": {"resourceOperations": ["create", "link"], "failureHandling": "hope"}}},
    {"textDocument": {"codeAction": {"codeActionLiteralSupport": {}, "tagSupport": {"valueSet": [1, 99]}}}},
    {"textDocument": {"codeAction": {"tagSupport": {"valueSet": 5}}}, "general": {"positionEncodings": ["utf-8"]}},
    {"textDocument": {"publishDiagnostics": {"tagSupport": True}}},
    {"window": 5, "workspace": [], "textDocument": None, "general": "x"},
    {f"key {number}": {"a": number} for number in range(100_000)},
]


@pytest.mark.parametrize("number", range(len(CAPABILITIES)))
async def test_capabilities_that_nobody_knows_lock_no_client_out(number: int) -> None:
    async with in_process() as editor:
        result = await editor.initialize(CAPABILITIES[number], trace="everything", clientInfo={"version": 3})
        assert result["serverInfo"]["name"] == "thinklsp"
        asked = CAPABILITIES[number].get("general") or {}
        utf8 = isinstance(asked, dict) and "utf-8" in asked.get("positionEncodings", ())
        assert result["capabilities"]["positionEncoding"] == ("utf-8" if utf8 else "utf-16")
        assert editor.server.state.client.features.code_action_literals == (
            "codeActionLiteralSupport" in str(CAPABILITIES[number])
        )


FAULTS: list[tuple[BaseException, int]] = [
    (ValueError("/home/me/secret.py"), INTERNAL),
    (RecursionError(), INTERNAL),
    (MemoryError(), INTERNAL),
    (KeyboardInterrupt(), INTERNAL),
    (SystemExit(7), INTERNAL),
    (GeneratorExit(), INTERNAL),
    (asyncio.CancelledError(), -32800),
    (ClientError("The editor said no."), -32803),
    (rpc_messages.InvalidParams("The field x is not valid."), PARAMS),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault[0]).__name__)
async def test_exactly_one_reply_whatever_the_handler_raises(
    editor: InProcess, fault: tuple[BaseException, int], caplog: pytest.LogCaptureFixture
) -> None:
    """In a plain handler, in a coroutine and in a notification."""
    error, code = fault

    def plain(_: Any) -> None:
        raise error

    async def slow(_: Any) -> None:
        await asyncio.sleep(0)
        raise error

    editor.server.feature("test/plain")(plain)
    editor.server.feature("test/slow")(slow)
    editor.notify("test/plain")
    editor.request(1, "test/plain")
    editor.request(2, "test/slow")
    received = await editor.settled()
    assert answers(received) == [(1, code), (2, code)]
    check_decent(received)
    assert "secret" not in json.dumps(received)
    if code == INTERNAL:
        # What the client may not read stands in the log, found by the number.
        number = received[0]["error"]["message"].split("number ")[1].split(")")[0]
        assert number in caplog.text


class Shapeless:
    __slots__ = ()


RESULTS: dict[str, tuple[Any, Any]] = {
    "B-46 an object of ours": (Shapeless(), INTERNAL),
    "B-46 a set": ({1, 2}, INTERNAL),
    "B-46 itself inside": ((loop := [], loop.append(loop))[0], INTERNAL),
    "B-48 NaN": ({"a": math.nan}, INTERNAL),
    "B-48 infinity": ([math.inf], INTERNAL),
    "B-47 half a surrogate pair": ("\ud800", "\ufffd"),
    "more than 32 MB": ("x" * (32 * 1024 * 1024), TOO_MUCH),
    "nothing": (None, None),
    "text": ("€😀\u2028", "€😀\u2028"),
}


@pytest.mark.parametrize(("result", "expected"), RESULTS.values(), ids=RESULTS)
async def test_results_that_are_no_json_are_errors(editor: InProcess, result: Any, expected: Any) -> None:
    async def slow(_: Any) -> Any:
        return result

    editor.server.feature("test/plain")(lambda _: result)
    editor.server.feature("test/slow")(slow)
    for number, method in enumerate(("test/plain", "test/slow")):
        editor.request(number, method)
        answer = await editor.answer(number)
        assert (answer["error"]["code"] if "error" in answer else answer["result"]) == expected
    check_decent(editor.received)


async def test_notifications_are_applied_in_order_first(editor: InProcess) -> None:
    editor.notify("textDocument/didOpen", OPEN)
    document = editor.server.state.documents.get(URI)
    assert document is not None
    for version in range(2, 50):
        change = {"range": ACTION["range"], "text": f"{version} "}
        params = {"textDocument": {"uri": URI, "version": version}, "contentChanges": [change]}
        editor.notify("textDocument/didChange", params)
        assert (document.version, document.text.split(" ")[0]) == (version, str(version))
    editor.notify("textDocument/didClose", {"textDocument": {"uri": URI}})
    editor.request(1, "textDocument/codeAction", ACTION)
    assert (await editor.answer(1))["result"] == []
    assert editor.server.state.documents.get(URI) is None
    assert not document.is_desynced


async def test_nested_jsonrpc_objects_are_plain_data(editor: InProcess) -> None:
    seen: list[Any] = []

    async def execute(params: Any) -> None:
        seen.append(params.arguments)

    editor.server.protocol.execute_command = execute
    inner = {"jsonrpc": "2.0", "method": "shutdown", "id": 1}
    editor.send(command([inner], "thinklsp.chat"))
    await editor.settled()
    assert [list(arguments) for arguments in seen] == [[inner]]


async def test_nothing_is_kept_of_what_has_been_dealt_with(editor: InProcess) -> None:
    editor.notify("textDocument/didOpen", OPEN)
    protocol = editor.server.protocol
    for number in range(500):
        editor.notify("$/setTrace", {"value": "off"})
        editor.notify("test/unknown")
        editor.request(number, "textDocument/codeAction", ACTION)
    await editor.settled()
    assert (protocol._request_futures, len(protocol._pending), protocol._result_types) == ({}, 0, {})


async def test_no_body_is_logged(editor: InProcess, caplog: pytest.LogCaptureFixture) -> None:
    canary = "canary-0123456789"
    with caplog.at_level(logging.WARNING):
        editor.notify("textDocument/didOpen", {"textDocument": canary})
        editor.send(call("textDocument/codeAction", {"textDocument": canary}))
        editor.send(call("workspace/executeCommand", {"command": canary}))
        editor.send(b'{"jsonrpc" ' + canary.encode())
        await editor.settled()
    assert canary not in caplog.text
