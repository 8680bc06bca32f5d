"""The skills of the workspace folders and of the user."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from thinklsp.agent.skill_prompts import build_skill_list, find_sent_list, format_chosen_skill
from thinklsp.core.errors import PathRefused, TurnRefused
from thinklsp.core.messages import Conversation
from thinklsp.core.text_safety import format_path
from thinklsp.settings.private_paths import has_own_skills, locate_own_skills, shorten_home
from thinklsp.tools.skill_files import (
    MAX_SKILLS,
    SKILL_FILE_NAME,
    Skill,
    SkillFault,
    is_skill_name,
    load_skill,
)
from thinklsp.workspace.paths import Root
from thinklsp.workspace.uri import RelPath
from thinklsp.workspace.view import WorkspaceView

SKILL_FOLDERS = ((".agents", "skills"), (".claude", "skills"))
"""The folders with skills in a workspace folder, in order of precedence."""

_MAX_FAULTS = 8
_LINK_FAULT = "It is a symbolic link, and links are not followed."


@dataclass(frozen=True, slots=True)
class FoundSkills:
    """The usable skills of a folder, and a sentence about each skill that cannot be used."""

    skills: tuple[Skill, ...] = ()
    faults: tuple[str, ...] = ()


@dataclass(slots=True)
class _Search:
    """The skills and faults that a search has found so far. The first skill with a name wins.

    `links` contains the name and the label of each link to a skill. The name is empty for a link to a whole folder.
    """

    skills: dict[str, Skill] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    links: list[tuple[str, str]] = field(default_factory=list)

    def finish(self) -> FoundSkills:
        # A link is often a second name of a skill in the other folder.
        self.faults += (
            _ignore(label, _LINK_FAULT)
            for name, label in self.links
            if (name not in self.skills if name else not self.skills)
        )
        more = len(self.faults) - _MAX_FAULTS
        faults = [*self.faults[:_MAX_FAULTS], *([f"{more} more skills cannot be used."] if more > 0 else ())]
        return FoundSkills(tuple(self.skills[name] for name in sorted(self.skills)), tuple(faults))


def find_folder_skills(root: Root, label_prefix: Sequence[str] = ()) -> FoundSkills:
    """Find the skills of a workspace folder. The user must trust them before a model gets them."""
    search = _Search()
    for parts in SKILL_FOLDERS:
        _search_folder(search, root, parts, "/".join((*label_prefix, *parts)))
    return search.finish()


def find_own_skills(config_path: str) -> FoundSkills:
    """Find the user's own skills, in the folder `skills` beside the user's config.toml."""
    if not has_own_skills(config_path):
        return FoundSkills()
    path = locate_own_skills(config_path)
    search = _Search()
    try:
        # The root stays open as long as a skill refers to it.
        _search_folder(search, Root(path, read_only=True), (), shorten_home(path))
    except PathRefused as refused:
        search.faults.append(str(refused))
    return search.finish()


def find_all_skills(view: WorkspaceView, config_path: str) -> FoundSkills:
    """Find the skills that the user can choose, without asking for trust: the user's own and those of the folders."""
    found = [find_own_skills(config_path)]
    found += (find_folder_skills(folder.root, view.find_label_prefix(folder.root)) for folder in view.folders)
    merged = merge_skills(each.skills for each in found)
    faults = dict.fromkeys(fault for each in (*found, merged) for fault in each.faults)
    return FoundSkills(merged.skills, tuple(faults))


def describe_skills(found: FoundSkills, config_path: str) -> dict[str, Any]:
    """Return the skills as a JSON object, for `thinklsp.skills` and the doctor report."""
    skills = [
        {"name": skill.name, "description": " ".join(skill.description.split()), "path": skill.label}
        for skill in found.skills
    ]
    return {"folder": locate_own_skills(config_path), "skills": skills, "problems": list(found.faults)}


