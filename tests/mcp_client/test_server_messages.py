"""The checks of single messages, and the parts of the client that need no server."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.support.sizes import examples
from thinklsp.mcp_client.connection import build_environment, explain_missing_sdk
from thinklsp.mcp_client.message_limits import (
    MAX_VALUES,
    BadMessage,
    MessageFilter,
    check_structure,
    limit_tools,
    parse_message,
)
from thinklsp.mcp_client.server_config import ServerConfig

EAGER = (
    "call_result", "connection", "consent", "elicitation", "guarded_process", "message_limits", "server_config",
    "server_entries", "server_guard", "server_pool", "tool_schemas",
)  # fmt: skip
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


def nest(depth: int) -> bytes:
    return b'{"a":' + b"[" * (depth - 1) + b"]" * (depth - 1) + b"}"


@pytest.mark.parametrize("text", [b'"[[[[', b'"\\"[', b'"\\\\"', b'{"a": "]]]]"}', nest(64), b'"' + b"[" * 200 + b'"'])
def test_text_with_few_levels_passes(text: bytes) -> None:
    check_structure(text)


@pytest.mark.parametrize("text", [nest(65), b"[" * 10**6, b'"\\\\"' + b"[" * 65, b'"\\""' + b"{" * 65])
def test_text_with_many_levels_is_refused(text: bytes) -> None:
    with pytest.raises(BadMessage, match="nested more than 64 levels"):
        check_structure(text)


@pytest.mark.parametrize("text", [b"[" + b"1," * MAX_VALUES, b'"' * 10**6, b"[" + b'"a",' * (MAX_VALUES + 1)])
def test_text_with_many_values_is_refused(text: bytes) -> None:
    with pytest.raises(BadMessage, match="more than 100,000 values"):
        check_structure(text)


@settings(max_examples=examples(30), deadline=None)
@given(st.dictionaries(st.text(), JSON))
def test_a_message_is_parsed_as_it_was_sent(message: dict[str, object]) -> None:
    assert parse_message(json.dumps(message).encode()) == message
    assert parse_message(json.dumps(message, ensure_ascii=False).encode("utf-8", "replace")) is not None


@pytest.mark.parametrize("line", [b"hello", b"[1]", b"1", b"\xff", b'{"a": NaN}', b'{"a": ' + b"1" * 5000 + b"}"])
def test_a_line_that_is_no_message_is_none(line: bytes) -> None:
    assert parse_message(line) is None


def test_only_awaited_answers_pass_once() -> None:
    changes: list[int] = []
    messages = MessageFilter(lambda: 0.0, lambda: changes.append(1))
    messages.note_request(7)
    assert not messages.should_pass({"id": 8, "result": {}})
    assert messages.should_pass({"id": "7", "result": {}})
    assert not messages.should_pass({"id": 7, "result": {}})
    assert not messages.should_pass({"method": "notifications/tools/list_changed"})
    assert not messages.should_pass({"method": "notifications/message"})
    assert messages.should_pass({"method": "ping", "id": 1})
    assert changes == [1]


def test_the_limit_of_messages_is_one_of_a_window() -> None:
    now = [0.0]
    messages = MessageFilter(lambda: now[0], lambda: None)
    for window in range(3):
        now[0] = 10.0 * window
        for _ in range(200):
            assert messages.should_pass({"method": "ping", "id": 1})
    with pytest.raises(BadMessage, match="more than 200 requests within 10 seconds"):
        messages.should_pass({"method": "ping", "id": 1})


def test_only_wanted_tools_are_passed_on() -> None:
    tools = [{"name": f"t{number}"} for number in reversed(range(900))]
    result = {"tools": tools, "nextCursor": "more"}
    passed = limit_tools(result, lambda name: name.endswith("0"))
    assert [tool["_meta"]["listed"] for tool in passed.pop("tools")] == tools[9::10]
    assert passed == {"nextCursor": "more"}
    passed = limit_tools(result, lambda _name: True)
    assert [tool["name"] for tool in passed["tools"]] == sorted(tool["name"] for tool in tools)[:250]
    for other in ({}, {"tools": "x"}, {"content": []}):
        assert limit_tools(other, lambda _name: False) is other


def test_the_environment_is_stripped() -> None:
    own = {"HOME": "/h", "PATH": "bin:/usr/bin:.", "GEMINI_API_KEY": "k", "AWS_SECRET": "s", "THINKLSP_A": "1"}
    config = ServerConfig("a", ("x",), env={"A": "1", "ANTHROPIC_API_KEY": "k", "thinklsp_b": "2"})
    assert build_environment(config, own) == {"HOME": "/h", "PATH": "/usr/bin", "A": "1"}


def test_the_fingerprint_names_the_program() -> None:
    config = ServerConfig("a", ("x", "y"), env={"A": "1", "B": "2"})
    assert ServerConfig("b", ("x", "y"), env={"B": "9", "A": "8"}, ask="always").fingerprint == config.fingerprint
    others = [
        ServerConfig("a", ("x y",), env={"A": "1", "B": "2"}), ServerConfig("a", ("x", "y"), env={"A": "1"}),
        ServerConfig("a", ("x", "y"), env={"A": "1", "B": "2"}, cwd="/"), ServerConfig("a", url="https://x"),
    ]  # fmt: skip
    assert len({config.fingerprint, *(other.fingerprint for other in others)}) == 5


def test_nothing_loads_the_sdk_before_a_server_starts() -> None:
    names = [f"thinklsp.mcp_client.{name}" for name in EAGER]
    code = f"import sys, importlib\nfor n in {names}: importlib.import_module(n)\n"
    code += "print(sorted({'mcp', 'mcp_types', 'httpx2'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=os.getcwd())
    assert done.stdout.strip() == "[]"


def test_without_the_sdk_there_is_a_command_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    assert explain_missing_sdk() is None
    monkeypatch.setitem(sys.modules, "mcp", None)
    command = f"{sys.executable} -m pip install 'mcp>=2.3,<3'"
    assert explain_missing_sdk() == f"MCP servers need one more package. Run {command} and restart thinklsp."
