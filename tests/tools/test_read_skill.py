"""Skills on disk and the tool that reads them: what a model can get of a folder, and what it cannot."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

import pytest

from tests.support.skill_folders import FAULTY, GOOD, OVERFULL, skill_text, write_skill
from thinklsp.core.errors import PathRefused, ThinkLspError
from thinklsp.core.messages import ToolUseBlock
from thinklsp.tools.registry import READ_SKILL, TOOLS
from thinklsp.tools.skill_files import MAX_FILE_BYTES, MAX_TEXT_CHARACTERS, Skill, SkillFault, load_skill, parse_skill
from thinklsp.tools.tool import ToolContext, ToolOutput, call, describe
from thinklsp.workspace.overlay import EditOverlay
from thinklsp.workspace.paths import Root
from thinklsp.workspace.view import WorkspaceView


def load(folder: Path, name: str = "review") -> Skill:
    skill = load_skill(Root(str(folder)), (name,), f"skills/{name}")
    assert skill is not None
    return skill


async def read(skills: tuple[Skill, ...], **arguments: Any) -> ToolOutput:
    async def ask(_question: str, _options: tuple[str, ...]) -> None:
        return None

    context = ToolContext(EditOverlay(WorkspaceView()), ask, skills=skills)
    return await call(ToolUseBlock("call-1", "read_skill", arguments), (*TOOLS, READ_SKILL), context)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "skills").mkdir()
    return tmp_path / "skills"


def test_twelve_good_folders(folder: Path) -> None:
    assert len(GOOD) == 12
    for name, (text, description) in GOOD.items():
        write_skill(folder, name, text)
        skill = load(folder, name)
        assert " ".join(skill.description.split()) == description
        assert (skill.name, skill.body) == (name, "" if name == "no-body" else "Do it well.")


@pytest.mark.parametrize("name", FAULTY)
def test_twelve_faulty_folders(folder: Path, name: str) -> None:
    text, change, sentence = FAULTY[name]
    change(write_skill(folder, name, text))
    with pytest.raises((SkillFault, PathRefused)) as caught:
        load(folder, name)
    assert sentence in str(caught.value)


def test_more_faults(folder: Path) -> None:
    assert len(FAULTY) == 12
    OVERFULL(write_skill(folder, "overfull"))
    write_skill(folder, "endless", skill_text("endless", body="x" * (MAX_TEXT_CHARACTERS)))
    (write_skill(folder, "deep") / "/".join("abcdefgh")).mkdir(parents=True)
    write_skill(folder, "map", "---\nname: map\ndescription:\n  a: b\n---\n")
    for name, sentence in {
        "overfull": "more than 200 files",
        "endless": "longer than 48,000 characters",
        "deep": "nested too deeply",
        "map": "`description` must be a string",
    }.items():
        with pytest.raises(SkillFault, match=sentence):
            load(folder, name)
    (folder / "nothing").mkdir()
    assert load_skill(Root(str(folder)), ("nothing",), "skills/nothing") is None


def test_digest_covers_every_file_that_can_be_read(folder: Path) -> None:
    place = write_skill(folder, "review", references__a="One.", assets__b="Two.")
    digests = [load(folder).digest, load(folder).digest]
    for change in (
        lambda: (place / "references/a").write_text("Three."),
        lambda: (place / "references/a").rename(place / "references/c"),
        lambda: (place / "SKILL.md").write_text(skill_text("review", body="Do it badly.")),
    ):
        change()
        digests.append(load(folder).digest)
    assert digests[0] == digests[1]
    assert len(set(digests)) == 4


async def test_the_tool_returns_the_text_and_the_files(folder: Path) -> None:
    write_skill(folder, "review", references__style_md="Tabs.", scripts__run="echo 1")
    skill = load(folder)
    whole = await read((skill,), name="review")
    assert not whole.is_error
    assert "Do it well." in whole.text
    assert "references/style_md, scripts/run" in whole.text
    assert "description:" not in whole.text
    for path in ("references/style_md", "./references/style_md"):
        assert (await read((skill,), name="review", file=path)).text == "skills/review/references/style_md\nTabs."
    assert describe(ToolUseBlock("1", "read_skill", {"name": "review", "file": "a"}), (READ_SKILL,)) == (
        "read skill review: a"
    )
    unknown = await read((skill,), name="rewiev")
    assert (unknown.is_error, unknown.text) == (True, "There is no skill with this name. The skills are: review.")
    assert "No skill is available in this turn." in (await read((), name="review")).text


OUTSIDE = (
    "../other/SKILL.md", "../../secret.txt", "references/../../../secret.txt", "/etc/passwd", "references", ".", "..",
    "linked.md", "linked/secret.txt", "second-name.md", "fifo", ".env", "large.bin", "SKILL.md/x", "a\x00b",
    "file:///etc/passwd", "REFERENCES/a.md", "references//a.md",
)  # fmt: skip


@pytest.mark.parametrize("path", OUTSIDE, ids=ascii)
async def test_no_path_leads_out_of_the_skill(folder: Path, path: str) -> None:
    secret = folder.parent / "secret.txt"
    secret.write_text("The secret.")
    write_skill(folder, "other", skill_text("other", body="The secret."))
    place = write_skill(folder, "review")
    (place / "references").mkdir()
    (place / "references/a.md").write_text("Fine.")
    (place / "linked.md").symlink_to(secret)
    (place / "linked").symlink_to(folder.parent)
    (place / "second-name.md").symlink_to("SKILL.md")
    os.mkfifo(place / "fifo")
    (place / ".env").write_text("The secret.")
    (place / "large.bin").write_bytes(b"x" * (MAX_FILE_BYTES + 1))
    found = await read((load(folder),), name="review", file=path)
    assert found.is_error
    assert "no such file that can be read" in found.text
    assert "The secret." not in found.text
    assert (await read((load(folder),), name="review", file="references/a.md")).text.endswith("Fine.")


async def test_a_file_that_changed_since_the_question_is_not_read(folder: Path) -> None:
    place = write_skill(folder, "review", references__a="Good.")
    skill = load(folder)
    (place / "references/a").write_text("Evil.")
    changed = await read((skill,), name="review", file="references/a")
    (place / "references/a").unlink()
    (place / "references/a").symlink_to("/etc/passwd")
    replaced = await read((skill,), name="review", file="references/a")
    assert (changed.is_error, replaced.is_error) == (True, True)
    assert "changed since the turn began" in changed.text
    assert "symbolic link" in replaced.text
    # The text of the skill is the one of the turn's beginning.
    (place / "SKILL.md").write_text(skill_text("review", body="Evil."))
    assert "Evil." not in (await read((skill,), name="review")).text


async def test_invisible_characters_and_other_bytes_of_files(folder: Path) -> None:
    place = write_skill(folder, "review", a="One\u200b two\u202e.")
    (place / "b.png").write_bytes(b"\x89PNG\xff")
    assert (await read((load(folder),), name="review", file="a")).text.endswith("One<U+200B> two<U+202E>.")
    assert "is not UTF-8 text" in (await read((load(folder),), name="review", file="b.png")).text


WORST = ("---\n" + "a: &x\n" * 170_000, "\u200b" * (1 << 20), "---\nname: x\n---\n" + "#" * (1 << 20))


def test_a_megabyte_of_the_worst_is_refused() -> None:
    for text in WORST:
        with pytest.raises(ThinkLspError):
            parse_skill("x", text)


@pytest.mark.timing
def test_a_megabyte_of_the_worst_takes_no_time() -> None:
    begin = time.process_time()
    test_a_megabyte_of_the_worst_is_refused()
    assert time.process_time() - begin < 3
