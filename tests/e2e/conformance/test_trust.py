"""Instruction files of a folder: followed only after a yes to exactly this text, and told to the model once."""

from __future__ import annotations

import stat
import tomllib
from pathlib import Path
from typing import Any

import pytest
from lsprotocol import types

from tests.e2e.acting import never_answer, say, start_chat, stop_waiting
from tests.e2e.conftest import Begin
from tests.support.client.editor import Refusal
from tests.support.outside import Outside, said
from tests.support.signing_rules import exact, without_cache_control
from tests.support.signing_server import Text, Thinking, answer

ANSWERS = [answer(Thinking(), Text(f"Answer {number}.")) for number in range(6)]
RULE, LATER, INNER = "Always write tests in the house style.", "Never write a test.", "Here tabs indent."
FILES = {"AGENTS.md": RULE, "app.py": "x = 1\n"}
YES, NO = "Follow them", "Not now"


def asked(outside: Outside) -> list[str]:
    return [call.params.message for call in outside.client.calls("window/showMessageRequest")]


def bodies(outside: Outside) -> list[Any]:
    return [without_cache_control(request.body) for request in outside.provider.requests]  # type: ignore[attr-defined]


async def chat(outside: Outside, *answers: str | None, **argument: Any) -> Any:
    """One turn; `answers` to the questions that it may ask."""
    outside.client.editor.message_answers = list(answers)
    result = await outside.turn("thinklsp.chat", {"prompt": "Hello."} | argument)
    assert outside.client.editor.message_answers == []
    return result


def permissions(outside: Outside) -> Path:
    return outside.home / "config/thinklsp/permissions.toml"


async def test_trust_is_stored_and_instructions_are_sent_once(begin: Begin) -> None:
    outside = await begin(*ANSWERS, files=FILES | {"CLAUDE.md": "@AGENTS.md\n"})
    outside.open("app.py")
    await outside.client.code_actions(outside.uri("app.py"), "x")
    assert asked(outside) == []

    first = await chat(outside, YES)
    await chat(outside, sessionId=first["sessionId"])
    await chat(outside)
    [question] = asked(outside)
    assert "AGENTS.md (38 bytes)" in question
    assert "work" in question
    assert "CLAUDE.md" not in question
    one, two, other = bodies(outside)
    assert [said(body).count(RULE) for body in (one, two, other)] == [1, 1, 1]
    # The request grows at its end alone; what the files say is no part of what is the same for everybody.
    for part in ("model", "system", "tools"):
        assert exact(one[part]) == exact(two[part]) == exact(other[part])
        assert RULE not in exact(one[part])
    assert exact(two["messages"][: len(one["messages"])]) == exact(one["messages"])

    path = permissions(outside)
    [entry] = tomllib.loads(path.read_text())["trusted"]
    assert entry["folder"] == str(outside.root)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    # Another server of the same user does not ask again, and neither does a later one.
    beside = await outside.beside()
    await chat(beside)
    await outside.restart()
    await chat(outside)
    assert asked(beside) == asked(outside) == []
    assert [said(body).count(RULE) for body in bodies(outside)[3:]] == [1, 1]


@pytest.mark.parametrize("given", [NO, None, "error"])
async def test_untrusted_instructions_are_ignored_and_asked_once(begin: Begin, given: str | None) -> None:
    outside = await begin(*ANSWERS, files=FILES)
    if given == "error":

        def refuse(_: Any) -> None:
            raise Refusal("no such thing here")

        outside.client.editor.handlers["window/showMessageRequest"] = refuse
    first = await chat(outside, *([given] if given == NO else []))
    second = await chat(outside)
    assert len(asked(outside)) == 1
    assert not any(RULE in exact(body) for body in bodies(outside))
    notices = [] if given == NO else ["Ignored AGENTS.md: you did not answer the question about trust."]
    assert (first["notices"], second["notices"]) == (notices, [])
    assert not permissions(outside).exists()
    # Another process asks again.
    await outside.restart()
    outside.client.editor.handlers.clear()
    await chat(outside, YES)
    assert RULE in said(bodies(outside)[-1])


