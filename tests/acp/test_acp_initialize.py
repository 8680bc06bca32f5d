"""The first message: what the agent announces, the versions, and how a client authenticates."""

from __future__ import annotations

import time
from typing import Any

import pytest

import thinklsp
from tests.acp.conftest import Begin
from tests.acp.fake_zed import CodeCompanion, FakeZed
from tests.acp.talk import refusal
from tests.e2e.acting import say

Json = Any
SESSIONS = {"list": {}, "delete": {}, "resume": {}, "close": {}, "additionalDirectories": {}}
SETTINGS = {"id": "settings", "name": "Key from the settings"}
NO_KEY = {"ANTHROPIC_API_KEY": None}
BEFORE: list[tuple[str, Json]] = [
    ("authenticate", {"methodId": "settings"}),
    ("session/new", {"cwd": "/", "mcpServers": []}),
    ("session/load", {"sessionId": "a", "cwd": "/", "mcpServers": []}),
    ("session/resume", {"sessionId": "a", "cwd": "/"}),
    ("session/list", {}),
    ("session/delete", {"sessionId": "a"}),
    ("session/close", {"sessionId": "a"}),
    ("session/prompt", {"sessionId": "a", "prompt": []}),
    ("session/set_mode", {"sessionId": "a", "modeId": "ask"}),
    ("session/set_config_option", {"sessionId": "a", "configId": "mode", "value": "ask"}),
]


def without_later_features(result: Json) -> Json:
    """Leave out what later versions may announce: MCP over HTTP."""
    capabilities = dict(result["agentCapabilities"])
    capabilities.pop("mcpCapabilities", None)
    return capabilities


@pytest.mark.timing
async def test_first_answer_takes_less_than_two_seconds(begin: Begin) -> None:
    talk = await begin(session=False, initialize=False)
    begun = time.monotonic()
    await talk.client.initialize()
    assert time.monotonic() - begun < 2


async def test_announcement_is_exact(begin: Begin) -> None:
    talk = await begin(session=False, initialize=False)
    result = await talk.client.initialize()
    assert set(result) == {"protocolVersion", "agentCapabilities", "authMethods", "agentInfo"}
    assert result["protocolVersion"] == 1
    assert without_later_features(result) == {
        "loadSession": True,
        "promptCapabilities": {"image": True, "audio": False, "embeddedContext": True},
        "sessionCapabilities": SESSIONS,
    }
    assert result["agentInfo"] == {"name": "thinklsp", "title": "thinklsp", "version": thinklsp.__version__}


@pytest.mark.parametrize(("peer", "expected"), [(FakeZed, ["settings", "setup"]), (CodeCompanion, ["settings"])])
async def test_terminal_setup_is_for_clients_with_terminals(begin: Begin, peer: Any, expected: list[str]) -> None:
    talk = await begin(session=False, peer=peer)
    methods = talk.client.agent["authMethods"]
    assert [method["id"] for method in methods] == expected
    assert {name: methods[0][name] for name in SETTINGS} == SETTINGS
    assert methods[0].get("type") is None
    for method in methods[1:]:
        assert (method["type"], method["name"], method["args"]) == ("terminal", "Set up a key", ["--setup"])


@pytest.mark.parametrize("version", [0, 1, 2, 65_535])
async def test_other_version_is_answered_with_ours(begin: Begin, version: int) -> None:
    talk = await begin(session=False, initialize=False)
    assert (await talk.client.initialize(version=version))["protocolVersion"] == 1


@pytest.mark.parametrize("version", [None, "1", -1, 1.5, [1], True])
async def test_version_that_is_none_is_refused(begin: Begin, version: Json) -> None:
    talk = await begin(session=False, initialize=False)
    params = {} if version is None else {"protocolVersion": version}
    error = await talk.refused("initialize", params)
    assert (error.code, "protocolVersion" in error.message) == (-32602, True)
    assert (await talk.client.initialize())["protocolVersion"] == 1


async def test_requests_before_initialize_are_refused(begin: Begin) -> None:
    talk = await begin(session=False, initialize=False)
    for method, params in BEFORE:
        assert (await talk.refused(method, params)).code == -32600, method
    talk.client.notify("session/cancel", {"sessionId": "a"})
    await talk.client.initialize()
    await talk.new_session()


async def test_first_method_succeeds_with_a_key(begin: Begin) -> None:
    talk = await begin(session=False, peer=CodeCompanion)
    assert await talk.client.request("authenticate", {"methodId": "settings"}) == {}
    await talk.new_session()


async def test_first_method_without_a_key_names_the_command(begin: Begin) -> None:
    talk = await begin(session=False, env=NO_KEY)
    error = await talk.refused("authenticate", {"methodId": "settings"})
    assert error.code == -32000
    assert "thinklsp" in error.message


@pytest.mark.parametrize("method", ["setup", "other", ""])
async def test_other_methods_are_refused(begin: Begin, method: str) -> None:
    talk = await begin(session=False)
    error = await talk.refused("authenticate", {"methodId": method})
    assert (error.code, "methodId" in error.message) == (-32602, True)


async def test_prompt_without_a_key_asks_for_one(begin: Begin) -> None:
    talk = await begin(env=NO_KEY)
    error = await refusal(talk.send("Hello."))
    assert error.code == -32000
    assert talk.provider.requests == []


async def test_malformed_optional_members_count_as_absent(begin: Begin) -> None:
    for params in (
        {"clientCapabilities": "all", "clientInfo": 7, "_meta": "x"},
        {"clientCapabilities": {"fs": 3, "terminal": "yes", "session": [], "auth": None, "elicitation": 1}},
        {"clientCapabilities": {"fs": {"readTextFile": "yes", "writeTextFile": None}}, "clientInfo": {"name": []}},
        {"clientCapabilities": None, "clientInfo": None, "unknown": {"a": 1}},
    ):
        talk = await begin(say("Hi."), session=False, initialize=False)
        result = await talk.client.request("initialize", {"protocolVersion": 1} | params)
        assert [method["id"] for method in result["authMethods"]] == ["settings"]
        await talk.new_session()
        assert await talk.prompt("Hello.") == "end_turn"
        assert talk.client.asked == []
