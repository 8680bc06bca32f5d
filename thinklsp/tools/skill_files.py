"""Skills: folders with a `SKILL.md` that says how to do a certain kind of work.

The functions in this module read skills through the path check and never follow links. The text of a skill is read once
for a turn. Its other files are read later, but only as long as they have the content that the digest covers.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from hashlib import sha256

from thinklsp.core.errors import PathRefused, ThinkLspError
from thinklsp.core.markdown import FrontMatterError, parse_front_matter
from thinklsp.core.text_safety import find_invisible
from thinklsp.workspace.paths import Root
from thinklsp.workspace.uri import RelPath, quote_path

SKILL_FILE_NAME = "SKILL.md"
MAX_SKILLS = 64
MAX_NAME_CHARACTERS, MAX_DESCRIPTION_CHARACTERS = 64, 1_024
MAX_TEXT_CHARACTERS = 48_000
MAX_FILE_BYTES = 256 * 1024
"""The maximum size of a file of a skill. The model cannot read a larger one with `read_skill`."""

_MAX_FILES = 200
_MAX_DEPTH = 6
_MAX_TOTAL_BYTES = 8 * 1024 * 1024
_NAME = re.compile(r"[a-z0-9]+(?:-[a-z0-9]+)*")
_UNREADABLE = "-"


class SkillFault(ThinkLspError):
    """The error for a skill that cannot be used. The message is a sentence about its SKILL.md."""


@dataclass(frozen=True, slots=True)
class Skill:
    """A skill as it was when a turn began.

    `label` is the display path of its folder, which is at `parts` below `root`. `size` is the size of SKILL.md in
    bytes. `files` maps the paths of its other
    files to their SHA-256, or to `-` if tools cannot read the file. `digest` covers all of the skill.
    """

    name: str
    description: str
    body: str
    label: str
    root: Root
    parts: tuple[str, ...]
    size: int
    files: Mapping[str, str]
    digest: str

    def read_file(self, name: str) -> str | None:
        """Return the text of a file of the skill, or None if it is not a readable file of the skill.

        Raises PathRefused with a message for the model if the file changed since the turn began.
        """
        expected = self.files.get(name, _UNREADABLE)
        if expected == _UNREADABLE:
            return None
        label = f"{self.label}/{name}"
        data = self.root.read(RelPath.build((*self.parts, *name.split("/")), label), limit=MAX_FILE_BYTES)
        if data is None or sha256(data).hexdigest() != expected:
            raise PathRefused(f"{quote_path(label)} changed since the turn began. It can be read in the next turn.")
        try:
            return data.decode("utf-8-sig")
        except UnicodeDecodeError:
            raise PathRefused(f"{quote_path(label)} is not UTF-8 text.") from None


def is_skill_name(text: str) -> bool:
    return len(text) <= MAX_NAME_CHARACTERS and _NAME.fullmatch(text) is not None


def parse_skill(folder_name: str, text: str) -> tuple[str, str]:
    """Return the description and the body of a skill. Raises SkillFault if the text breaks a rule."""
    if len(text) > MAX_TEXT_CHARACTERS:
        raise SkillFault(f"It is longer than {MAX_TEXT_CHARACTERS:,} characters. Move parts of it to other files.")
    if invisible := find_invisible(text):
        raise SkillFault(f"It contains invisible characters ({', '.join(invisible[:8])}).")
    try:
        front_matter = parse_front_matter(text)
    except FrontMatterError as error:
        raise SkillFault(str(error)) from None
    name, description = front_matter.values.get("name"), front_matter.values.get("description")
    if not isinstance(name, str) or not is_skill_name(name):
        raise SkillFault(
            f"`name` must be 1 to {MAX_NAME_CHARACTERS} lowercase letters, digits and single hyphens between them."
        )
    if name != folder_name:
        raise SkillFault(f"`name` is `{name}`, but it must be the name of the folder.")
    if not isinstance(description, str) or not 1 <= len(description.strip()) <= MAX_DESCRIPTION_CHARACTERS:
        raise SkillFault(f"`description` must be a string of 1 to {MAX_DESCRIPTION_CHARACTERS:,} characters.")
    if find_invisible(description):
        raise SkillFault("`description` contains invisible characters.")
    return description.strip(), front_matter.body.strip()


def load_skill(root: Root, parts: tuple[str, ...], label: str) -> Skill | None:
    """Read a skill from its folder. Return None if the folder contains no SKILL.md.

    Raises SkillFault if the skill cannot be used, and PathRefused if its SKILL.md cannot be read.
    """
    data = root.read(RelPath.build((*parts, SKILL_FILE_NAME), f"{label}/{SKILL_FILE_NAME}"), limit=MAX_FILE_BYTES)
    if data is None:
        return None
    try:
        text = data.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError:
        raise SkillFault("It is not UTF-8 text.") from None
    description, body = parse_skill(parts[-1], text)
    files = _hash_files(root, parts)
    covered = "\0".join((text, *(part for file in files.items() for part in file)))
    digest = sha256(covered.encode("utf-8", "surrogatepass")).hexdigest()
    return Skill(parts[-1], description, body, label, root, parts, len(data), files, digest)


def _hash_files(root: Root, parts: tuple[str, ...]) -> dict[str, str]:
    """Return the SHA-256 of each file below a skill's folder, except SKILL.md, by its path."""
    hashes: dict[str, str] = {}
    total = 0
    for inside in _list_files(root, parts):
        try:
            data = root.read(RelPath.build((*parts, *inside)), limit=MAX_FILE_BYTES) or b""
        except PathRefused:
            hashes["/".join(inside)] = _UNREADABLE
            continue
        total += len(data)
        if total > _MAX_TOTAL_BYTES:
            raise SkillFault(f"Its folder contains more than {_MAX_TOTAL_BYTES // 1024 // 1024} MB of small files.")
        hashes["/".join(inside)] = sha256(data).hexdigest()
    return hashes


def _list_files(root: Root, parts: tuple[str, ...]) -> list[tuple[str, ...]]:
    files: list[tuple[str, ...]] = []
    waiting: list[tuple[str, ...]] = [()]
    visited = 0
    while waiting:
        inside = waiting.pop(0)
        listing = root.list(RelPath.build((*parts, *inside)))
        visited += 1
        if listing is None:
            continue
        files += ((*inside, name) for name in listing.files)
        waiting += ((*inside, name) for name in listing.directories)
        if len(inside) >= _MAX_DEPTH or visited > _MAX_FILES or len(files) > _MAX_FILES:
            raise SkillFault(
                f"Its folder contains more than {_MAX_FILES} files, or folders that are nested too deeply."
            )
    return sorted(file for file in files if file != (SKILL_FILE_NAME,))
