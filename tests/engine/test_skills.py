"""Which skills a turn has: those of the user, and those of a folder after a yes to exactly this content."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from tests.engine.test_project_instructions import Person, view
from tests.support.skill_folders import FAULTY, GOOD, skill_text, write_skill
from thinklsp.core.choices import NOT_NOW
from thinklsp.core.errors import TurnRefused
from thinklsp.engine.instructions import (
    FOLLOW,
    ProjectInstructions,
    TurnInstructions,
    build_skill_texts,
    find_all_skills,
    find_folder_skills,
    find_own_skills,
)
from thinklsp.engine.session_claims import can_join
from thinklsp.engine.turn_request import ChatRequest
from thinklsp.settings.permissions import PermissionsFile
from thinklsp.workspace.paths import Root


class Place:
    """A workspace folder and the user's configuration folder."""

    def __init__(self, folder: Path) -> None:
        self.work, self.own = folder / "work", folder / "own"
        for path in (self.work, self.own):
            path.mkdir()
        self.agents, self.claude = self.work / ".agents/skills", self.work / ".claude/skills"
        self.config = str(self.own / "config.toml")
        self.permissions = PermissionsFile.locate_beside(self.config)
        self.reader = ProjectInstructions(self.permissions, self.config)

    async def select(self, *answers: str | None, all_folders: bool = True) -> tuple[TurnInstructions, list[str]]:
        """Return what a turn has, and the questions that it asked."""
        person = Person(*answers)
        found = await self.reader.select_instructions(view(self.work), [], person, all_folders=all_folders)
        assert person.answers == []
        return found, person.questions

    def start_again(self) -> None:
        self.reader = ProjectInstructions(self.permissions, self.config)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


def names(found: TurnInstructions) -> list[str]:
    return [skill.name for skill in found.skills or ()]


async def test_asked_once_per_content_and_again_after_a_change(place: Place) -> None:
    skill = write_skill(place.agents, "review", references__a="One.")
    write_skill(place.claude, "deploy")
    found, [question] = await place.select(FOLLOW)
    assert names(found) == ["deploy", "review"]
    listed = ".agents/skills/review/SKILL.md (56 bytes)"
    assert question.startswith("The folder work contains skills for assistants: .claude/skills/deploy/SKILL.md (")
    assert listed in question
    assert question.endswith("Follow these skills?")
    place.start_again()
    assert (await place.select())[1] == []
    changes: list[Callable[[], object]] = [
        lambda: (skill / "references/a").write_text("Two."),
        lambda: (skill / "SKILL.md").write_text(skill_text("review", body="Do it badly.")),
        lambda: write_skill(place.agents, "another"),
        lambda: shutil.rmtree(place.claude),
    ]
    for change in changes:
        change()
        found, [question] = await place.select(NOT_NOW)
        assert "changed since you trusted them" in question
        assert names(found) == []
        # A refusal holds as long as the process, and leaves nothing behind.
        assert (await place.select())[1] == []
    place.start_again()
    assert names((await place.select(FOLLOW))[0]) == ["another", "review"]
    [entry] = place.permissions.read().trusted
    assert entry.folder == f"{place.work}/{{.agents,.claude}}/skills"


async def test_one_question_for_instructions_and_skills(place: Place) -> None:
    (place.work / "AGENTS.md").write_text("Be brief.")
    write_skill(place.agents, "review")
    found, [question] = await place.select(FOLLOW)
    assert "contains instructions and skills for assistants: AGENTS.md (9 bytes), .agents/skills/review" in question
    assert question.endswith("Follow these instructions and skills?")
    assert ([file.text for file in found.files], names(found)) == (["Be brief."], ["review"])
    # A change of one is no question about the other.
    (place.work / "AGENTS.md").write_text("Be long.")
    found, [question] = await place.select(NOT_NOW)
    assert "skills" not in question
    assert (found.files, names(found)) == ((), ["review"])


async def test_untrusted_skills_make_their_folder_untrusted(place: Place) -> None:
    write_skill(place.agents, "review")
    found, _ = await place.select(None)
    assert found.is_untrusted(view(place.work).resolve("a.py"))
    assert found.notices == ("Ignored .agents/skills/review/SKILL.md: you did not answer the question about trust.",)
    with pytest.raises(TurnRefused, match="you do not trust the skills of its folder"):
        build_skill_texts(["review"], found.skills, found.untrusted_skills, ())
    place.start_again()
    assert not (await place.select(FOLLOW))[0].is_untrusted(view(place.work).resolve("a.py"))


