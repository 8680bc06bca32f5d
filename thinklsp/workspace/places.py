"""The places of files and documents, their texts, and the names of workspace folders."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from thinklsp.workspace.paths import Root
from thinklsp.workspace.relpath import RelPath

Source = Literal["document", "disk", "turn"]


@dataclass(frozen=True, slots=True)
class WorkspaceFolder:
    uri: str
    name: str


class Place(NamedTuple):
    """A file or document that a path or URI refers to. Two places with equal keys are the same file.

    `label` is the readable name. `inside` is the path below `root`, and is empty for the root itself. Both are None for
    documents outside all folders. A listing creates many places, so they are lightweight tuples.
    """

    key: str
    label: str
    uri: str
    root: Root | None = None
    inside: str | None = None

    @property
    def path(self) -> RelPath | None:
        if self.inside is None:
            return None
        return RelPath(tuple(self.inside.split("/")) if self.inside else (), self.label)


@dataclass(frozen=True, slots=True)
class FileText:
    """The text of a file. `version` is set only for open documents.

    `has_bom` is true if the file on disk starts with a byte order mark, which is not part of `text`. The text of a
    document is unchanged, so that offsets agree with the editor.
    """

    text: str
    source: Source
    version: int | None = None
    has_bom: bool = False


@dataclass(frozen=True, slots=True)
class FolderView:
    """A workspace folder with a unique name. If there are several folders, all paths begin with their folder's name."""

    folder: WorkspaceFolder
    root: Root
    name: str


def name_folders(folders: Sequence[tuple[WorkspaceFolder, Root]]) -> tuple[FolderView, ...]:
    """Give each folder a unique name, such as `src-2`. The name contains no slash, because paths begin with it."""
    views: list[FolderView] = []
    for folder, root in folders:
        plain = (folder.name or os.path.basename(root.given_path)).replace("/", "-").strip() or "folder"
        name, count = plain, 1
        while any(view.name == name for view in views):
            count += 1
            name = f"{plain}-{count}"
        views.append(FolderView(folder, root, name))
    return tuple(views)
