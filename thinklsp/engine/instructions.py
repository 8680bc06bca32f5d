"""Which instruction files of the workspace a turn follows: they are read when it begins, through the gate, and only
those count that the user has agreed to.

Agreement is kept in `permissions.toml` by folder and content: a file that changed is asked about again. What nobody
agreed to is asked once in a process.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import groupby

from thinklsp.agent.instructions import NAMES, InstructionFile, digest_of, distinct, folders_down_to
from thinklsp.core.errors import PathRefused, SettingsError
from thinklsp.settings.permissions import Permissions, Remembered
from thinklsp.tools.base import Ask
from thinklsp.tools.shown import shown_name
from thinklsp.workspace.paths import Root
from thinklsp.workspace.view import FolderView, Place, WorkspaceView

FOLLOW, NOT_NOW = "Follow them", "Not now"
_NAMED = 6
_NAME_LENGTH = 80

_Start = tuple[FolderView, tuple[str, ...]]
"""A workspace folder, and components of a folder in it that the turn is about."""


@dataclass(frozen=True, slots=True)
class _Folder:
    """A folder with instructions. `real` is its path on disk, `within` the workspace folder's name."""

    within: str
    real: str
    files: tuple[InstructionFile, ...]

    @property
    def agreement(self) -> tuple[str, str]:
        return self.real, digest_of(self.files)


@dataclass(frozen=True, slots=True)
class Followed:
    """`files`: those to follow, outermost first; `said`: sentences for the user; `untrusted`: paths on disk of the
    folders whose instructions the user has not agreed to."""

    files: tuple[InstructionFile, ...] = ()
    said: tuple[str, ...] = ()
    untrusted: frozenset[str] = frozenset()

    def is_untrusted(self, place: Place) -> bool:
        """Tell whether a file lies in one of the untrusted folders, or below it."""
        if place.root is None or place.path is None:
            return False
        parts = place.path.parts[:-1]
        return any(os.path.join(place.root.path, *parts[:end]) in self.untrusted for end in range(len(parts) + 1))


class ProjectInstructions:
    """One per engine. Mutable state: what was answered and what was told in its life."""

    def __init__(self, permissions: Permissions) -> None:
        self._permissions = permissions
        self._answers: dict[tuple[str, str], bool] = {}
        self._told: set[str] = set()
        # Turns that begin together would else ask the same thing side by side.
        self._asking = asyncio.Lock()

    async def followed(self, view: WorkspaceView, uris: Sequence[str], ask: Ask, *, everywhere: bool) -> Followed:
        """Return the files to follow in a turn about these documents. `everywhere`: those at the top of every workspace
        folder, too."""
        starts = _starts(view, uris, everywhere=everywhere)
        if not starts:
            return Followed()
        folders, said = await asyncio.to_thread(_found, view, starts)
        files: list[InstructionFile] = []
        untrusted = {folder.real for folder in folders}
        async with self._asking:
            for _, group in groupby(folders, lambda folder: folder.within):
                agreed, more = await self._agreed(list(group), ask)
                files += (file for folder in agreed for file in folder.files)
                untrusted -= {folder.real for folder in agreed}
                said += more
        return Followed(distinct(files), self._news(said), frozenset(untrusted))

    async def _agreed(self, folders: list[_Folder], ask: Ask) -> tuple[list[_Folder], list[str]]:
        """Those of one workspace folder that the user wants followed: asked in one question."""
        try:
            remembered = await asyncio.to_thread(self._permissions.read)
        except SettingsError as error:
            return [], [f"{error} Until then no instructions of folders are followed."]
        trusted = {(each.folder, each.digest) for each in remembered.trusted}
        said: list[str] = []
        if new := [each for each in folders if each.agreement not in trusted and each.agreement not in self._answers]:
            answer = await ask(_question(new, remembered), (FOLLOW, NOT_NOW))
            if answer == FOLLOW:
                trusted |= {each.agreement for each in new}
                said += await asyncio.to_thread(self._remember, new)
            else:
                self._answers |= dict.fromkeys((each.agreement for each in new), False)
            if answer is None:
                said.append(f"{_names(new)} not followed: the question whether to was not answered.")
        return [each for each in folders if each.agreement in trusted or self._answers.get(each.agreement)], said

    def _remember(self, folders: Sequence[_Folder]) -> list[str]:
        try:
            for folder in folders:
                self._permissions.trust(*folder.agreement)
        except SettingsError as error:
            self._answers |= dict.fromkeys((each.agreement for each in folders), True)
            return [f"{error} The instructions are followed as long as this server runs."]
        return []

    def _news(self, sentences: Iterable[str]) -> tuple[str, ...]:
        """What was not said before: files stay as they are for many turns."""
        new = tuple(dict.fromkeys(sentence for sentence in sentences if sentence not in self._told))
        self._told.update(new)
        return new


