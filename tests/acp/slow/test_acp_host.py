"""The sessions of one client: opened at once, opened many times, and left open for ever."""

from __future__ import annotations

import os
import re
from typing import Any

import pytest

from tests.acp.conftest import Begin
from tests.acp.talk import Talk
from tests.e2e.acting import edit_file, say
from tests.support.client.actions import ResponseError
from tests.support.signing_server import Failure, answer

Json = Any
FILES = {"a.py": "x = 1\n"}


def count_open_files(talk: Talk) -> int:
    return len(os.listdir(f"/proc/{talk.client.process.pid}/fd"))


@pytest.mark.timing
async def test_open_sessions_use_no_descriptors(begin: Begin) -> None:
    """Each open session had one for each of its folders, and a process may have 1,024."""
    talk = await begin(answer(edit_file("a.py", "1", "2")), say("Done."), files=FILES)
    first = talk.session
    for _ in range(40):
        await talk.new_session()
    before = count_open_files(talk)
    for _ in range(60):
        await talk.new_session()
    assert count_open_files(talk) <= before + 5
    assert await talk.prompt("Change it.", session=first) == "end_turn"
    assert (talk.root / "a.py").read_text() == "x = 2\n", "an idle session opens its folders again"


async def test_session_that_is_opened_twice_at_once_is_one(begin: Begin) -> None:
    talk = await begin(say("Hello."), say("Here."))
    await talk.prompt("Go.")
    params = {"sessionId": talk.session, "cwd": str(talk.root), "mcpServers": []}
    requests = [talk.client.request("session/resume", params) for _ in range(5)]
    for request in requests:
        assert "configOptions" in await request
    assert await talk.prompt("Are you there?") == "end_turn"
    await talk.client.request("session/close", {"sessionId": talk.session})
    assert (await talk.refused("session/close", {"sessionId": talk.session})).code == -32002


async def test_prompt_that_fails_behind_a_command_is_an_error(begin: Begin) -> None:
    talk = await begin(Failure(400, "invalid_request_error", "No."), say("Here."))
    with pytest.raises(ResponseError) as raised:
        await talk.prompt("/effort low\nHello.")
    assert raised.value.code == -32603
    assert await talk.prompt("Hello.") == "end_turn"


@pytest.mark.parametrize(
    ("prompt", "end"),
    [
        ("/effort huge", "max.\n\n"),
        ("/effort huge\nHello.", "\n\nThe rest of the prompt was not sent.\n\n"),
        ("/effort huge\n/usage\n/sessions", "\n\nNot run: `/usage`, `/sessions`.\n\n"),
        ("/usage\n/effort huge\n/help\nHello.", "Not run: `/help`.\n\nThe rest of the prompt was not sent.\n\n"),
    ],
)
async def test_command_that_fails_names_what_was_not_run(begin: Begin, prompt: str, end: str) -> None:
    talk = await begin()
    assert await talk.prompt(prompt) == "end_turn"
    assert "`effort` must be one of auto, low" in talk.text
    assert talk.text.endswith(end)
    assert talk.provider.connections == 0


async def test_note_is_a_paragraph_of_its_own(begin: Begin) -> None:
    """Some clients join all text between two tool calls, so a note would follow the last word at once."""
    talk = await begin(say("Done."))
    params = {"cwd": str(talk.root), "mcpServers": [{"name": "m", "command": "m", "args": [], "env": []}]}
    talk.session = (await talk.client.request("session/new", params))["sessionId"]
    await talk.prompt("Hello.")
    assert talk.text.startswith("Done.\n\nNote: ")
    talk.outside.told()


@pytest.mark.parametrize("prompt", ["/help", "/nonsense"])
async def test_help_lists_the_commands_that_the_client_has(begin: Begin, prompt: str) -> None:
    talk = await begin()
    assert await talk.prompt(prompt) == "end_turn"
    [update] = talk.updates("available_commands_update")
    listed = re.findall("^- `/([a-z]+)", talk.text, re.MULTILINE)
    assert set(listed) == {"skill"} | {command["name"] for command in update["availableCommands"]}
