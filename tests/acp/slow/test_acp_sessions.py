"""Sessions: new, list, load, resume, delete and close; and those that are somebody else's."""

from __future__ import annotations

import asyncio
import time
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from tests.acp.conftest import Begin
from tests.acp.talk import Talk, refusal
from tests.e2e.acting import edit_file, read_file, say
from tests.support.client.raw import RawClient
from tests.support.outside import ARGV, MODEL, said
from tests.support.signing_server import Hold, Text, Thinking, answer
from tests.support.watching import HANG_SECONDS

Json = Any
MAX_NEW_SECONDS = 2.0
FILES = {"a.py": "x = 1\n"}
COURSE = [answer(Thinking("I look."), read_file("a.py")), answer(Thinking("I see."), Text("It is 1."))]
REPLAYED = {"user_message_chunk", "agent_message_chunk", "agent_thought_chunk", "tool_call", "tool_call_update"}


async def list_all(talk: Talk, **params: Any) -> list[Json]:
    """Follow the cursors to the end."""
    found, cursor = [], None
    while True:
        given = params if cursor is None else params | {"cursor": cursor}
        page = await talk.client.request("session/list", given)
        found += page["sessions"]
        if (cursor := page.get("nextCursor")) is None:
            return found
        assert page["sessions"]


def reopened(talk: Talk, **members: Any) -> Json:
    return {"sessionId": talk.session, "cwd": str(talk.root), "mcpServers": []} | members


def replayed(talk: Talk) -> list[Json]:
    return [update for update in talk.updates() if update["sessionUpdate"] in REPLAYED]


@pytest.mark.timing
async def test_new_session_is_quick_without_a_network(begin: Begin) -> None:
    """The client's own rules look for updates that come before the answer."""
    talk = await begin(session=False, env={"ANTHROPIC_BASE_URL": "http://127.0.0.1:9"})
    begun = time.monotonic()
    result = await talk.new_session()
    assert time.monotonic() - begun < MAX_NEW_SECONDS
    assert set(result) <= {"sessionId", "modes", "configOptions"}
    await talk.client.wait_for(lambda: "available_commands_update" in talk.kinds())
    [update] = talk.updates("available_commands_update")
    commands = {command["name"]: command for command in update["availableCommands"]}
    assert {"compact", "undo", "usage", "sessions", "review"} <= set(commands)
    assert all(command["description"] for command in commands.values())
    assert talk.kinds()[0] == "available_commands_update"


async def test_sessions_are_separate(begin: Begin) -> None:
    talk = await begin(say("One."), say("Two."))
    first = talk.session
    await talk.new_session()
    assert talk.session != first
    assert await talk.prompt("a", session=first) == "end_turn"
    assert await talk.prompt("b") == "end_turn"
    assert (talk.client.text(first), talk.text) == ("One.", "Two.")
    assert "a" not in [block["text"] for block in talk.provider.requests[1].body["messages"][0]["content"][:1]]


async def test_list_tells_of_every_session_once(begin: Begin) -> None:
    talk = await begin(*[say(f"Answer {number}.") for number in range(5)])
    sessions = []
    for number in range(5):
        sessions.append(talk.session)
        await talk.prompt(f"Question {number}?")
        await talk.new_session()
    other = talk.root / "inside"
    other.mkdir()
    found = await list_all(talk)
    assert [entry["sessionId"] for entry in found if entry["sessionId"] in sessions] == sessions[::-1]
    assert len({entry["sessionId"] for entry in found}) == len(found)
    for entry in found:
        assert entry["cwd"] == str(talk.root)
        assert datetime.fromisoformat(entry["updatedAt"]).tzinfo is not None
    assert all(entry.get("title") for entry in found if entry["sessionId"] in sessions)
    assert {entry["sessionId"] for entry in await list_all(talk, cwd=str(talk.root))} >= set(sessions)
    assert await list_all(talk, cwd=str(other)) == []


async def test_load_replays_in_order_before_its_answer(begin: Begin) -> None:
    talk = await begin(*COURSE, say("Again."), files=FILES)
    assert await talk.prompt("What is x?") == "end_turn"
    await talk.outside.restart()
    result = await talk.client.request("session/load", reopened(talk))
    assert set(result) <= {"modes", "configOptions"}
    assert {option["id"] for option in result["configOptions"]} >= {"mode", "model", "effort"}
    answered = next(n for n, r in enumerate(talk.client.received) if r.message.get("result") is result)
    early = [r.message["params"]["update"] for r in talk.client.calls("session/update")]
    before = sum(r.message.get("method") == "session/update" for r in talk.client.received[:answered])
    assert [u for u in early[before:] if u["sessionUpdate"] in REPLAYED] == []
    kinds = [update["sessionUpdate"] for update in replayed(talk)]
    assert kinds == ["user_message_chunk", "tool_call", "agent_message_chunk"]
    question, call, text = replayed(talk)
    assert question["content"]["text"] == "What is x?"
    assert (call["status"], call.get("content")) in (("completed", None), ("completed", []))
    assert "a.py" in call["title"]
    assert "\n" not in call["title"]
    assert text["content"]["text"] == "It is 1."
    await talk.client.wait_for(lambda: "available_commands_update" in talk.kinds())
    assert await talk.prompt("And now?") == "end_turn"
    assert "What is x?" in said(talk.provider.requests[-1].body)


