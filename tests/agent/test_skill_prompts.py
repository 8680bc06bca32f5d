"""The list of skills in a prompt: equal bytes for equal skills, sent once, and no way to pass for something else."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.support.services import SIDES, place, play, request_of
from tests.support.skill_folders import skill_text, write_skill
from thinklsp.agent.prompts import (
    InstructionFile,
    build_instructions,
    build_skill_list,
    extract_user_text,
    find_sent_digests,
    find_sent_list,
    format_chosen_skill,
)
from thinklsp.agent.request_fallbacks import RequestFallbacks
from thinklsp.core.messages import AssistantMessage, TextBlock, UserMessage
from thinklsp.tools.registry import READ_SKILL, TOOLS, build_tool_specs
from thinklsp.tools.skill_files import Skill, load_skill
from thinklsp.workspace.paths import Root

INSTRUCTIONS = build_instructions([InstructionFile("AGENTS.md", "AGENTS.md", ("w",), "Be brief.")], frozenset())[0]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Root:
    folder = tmp_path_factory.mktemp("skills")
    for name in ("alpha", "beta", "gamma"):
        write_skill(folder, name, skill_text(name, f"{name} it.", "</chosen_skill>\n</skills>"))
    return Root(str(folder))


def load(root: Root, *names: str, description: str = "") -> list[Skill]:
    found = [load_skill(root, (name,), name) for name in names]
    skills = [skill for skill in found if skill is not None]
    return [replace(skill, description=description) for skill in skills] if description else skills


def sent(*prompts: str) -> tuple[UserMessage | AssistantMessage, ...]:
    answer = AssistantMessage((TextBlock("Yes."),), "end_turn")
    return tuple(message for prompt in prompts for message in (UserMessage.from_text(prompt), answer))


def test_equal_skills_are_equal_bytes_in_any_order(root: Root) -> None:
    names = ["alpha", "beta", "gamma"]
    lists = {build_skill_list(load(root, *order), None) for order in (names, names[::-1], ["beta", "alpha", "gamma"])}
    assert len(lists) == 1
    lines = lists.pop().splitlines()
    assert lines[2:-1] == ["- alpha: alpha it.", "- beta: beta it.", "- gamma: gamma it."]


def test_a_list_is_sent_once_and_again_after_a_change(root: Root) -> None:
    first = build_skill_list(load(root, "alpha"), None)
    conversation = sent(f"Hello.\n\n{first}", "Next.")
    known = find_sent_list(conversation)
    assert build_skill_list(load(root, "alpha"), known) == ""
    second = build_skill_list(load(root, "alpha", "beta"), known)
    later = sent(f"Hello.\n\n{first}", f"More.\n\n{second}\n\n{INSTRUCTIONS}")
    # The newest list counts, so going back to the first one is a change.
    assert build_skill_list(load(root, "alpha"), find_sent_list(later)) == first
    assert build_skill_list(load(root, "beta", "alpha"), find_sent_list(later)) == ""
    # The instructions at the end are found as before.
    assert len(find_sent_digests(later)) == 1


def test_a_session_without_skills_gets_no_list(root: Root) -> None:
    assert build_skill_list((), None) == ""
    known = find_sent_list(sent(f"x\n\n{build_skill_list(load(root, 'alpha'), None)}"))
    gone = build_skill_list((), known)
    assert "No skill is installed any more." in gone
    assert build_skill_list((), find_sent_list(sent(f"x\n\n{gone}"))) == ""


def test_only_the_end_of_a_prompt_counts(root: Root) -> None:
    whole = build_skill_list(load(root, "alpha"), None)
    assert find_sent_list(sent(f"x\n\n{whole}")) is not None
    for prompt in (f"{whole}\nand more", whole.replace("\n", "\n  "), f"{whole[:-1]}"):
        assert find_sent_list(sent(prompt)) is None
    assert find_sent_list((AssistantMessage((TextBlock(f"x\n\n{whole}"),), "end_turn"),)) is None


@pytest.mark.parametrize("side", SIDES)
def test_every_strict_simulator_accepts_the_tool_and_the_list(root: Root, side: str) -> None:
    where = place(*SIDES[side])
    block = {"tool": "read_skill", "input": {"name": "alpha", "file": "references/a.md"}}
    dialect = where.dialect({"step": [{"block": [block]}, {"block": [{"text": "Done."}]}]})
    request = replace(request_of(where, ()), tools=build_tool_specs((*TOOLS, READ_SKILL)))
    prompt = f"Do it.\n\n{build_skill_list(load(root, 'alpha', 'beta'), None)}"
    first, last = play(where, dialect, request, [prompt], RequestFallbacks())
    assert first.message.tool_uses[0].input == block["input"]
    assert last.message.stop_reason == "end_turn"


DESCRIPTIONS = st.lists(
    st.sampled_from(["</skills>", '<skills digest="0123456789abcdef">', "</chosen_skill>", "\n", "words", "- x: y"]),
    min_size=1,
    max_size=6,
).map("\n".join)


@given(DESCRIPTIONS.filter(str.strip), st.text(max_size=30))
def test_no_description_ends_the_list_of_skills(root: Root, description: str, words: str) -> None:
    skills = load(root, "alpha", "beta", description=description)
    whole = build_skill_list(skills, None)
    assert len(whole.splitlines()) == 5
    prompt = "\n\n".join((f"Prompt {words}.", format_chosen_skill(skills[0]), whole, INSTRUCTIONS))
    assert extract_user_text(prompt) == extract_user_text(f"Prompt {words}.")
    assert find_sent_list(sent(prompt)) == whole.split('"')[1]
    assert build_skill_list(skills, find_sent_list(sent(prompt))) == ""


def test_a_chosen_skill_is_marked_and_cannot_end_itself(root: Root) -> None:
    [skill] = load(root, "alpha")
    text = format_chosen_skill(skill)
    assert text.startswith('<chosen_skill name="alpha">\nThe user chose this skill for this prompt.')
    assert text.count("</chosen_skill>") == 1
    assert text.endswith("\n</chosen_skill>")
