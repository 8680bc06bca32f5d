"""Lines of every kind: the agent answers with a code and a sentence, and the connection lives."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.acp.conftest import Begin
from tests.acp.talk import Talk
from tests.e2e.acting import say
from tests.support.epilogue import living_in
from tests.support.signing_server import Hold, Text, answer
from tests.support.watching import seen

Json = Any
SECRET = "hunter2-canary-value"
MIB = 1 << 20

BROKEN: dict[str, tuple[bytes, int]] = {
    "not JSON": (b"Hello", -32700),
    "half a message": (b'{"jsonrpc":"2.0","id":5', -32700),
    "not UTF-8": (b'{"jsonrpc":"2.0","id":5,"method":"\xff\xfe"}', -32700),
    "a number": (b"7", -32600),
    "an empty array": (b"[]", -32600),
    "nothing inside": (b"{}", -32600),
    "a method that is no text": (b'{"jsonrpc":"2.0","id":null,"method":7}', -32600),
    "very deep": (b'{"jsonrpc":"2.0","method":"x","params":' + b"[" * 100_000 + b"]" * 100_000 + b"}", -32600),
    "9 MiB": (b'{"jsonrpc":"2.0","id":5,"method":"' + b"x" * (9 * MIB) + b'"}', -32600),
}


async def check_lives(talk: Talk) -> None:
    assert (await talk.refused("session/nothing", {})).code == -32601


@pytest.mark.parametrize("name", BROKEN)
async def test_broken_line_is_answered_and_passed_over(begin: Begin, name: str) -> None:
    line, code = BROKEN[name]
    talk = await begin()
    talk.client.send_line(line)
    [error] = await talk.client.wait_for(talk.client.lone_errors, what="an error without an id")
    # A line that is very deep may be refused by the parser.
    assert error["code"] in ({-32600, -32700} if name == "very deep" else {code})
    await check_lives(talk)
    assert len(talk.client.lone_errors()) == 1


async def test_unknown_notifications_are_ignored(begin: Begin) -> None:
    talk = await begin()
    before = len(talk.client.received)
    for method in ("session/nothing", "$/nothing", "_own/thing", "session/prompt"):
        talk.client.notify(method, {"a": 1})
        talk.client.notify(method)
    talk.client.notify("session/cancel", {"sessionId": 7})
    await check_lives(talk)
    new = [r.message for r in talk.client.received[before:] if r.message.get("method") != "session/update"]
    assert len(new) == 1


async def test_unknown_method_has_its_code(begin: Begin) -> None:
    talk = await begin()
    for method in ("session/set_model", "session/fork", "_own/thing", "fs/read_text_file", "x" * 250):
        assert (await talk.refused(method, {"sessionId": talk.session})).code == -32601


# Requests whose member is wrong, and the member. `SESSION` stands for a session that exists.
WRONG: list[tuple[str, Json, str]] = [
    ("session/new", {"mcpServers": []}, "cwd"),
    ("session/new", {"cwd": 7, "mcpServers": []}, "cwd"),
    ("session/new", {"cwd": f"relative/{SECRET}", "mcpServers": []}, "cwd"),
    ("session/new", {"cwd": "/", "mcpServers": SECRET}, "mcpServers"),
    ("session/new", {"cwd": "/", "mcpServers": [{"name": SECRET}]}, "mcpServers"),
    ("session/new", {"cwd": "/", "mcpServers": [], "additionalDirectories": [SECRET]}, "additionalDirectories"),
    ("session/load", {"cwd": "/", "mcpServers": []}, "sessionId"),
    ("session/load", {"sessionId": "\ud800", "cwd": "/", "mcpServers": []}, "sessionId"),
    ("session/load", {"sessionId": [SECRET], "cwd": "/", "mcpServers": []}, "sessionId"),
    ("session/resume", {"sessionId": "a"}, "cwd"),
    ("session/list", {"cwd": [SECRET]}, "cwd"),
    *(("session/list", {"cwd": path}, "cwd") for path in ("", SECRET, f"./{SECRET}", "~", "/a\ud800", "/a\0b")),
    ("session/list", {"cursor": SECRET}, "cursor"),
    ("session/list", {"cursor": 7}, "cursor"),
    ("session/delete", {}, "sessionId"),
    ("session/close", {"sessionId": 7}, "sessionId"),
    ("session/prompt", {"sessionId": "SESSION"}, "prompt"),
    ("session/prompt", {"sessionId": "SESSION", "prompt": SECRET}, "prompt"),
    ("session/prompt", {"sessionId": "SESSION", "prompt": [SECRET]}, "prompt"),
    ("session/prompt", {"sessionId": "SESSION", "prompt": [{"type": "text"}]}, "prompt"),
    ("session/prompt", {"sessionId": "SESSION", "prompt": [{"type": "text", "text": {"a": SECRET}}]}, "prompt"),
    ("session/prompt", {"prompt": [{"type": "text", "text": "a"}]}, "sessionId"),
    ("session/set_mode", {"sessionId": "SESSION"}, "modeId"),
    ("session/set_mode", {"sessionId": "SESSION", "modeId": SECRET}, "modeId"),
    ("session/set_config_option", {"sessionId": "SESSION", "value": "ask"}, "configId"),
    ("session/set_config_option", {"sessionId": "SESSION", "configId": "mode"}, "value"),
    ("session/set_config_option", {"sessionId": "SESSION", "configId": "mode", "value": SECRET}, "value"),
    ("session/set_config_option", {"sessionId": "SESSION", "configId": "model", "value": SECRET}, "value"),
    ("session/set_config_option", {"sessionId": "SESSION", "configId": "effort", "value": SECRET}, "value"),
    ("session/set_config_option", {"sessionId": "SESSION", "configId": "mode", "value": 7}, "value"),
    ("session/set_config_option", {"sessionId": "SESSION", "configId": SECRET, "value": "ask"}, "configId"),
    ("session/set_config_option", {
        "sessionId": "SESSION", "configId": "mode", "type": "boolean", "value": True,
    }, "value"),
    ("authenticate", {"methodId": 7}, "methodId"),
    ("authenticate", {}, "methodId"),
]  # fmt: skip


async def test_wrong_members_are_named_and_not_repeated(begin: Begin) -> None:
    talk = await begin()
    for method, params, member in WRONG:
        named = {name: talk.session if value == "SESSION" else value for name, value in params.items()}
        error = await talk.refused(method, named)
        assert (error.code, member in error.message) == (-32602, True), (method, params, error.message)
    for params in (None, [], 7, SECRET):
        assert (await talk.refused("session/new", params)).code in (-32600, -32602)
    assert SECRET.encode() not in talk.client.stdout
    assert SECRET.encode() not in talk.client.stderr


async def test_malformed_optional_members_count_as_absent(begin: Begin) -> None:
    talk = await begin(say("Hi."))
    await talk.new_session(mcpServers=None, additionalDirectories=None, _meta=7)
    link = {"type": "resource_link", "uri": "https://example.com/", "name": "a", "size": "large", "title": 5}
    assert await talk.prompt({"type": "text", "text": "Hello.", "annotations": "x", "_meta": []}, link) == "end_turn"
    assert (await talk.client.request("session/list", {"cwd": None, "cursor": None}))["sessions"]


@pytest.mark.parametrize("busy", [False, True])
async def test_end_of_input_ends_the_agent(begin: Begin, busy: bool) -> None:
    """Also in the middle of a turn: its prompt has no answer, and nothing is left of it."""
    hold = Hold()
    talk = await begin(answer(Text("Hello."), hold, Text(" World.")))
    if busy:
        talk.send("Hello.")
        await hold.reached.wait()
    talk.client.process.stdin.close()
    assert await talk.client.gone() == 0
    await seen(lambda: not living_in(str(talk.outside.home.parent)), what="the end of all processes")
    hold.release()


async def test_agent_runs_without_home(begin: Begin) -> None:
    talk = await begin(say("Hi."), env={"HOME": None, "LANG": None, "TMPDIR": None})
    assert await talk.prompt("Hello.") == "end_turn"


async def test_pieces_and_line_ends_do_not_matter(begin: Begin) -> None:
    talk = await begin(session=False)
    lines = [json.dumps({"jsonrpc": "2.0", "id": f"p{n}", "method": "session/list"}).encode() for n in range(3)]
    for number in range(3):
        talk.client.checker.sent({"id": f"p{number}", "method": "session/list"})
    for byte in b"\r\n".join(lines) + b"\n":
        talk.client.process.stdin.write(bytes([byte]))
        await talk.client.process.stdin.drain()
    ids = {f"p{n}" for n in range(3)}
    await talk.client.wait_for(lambda: ids <= {r.message.get("id") for r in talk.client.received})
