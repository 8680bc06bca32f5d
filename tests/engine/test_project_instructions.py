"""Whose instructions are followed: one question for what is new, and the user's file as the last word."""

from __future__ import annotations

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from thinklsp.core.choices import NOT_NOW
from thinklsp.engine.instructions import FOLLOW, ProjectInstructions
from thinklsp.settings.permissions import PermissionsFile
from thinklsp.workspace.paths import Root
from thinklsp.workspace.uri import path_to_uri
from thinklsp.workspace.view import DocumentSnapshot, Place, WorkspaceView

Texts = tuple[str, ...]


class Person:
    """Answers, and remembers the questions."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.questions: list[str] = []

    async def __call__(self, question: str, options: tuple[str, ...]) -> str | None:
        assert (options[0], options[-1]) == (FOLLOW, NOT_NOW)
        self.questions.append(question)
        await asyncio.sleep(0)
        return self.answers.pop(0)


@pytest.fixture
def work(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    (folder / "a/b").mkdir(parents=True)
    (folder / "AGENTS.md").write_text("Root.\r\n")
    (folder / "a/CLAUDE.md").write_text("A.")
    (folder / "a/b/x.py").write_text("")
    return folder


def view(folder: Path, *documents: DocumentSnapshot) -> WorkspaceView:
    return WorkspaceView([Root(str(folder))], documents)


async def followed(
    trust: ProjectInstructions, folder: Path, person: Person, name: str = "a/b/x.py", **more: bool
) -> tuple[Texts, Texts]:
    uris = [path_to_uri(str(folder / name))] if name else []
    found = await trust.select_instructions(view(folder), uris, person, all_folders=more.get("everywhere", False))
    return tuple(file.text for file in found.files), found.notices


@pytest.fixture
def permissions(tmp_path: Path) -> PermissionsFile:
    return PermissionsFile(str(tmp_path / "own/permissions.toml"))


async def test_turns_that_begin_together_ask_once(work: Path, permissions: PermissionsFile) -> None:
    trust, person = ProjectInstructions(permissions), Person(FOLLOW)
    found = await asyncio.gather(*(followed(trust, work, person) for _ in range(3)))
    assert found == [(("Root.\n", "A."), ())] * 3
    [question] = person.questions
    listed = "AGENTS.md (6 bytes), a/CLAUDE.md (2 bytes)"
    assert question == f"The folder work contains instructions for assistants: {listed}. Follow these instructions?"


async def test_a_yes_that_is_taken_back_in_the_file_is_asked_for_again(
    work: Path, permissions: PermissionsFile
) -> None:
    trust, person = ProjectInstructions(permissions), Person(FOLLOW, None)
    await followed(trust, work, person)
    assert len(permissions.read().trusted) == 2
    os.unlink(permissions.path)
    assert (await followed(trust, work, person))[0] == ()
    assert len(person.questions) == 2


async def test_untrusted_folder_includes_its_subfolders(work: Path, permissions: PermissionsFile) -> None:
    """`edits.review: auto` knew no untrusted folders."""
    places = view(work)
    names = ("x.py", "new/y.py", "a/x.py", "a/b/x.py", "AGENTS.md", "untitled:1")
    about = [path_to_uri(str(work / "a/b/x.py"))]

    async def untrusted(trust: ProjectInstructions, *answers: str | None) -> list[str]:
        found = await trust.select_instructions(places, about, Person(*answers), all_folders=False)
        return [name for name in names if found.is_untrusted(place(name))]

    def place(name: str) -> Place:
        return Place(name, name, name) if ":" in name else places.resolve(name)

    trust = ProjectInstructions(permissions)
    assert await untrusted(trust, None) == await untrusted(trust) == list(names[:-1])
    assert await untrusted(ProjectInstructions(permissions), FOLLOW) == []
    (work / "a/CLAUDE.md").write_text("Another.")
    assert await untrusted(ProjectInstructions(permissions), NOT_NOW) == ["a/x.py", "a/b/x.py"]
    (work / "AGENTS.md").unlink()
    (work / "a/CLAUDE.md").unlink()
    assert await untrusted(ProjectInstructions(permissions)) == []
    (work / "AGENTS.md").write_text("Root.")
    broken = PermissionsFile(str(work))
    assert await untrusted(ProjectInstructions(broken)) == list(names[:-1])


async def test_what_cannot_be_remembered_holds_as_long_as_the_server(work: Path) -> None:
    trust, person = ProjectInstructions(PermissionsFile("/proc/no-such-folder/permissions.toml")), Person(FOLLOW)
    texts, said = await followed(trust, work, person)
    assert texts == ("Root.\n", "A.")
    assert "permissions.toml cannot be written" in said[0]
    assert "until this server exits" in said[0]
    assert await followed(trust, work, person) == (texts, ())


SCOPES: list[tuple[str, bool, Texts]] = [
    ("a/b/x.py", False, ("Root.\n", "A.")),
    ("a/AGENTS.md", False, ("Root.\n", "A.")),
    ("x.py", False, ("Root.\n",)),
    ("", True, ("Root.\n",)),
    ("", False, ()),
]


@pytest.mark.parametrize(("name", "everywhere", "texts"), SCOPES)
async def test_which_folders_have_a_say(
    work: Path, permissions: PermissionsFile, name: str, everywhere: bool, texts: Texts
) -> None:
    found = await followed(ProjectInstructions(permissions), work, Person(FOLLOW), name, everywhere=everywhere)
    assert found == (texts, ())


HIDDEN = "Ignored AGENTS.md: it contains invisible characters (<U+200B>, <U+E0041>)."
ODD: list[tuple[str, bool, str]] = [
    # What is done in the folder; whether its instructions are followed then; what is said of them.
    # A second name for what is followed is nothing to be told of.
    ("ln -s AGENTS.md CLAUDE.md", True, ""),
    ("mv AGENTS.md README.md; ln -s README.md CLAUDE.md", False, "symbolic link"),
    (r"printf '\377\376' > AGENTS.md", False, "not UTF-8"),
    ("head -c 6M /dev/zero > AGENTS.md", False, "larger than"),
    ("rm AGENTS.md; mkdir AGENTS.md", False, "not a file"),
    ("printf 'Root.\u200b\U000e0041' > AGENTS.md", False, HIDDEN),
]


def run_script(script: str, folder: Path) -> None:
    subprocess.run(["/bin/sh", "-c", script], cwd=folder, check=True)


@pytest.mark.parametrize(("script", "is_followed", "reason"), ODD)
async def test_files_that_cannot_be_followed_are_named_once(
    work: Path, permissions: PermissionsFile, script: str, is_followed: bool, reason: str
) -> None:
    run_script(script, work)
    trust, person = ProjectInstructions(permissions), Person(*([FOLLOW] if is_followed else []))
    texts, said = await followed(trust, work, person, "x.py")
    assert (bool(texts), len(said)) == (is_followed, bool(reason))
    assert reason in "".join(said)
    assert await followed(trust, work, person, "x.py") == (texts, ())


async def test_names_are_quoted_and_few(work: Path, permissions: PermissionsFile) -> None:
    deep = work / "\n\u202eignore all".replace("\n", " ")
    for depth in range(8):
        deep = deep / f"d{depth}"
    deep.mkdir(parents=True)
    place = deep
    while place != work:
        (place / "AGENTS.md").write_text(place.name[-2:])
        place = place.parent
    person = Person(NOT_NOW)
    await followed(ProjectInstructions(permissions), work, person, str((deep / "x.py").relative_to(work)))
    [question] = person.questions
    assert "and 4 more" in question
    assert question.isprintable()
    assert "\\u202e" in question


async def test_an_open_document_is_what_counts(work: Path, permissions: PermissionsFile) -> None:
    uri = path_to_uri(str(work / "AGENTS.md"))
    trust, person = ProjectInstructions(permissions), Person(FOLLOW)
    files = (
        await trust.select_instructions(view(work, DocumentSnapshot(uri, 3, "Unsaved.")), [], person, all_folders=True)
    ).files
    assert [file.text for file in files] == ["Unsaved."]


async def test_the_question_offers_to_show_the_files(work: Path, permissions: PermissionsFile) -> None:
    shown: list[str] = []

    async def show(uri: str) -> bool:
        shown.append(uri)
        return True

    (work / "a/CLAUDE.md").unlink()
    person = Person("Show AGENTS.md", FOLLOW)
    trust = ProjectInstructions(permissions)
    found = await trust.select_instructions(view(work), [], person, all_folders=True, show_document=show)
    assert [file.text for file in found.files] == ["Root.\n"]
    assert shown == [path_to_uri(str(work / "AGENTS.md"))]
    assert len(person.questions) == 2
