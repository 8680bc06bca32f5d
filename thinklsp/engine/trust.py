"""The user's trust in the instructions and skills of a folder.

`permissions.toml` stores each trusted folder with a digest of these files, so changed files must be trusted again. Each
process asks only once about each untrusted version.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from thinklsp.core.choices import NOT_NOW
from thinklsp.core.errors import SettingsError
from thinklsp.core.text_safety import format_path
from thinklsp.core.tool_type import Ask
from thinklsp.settings.permissions import PermissionsFile, RememberedPermissions

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
    """A folder whose files a model follows only if the user trusts them.

    `real_path` is the folder's path on disk. `workspace_folder` is the name of the enclosing workspace folder. `digest`
    covers the content that the model can get.
    """

    kind: Literal["instructions", "skills"]
    workspace_folder: str
    real_path: str
    digest: str
    texts: tuple[TrustedText, ...]

    @property
    def key(self) -> tuple[str, str]:
        return self.real_path, self.digest


class TrustQuestions:
    """The questions about trust, with the answers that are not in `permissions.toml`."""

    def __init__(self, permissions: PermissionsFile) -> None:
        self._permissions = permissions
        self._answers: dict[tuple[str, str], bool] = {}

    async def select_trusted(
        self, subjects: Sequence[TrustSubject], ask: Ask, show_document: ShowDocument | None
    ) -> tuple[frozenset[tuple[str, str]], list[str]]:
        """Return the keys of the trusted subjects of one workspace folder, and notices for the user.

        If there are new subjects, ask the user a single question about all of them. Turns must not call this method at
        the same time, because they would ask the same question twice.
        """
        try:
            remembered = await asyncio.to_thread(self._permissions.read)
        except SettingsError as error:
            return frozenset(), [f"{error} Until then, {_join_kinds(subjects)} are ignored."]
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
                notices.append(f"Ignored {_format_names(new)}: you did not answer the question about trust.")
        return frozenset(each.key for each in subjects if each.key in trusted or self._answers.get(each.key)), notices

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
        ", changed since you trusted them" if any(each.real_path in trusted_paths for each in subjects) else ""
    )
    name = format_path(subjects[0].workspace_folder[:_MAX_NAME_CHARACTERS])
    files = [f"{_format_name(text)} ({_format_size(text.size)})" for subject in subjects for text in subject.texts]
    kinds = _join_kinds(subjects)
    return (
        f"The folder {name} contains {kinds} for assistants{changed_text}: {_join_names(files)}. Follow these {kinds}?"
    )


def _join_kinds(subjects: Sequence[TrustSubject]) -> str:
    """Return the kinds of the subjects in words, such as `instructions and skills`."""
    return " and ".join(kind for kind in _KINDS if any(each.kind == kind for each in subjects))


def _format_names(subjects: Sequence[TrustSubject]) -> str:
    return _join_names([_format_name(text) for subject in subjects for text in subject.texts])


def _join_names(names: Sequence[str]) -> str:
    suffix = f" and {len(names) - _MAX_LISTED_FILES} more" if len(names) > _MAX_LISTED_FILES else ""
    return ", ".join(names[:_MAX_LISTED_FILES]) + suffix


def _format_name(text: TrustedText) -> str:
    return format_path(text.path if len(text.path) <= _MAX_NAME_CHARACTERS else f"…{text.path[-_MAX_NAME_CHARACTERS:]}")


def _format_size(size: int) -> str:
    return f"{size} byte{'s' * (size != 1)}" if size < 1000 else f"{size / 1000:.1f} KB"
