"""The instruction files and skills of a turn. Turns use those of a folder only if the user trusts them.

The user's own skills are always trusted. `permissions.toml` stores each trusted folder with a digest of its files, so
changed files must be trusted again. Each process asks only once about each untrusted version.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby
from typing import Any, Literal

from thinklsp.agent.prompts import (
    INSTRUCTION_FILE_NAMES,
    InstructionFile,
    build_skill_list,
    compute_digest,
    find_sent_list,
    format_chosen_skill,
    list_enclosing_folders,
    remove_redundant,
)
from thinklsp.core.choices import NOT_NOW
from thinklsp.core.errors import PathRefused, SettingsError, TurnRefused
from thinklsp.core.messages import Conversation
from thinklsp.core.text_safety import format_path, format_size
from thinklsp.core.tool_type import Ask
from thinklsp.settings.config_files import has_own_skills, locate_own_skills, shorten_home
from thinklsp.settings.permissions import PermissionsFile, RememberedPermissions
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
from thinklsp.workspace.view import FolderView, Place, WorkspaceView

FOLLOW = "Follow them"
_MAX_LISTED_FILES = 6
_MAX_NAME_CHARACTERS = 80
_KINDS = ("instructions", "skills")

ShowDocument = Callable[[str], Awaitable[bool]]
"""Shows the document with the given URI in the editor. Returns False if the editor did not show it."""


@dataclass(frozen=True, slots=True)
class TrustedText:
    """A file that the question about trust names. `path` is its display path."""

    path: str
    uri: str
    size: int


@dataclass(frozen=True, slots=True)
class TrustSubject:
    """The instruction files or the skills of a folder, which a model gets only if the user trusts them.

    `folder` is the folder's path on disk. `trusted_path` names the subject in `permissions.toml`. `workspace_folder` is
    the name of the enclosing workspace folder. `digest` covers the content that the model can get.
    """

    workspace_folder: str
    folder: str
    trusted_path: str
    digest: str
    texts: tuple[TrustedText, ...]
    files: tuple[InstructionFile, ...] = ()
    skills: tuple[Skill, ...] = ()

    @property
    def kind(self) -> Literal["instructions", "skills"]:
        return "skills" if self.skills else "instructions"

    @property
    def key(self) -> tuple[str, str]:
        return self.trusted_path, self.digest


class TrustQuestions:
    """The questions about trust, with the answers that are not in `permissions.toml`."""

    def __init__(self, permissions: PermissionsFile) -> None:
        self._permissions = permissions
        self._answers: dict[tuple[str, str], bool] = {}

    async def select_trusted(
        self, subjects: Sequence[TrustSubject], ask: Ask, show_document: ShowDocument | None
    ) -> tuple[list[TrustSubject], list[str]]:
        """Return the trusted subjects of one workspace folder, and notices for the user.

        If there are new subjects, ask the user a single question about all of them. Turns must not call this method at
        the same time, because they would ask the same question twice.
        """
        try:
            remembered = await asyncio.to_thread(self._permissions.read)
        except SettingsError as error:
            return [], [f"{error} Until then, {_join_kinds(subjects)} are ignored."]
        trusted = {(folder.folder, folder.digest) for folder in remembered.trusted}
        notices: list[str] = []
        if new := [each for each in subjects if each.key not in trusted and each.key not in self._answers]:
            answer = await _ask_or_show(_format_question(new, remembered), new, ask, show_document)
            if answer == FOLLOW:
                trusted |= {each.key for each in new}
                notices += await asyncio.to_thread(self._remember, new)
            else:
                self._answers |= dict.fromkeys((each.key for each in new), False)
            if answer is None:
                names = _join_names([_format_name(text) for subject in new for text in subject.texts])
                notices.append(f"Ignored {names}: you did not answer the question about trust.")
        return [each for each in subjects if each.key in trusted or self._answers.get(each.key)], notices

    def _remember(self, subjects: Sequence[TrustSubject]) -> list[str]:
        try:
            for subject in subjects:
                self._permissions.add_trusted_folder(*subject.key)
        except SettingsError as error:
            self._answers |= dict.fromkeys((each.key for each in subjects), True)
            return [f"{error} The {_join_kinds(subjects)} are trusted until this server exits."]
        return []


async def _ask_or_show(
    question: str, subjects: Sequence[TrustSubject], ask: Ask, show_document: ShowDocument | None
) -> str | None:
    """Ask the question. If the user wants to see the files first, show them and ask again."""
    if show_document is not None:
        texts = [text for subject in subjects for text in subject.texts][:_MAX_LISTED_FILES]
        show = f"Show {_format_name(texts[0])}" if len(texts) == 1 else "Show them"
        answer = await ask(question, (FOLLOW, show, NOT_NOW))
        if answer != show:
            return answer
        for text in texts:
            await show_document(text.uri)
    return await ask(question, (FOLLOW, NOT_NOW))


def _format_question(subjects: Sequence[TrustSubject], remembered: RememberedPermissions) -> str:
    trusted_paths = {each.folder for each in remembered.trusted}
    changed_text = (
        ", changed since you trusted them" if any(each.trusted_path in trusted_paths for each in subjects) else ""
    )
    name = format_path(subjects[0].workspace_folder[:_MAX_NAME_CHARACTERS])
    files = [f"{_format_name(text)} ({format_size(text.size)})" for subject in subjects for text in subject.texts]
    kinds = _join_kinds(subjects)
    return (
        f"The folder {name} contains {kinds} for assistants{changed_text}: {_join_names(files)}. Follow these {kinds}?"
    )


def _join_kinds(subjects: Sequence[TrustSubject]) -> str:
    """Return the kinds of the subjects in words, such as `instructions and skills`."""
    return " and ".join(kind for kind in _KINDS if any(each.kind == kind for each in subjects))


def _join_names(names: Sequence[str]) -> str:
    suffix = f" and {len(names) - _MAX_LISTED_FILES} more" if len(names) > _MAX_LISTED_FILES else ""
    return ", ".join(names[:_MAX_LISTED_FILES]) + suffix


def _format_name(text: TrustedText) -> str:
    return format_path(text.path if len(text.path) <= _MAX_NAME_CHARACTERS else f"…{text.path[-_MAX_NAME_CHARACTERS:]}")


SKILL_FOLDERS = ((".agents", "skills"), (".claude", "skills"))
"""The folders with skills in a workspace folder, in order of precedence."""

_MAX_FAULTS = 8
_LINK_FAULT = "It is a symbolic link, and links are not followed."


@dataclass(frozen=True, slots=True)
class FoundSkills:
    """The usable skills of a folder, and a sentence about each skill that cannot be used."""

    skills: tuple[Skill, ...] = ()
    faults: tuple[str, ...] = ()


def find_folder_skills(root: Root, label_prefix: Sequence[str] = ()) -> FoundSkills:
    """Find the skills of a workspace folder. The user must trust them before a model gets them."""
    return _search_folders(root, [(parts, "/".join((*label_prefix, *parts))) for parts in SKILL_FOLDERS])


def find_own_skills(config_path: str) -> FoundSkills:
    """Find the user's own skills, in the folder `skills` beside the user's config.toml."""
    if not has_own_skills(config_path):
        return FoundSkills()
    path = locate_own_skills(config_path)
    try:
        # The root stays open as long as a skill refers to it.
        return _search_folders(Root(path, read_only=True), [((), shorten_home(path))])
    except PathRefused as refused:
        return FoundSkills((), (str(refused),))


def _search_folders(root: Root, folders: Iterable[tuple[tuple[str, ...], str]]) -> FoundSkills:
    """Find the skills in folders, which are given by their path and their display path."""
    skills: list[Skill] = []
    faults: list[str] = []
    links: list[tuple[str, str]] = []
    for parts, label in folders:
        try:
            listing = root.list(RelPath.build(parts, label))
        except PathRefused as refused:
            # A link to a folder is often a second name of the folder before it.
            faults += [] if skills else [f"The skills are ignored: {refused}"]
            continue
        if listing is None:
            continue
        links += ((name, f"{label}/{name}") for name in listing.links if is_skill_name(name))
        names = [name for name in listing.directories if not name.startswith(".")]
        loaded = [_load(root, (*parts, name), f"{label}/{name}") for name in names[:MAX_SKILLS]]
        skills += (skill for skill in loaded if isinstance(skill, Skill))
        faults += (fault for fault in loaded if isinstance(fault, str))
        if (more := len(names) - MAX_SKILLS) > 0:
            faults.append(f"{format_path(label)} contains more than {MAX_SKILLS} skills: {more} are left out.")
    merged = merge_skills([skills])
    known = {skill.name for skill in skills}
    faults += (*merged.faults, *(_ignore(label, _LINK_FAULT) for name, label in links if name not in known))
    more = len(faults) - _MAX_FAULTS
    return FoundSkills(
        merged.skills, (*faults[:_MAX_FAULTS], *([f"{more} more skills cannot be used."] if more > 0 else ()))
    )


def _load(root: Root, parts: tuple[str, ...], label: str) -> Skill | str:
    """Return the skill of a folder, or a sentence if it cannot be used."""
    try:
        skill = load_skill(root, parts, label)
    except SkillFault as fault:
        return _ignore(f"{label}/{SKILL_FILE_NAME}", str(fault))
    except PathRefused as refused:
        return _ignore(label, str(refused))
    return _ignore(label, f"It contains no {SKILL_FILE_NAME}.") if skill is None else skill


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


def _ignore(label: str, reason: str) -> str:
    return f"Ignored the skill {format_path(label)}: {reason}"


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


_Start = tuple[FolderView, tuple[str, ...]]
"""A workspace folder, and the path components of a folder below it that the request refers to."""


@dataclass(frozen=True, slots=True)
class TurnInstructions:
    """The instruction files for one turn, ordered from the outermost folder inwards, with notices for the user.

    `skills` contains the skills for the turn, sorted by name, or None if the turn leaves those of the session as they
    are. `untrusted_skills` contains the names of skills that the user does not trust. `untrusted` contains the real
    paths of folders that the user does not trust.
    """

    files: tuple[InstructionFile, ...] = ()
    notices: tuple[str, ...] = ()
    untrusted: frozenset[str] = frozenset()
    skills: tuple[Skill, ...] | None = None
    untrusted_skills: frozenset[str] = frozenset()

    def is_untrusted(self, place: Place) -> bool:
        """Return True if the place is inside an untrusted folder."""
        if place.root is None or place.path is None:
            return False
        parts = place.path.parts[:-1]
        return any(os.path.join(place.root.path, *parts[:end]) in self.untrusted for end in range(len(parts) + 1))


class ProjectInstructions:
    """A reader of instruction files and skills that asks for the user's trust and avoids repeated notices.

    `config_path` is the path of the user's config.toml, beside which the user's own skills are. It is empty if there
    are none.
    """

    def __init__(self, permissions: PermissionsFile, config_path: str = "") -> None:
        self._questions = TrustQuestions(permissions)
        self._config_path = config_path
        self._shown_notices: set[str] = set()
        # Without the lock, two turns that start at the same time could ask the same question twice.
        self._question_lock = asyncio.Lock()

    async def select_instructions(
        self,
        view: WorkspaceView,
        uris: Sequence[str],
        ask: Ask,
        *,
        all_folders: bool,
        show_document: ShowDocument | None = None,
    ) -> TurnInstructions:
        """Return the trusted instruction files and skills for a turn about the given documents.

        Asks the user to trust new ones. If `all_folders` is true, the result also includes the files at the top level
        of every workspace folder. With `show_document` the question offers to show the files.
        """
        starts = _find_starts(view, uris, all_folders=all_folders)
        if not starts and not all_folders:
            return TurnInstructions()
        subjects, own, notices = await asyncio.to_thread(self._find_all, view, starts)
        trusted: list[TrustSubject] = []
        async with self._question_lock:
            for _, group in groupby(subjects, lambda subject: subject.workspace_folder):
                selection, new_notices = await self._questions.select_trusted(list(group), ask, show_document)
                trusted += selection
                notices += new_notices
        untrusted = [subject for subject in subjects if subject not in trusted]
        merged = merge_skills((own, *(subject.skills for subject in trusted)))
        return TurnInstructions(
            remove_redundant([file for subject in trusted for file in subject.files]),
            self._filter_new_notices((*notices, *merged.faults)),
            frozenset(subject.folder for subject in untrusted),
            merged.skills,
            frozenset(skill.name for subject in untrusted for skill in subject.skills),
        )

    def _find_all(
        self, view: WorkspaceView, starts: Sequence[_Start]
    ) -> tuple[list[TrustSubject], tuple[Skill, ...], list[str]]:
        """Find what needs the user's trust, and the user's own skills. Describe each rejected file and skill."""
        subjects, problems = _find_subjects(view, starts)
        own = find_own_skills(self._config_path) if self._config_path else FoundSkills()
        return subjects, own.skills, [*problems, *own.faults]

    def _filter_new_notices(self, sentences: Iterable[str]) -> tuple[str, ...]:
        """Return the notices that have not been shown yet, because every turn reports the same problems again."""
        new = tuple(dict.fromkeys(sentence for sentence in sentences if sentence not in self._shown_notices))
        self._shown_notices.update(new)
        return new


def _find_starts(view: WorkspaceView, uris: Sequence[str], *, all_folders: bool) -> list[_Start]:
    """Return the folders that contain the turn's documents, grouped by workspace folder."""
    by_root: dict[Root, list[tuple[str, ...]]] = {folder.root: [()] if all_folders else [] for folder in view.folders}
    for uri in uris:
        place = view.resolve(uri)
        if place.root is not None and place.path is not None:
            by_root[place.root].append(place.path.parts[:-1])
    return [(folder, parts) for folder in view.folders for parts in dict.fromkeys(by_root[folder.root])]