def _starts(view: WorkspaceView, uris: Sequence[str], *, everywhere: bool) -> list[_Start]:
    """Workspace folders, and in each the folders that the turn is about, grouped."""
    by_root: dict[Root, list[tuple[str, ...]]] = {each.root: [()] if everywhere else [] for each in view.folders}
    for uri in uris:
        place = view.resolve(uri)
        if place.root is not None and place.path is not None:
            by_root[place.root].append(place.path.parts[:-1])
    return [(each, parts) for each in view.folders for parts in dict.fromkeys(by_root[each.root])]


def _found(view: WorkspaceView, starts: Sequence[_Start]) -> tuple[list[_Folder], list[str]]:
    """Every folder once, and why a file cannot be followed."""
    found: dict[str, _Folder] = {}
    problems: list[str] = []
    wanted = dict.fromkeys((each.name, each.root, parts) for each, start in starts for parts in folders_down_to(start))
    for name, root, parts in wanted:
        files: list[InstructionFile] = []
        refused: list[str] = []
        for written in NAMES:
            try:
                file = _read(view, root, name, parts, written)
            except PathRefused as error:
                refused.append(f"{error} Its instructions are not followed.")
                continue
            if file is not None and file.hidden:
                codes = ", ".join(file.hidden[:8])
                problems.append(f"{shown_name(file.path)} holds invisible characters ({codes}) and is not followed.")
            elif file is not None:
                files.append(file)
        # A second name that is a link to the first is common, and nothing is missing then.
        problems += refused if not files else ()
        if files := list(distinct(files)):
            real = os.path.join(root.path, *parts)
            found[real] = _Folder(name, real, tuple(files))
    return list(found.values()), problems


def _read(
    view: WorkspaceView, root: Root, name: str, parts: tuple[str, ...], written: tuple[str, ...]
) -> InstructionFile | None:
    place = view.place_in(root, (*parts, *written))
    found = view.peek(place)
    if found is None:
        return None
    text = found.text.removeprefix("\ufeff").replace("\r\n", "\n").replace("\r", "\n")
    return InstructionFile(place.shown, "/".join(written), (name, *parts), text)


def _question(folders: Sequence[_Folder], remembered: Remembered) -> str:
    known = {each.folder for each in remembered.trusted}
    changed = ", changed since you agreed" if any(each.real in known for each in folders) else ""
    name = shown_name(folders[0].within[:_NAME_LENGTH])
    listed = _listed([f"{_named(file)} ({_size(file)})" for folder in folders for file in folder.files])
    return f"The folder {name} has instructions for assistants{changed}: {listed}. Shall they be followed?"


def _names(folders: Sequence[_Folder]) -> str:
    names = [_named(file) for folder in folders for file in folder.files]
    return f"{_listed(names)} {'is' if len(names) == 1 else 'are'}"


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


def _named(file: InstructionFile) -> str:
    return shown_name(file.path if len(file.path) <= _NAME_LENGTH else f"…{file.path[-_NAME_LENGTH:]}")


def _size(file: InstructionFile) -> str:
    size = len(file.text.encode("utf-8", "surrogatepass"))
    return f"{size} byte{'s' * (size != 1)}" if size < 1000 else f"{size / 1000:.1f} KB"
