"""From bodies to handlers and back: exactly one answer to every request, and errors instead of pop-ups."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import math
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.support.in_process import in_process
from thinklsp.lsp.protocol import errors
from thinklsp.lsp.protocol.errors import ClientError

PARSE, INVALID, UNKNOWN, PARAMS, INTERNAL = -32700, -32600, -32601, -32602, -32603

URI = "file:///ws/a.py"
OPEN = {"textDocument": {"uri": URI, "languageId": "python", "version": 1, "text": "x = 1\n"}}
ACTION = {
    "textDocument": {"uri": URI},
    "range": {"start": {"line": 0, "character": 0}, "end": {"line": 0, "character": 0}},
    "context": {"diagnostics": []},
}
Codes = list[tuple[Any, int]]


def call(method: Any, params: Any = None, identity: Any = 7, **more: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": identity, "method": method, "params": params} | more).encode()


def command(arguments: Any, name: Any = "thinklsp.cancel") -> bytes:
    return call("workspace/executeCommand", {"command": name, "arguments": arguments})


def action(start: Any, end: Any) -> bytes:
    return call("textDocument/codeAction", ACTION | {"range": {"start": start, "end": end}})


def nested(depth: int) -> bytes:
    return b'{"jsonrpc":"2.0","id":7,"method":"x","params":' + b"[" * depth + b"]" * depth + b"}"


def told(method: str, params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "method": method, "params": params}).encode()


# Name -> body and the errors that must come back; `RESULT` in place of a code where it must succeed.
RESULT = 0
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
    "B-32 huge position": (action({"line": 0, "character": 0}, {"line": 2**31, "character": 0}), [(7, PARAMS)]),
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


def answers(received: list[Any]) -> Codes:
    return [(m.get("id"), m["error"]["code"] if "error" in m else RESULT) for m in received if "method" not in m]


def check_decent(received: list[Any]) -> None:
    """No pop-up, no inside of ours in any text, and every answer is one."""
    for message in received:
        assert message["jsonrpc"] == "2.0"
        assert message.get("method") != "window/showMessage", message
        if "method" not in message:
            assert ("result" in message) != ("error" in message), message
        if "error" in message:
            assert set(message["error"]) == {"code", "message"}
            assert len(message["error"]["message"]) < 400
        text = json.dumps(message)
        assert not [sign for sign in ("Traceback", "site-packages", ".py\\", "Error(") if sign in text], text


@pytest.mark.parametrize("case", BAD)
async def test_bad_input_is_answered_with_an_error_and_no_pop_up(case: str) -> None:
    body, expected = BAD[case]
    async with in_process() as editor:
        await editor.initialize()
        editor.notify("textDocument/didOpen", OPEN)
        editor.send(body)
        received = await editor.settled()
        assert answers(received) == expected
        check_decent(received)
        editor.request("alive", "textDocument/codeAction", ACTION)
        [action] = (await editor.answer("alive"))["result"]
        assert action["title"] == "thinklsp: review this file"


async def test_the_phases_of_a_connection() -> None:
    async with in_process() as editor:
        for body in (
            call("textDocument/codeAction", ACTION),
            call("shutdown", identity=8),
            call("no/such", identity=9),
        ):
            editor.send(body)  # B-33
        editor.notify("textDocument/didOpen", OPEN)  # B-35
        editor.notify("initialized", {})
        editor.send(call("initialize", {"capabilities": 5}, identity=10))
        editor.send(call("initialize", {"capabilities": {}, "workspaceFolders": 5}, identity=11))
        await editor.answer(11)
        assert answers(editor.received) == [(7, -32002), (8, -32002), (9, -32002), (10, PARAMS), (11, PARAMS)]
        check_decent(editor.received)
        assert editor.server.state.documents.all() == ()
        editor.received.clear()
        # A refused attempt does not use up the one that is allowed.
        await editor.initialize()
        editor.request(1, "shutdown")
        editor.send(call("textDocument/codeAction", ACTION))  # B-34
        editor.request(2, "shutdown")
        editor.send(call("initialize", {"capabilities": {}}, identity=3))
        editor.notify("textDocument/didOpen", OPEN)
        await editor.answer(3)
        assert answers(editor.received) == [(1, RESULT), (7, INVALID), (2, INVALID), (3, INVALID)]
        assert editor.server.state.documents.all() == ()
        assert editor.codes == []
        editor.notify("exit")
        assert editor.codes == [0]


@pytest.mark.parametrize("initialized", [False, True])
async def test_exit_without_shutdown_is_a_failure(initialized: bool) -> None:
    async with in_process() as editor:  # B-36
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
    """B-53"""
    async with in_process() as editor:
        result = await editor.initialize(CAPABILITIES[number], trace="everything", clientInfo={"version": 3})
        assert result["serverInfo"]["name"] == "thinklsp"
        asked = CAPABILITIES[number].get("general") or {}
        utf8 = isinstance(asked, dict) and "utf-8" in asked.get("positionEncodings", ())
        assert result["capabilities"]["positionEncoding"] == ("utf-8" if utf8 else "utf-16")
        assert editor.server.state.client.can.code_action_literals == (
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
    (errors.InvalidParams("The field x is not valid."), PARAMS),
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: type(fault[0]).__name__)
async def test_exactly_one_reply_whatever_the_handler_raises(
    fault: tuple[BaseException, int], caplog: pytest.LogCaptureFixture
) -> None:
    """F-06, in a plain handler, in a coroutine and in a notification."""
    error, code = fault

    def plain(_: Any) -> None:
        raise error

    async def slow(_: Any) -> None:
        await asyncio.sleep(0)
        raise error

    async with in_process() as editor:
        await editor.initialize()
        editor.server.protocol.handlers.update({"test/plain": plain, "test/slow": slow})
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
    "nothing": (None, None),
    "text": ("€😀\u2028", "€😀\u2028"),
}


@pytest.mark.parametrize("case", RESULTS)
async def test_results_that_are_no_json_are_errors(case: str) -> None:
    result, expected = RESULTS[case]

    async def slow(_: Any) -> Any:
        return result

    async with in_process() as editor:
        await editor.initialize()
        editor.server.protocol.handlers.update({"test/plain": lambda _: result, "test/slow": slow})
        for number, method in enumerate(("test/plain", "test/slow")):
            editor.request(number, method)
            answer = await editor.answer(number)
            assert (answer["error"]["code"] if "error" in answer else answer["result"]) == expected
        check_decent(editor.received)


@pytest.fixture
def hanging() -> dict[str, Any]:
    """A handler that hangs until it is cancelled, and who was."""
    state: dict[str, Any] = {"started": 0, "ended": 0, "go": asyncio.Event()}

    async def hang(params: Any) -> Any:
        state["started"] += 1
        try:
            await state["go"].wait()
        finally:
            state["ended"] += 1
        return params

    return state | {"handler": hang, "state": state}


async def test_cancel_is_for_the_request_of_that_very_id(hanging: dict[str, Any]) -> None:
    async with in_process() as editor:
        await editor.initialize()
        editor.server.protocol.handlers["test/hang"] = hanging["handler"]
        editor.request(3, "test/hang", {"n": 1})
        editor.request("3", "test/hang", {"n": 2})
        editor.request(3, "test/hang")  # B-15: this id is in flight.
        await editor.answer(3)
        assert answers(editor.received) == [(3, INVALID)]
        editor.received.clear()
        editor.send(b'{"jsonrpc":"2.0","id":3,"result":"not yours"}')  # B-24: an answer with the id of a request.
        for _ in range(3):
            editor.notify("$/cancelRequest", {"id": "3"})  # B-26: 3 is not "3".
        await editor.answer("3")
        assert answers(editor.received) == [("3", -32800)]
        hanging["go"].set()
        assert (await editor.answer(3))["result"] == {"n": 1}
        editor.notify("$/cancelRequest", {"id": 3})  # B-25: it has ended.
        editor.request(3, "test/hang")  # The id is free again.
        await editor.settled()
        assert answers(editor.received) == [("3", -32800), (3, RESULT), (3, RESULT)]


async def test_a_request_cancelled_before_it_began_is_answered(hanging: dict[str, Any]) -> None:
    async with in_process() as editor:
        await editor.initialize()
        editor.server.protocol.handlers["test/hang"] = hanging["handler"]
        editor.request(1, "test/hang")
        editor.notify("$/cancelRequest", {"id": 1})
        assert answers(await editor.settled()) == [(1, -32800)]
        assert hanging["state"]["started"] == 0


async def test_shutdown_answers_at_once_and_ends_what_runs(hanging: dict[str, Any]) -> None:
    async with in_process() as editor:
        await editor.initialize()
        editor.server.protocol.handlers["test/hang"] = hanging["handler"]
        for number in range(5):
            editor.request(number, "test/hang")
        editor.request(9, "shutdown")
        await editor.wait_for(lambda: len(editor.received) == 6)
        assert answers(editor.received) == [(9, RESULT), *((number, -32800) for number in range(5))]


async def test_too_many_requests_at_once_are_refused_with_a_sentence(hanging: dict[str, Any]) -> None:
    async with in_process() as editor:  # B-56
        await editor.initialize()
        editor.server.protocol.handlers["test/hang"] = hanging["handler"]
        for number in range(1000):
            editor.request(number, "test/hang")
        await editor.wait_for(lambda: len(editor.received) == 936)
        assert {code for _, code in answers(editor.received)} == {-32803}
        hanging["go"].set()
        await editor.settled()
        assert sorted(number for number, _ in answers(editor.received)) == list(range(1000))


async def test_state_notifications_are_applied_in_order_and_before_what_follows() -> None:
    async with in_process() as editor:
        await editor.initialize()
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
        assert not document.desynced


async def test_a_request_without_an_id_does_nothing(hanging: dict[str, Any]) -> None:
    async with in_process() as editor:
        await editor.initialize()
        editor.server.protocol.handlers["test/hang"] = hanging["handler"]
        editor.notify("test/hang", {})
        # A coroutine that nobody awaits would be told as a warning, which fails the test.
        gc.collect()
        await editor.settled()
        assert editor.received == []


async def test_nested_jsonrpc_objects_are_plain_data() -> None:
    async with in_process() as editor:  # B-21
        await editor.initialize()
        seen: list[Any] = []
        editor.server.protocol.handlers["workspace/executeCommand"] = _recorder(seen)
        inner = {"jsonrpc": "2.0", "method": "shutdown", "id": 1}
        editor.send(command([inner], "thinklsp.chat"))
        await editor.settled()
        assert [list(arguments) for arguments in seen] == [[inner]]


def _recorder(seen: list[Any]) -> Any:
    async def execute(params: Any) -> None:
        seen.append(params.arguments)

    return execute


async def test_requests_of_the_server() -> None:
    async with in_process() as editor:
        await editor.initialize()
        protocol = editor.server.protocol

        async def asked(number: int) -> asyncio.Task[Any]:
            task = asyncio.create_task(protocol.ask("test/ask", {"n": number}, 5.0))
            await editor.wait_for(lambda: len(asks()) == number)
            return task

        def asks() -> list[Any]:
            return [message for message in editor.received if message.get("method") == "test/ask"]

        def last_id() -> Any:
            return asks()[-1]["id"]

        good = await asked(1)
        editor.send({"jsonrpc": "2.0", "id": last_id(), "result": {"a": 1}})
        editor.send({"jsonrpc": "2.0", "id": last_id(), "result": "twice"})
        assert await good == {"a": 1}

        bad = await asked(2)
        editor.send({"jsonrpc": "2.0", "id": last_id(), "error": {"code": -1, "message": "no"}})
        with pytest.raises(ClientError):
            await bad

        for number, damage in enumerate(('"result":1,"result":2', f'"result":{"[" * 70}{"]" * 70}'), 3):
            unusable = await asked(number)
            editor.send(f'{{"jsonrpc":"2.0","id":{last_id()},{damage}}}'.encode())
            with pytest.raises(ClientError):
                await unusable

        dry = await asked(5)
        editor.send({"jsonrpc": "2.0", "id": last_id()})  # Some leave an absent result out.
        assert await dry is None

        gone = await asked(6)
        gone.cancel()
        await asyncio.wait([gone])
        editor.send({"jsonrpc": "2.0", "id": last_id(), "result": 1})  # F-29: too late, and no error.

        with pytest.raises(TimeoutError):
            await protocol.ask("test/ask", {}, 0.0)
        assert protocol._waiting == {}


async def test_requests_that_are_never_answered_do_not_pile_up() -> None:
    async with in_process() as editor:
        await editor.initialize()
        tasks = [asyncio.create_task(editor.server.protocol.ask("test/ask", {}, None)) for _ in range(101)]
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        assert [task.done() for task in tasks] == [True] + [False] * 100
        with pytest.raises(ClientError):
            await tasks[0]
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def test_nothing_is_kept_of_what_has_been_dealt_with() -> None:
    async with in_process() as editor:  # A-13, P-9, P-10
        await editor.initialize()
        editor.notify("textDocument/didOpen", OPEN)
        protocol = editor.server.protocol
        for number in range(500):
            editor.notify("$/setTrace", {"value": "off"})
            editor.notify("test/unknown")
            editor.request(number, "textDocument/codeAction", ACTION)
        await editor.settled()
        assert (protocol._running, protocol._waiting) == ({}, {})


async def test_no_body_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        async with in_process() as editor:
            await editor.initialize()
            canary = "canary-0123456789"
            editor.notify("textDocument/didOpen", {"textDocument": canary})
            editor.send(call("textDocument/codeAction", {"textDocument": canary}))
            editor.send(call("workspace/executeCommand", {"command": canary}))
            editor.send(b'{"jsonrpc" ' + canary.encode())
            await editor.settled()
    assert canary not in caplog.text


_bodies = st.sampled_from(
    [
        call("textDocument/codeAction", ACTION),
        call("workspace/executeCommand", {"command": "thinklsp.cancel", "arguments": [{"turnId": "x"}]}),
        call("textDocument/hover", {"textDocument": {"uri": URI}, "position": {"line": 0, "character": 0}}),
        told("textDocument/didOpen", OPEN),
        told("textDocument/didChange", {"textDocument": {"uri": URI, "version": 2}, "contentChanges": [{"text": "y"}]}),
        told("workspace/didChangeConfiguration", {"settings": {"thinklsp": {"effort": "low"}}}),
        told("$/cancelRequest", {"id": 7}),
        b'{"jsonrpc":"2.0","id":1,"result":null}',
    ]
)
_json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Every place in a JSON value."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(deeper for key, child in children for deeper in places(child, (*path, key)))]


def put(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    inside = put(value[path[0]], path[1:], new)
    if isinstance(value, dict):
        return value | {path[0]: inside}
    return [inside if index == path[0] else item for index, item in enumerate(value)]


@st.composite
def mutated(draw: st.DrawFn) -> bytes:
    """A message with one or two things wrong: another value somewhere, a member missing, or broken bytes."""
    body = draw(_bodies)
    for _ in range(draw(st.integers(1, 2))):
        value = json.loads(body)
        path = draw(st.sampled_from(places(value)))
        value = put(value, path, draw(_json))
        body = json.dumps(value).encode()
    if draw(st.booleans()):
        at = draw(st.integers(0, len(body)))
        body = body[:at] + draw(st.binary(max_size=2)) + body[at + draw(st.integers(0, 3)) :]
    return body


def usable_id(body: bytes) -> Any:
    """The id that must be answered exactly once, None where there is none."""
    try:
        message = json.loads(body, parse_constant=int)  # It reads none of the constants.
    except ValueError:
        return None
    if not isinstance(message, dict) or "method" not in message:
        return None
    identity = message.get("id")
    is_text = isinstance(identity, str) and len(identity) <= 256
    return identity if is_text or (isinstance(identity, int) and not isinstance(identity, bool)) else None


@pytest.fixture
def run() -> Iterator[Callable[[bytes], list[Any]]]:
    """What one server, the same for all examples, has sent by the time that a body has been dealt with."""
    with asyncio.Runner() as runner:
        context = in_process()
        editor = runner.run(context.__aenter__())
        runner.run(editor.initialize())

        async def one(body: bytes) -> list[Any]:
            editor.received.clear()
            editor.send(body)
            return list(await editor.settled())

        yield lambda body: runner.run(one(body))
        runner.run(context.__aexit__(None, None, None))


@settings(max_examples=300, deadline=None, suppress_health_check=list(HealthCheck))
@given(body=mutated())
def test_mutated_messages_are_each_answered_once(run: Callable[[bytes], list[Any]], body: bytes) -> None:
    """A-01: at most one answer to anything, exactly one to every usable id, no pop-up, and the server lives on."""
    received = run(body)
    if b"didChangeConfiguration" in body:
        # A setting that is refused is told on purpose.
        received = [message for message in received if message.get("method") != "window/showMessage"]
    check_decent(received)
    answered = [message["id"] for message in received if "method" not in message]
    identity = usable_id(body)
    assert answered == [identity] if identity is not None else len(answered) <= 1
