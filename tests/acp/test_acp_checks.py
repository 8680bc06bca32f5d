"""The checks themselves: every bad line of an agent is found, by the client that watches it."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.acp.agent_rules import AgentChecker
from tests.acp.fake_zed import FakeZed
from tests.acp.schema_check import find_faults, methods, update_kinds

Json = Any
NEW = {"id": 1, "result": {"sessionId": "s"}}
END = {"id": 2, "result": {"stopReason": "end_turn"}}


def update(name: str, session: str = "s", /, **members: Any) -> Json:
    return {"method": "session/update", "params": {"sessionId": session, "update": {"sessionUpdate": name, **members}}}


def chunk(text: str, **members: Any) -> Json:
    return update("agent_message_chunk", content={"type": "text", "text": text}, **({"messageId": "m"} | members))


def call(identity: str = "t", status: str = "pending", **members: Any) -> Json:
    return update("tool_call", toolCallId=identity, title="read a.py", status=status, **members)


def changed(identity: str = "t", status: str = "completed", **members: Any) -> Json:
    return update("tool_call_update", toolCallId=identity, status=status, **members)


DIFF = {"type": "diff", "path": "/w/a.py", "oldText": "a", "newText": "b"}
PLACES = [{"path": "/w/a.py", "line": 1}]
OPTIONS = [
    {"optionId": "allow_once", "name": "Apply", "kind": "allow_once"},
    {"optionId": "reject_once", "name": "Reject", "kind": "reject_once"},
]
EDIT = call("e", kind="edit", content=[DIFF], locations=PLACES)


def asking(options: Json = OPTIONS, **members: Any) -> Json:
    tool = {"toolCallId": "e", "title": "edit", "kind": "edit", "content": [DIFF], "locations": PLACES} | members
    params = {"sessionId": "s", "toolCall": tool, "options": options}
    return {"id": 7, "method": "session/request_permission", "params": params}


GOOD: list[list[Any]] = [
    [chunk("a"), chunk("b"), END],
    [call(), changed(status="in_progress"), changed(rawOutput={"any": [1]}), END],
    [EDIT, asking(), changed("e"), END],
    [update("usage_update", used=1, size=2, cost={"amount": 1, "currency": "USD"}), END],
    [update("plan", entries=[{"content": "a", "priority": "high", "status": "pending"}]), END],
]
# What the agent answers a prompt with, and a part of what is blamed.
BAD: dict[str, tuple[list[Any], str]] = {
    "text on stdout": (["Loading the model", END], "not JSON"),
    "an empty line": (["", END], "not JSON"),
    "an array": (["[]", END], "not a message"),
    "another version": (['{"jsonrpc":"1.0","method":"session/update"}', END], "jsonrpc"),
    "a member of its own": ([chunk("a") | {"trace": 1}, END], "member 'trace'"),
    "a member of its own inside": ([chunk("a", colour=1), END], "colour"),
    "a chunk without text": ([update("agent_message_chunk", messageId="m", content={"type": "text"}), END], "content"),
    "an unknown kind": ([update("plan_update"), END], "plan_update"),
    "an unknown method": ([{"method": "session/message", "params": {}}, END], "not of this protocol"),
    "a request as notification": ([{"method": "fs/read_text_file", "params": {}}, END], "not of this protocol"),
    "an unknown session": ([update("plan", "other", entries=[]), END], "does not know"),
    "an unknown status": ([call(status="done"), END], "status"),
    "a relative path": ([call(locations=[{"path": "a.py"}], status="completed"), END], "location"),
    "a line 0": ([call(locations=[{"path": "/a.py", "line": 0}], status="completed"), END], "location"),
    "a call that runs on": ([call(), END], "run on"),
    "a call that goes back": ([call(status="in_progress"), changed(status="pending"), changed(), END], "goes back"),
    "a call after its end": ([call(status="completed"), changed(), END], "has ended"),
    "an update of no call": ([changed("other"), END], "unknown tool call"),
    "a call twice": ([call(status="failed"), call(status="failed"), END], "second tool call"),
    "no messageId": ([chunk("a", messageId=None), END], "messageId"),
    "half a code point": (['{"jsonrpc":"2.0",' + json.dumps(chunk("\ud83d"))[1:], END], "code point"),
    "a large chunk": ([chunk("a" * 32_001), END], "32001 bytes"),
    "a large line": ([chunk("a" * (1 << 20)), END], "a line of"),
    "an empty chunk": ([chunk(""), END], "0 bytes"),
    "a falling cost": (
        [*(update("usage_update", used=1, size=2, cost={"amount": n, "currency": "USD"}) for n in (2, 1)), END],
        "falls"),
    "a notice": ([update("notice", severity="info", title="Hello"), END], "has not announced"),
    "a permission for no call": ([asking(), END], "unknown tool call"),
    "a permission without its diff": ([EDIT, asking(content=[]), changed("e"), END], "shows nothing"),
    "a permission with another diff": (
        [EDIT, asking(content=[DIFF | {"newText": "c"}]), changed("e"), END], "not those of its tool call"),
    "a permission without a choice": ([EDIT, asking(options=OPTIONS[:1]), changed("e"), END], "allowed or rejected"),
    "an unknown stop reason": ([{"id": 2, "result": {"stopReason": "done"}}], "stopReason"),
    "no stop reason": ([{"id": 2, "result": {}}], "stopReason"),
    "a null result": ([{"id": 2, "result": None}], "session/prompt"),
    "two answers": ([END, END], "nobody waits for"),
    "an answer to nothing": ([{"id": 99, "result": {}}, END], "nobody waits for"),
    "an error with its inside": (
        [{"id": 2, "error": {"code": -32603, "message": 'Traceback: File "x"'}}], "shows the inside"),
    "an error without a code": ([{"id": 2, "error": {"message": "No."}}], "code"),
    "a terminal": (
        [{"id": 3, "method": "terminal/create", "params": {"sessionId": "s", "command": "ls"}}, END], "not announced"),
    "a relative read": (
        [{"id": 3, "method": "fs/read_text_file", "params": {"sessionId": "s", "path": "a"}}, END], "the path"),
    "a request after the turn": (
        [END, {"id": 3, "method": "fs/read_text_file", "params": {"sessionId": "s", "path": "/a"}}], "running prompt"),
    "an id in use": (
        [{"id": 3, "method": "fs/read_text_file", "params": {"sessionId": "s", "path": "/a"}}] * 2 + [END], "in use"),
    "an option without its value": (
        [update("config_option_update", configOptions=[
            {"id": "a", "name": "A", "type": "select", "currentValue": "x", "options": []}]), END], "is not in"),
}  # fmt: skip


def check(lines: list[Any], capabilities: Json = FakeZed.capabilities, *, new: tuple[Json, ...] = (NEW,)) -> list[str]:
    """Return what is blamed if the agent answers the client's prompt with these lines."""
    checker = AgentChecker()
    place = {"cwd": "/", "mcpServers": []}
    prompt = {"sessionId": "s", "prompt": [{"type": "text", "text": "Hello."}]}
    hello = {"id": 0, "result": {"protocolVersion": 1, "agentCapabilities": {}}}
    requests: list[tuple[str, Json, Any]] = [
        ("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities}, [hello]),
        ("session/new", place, new),
        ("session/prompt", prompt, lines),
    ]
    for number, (method, params, answers) in enumerate(requests):
        checker.sent({"id": number, "method": method, "params": params})
        for line in answers:
            text = line if isinstance(line, str) else json.dumps({"jsonrpc": "2.0"} | line, ensure_ascii=False)
            checker.line(text.encode())
    checker.finish()
    return checker.violations


@pytest.mark.parametrize("lines", GOOD)
def test_good_lines_pass(lines: list[Any]) -> None:
    assert check(lines) == []


@pytest.mark.parametrize("name", BAD)
def test_bad_line_is_found(name: str) -> None:
    lines, part = BAD[name]
    violations = check(lines)
    assert any(part in violation for violation in violations), violations


def test_update_before_the_answer_is_found() -> None:
    early = update("available_commands_update", availableCommands=[])
    assert any("does not know" in violation for violation in check([END], new=(early, NEW)))


def test_request_without_capability_is_found() -> None:
    read = {"id": 3, "method": "fs/read_text_file", "params": {"sessionId": "s", "path": "/a"}}
    assert any("has not announced" in violation for violation in check([read, END], {}))


def test_missing_answer_is_found() -> None:
    assert check([]) == ["no answer to session/prompt with id 2"]


def test_schema_knows_both_sides() -> None:
    asked = {method for side, method, part in methods() if (side, part) == ("agent", "Request")}
    assert asked >= {"initialize", "session/new", "session/prompt", "session/load", "session/list", "session/close"}
    assert len(update_kinds()) == 14
    request = {"jsonrpc": "2.0", "id": 1, "method": "session/new", "params": {"cwd": "/", "mcpServers": []}}
    assert find_faults(request, sender="client") == []
    assert find_faults(request) != []
