"""Skills over ACP: commands of the client, a permission for the folder, and the skill's text in the prompt."""

from __future__ import annotations

from typing import Any

from tests.acp.conftest import Begin
from tests.acp.talk import Talk
from tests.e2e.acting import say
from tests.support.outside import said
from tests.support.signing_server import Text, Thinking, Tool, answer
from tests.support.skill_folders import skill_text, write_skill

BODY = "Always look at the tests first."
FILES = {"a.py": "x = 1\n", ".agents/skills/review/SKILL.md": skill_text("review", "Reviews code.", BODY)}


async def command_names(talk: Talk, count: int) -> list[str]:
    """Return the names of the commands in the newest of `count` updates."""
    kind = "available_commands_update"
    await talk.client.wait_for(lambda: talk.kinds().count(kind) >= count)
    updates = talk.updates(kind)
    assert len(updates) == count
    return [command["name"] for command in updates[-1]["availableCommands"]]


async def test_a_skill_is_a_command_and_its_text_goes_with_the_prompt(begin: Begin) -> None:
    talk = await begin(say("One."), say("Two."), files=FILES)
    assert (await command_names(talk, 1))[-2:] == ["review", "skill:review"]
    [command] = [each for each in _commands(talk) if each["name"] == "skill:review"]
    assert (command["description"], command["input"]) == ("Reviews code.", {"hint": "what to do"})
    talk.peer.choices = ["allow_always"]
    assert await talk.prompt("/skill:review look at a.py") == "end_turn"
    [question] = talk.client.requests("session/request_permission")
    assert "review/SKILL.md" in str(question["toolCall"])
    prompt = said(talk.provider.requests[0].body)
    assert ("look at a.py" in prompt, prompt.count(BODY), "/skill:" in prompt) == (True, 1, False)
    assert await talk.prompt("And now?") == "end_turn"
    assert len(talk.client.requests("session/request_permission")) == 1
    assert said(talk.provider.requests[1].body).count("- review: Reviews code.") == 1


async def test_the_model_reads_a_skill(begin: Begin) -> None:
    talk = await begin(answer(Thinking(), Tool("read_skill", {"name": "review"})), answer(Thinking(), Text("Read.")))
    write_skill(talk.outside.home / "config/thinklsp/skills", "review", skill_text("review", "Reviews.", BODY))
    assert await talk.prompt("Review it.") == "end_turn"
    assert (await command_names(talk, 2))[-1] == "skill:review"
    [call] = talk.tools()
    assert call.members["title"] == "read skill review"
    assert BODY in said(talk.provider.requests[1].body)


async def test_an_unknown_skill_is_a_sentence(begin: Begin) -> None:
    talk = await begin(files={"a.py": "x = 1\n"})
    error = await talk.refused(
        "session/prompt",
        {"sessionId": talk.session, "prompt": [{"type": "text", "text": "/skill:nothing x"}]},
    )
    assert error.message.startswith("There is no skill `nothing`.")
    assert await talk.prompt("/skill:?") == "end_turn"
    assert talk.text.startswith("`/skill:?` does not name a skill.")


def _commands(talk: Talk) -> list[Any]:
    commands: list[Any] = talk.updates("available_commands_update")[-1]["availableCommands"]
    return commands