def _find_subjects(view: WorkspaceView, starts: Sequence[_Start]) -> tuple[list[TrustSubject], list[str]]:
    """Find the instruction files and skills, grouped by workspace folder, and describe each rejected one."""
    subjects, problems = _find_files(view, starts)
    for folder in {id(folder): folder for folder, _ in starts}.values():
        found = find_folder_skills(folder.root, view.find_label_prefix(folder.root))
        problems += found.faults
        if found.skills:
            subjects.append(_build_skill_subject(view, folder, found.skills))
    order = [folder.name for folder in view.folders]
    return sorted(subjects, key=lambda subject: order.index(subject.workspace_folder)), problems


def _build_skill_subject(view: WorkspaceView, folder: FolderView, skills: tuple[Skill, ...]) -> TrustSubject:
    root = folder.root
    texts = tuple(
        TrustedText(
            f"{skill.label}/{SKILL_FILE_NAME}",
            view.build_place(root, (*skill.parts, SKILL_FILE_NAME)).uri,
            skill.size,
        )
        for skill in skills
    )
    covered = "\n".join(f"{'/'.join(skill.parts)} {skill.digest}" for skill in skills)
    digest = sha256(covered.encode("utf-8", "surrogatepass")).hexdigest()
    # One entry stands for both folders. It is not the path of a folder that could contain instruction files.
    path = os.path.join(root.path, "{.agents,.claude}/skills")
    return TrustSubject(folder.name, root.path, path, digest, texts, skills=skills)


