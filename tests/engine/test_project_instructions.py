"""Whose instructions are followed: one question for what is new, and the user's file as the last word."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from thinklsp.engine.instructions import FOLLOW, NOT_NOW, ProjectInstructions
from thinklsp.settings.permissions import Permissions
from thinklsp.workspace.paths import Root
from thinklsp.workspace.uri import path_to_uri
from thinklsp.workspace.view import DocumentSnapshot, Place, WorkspaceFolder, WorkspaceView

Texts = tuple[str, ...]


class Person:
    """Answers, and remembers the questions."""

    def __init__(self, *answers: str | None) -> None:
        self.answers = list(answers)
        self.questions: list[str] = []

    async def __call__(self, question: str, options: tuple[str, ...]) -> str | None:
        assert options == (FOLLOW, NOT_NOW)
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
    return WorkspaceView([(WorkspaceFolder(path_to_uri(str(folder)), ""), Root(str(folder)))], documents)


async def followed(
    trust: ProjectInstructions, folder: Path, person: Person, name: str = "a/b/x.py", **more: bool
) -> tuple[Texts, Texts]:
    uris = [path_to_uri(str(folder / name))] if name else []
    found = await trust.followed(view(folder), uris, person, everywhere=more.get("everywhere", False))
    return tuple(file.text for file in found.files), found.said


@pytest.fixture
def permissions(tmp_path: Path) -> Permissions:
    return Permissions(str(tmp_path / "own/permissions.toml"))


async def test_turns_that_begin_together_ask_once(work: Path, permissions: Permissions) -> None:
    trust, person = ProjectInstructions(permissions), Person(FOLLOW)
    found = await asyncio.gather(*(followed(trust, work, person) for _ in range(3)))
    assert found == [(("Root.\n", "A."), ())] * 3
    [question] = person.questions
    listed = "AGENTS.md (6 bytes), a/CLAUDE.md (2 bytes)"
    assert question == f"The folder work has instructions for assistants: {listed}. Shall they be followed?"


async def test_a_yes_that_is_taken_back_in_the_file_is_asked_for_again(work: Path, permissions: Permissions) -> None:
    trust, person = ProjectInstructions(permissions), Person(FOLLOW, None)
    await followed(trust, work, person)
    assert len(permissions.read().trusted) == 2
    os.unlink(permissions.path)
    assert (await followed(trust, work, person))[0] == ()
    assert len(person.questions) == 2


async def test_folders_without_a_yes_are_untrusted_with_all_that_is_below(work: Path, permissions: Permissions) -> None:
    """Issue 17, item 11: `edits.review: auto` knew no untrusted folders."""
    places = view(work)
    names = ("x.py", "new/y.py", "a/x.py", "a/b/x.py", "AGENTS.md", "untitled:1")
    about = [path_to_uri(str(work / "a/b/x.py"))]

    async def untrusted(trust: ProjectInstructions, *answers: str | None) -> list[str]:
        found = await trust.followed(places, about, Person(*answers), everywhere=False)
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
    broken = Permissions(str(work))
    assert await untrusted(ProjectInstructions(broken)) == list(names[:-1])


async def test_what_cannot_be_remembered_holds_as_long_as_the_server(work: Path) -> None:
    trust, person = ProjectInstructions(Permissions("/proc/no-such-folder/permissions.toml")), Person(FOLLOW)
    texts, said = await followed(trust, work, person)
    assert texts == ("Root.\n", "A.")
    assert "permissions.toml cannot be written" in said[0]
    assert "as long as this server runs" in said[0]
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
    work: Path, permissions: Permissions, name: str, everywhere: bool, texts: Texts
) -> None:
    found = await followed(ProjectInstructions(permissions), work, Person(FOLLOW), name, everywhere=everywhere)
    assert found == (texts, ())


def link(work: Path) -> None:
    (work / "CLAUDE.md").symlink_to(work / "AGENTS.md")


def only_link(work: Path) -> None:
    (work / "AGENTS.md").rename(work / "README.md")
    (work / "CLAUDE.md").symlink_to(work / "README.md")


def no_text(work: Path) -> None:
    (work / "AGENTS.md").write_bytes(b"\xff\xfe")


def huge(work: Path) -> None:
    (work / "AGENTS.md").write_bytes(b"x" * (6 << 20))


def folder(work: Path) -> None:
    (work / "AGENTS.md").unlink()
    (work / "AGENTS.md").mkdir()


def hidden(work: Path) -> None:
    (work / "AGENTS.md").write_text("Root.\u200b\U000e0041")


ODD: list[tuple[Callable[[Path], None], bool, str]] = [
    # A second name for what is followed is nothing to be told of.
    (link, True, ""),
    (only_link, False, "symbolic link"),
    (no_text, False, "not UTF-8"),
    (huge, False, "larger than"),
    (folder, False, "not a file"),
    (hidden, False, "AGENTS.md holds invisible characters (<U+200B>, <U+E0041>) and is not followed."),
]


@pytest.mark.parametrize(("make", "is_followed", "reason"), ODD)
async def test_files_that_cannot_be_followed_are_named_once(
    work: Path, permissions: Permissions, make: Callable[[Path], None], is_followed: bool, reason: str
) -> None:
    make(work)
    trust, person = ProjectInstructions(permissions), Person(*([FOLLOW] if is_followed else []))
    texts, said = await followed(trust, work, person, "x.py")
    assert (bool(texts), len(said)) == (is_followed, bool(reason))
    assert reason in "".join(said)
    assert await followed(trust, work, person, "x.py") == (texts, ())


async def test_names_are_quoted_and_few(work: Path, permissions: Permissions) -> None:
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


async def test_an_open_document_is_what_counts(work: Path, permissions: Permissions) -> None:
    uri = path_to_uri(str(work / "AGENTS.md"))
    trust, person = ProjectInstructions(permissions), Person(FOLLOW)
    files = (await trust.followed(view(work, DocumentSnapshot(uri, 3, "Unsaved.")), [], person, everywhere=True)).files
    assert [file.text for file in files] == ["Unsaved."]