async def test_a_file_that_changed_is_asked_about_again_and_told_again(begin: Begin) -> None:
    outside = await begin(*ANSWERS, files=FILES)
    first = await chat(outside, YES)
    # What counts is what the user sees: the open document.
    uri = outside.open("AGENTS.md")
    outside.client.change(uri, RULE, LATER)
    second = await chat(outside, YES, sessionId=first["sessionId"])
    third = await chat(outside, sessionId=second["sessionId"])
    assert third["sessionId"] == first["sessionId"]
    before, after = asked(outside)
    assert ("changed" in before, "changed" in after) == (False, True)
    one, two, three = bodies(outside)
    assert exact(two["messages"][: len(one["messages"])]) == exact(one["messages"])
    assert exact(three["messages"][: len(two["messages"])]) == exact(two["messages"])
    assert [said(three).count(text) for text in (RULE, LATER)] == [1, 1]
    # Only one version is trusted at a time.
    assert len(tomllib.loads(permissions(outside).read_text())["trusted"]) == 1
    outside.client.change(uri, LATER, RULE)
    await chat(outside, NO)
    assert RULE not in said(bodies(outside)[-1])


async def test_each_folder_is_trusted_on_its_own(begin: Begin, tmp_path: Path) -> None:
    outside = await begin(*ANSWERS, files=FILES | {"inner/AGENTS.md": INNER, "inner/b.py": "y = 1\n"})
    await chat(outside, YES)
    # A folder below has a say about its own files alone.
    inner = {"name": "document", "uri": outside.uri("inner/b.py")}
    outside.client.editor.message_answers = [YES]
    await outside.turn("thinklsp.action", inner)
    await outside.turn("thinklsp.action", {"name": "document", "uri": outside.uri("app.py")})
    second = tmp_path / "second"
    second.mkdir()
    (second / "CLAUDE.md").write_text("Other rules.")
    event = types.WorkspaceFoldersChangeEvent([types.WorkspaceFolder(second.as_uri(), "second")], [])
    outside.client.connection.workspace_did_change_workspace_folders(types.DidChangeWorkspaceFoldersParams(event))
    await chat(outside, NO)
    questions = asked(outside)
    assert ["AGENTS.md" in q for q in questions] == [True, True, False]
    assert "inner/AGENTS.md" in questions[1]
    assert "second/CLAUDE.md" in questions[2]
    told = [[text in said(body) for text in (RULE, INNER, "Other rules.")] for body in bodies(outside)]
    assert told == [[True, False, False], [True, True, False], [True, False, False], [True, False, False]]
    # The outer ones come first.
    text = said(bodies(outside)[1])
    assert text.index(RULE) < text.index(INNER)


async def test_cancelled_trust_question_stores_only_the_prompt(begin: Begin) -> None:
    outside = await begin(*ANSWERS, files=FILES)
    first = await chat(outside, NO)
    (outside.root / "AGENTS.md").write_text(LATER)
    outside.client.editor.handlers["window/showMessageRequest"] = never_answer
    request = start_chat(outside, "Forget this.", sessionId=first["sessionId"], token="asking")
    await stop_waiting(outside, request, "asking")
    assert len(asked(outside)) == 2
    outside.client.editor.handlers.clear()
    await chat(outside, YES, sessionId=first["sessionId"])
    last = said(bodies(outside)[-1])
    assert ("Forget this." in last, "stopped before" in last, last.count(LATER)) == (True, False, 1)


async def test_compacted_instructions_are_sent_with_the_next_prompt(begin: Begin) -> None:
    plain = [say(f"Answer {number}.") for number in range(4)]
    outside = await begin(*plain, files=FILES)
    long = "These are the words of the user. " * 3000
    first = await chat(outside, YES, prompt=long)
    session = {"sessionId": first["sessionId"]}
    await chat(outside, prompt=f"And now? {long}", **session)
    await outside.client.command("thinklsp.compact", session, token=outside.token())
    await chat(outside, prompt="And then?", **session)
    last = said(bodies(outside)[-1])
    assert "conversation_summary" in last
    assert last.count(RULE) == 1
    assert last.index("And then?") < last.index(RULE)


async def test_a_broken_file_of_permissions_trusts_nothing(begin: Begin) -> None:
    outside = await begin(*ANSWERS, files=FILES)
    permissions(outside).parent.mkdir()
    permissions(outside).write_text("trusted = 5")
    permissions(outside).chmod(0o600)
    result = await chat(outside)
    assert "permissions.toml has a mistake at trusted" in result["notices"][0]
    assert asked(outside) == []
    assert RULE not in said(bodies(outside)[0])
    report = await outside.client.command("thinklsp.doctor")
    assert report["permissions"]["trustedFolders"] is None
    assert any("permissions.toml" in problem for problem in report["problems"])
