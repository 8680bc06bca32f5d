"""The instruction files and skills of a turn. Turns use those of a folder only if the user trusts them.

The user's own skills are always trusted.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from itertools import groupby

from thinklsp.agent.prompts import (
    INSTRUCTION_FILE_NAMES,
    InstructionFile,
    compute_digest,
    list_enclosing_folders,
    remove_redundant,
)
from thinklsp.core.errors import PathRefused
from thinklsp.core.text_safety import format_path
from thinklsp.core.tool_type import Ask
from thinklsp.engine.skills import FoundSkills, find_folder_skills, find_own_skills, merge_skills
from thinklsp.engine.trust import ShowDocument, TrustedText, TrustQuestions, TrustSubject
from thinklsp.settings.permissions import PermissionsFile
from thinklsp.tools.skill_files import SKILL_FILE_NAME, Skill
from thinklsp.workspace.paths import Root
from thinklsp.workspace.view import FolderView, Place, WorkspaceView

_Start = tuple[FolderView, tuple[str, ...]]
"""A workspace folder, and the path components of a folder below it that the request refers to."""


@dataclass(frozen=True, slots=True)
class _Source:
    """The instruction files or the skills of a folder, which need the user's trust. `real_path` is the path on disk of
    the folder to which they apply."""

    subject: TrustSubject
    real_path: str
    files: tuple[InstructionFile, ...] = ()
    skills: tuple[Skill, ...] = ()


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
        """Return the trusted instruction files and skills for a turn about the given documents. Asks the user to trust
        new ones. If `all_folders` is true, the result also includes the files at the top level of every workspace
        folder. With `show_document` the question offers to show the files."""
        starts = _find_starts(view, uris, all_folders=all_folders)
        if not starts and not all_folders:
            return TurnInstructions()
        sources, own, notices = await asyncio.to_thread(self._find_all, view, starts)
        trusted: list[_Source] = []
        async with self._question_lock:
            for _, group in groupby(sources, lambda source: source.subject.workspace_folder):
                members = list(group)
                keys, new_notices = await self._questions.select_trusted(
                    [source.subject for source in members], ask, show_document
                )
                trusted += (source for source in members if source.subject.key in keys)
                notices += new_notices
        untrusted = [source for source in sources if source not in trusted]
        merged = merge_skills((own, *(source.skills for source in trusted)))
        return TurnInstructions(
            remove_redundant([file for source in trusted for file in source.files]),
            self._filter_new_notices((*notices, *merged.faults)),
            frozenset(source.real_path for source in untrusted),
            merged.skills,
            frozenset(skill.name for source in untrusted for skill in source.skills),
        )

    def _find_all(
        self, view: WorkspaceView, starts: Sequence[_Start]
    ) -> tuple[list[_Source], tuple[Skill, ...], list[str]]:
        """Find what needs the user's trust, and the user's own skills. Describe each rejected file and skill."""
        sources, problems = _find_sources(view, starts)
        own = find_own_skills(self._config_path) if self._config_path else FoundSkills()
        return sources, own.skills, [*problems, *own.faults]

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


def _find_sources(view: WorkspaceView, starts: Sequence[_Start]) -> tuple[list[_Source], list[str]]:
    """Find the instruction files and skills, grouped by workspace folder, and describe each rejected one."""
    sources, problems = _find_files(view, starts)
    for folder in {id(folder): folder for folder, _ in starts}.values():
        found = find_folder_skills(folder.root, view.find_label_prefix(folder.root))
        problems += found.faults
        if found.skills:
            sources.append(_build_skill_source(view, folder, found.skills))
    order = [folder.name for folder in view.folders]
    return sorted(sources, key=lambda source: order.index(source.subject.workspace_folder)), problems


def _build_skill_source(view: WorkspaceView, folder: FolderView, skills: tuple[Skill, ...]) -> _Source:
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
    return _Source(TrustSubject("skills", folder.name, path, digest, texts), root.path, skills=skills)


def _find_files(view: WorkspaceView, starts: Sequence[_Start]) -> tuple[list[_Source], list[str]]:
    """Find the folders that contain instruction files, and describe each rejected file."""
    by_path: dict[str, _Source] = {}
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
            subject = TrustSubject("instructions", name, real, compute_digest(files), texts)
            by_path[real] = _Source(subject, real, tuple(files))
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