def merge_skills(groups: Iterable[Iterable[Skill]]) -> FoundSkills:
    """Merge groups of skills, the most important first, sorted by name. At most 64 skills are used."""
    by_name: dict[str, Skill] = {}
    faults: list[str] = []
    left_out = 0
    for skill in (skill for group in groups for skill in group):
        first = by_name.setdefault(skill.name, skill) if skill.name in by_name or len(by_name) < MAX_SKILLS else None
        if first is None:
            left_out += 1
        elif first.digest != skill.digest:
            faults.append(_ignore(skill.label, f"{format_path(first.label)} has the same name."))
    if left_out:
        faults.append(f"Only {MAX_SKILLS} skills are used, and {left_out} are left out.")
    return FoundSkills(tuple(by_name[name] for name in sorted(by_name)), tuple(faults))


def _search_folder(search: _Search, root: Root, parts: tuple[str, ...], label: str) -> None:
    try:
        listing = root.list(RelPath.build(parts, label))
    except PathRefused as refused:
        if _is_link(root, parts):
            search.links.append(("", label))
        else:
            search.faults.append(f"The skills are ignored: {refused}")
        return
    if listing is None:
        return
    search.links += ((name, f"{label}/{name}") for name in listing.links if is_skill_name(name))
    names = [name for name in listing.directories if not name.startswith(".")]
    for name in names[:MAX_SKILLS]:
        _load(search, root, (*parts, name), f"{label}/{name}")
    if (more := len(names) - MAX_SKILLS) > 0:
        search.faults.append(f"{format_path(label)} contains more than {MAX_SKILLS} skills: {more} are left out.")


def _load(search: _Search, root: Root, parts: tuple[str, ...], label: str) -> None:
    try:
        skill = load_skill(root, parts, label)
    except SkillFault as fault:
        search.faults.append(_ignore(f"{label}/{SKILL_FILE_NAME}", str(fault)))
    except PathRefused as refused:
        search.faults.append(_ignore(label, str(refused)))
    else:
        if skill is None:
            search.faults.append(_ignore(label, f"It contains no {SKILL_FILE_NAME}."))
            return
        first = search.skills.setdefault(skill.name, skill)
        if first.digest != skill.digest:
            search.faults.append(_ignore(label, f"{format_path(first.label)} has the same name."))


def _ignore(label: str, reason: str) -> str:
    return f"Ignored the skill {format_path(label)}: {reason}"


def _is_link(root: Root, parts: tuple[str, ...]) -> bool:
    """Return True if one of the folders of a path is a symbolic link."""
    for end in range(1, len(parts) + 1):
        try:
            status = root.stat(RelPath.build(parts[:end]))
        except PathRefused:
            return False
        if status is not None and status.kind == "link":
            return True
    return False


def build_skill_texts(
    names: Sequence[str], skills: Sequence[Skill] | None, untrusted: Iterable[str], conversation: Conversation
) -> list[str]:
    """Return the skills that the user chose for a prompt, and the list of skills if the model does not have it yet.

    `skills` is None if the turn leaves the list as it is. Raises TurnRefused if a chosen skill cannot be used.
    """
    chosen = [format_chosen_skill(skill) for skill in _choose_skills(names, skills or (), frozenset(untrusted))]
    return chosen if skills is None else [*chosen, build_skill_list(skills, find_sent_list(conversation))]


def _choose_skills(names: Sequence[str], skills: Sequence[Skill], untrusted: frozenset[str]) -> list[Skill]:
    by_name = {skill.name: skill for skill in skills}
    for name in names:
        if name not in by_name and name in untrusted:
            raise TurnRefused(
                f"The skill `{name}` was not used, because you do not trust the skills of its folder. To be asked "
                "again, restart the server and send the prompt again."
            )
        if name not in by_name:
            available = f"The skills are: {', '.join(by_name)}." if by_name else "There are no skills."
            raise TurnRefused(f"There is no skill `{name}`. {available} `thinklsp doctor` lists faulty skills.")
    return [by_name[name] for name in dict.fromkeys(names)]