async def test_own_skills_need_no_question_and_win(place: Place) -> None:
    write_skill(place.own / "skills", "review", skill_text("review", "My own."))
    found, questions = await place.select()
    assert ([skill.description for skill in found.skills or ()], questions) == (["My own."], [])
    write_skill(place.agents, "review", skill_text("review", "Of the project."))
    found, questions = await place.select(FOLLOW)
    assert [skill.description for skill in found.skills or ()] == ["My own."]
    [notice] = found.notices
    assert notice.startswith("Ignored the skill .agents/skills/review: ")
    assert notice.endswith("own/skills/review has the same name.")


async def test_twelve_good_and_twelve_faulty_skills(place: Place) -> None:
    for name, (text, _) in GOOD.items():
        write_skill(place.agents, name, text)
    for name, (content, change, _) in FAULTY.items():
        change(write_skill(place.claude, name, content))
    found, _ = await place.select(FOLLOW)
    assert names(found) == sorted(GOOD)
    assert len(found.notices) == 9
    assert found.notices[-1] == "4 more skills cannot be used."
    assert all(notice.startswith("Ignored the skill .claude/skills/") for notice in found.notices[:-1])
    # Each is named once, and a good skill works beside it.
    assert (await place.select())[0].notices == ()


async def test_links_are_named_only_if_they_are_missed(place: Place) -> None:
    outside = write_skill(place.work.parent / "outside", "evil")
    write_skill(place.agents, "review")
    place.claude.mkdir(parents=True)
    (place.claude / "review").symlink_to(place.agents / "review")
    assert find_folder_skills(Root(str(place.work))).faults == ()
    (place.claude / "evil").symlink_to(outside)
    [fault] = find_folder_skills(Root(str(place.work))).faults
    assert fault == "Ignored the skill .claude/skills/evil: It is a symbolic link, and links are not followed."
    shutil.rmtree(place.claude)
    place.claude.symlink_to(place.agents)
    assert find_folder_skills(Root(str(place.work))).faults == ()
    shutil.rmtree(place.agents)
    place.agents.symlink_to(outside.parent)
    found = find_folder_skills(Root(str(place.work)))
    assert (found.skills, len(found.faults)) == ((), 2)


async def test_at_most_64_skills(place: Place) -> None:
    for number in range(70):
        write_skill(place.agents, f"s{number:02}")
    write_skill(place.own / "skills", "z-own")
    found, _ = await place.select(FOLLOW)
    assert names(found) == [*(f"s{number:02}" for number in range(63)), "z-own"]
    assert found.notices == (
        ".agents/skills contains more than 64 skills: 6 are left out.",
        "Only 64 skills are used, and 1 are left out.",
    )


async def test_requests_without_a_folder_leave_the_skills_as_they_are(place: Place) -> None:
    write_skill(place.agents, "review")
    found, questions = await place.select(all_folders=False)
    assert (found.skills, questions) == (None, [])


def test_all_skills_are_listed_without_a_question(place: Place) -> None:
    write_skill(place.agents, "review")
    write_skill(place.own / "skills", "mine")
    (place.own / "skills/empty").mkdir()
    found = find_all_skills(view(place.work), place.config)
    assert [skill.name for skill in found.skills] == ["mine", "review"]
    [fault] = found.faults
    assert fault.endswith("own/skills/empty: It contains no SKILL.md.")
    assert find_own_skills(str(place.work / "config.toml")).skills == ()


def test_an_unknown_skill_is_a_sentence(place: Place) -> None:
    write_skill(place.own / "skills", "mine")
    skills = find_own_skills(place.config).skills
    with pytest.raises(TurnRefused, match=r"There is no skill `x`\. The skills are: mine\."):
        build_skill_texts(["x"], skills, (), ())
    with pytest.raises(TurnRefused, match=r"There is no skill `x`\. There are no skills\."):
        build_skill_texts(["x"], None, (), ())
    assert len(build_skill_texts(["mine", "mine"], skills, (), ())) == 2


def test_a_prompt_with_a_skill_joins_no_running_turn(place: Place) -> None:
    plain = ChatRequest(prompt="x", view=view(place.work), workspace="w")
    assert can_join(plain, plain)
    assert not can_join(replace(plain, skills=("mine",)), plain)
