"""Folders with skills: twelve good ones, twelve faulty ones, and functions that write them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

MAX_DESCRIPTION = 1_024


def skill_text(name: str, description: str = "Does it.", body: str = "Do it well.", more: str = "") -> str:
    return f"---\nname: {name}\ndescription: {description}\n{more}---\n\n{body}\n"


def write_skill(folder: Path, name: str, text: str | bytes | None = None, **files: str) -> Path:
    """Write a skill with more files, whose slashes are written as `__`."""
    place = folder / name
    place.mkdir(parents=True, exist_ok=True)
    content = skill_text(name) if text is None else text
    (place / "SKILL.md").write_bytes(content if isinstance(content, bytes) else content.encode())
    for path, words in files.items():
        target = place / path.replace("__", "/")
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(words)
    return place


# The text of each skill by its name, and its description as a model reads it.
GOOD: dict[str, tuple[str | bytes, str]] = {
    "plain": (skill_text("plain"), "Does it."),
    "a": (skill_text("a", "One letter."), "One letter."),
    "x" * 64: (skill_text("x" * 64), "Does it."),
    "with-digits-2": (skill_text("with-digits-2", "'Single: it''s quoted.'"), "Single: it's quoted."),
    "double": (skill_text("double", r'"Double: \"quoted\" # no comment."'), 'Double: "quoted" # no comment.'),
    "folded": (skill_text("folded", ">-\n  Over two\n  lines."), "Over two lines."),
    "literal": (skill_text("literal", "|\n  First.\n  Second."), "First. Second."),
    "colons": (skill_text("colons", "Use when: asked to."), "Use when: asked to."),
    "longest": (skill_text("longest", "d" * MAX_DESCRIPTION), "d" * MAX_DESCRIPTION),
    "extras": (
        skill_text("extras", more="license: MIT\nallowed-tools:\n  - Read\nmetadata:\n  author: me\n  version: '1'\n"),
        "Does it.",
    ),
    "windows": (skill_text("windows").replace("\n", "\r\n").encode("utf-8-sig"), "Does it."),
    "no-body": ("---\ndescription: Does it.\nname: no-body\n---\n", "Does it."),
}


def _link_text(place: Path) -> None:
    (place / "SKILL.md").rename(place.parent.parent / "outside.md")
    (place / "SKILL.md").symlink_to(place.parent.parent / "outside.md")


def _add_many_files(place: Path) -> None:
    for number in range(201):
        (place / f"{number}.md").write_text("x")


def _change_nothing(_: Path) -> None:
    pass


# The text of each faulty skill by its name, a change of its folder, and a part of the sentence about the fault.
FAULTY: dict[str, tuple[str | bytes, Callable[[Path], None], str]] = {
    "no-front-matter": ("# A title\n", _change_nothing, "does not begin with front matter"),
    "no-end": ("---\nname: no-end\n", _change_nothing, "does not end with a line"),
    "other-name": (skill_text("another"), _change_nothing, "must be the name of the folder"),
    "Upper": (skill_text("Upper"), _change_nothing, "`name` must be 1 to 64 lowercase letters"),
    "two--hyphens": (skill_text("two--hyphens"), _change_nothing, "`name` must be"),
    "y" * 65: (skill_text("y" * 65), _change_nothing, "`name` must be"),
    "no-description": (skill_text("no-description", '"  "'), _change_nothing, "`description` must be a string"),
    "long-description": (
        skill_text("long-description", "d" * (MAX_DESCRIPTION + 1)), _change_nothing, "1 to 1,024 characters",
    ),
    "large-head": (skill_text("large-head", more=f"x: {'x' * 4_096}\n"), _change_nothing, "larger than 4,096 bytes"),
    "hidden": (skill_text("hidden", body="Do\u200b it.\U000e0041"), _change_nothing, "invisible characters (<U+200B>"),
    "binary": (b"\xff\xfe\x00", _change_nothing, "not UTF-8 text"),
    "linked": (skill_text("linked"), _link_text, "symbolic link"),
}  # fmt: skip

# Two more faults of the whole folder, which need no text of their own.
OVERFULL = _add_many_files