def _find_files(view: WorkspaceView, starts: Sequence[_Start]) -> tuple[list[TrustSubject], list[str]]:
    """Find the folders that contain instruction files, and describe each rejected file."""
    by_path: dict[str, TrustSubject] = {}
    problems: list[str] = []
    candidates = dict.fromkeys(
        (folder.name, folder.root, parts) for folder, start in starts for parts in list_enclosing_folders(start)
    )
    for name, root, parts in candidates:
        files: list[InstructionFile] = []
        uris: dict[InstructionFile, str] = {}
        rejections: list[str] = []
        for file_name in INSTRUCTION_FILE_NAMES:
            try:
                file = _read_file(view, root, name, parts, file_name)
            except PathRefused as error:
                rejections.append(f"{error} The instruction file is ignored.")
                continue
            if file is not None and file.invisible_characters:
                codes = ", ".join(file.invisible_characters[:8])
                problems.append(f"Ignored {format_path(file.path)}: it contains invisible characters ({codes}).")
            elif file is not None:
                files.append(file)
                uris[file] = view.build_place(root, (*parts, *file_name)).uri
        # Ignore a rejected file if the folder contains a usable instruction file. Often, one file is a link to the
        # other.
        problems += rejections if not files else ()
        if files := list(remove_redundant(files)):
            real = os.path.join(root.path, *parts)
            texts = tuple(TrustedText(file.path, uris[file], _measure(file.text)) for file in files)
            by_path[real] = TrustSubject(name, real, real, compute_digest(files), texts, tuple(files))
    return list(by_path.values()), problems


def _read_file(
    view: WorkspaceView, root: Root, name: str, parts: tuple[str, ...], file_name: tuple[str, ...]
) -> InstructionFile | None:
    place = view.build_place(root, (*parts, *file_name))
    content = view.peek(place)
    if content is None:
        return None
    text = content.text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return InstructionFile(place.label, "/".join(file_name), (name, *parts), text)


def _measure(text: str) -> int:
    return len(text.encode("utf-8", "surrogatepass"))
