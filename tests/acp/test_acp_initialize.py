"""The first message: what the agent announces, the versions, and how a client authenticates."""

from __future__ import annotations

import time
from typing import Any

import pytest

import thinklsp
from tests.acp.conftest import Begin
from tests.acp.fake_zed import CodeCompanion, FakeZed
from tests.acp.talk import refusal

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
    assert result["agentCapabilities"] == {
        "loadSession": True,
        "mcpCapabilities": {"http": True, "sse": False},
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


@pytest.mark.parametrize("version", [0, 65_535])
async def test_other_version_is_answered_with_ours(begin: Begin, version: int) -> None:
    talk = await begin(session=False, initialize=False)
    for wrong in ({}, *({"protocolVersion": wrong} for wrong in ("1", -1, 1.5, [1], True))):
        error = await talk.refused("initialize", wrong)
        assert (error.code, "protocolVersion" in error.message) == (-32602, True)
    assert (await talk.client.initialize(version=version))["protocolVersion"] == 1


async def test_requests_before_initialize_are_refused(begin: Begin) -> None:
    talk = await begin(session=False, initialize=False)
    for method, params in BEFORE:
        assert (await talk.refused(method, params)).code == -32600, method
    talk.client.notify("session/cancel", {"sessionId": "a"})
    await talk.client.initialize()
    await talk.new_session()


async def test_first_method_without_a_key_names_the_command(begin: Begin) -> None:
    talk = await begin(session=False, env=NO_KEY)
    error = await talk.refused("authenticate", {"methodId": "settings"})
    assert error.code == -32000
    assert "thinklsp" in error.message


async def test_first_method_succeeds_with_a_key(begin: Begin) -> None:
    talk = await begin(session=False, peer=CodeCompanion)
    for method in ("setup", "other", ""):
        error = await talk.refused("authenticate", {"methodId": method})
        assert (error.code, "methodId" in error.message) == (-32602, True)
    assert await talk.client.request("authenticate", {"methodId": "settings"}) == {}
    await talk.new_session()


NOT_STARTED = {
    "no key": ("Hello.", NO_KEY, -32000),
    "no key of the chosen provider": ("Hello.", {"THINKLSP_PROVIDER": "openai", "THINKLSP_MODEL": None}, -32000),
    "no address of the chosen provider": ("Hello.", {"THINKLSP_PROVIDER": "openai-compatible"}, -32000),
    "no words, and no key": (" ", {**NO_KEY, "THINKLSP_PROVIDER": "simulator"}, -32603),
}


@pytest.mark.parametrize("name", NOT_STARTED)
async def test_prompt_asks_for_a_key_only_if_it_lacks_one(begin: Begin, name: str) -> None:
    text, env, code = NOT_STARTED[name]
    talk = await begin(env=env)
    error = await refusal(talk.send(text))
    assert (error.code, "acp --setup" in error.message) == (code, code == -32000)
    assert talk.provider.requests == []
