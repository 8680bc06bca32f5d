"""Skills: named to the model once per session, read by it or chosen by the user, and only after a yes."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from lsprotocol import types

from tests.e2e.acting import begin_talk, refused, say, send, write_prompt
from tests.e2e.conftest import Begin
from tests.support.outside import Outside, said
from tests.support.signing_rules import exact, without_cache_control
from tests.support.signing_server import Text, Thinking, Tool, answer
from tests.support.skill_folders import skill_text, write_skill

YES, NO = "Follow them", "Not now"
BODY, DETAIL = "Always look at the tests first.", "Tabs indent here."
SKILL = ".agents/skills/review/SKILL.md"
FILES = {
    "app.py": "x = 1\n",
    SKILL: skill_text("review", "Reviews code.", BODY),
    ".agents/skills/review/references/style.md": DETAIL,
    ".claude/skills/deploy/SKILL.md": skill_text("deploy", "Deploys it."),
}
PLAIN = {"app.py": "x = 1\n"}


def asked(outside: Outside) -> list[str]:
    return [call.params.message for call in outside.client.calls("window/showMessageRequest")]


def bodies(outside: Outside) -> list[Any]:
    return [without_cache_control(request.body) for request in outside.provider.requests]


def tools(body: Any) -> list[str]:
    return [each["name"] for each in body["tools"]]


async def chat(outside: Outside, prompt: str, *answers: str, **argument: Any) -> Any:
    """One turn; `answers` to the questions that it may ask."""
    outside.client.editor.message_answers = list(answers)
    result = await outside.turn("thinklsp.chat", {"prompt": prompt} | argument)
    assert outside.client.editor.message_answers == []
    return result


async def test_the_model_reads_a_skill_and_the_cache_stays_valid(begin: Begin) -> None:
    outside = await begin(
        answer(Thinking(), Tool("read_skill", {"name": "review"})),
        answer(Thinking(), Tool("read_skill", {"name": "review", "file": "references/style.md"})),
        *[answer(Thinking(), Text(f"Answer {number}.")) for number in range(4)],
        files=FILES,
    )
    first = await chat(outside, "Review app.py. " + "These are the rules. " * 1000, YES)
    for number in range(2):
        await chat(outside, f"And {number}?", sessionId=first["sessionId"])
    [question] = asked(outside)
    assert "contains skills for assistants: .claude/skills/deploy/SKILL.md" in question
    sent = bodies(outside)
    assert len(sent) == 5
    # The list is in the first prompt, and nothing that was sent changes later.
    start = said(sent[0])
    assert start.index("- deploy: Deploys it.") < start.index("- review: Reviews code.")
    assert BODY not in start
    for before, after in itertools.pairwise(sent):
        for part in ("model", "system", "tools"):
            assert exact(after[part]) == exact(before[part])
        assert exact(after["messages"][: len(before["messages"])]) == exact(before["messages"])
    assert tools(sent[0])[-1] == "read_skill"
    last = said(sent[-1])
    assert [last.count(text) for text in ("- review: Reviews code.", BODY, DETAIL)] == [1, 1, 1]
    assert outside.provider.requests[1].usage["cache_read_input_tokens"] > 0
    # Another session of another server begins with the same bytes.
    await outside.restart()
    outside.provider.say(say("Other."))
    await chat(outside, "Review app.py. " + "These are the rules. " * 1000)
    other = bodies(outside)[-1]
    assert (exact(other["tools"]), exact(other["system"])) == (exact(sent[0]["tools"]), exact(sent[0]["system"]))
    assert exact(other["messages"][0]) == exact(sent[0]["messages"][0])


async def test_without_skills_nothing_is_different(begin: Begin) -> None:
    outside = await begin(say("One."), files=PLAIN)
    await chat(outside, "Hello.")
    [body] = bodies(outside)
    assert "read_skill" not in tools(body)
    assert "skill" not in said(body)
    assert asked(outside) == []


@pytest.mark.parametrize("given", [NO, None])
async def test_untrusted_skills_are_not_named(begin: Begin, given: str | None) -> None:
    outside = await begin(say("One."), say("Two."), files=FILES)
    result = await chat(outside, "Hello.", *([given] if given else []))
    await chat(outside, "Hello.")
    assert len(asked(outside)) == 1
    assert [notice.startswith("Ignored .claude/skills/deploy/SKILL.md") for notice in result["notices"]] == (
        [] if given else [True]
    )
    for body in bodies(outside):
        assert "read_skill" not in tools(body)
        assert "Reviews code." not in exact(body)
    error = await refused(outside.client.command("thinklsp.chat", {"prompt": "/skill:review x"}, token="choose"))
    assert "you do not trust the skills of its folder" in error


async def test_a_change_is_asked_about_again_and_listed_again(begin: Begin) -> None:
    outside = await begin(*[say(f"Answer {number}.") for number in range(4)], files=FILES)
    first = await chat(outside, "One.", YES)
    session = {"sessionId": first["sessionId"]}
    (outside.root / SKILL).write_text(skill_text("review", "Reviews code well.", BODY))
    await chat(outside, "Two.", YES, **session)
    assert ["changed" in question for question in asked(outside)] == [False, True]
    (outside.root / SKILL).unlink()
    (outside.root / ".claude/skills/deploy/SKILL.md").unlink()
    third = await chat(outside, "Three.", **session)
    assert [sentence.rpartition(": ")[2] for sentence in third["notices"]] == ["It contains no SKILL.md."] * 2
    await chat(outside, "Four.", **session)
    sent = bodies(outside)
    texts = [said(body) for body in sent]
    assert [text.count("Reviews code well.") for text in texts] == [0, 1, 1, 1]
    assert [text.count("No skill is installed any more.") for text in texts] == [0, 0, 1, 1]
    # A session that had skills keeps its tools, so the prompt cache stays valid.
    assert len({exact(body["tools"]) for body in sent}) == 1


async def test_the_user_chooses_a_skill_in_a_chat_document(begin: Begin) -> None:
    outside, client, uri = await begin_talk(
        begin, "/skill:review look at\n@app.py please", say("One."), say("Two."), files=FILES
    )
    client.editor.message_answers = [YES]
    await send(outside, uri)
    prompt = said(bodies(outside)[0])
    assert "look at\\n@app.py please" in prompt
    assert "/skill:" not in prompt
    assert prompt.index("<chosen_skill name=") < prompt.index(BODY) < prompt.index("<skills digest=")
    assert "The user chose this skill for this prompt." in prompt
    assert "references/style.md" in prompt
    # Its text is part of that turn's prompt only.
    write_prompt(outside, uri, "/effort high\n/skill:deploy")
    result = await send(outside, uri)
    assert result["text"] == "Two."
    assert "Effort: high." in (client.text(uri) or "")
    body = bodies(outside)[1]
    assert "Follow `deploy`." in said({"messages": body["messages"][-1:]})
    assert said(body).count("<chosen_skill name=") == 2


async def test_wrong_skills_are_told_and_the_prompt_is_kept(begin: Begin) -> None:
    outside, client, uri = await begin_talk(begin, "/skill:nothing do it\n", say("Done."), files=PLAIN)
    error = await refused(client.command("thinklsp.send", {"uri": uri}, token="unknown"))
    assert error.startswith("There is no skill `nothing`. There are no skills.")
    assert (client.text(uri) or "").rstrip().endswith("/skill:nothing do it")
    assert outside.provider.connections == 0
    wrong = outside.open("wrong.chat.md", "/skill:../x do it")
    result = await send(outside, wrong)
    assert result["text"].startswith("`/skill:../x` does not name a skill.")
    error = await refused(client.command("thinklsp.chat", {"prompt": "/skill:../x"}, token="wrong"))
    assert error.startswith("`/skill:../x` does not name a skill.")


async def test_skills_are_completed_and_listed_and_faults_are_reported(begin: Begin) -> None:
    faulty = {".agents/skills/Bad/SKILL.md": skill_text("Bad")}
    outside = await begin(say("One."), files=FILES | faulty)
    write_skill(outside.home / "config/thinklsp/skills", "mine", skill_text("mine", "My own."))
    client = outside.client

    async def complete(text: str) -> Any:
        return (await client.complete(outside.open("c.chat.md", f"## You\n\n{text}"), text)).items

    assert [item.label for item in await complete("/skill:")] == ["/skill:deploy", "/skill:mine", "/skill:review"]
    [item] = await complete("/skill:re")
    assert (item.label, item.detail) == ("/skill:review", "Reviews code.")
    assert item.text_edit == types.TextEdit(types.Range(types.Position(2, 0), types.Position(2, 9)), "/skill:review")
    assert (await complete("/s"))[0].label == "/sessions"
    assert not await complete("/skill:re x")
    report = await client.command("thinklsp.skills")
    assert [skill["name"] for skill in report["skills"]] == ["deploy", "mine", "review"]
    assert report["skills"][2] == {"name": "review", "description": "Reviews code.", "path": ".agents/skills/review"}
    assert report["folder"] == str(outside.home / "config/thinklsp/skills")
    [fault] = report["problems"]
    assert fault.startswith("Ignored the skill .agents/skills/Bad/SKILL.md: `name` must be")
    assert asked(outside) == []
    doctor = await client.command("thinklsp.doctor")
    assert doctor["skills"] == report
    assert fault in doctor["problems"]
    # A turn names the fault once.
    first = await chat(outside, "One.", YES)
    assert first["notices"] == [fault]