async def test_resume_replays_nothing(begin: Begin) -> None:
    talk = await begin(*COURSE, say("Still 1."), files=FILES)
    await talk.prompt("What is x?")
    await talk.outside.restart()
    params = reopened(talk)
    del params["mcpServers"]
    result = await talk.client.request("session/resume", params)
    assert {option["id"] for option in result["configOptions"]} >= {"mode", "model", "effort"}
    await talk.client.wait_for(lambda: "available_commands_update" in talk.kinds())
    assert replayed(talk) == []
    assert await talk.prompt("And now?") == "end_turn"
    assert "What is x?" in said(talk.provider.requests[-1].body)
    assert talk.text == "Still 1."


async def test_unknown_session_is_never_a_new_one(begin: Begin, tmp_path: Path) -> None:
    talk = await begin(say("Hi."))
    await talk.prompt("Hello.")
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    unknown: list[tuple[str, Json]] = [
        ("session/load", reopened(talk, sessionId="no-such-session")),
        ("session/resume", reopened(talk, sessionId="no-such-session")),
        ("session/load", reopened(talk, cwd=str(elsewhere))),
        ("session/resume", reopened(talk, cwd=str(elsewhere))),
        ("session/prompt", {"sessionId": "no-such-session", "prompt": [{"type": "text", "text": "a"}]}),
        ("session/set_mode", {"sessionId": "no-such-session", "modeId": "ask"}),
        ("session/set_config_option", {"sessionId": "no-such-session", "configId": "mode", "value": "ask"}),
        ("session/close", {"sessionId": "no-such-session"}),
    ]
    before = len(await list_all(talk))
    for method, params in unknown:
        assert (await talk.refused(method, params)).code == -32002, method
    talk.client.cancel("no-such-session")
    assert len(await list_all(talk)) == before
    assert len(talk.provider.requests) == 1


async def test_delete_is_idempotent(begin: Begin) -> None:
    talk = await begin(say("Hi."))
    await talk.prompt("Hello.")
    for session in (talk.session, talk.session, "no-such-session"):
        assert await talk.client.request("session/delete", {"sessionId": session}) == {}
    assert talk.session not in [entry["sessionId"] for entry in await list_all(talk)]
    assert (await talk.refused("session/load", reopened(talk))).code == -32002


async def test_close_cancels_and_the_session_stays(begin: Begin) -> None:
    hold = Hold()
    talk = await begin(say("Hi."), answer(Text("Long"), hold, Text(" story.")), say("Back."))
    await talk.prompt("Hello.")
    running = talk.send("More.")
    await hold.reached.wait()
    assert await talk.client.request("session/close", {"sessionId": talk.session}) == {}
    assert (await running)["stopReason"] == "cancelled"
    assert (await refusal(talk.send("Are you there?"))).code == -32002
    await talk.client.request("session/resume", reopened(talk))
    assert await talk.prompt("Again.") == "end_turn"


async def test_session_of_another_process_is_refused(begin: Begin) -> None:
    hold = Hold()
    talk = await begin(answer(Text("Hello"), hold, Text(".")))
    running = talk.send("Hello.")
    await hold.reached.wait()
    beside = Talk(await talk.outside.beside(), talk.session)
    try:
        await beside.client.request("session/resume", reopened(talk))
    except Exception as refused:  # noqa: BLE001 - it may be refused here or with the prompt
        code, text = refused.code, refused.message  # type: ignore[attr-defined] # a ResponseError
    else:
        error = await refusal(beside.send("Me too."))
        code, text = error.code, error.message
    assert code == -32603
    assert "in use by another thinklsp" in text
    hold.release()
    assert (await running)["stopReason"] == "end_turn"


async def test_killed_agent_loses_no_step(begin: Begin) -> None:
    hold = Hold()
    talk = await begin(*COURSE, answer(Text("Half"), hold), say("Here."), files=FILES)
    await talk.prompt("What is x?")
    talk.send("More.")
    await hold.reached.wait()
    await talk.outside.restart(kill=True)
    await talk.client.request("session/load", reopened(talk))
    assert [u["sessionUpdate"] for u in replayed(talk)][:3] == [
        "user_message_chunk",
        "tool_call",
        "agent_message_chunk",
    ]
    assert await talk.prompt("Go on.") == "end_turn"


async def test_a_language_server_knows_why_the_agent_wrote(begin: Begin) -> None:
    """Its hover finds the edit in the store, while the agent is still running."""
    talk = await begin(answer(edit_file("a.py", "x = 1", "x = 2")), say("Counted."), files={"a.py": "x = 1\ny = 1\n"})
    assert await talk.prompt("Change it.") == "end_turn"
    lsp = await RawClient.start(ARGV, cwd=talk.root, env=talk.outside.variables)
    await lsp.initialize(talk.root, options={"model": MODEL})
    uri = lsp.open((talk.root / "a.py").as_uri())
    async with asyncio.timeout(HANG_SECONDS):
        while (told := await lsp.hover(uri, "x = 2")) is None:
            pass
    assert "Counted." in str(told)
    assert MODEL in str(told)
    assert await lsp.hover(uri, "y = 1") is None
    assert await lsp.close() == 0
