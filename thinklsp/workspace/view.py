"""What one turn may read: folders, open documents and disk, as they were when the turn began.

Reading order: open document, disk. A `WorkspaceView` does not change after it is made; files are read from disk once
and then kept. It writes nothing and never follows a link.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Literal, NamedTuple

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.git_config import is_git_config, without_logins
from thinklsp.workspace.paths import Listing, Root
from thinklsp.workspace.protected import ProtectedPaths, folded
from thinklsp.workspace.relpath import RelPath, nameable, quoted
from thinklsp.workspace.uri import escaped, path_parts, path_to_uri, uri_key, uri_to_path
from thinklsp.workspace.whereabouts import Whereabouts, key_of

Source = Literal["document", "disk", "turn"]
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
# A URI of another kind. A plain name may hold a colon, too, but no slash behind it or `untitled` before it.
_FOREIGN = re.compile(r"untitled:|[A-Za-z][A-Za-z0-9+.-]+:/")
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class DocumentSnapshot:
    """An open document as the editor had it at `version`. `uri` as the editor spells it."""

    uri: str
    version: int
    text: str
    language_id: str = ""


@dataclass(frozen=True, slots=True)
class WorkspaceFolder:
    uri: str
    name: str


class Place(NamedTuple):
    """What a written path means. Equal keys are one file; `shown` is what people and models call it.

    `inside`: the path below the root, which itself is empty. Both are None for an open document without a path in a
    folder. A tuple with texts alone, because a listing makes one for each of many files.
    """

    key: str
    shown: str
    uri: str
    root: Root | None = None
    inside: str | None = None

    @property
    def path(self) -> RelPath | None:
        if self.inside is None:
            return None
        return RelPath(tuple(self.inside.split("/")) if self.inside else (), self.shown)


@dataclass(frozen=True, slots=True)
class FileText:
    """`version` with source `document` only. `bom`: the disk file begins with a byte order mark, left out of `text`.

    The text of a document is exactly what the editor sent, so that offsets in it are the editor's.
    """

    text: str
    source: Source
    version: int | None = None
    bom: bool = False


@dataclass(frozen=True, slots=True)
class FolderView:
    """A folder under the name that paths begin with where there are several."""

    folder: WorkspaceFolder
    root: Root
    name: str


class WorkspaceView:
    """Made before the first `await` of a turn. `documents` are copied; roots are only borrowed."""

    def __init__(
        self,
        folders: Iterable[tuple[WorkspaceFolder, Root]] = (),
        documents: Iterable[DocumentSnapshot] = (),
        *,
        protected: ProtectedPaths | None = None,
        extra: Iterable[Root] = (),
    ) -> None:
        """`protected`: the rules for documents outside every folder. `extra`: folders beside the workspace that can be
        read; paths begin with their names, too."""
        workspace = list(folders)
        beside = [(WorkspaceFolder(path_to_uri(root.path), ""), root) for root in extra]
        self._all = _named([*workspace, *beside])
        self.folders, self.extra = self._all[: len(workspace)], self._all[len(workspace) :]
        self._protected = protected or ProtectedPaths()
        self._disk: dict[str, FileText | None] = {}
        self._where = Whereabouts([folder.root for folder in self._all])
        # Of two that are one file the one under the file's own name counts.
        opened = sorted(documents, key=lambda document: not self._where.add_document(document.uri))
        self._documents = {self._where.key(document.uri): document for document in opened}
        # How the editor writes their URIs.
        self._spelled = {key: document.uri for key, document in self._documents.items()}

    @property
    def documents(self) -> tuple[DocumentSnapshot, ...]:
        return tuple(self._documents.values())

    def resolve(self, written: str) -> Place:
        """The file that a model means: a path, an absolute path or URI inside a folder, or an open document's URI.

        Raises PathRefused with a sentence that says what to write instead. Says nothing about existence.
        """
        if "\0" in written or not written.strip():
            raise PathRefused("The path is empty or holds a NUL character; give a path relative to the folder.")
        document = self._documents.get(self._where.key(written)) if _SCHEME.match(written) else None
        if document is not None:
            return self._document_place(document)
        if not nameable(written):
            raise PathRefused(f"{quoted(written)} holds half of a character, which is in no name of a file.")
        if written.startswith("file:"):
            return self._absolute(uri_to_path(written))
        if _FOREIGN.match(written):
            raise PathRefused(f"No open document has the URI {quoted(written)}.{self._advice()}")
        if written.startswith("/"):
            return self._absolute(os.path.normpath(written) if ".." not in written.split("/") else written)
        return self._relative(written)

    def resolve_folder(self, written: str | None) -> tuple[Place, ...]:
        """Where a listing or search begins: one place, or every folder where `written` is absent, empty or `.`."""
        if written is None or written.strip() in ("", ".", "./", "/"):
            if not self.folders:
                raise PathRefused(f"No folder is open.{self._open_ones()}")
            return tuple(self.place_in(folder.root, ()) for folder in self.folders)
        return (self.resolve(written),)

    def place_in(self, root: Root, parts: tuple[str, ...]) -> Place:
        """The place of components below a root of this view."""
        if not any(folder.root is root for folder in self._all):
            raise PathRefused("The workspace folder has been closed; its files can no longer be used.")
        shown = "/".join((*self.shown_above(root), *parts)) or "."
        key = key_of(root, parts)
        uri = self._spelled.get(key, path_to_uri(os.path.join(root.written, *parts)))
        return Place(key, shown, uri, root, "/".join(RelPath.of(parts, shown).parts))

    def shown_above(self, root: Root) -> tuple[str, ...]:
        """What paths in a folder are shown with: its name where there are several."""
        return () if len(self._all) == 1 else tuple(one.name for one in self._all if one.root is root)[:1]

    def places_below(self, folder: Place, names: Sequence[str]) -> list[Place]:
        """The places of what a listing of the folder has named: as `place_in` says, but what they share is worked out
        once. Raises PathRefused where the folder has been closed, or lies as deep as paths may go."""
        if folder.root is None or folder.path is None:
            return []
        above, root = folder.path.parts, folder.root
        first = self.place_in(root, (*above, "-"))
        key, display = first.key[:-1], first.shown[:-1]
        written = path_to_uri(os.path.join(root.written, *above, "-"))[:-1]
        ends = escaped(names)
        keys, shown = [key + end for end in ends], [display + name for name in names]
        # Mostly the same texts, which then are made and kept once.
        uris = keys if written == key else [written + end for end in ends]
        inside = shown if first.inside == first.shown else ["/".join((*above, name)) for name in names]
        if self._spelled:
            uris = [self._spelled.get(key, uri) for key, uri in zip(keys, uris, strict=True)]
        return list(map(Place, keys, shown, uris, repeat(root), inside))

    def read(self, place: Place) -> FileText | None:
        """The text, None where there is no such file. Raises PathRefused where it may not be read or is no text."""
        return self._text(place, keep=True)

    def peek(self, place: Place) -> FileText | None:
        """The same for a look in passing: what comes from disk is not kept for the turn."""
        return self._text(place, keep=False)

    def kind(self, place: Place) -> Literal["file", "directory", "link", "other"] | None:
        if place.key in self._documents:
            return "file"
        found = None if place.root is None or place.path is None else place.root.stat(place.path)
        return None if found is None else found.kind

    def language_id(self, place: Place) -> str:
        """What the editor calls the language of an open document; empty for what is not open."""
        document = self._documents.get(place.key)
        return "" if document is None else document.language_id

    def check_writable(self, place: Place) -> None:
        """Raises PathRefused unless this place may be created, changed, renamed or deleted."""
        if place.root is not None and place.path is not None:
            place.root.check_writable(place.path)
        elif (reason := self._protected.writing_refused(path_parts(place.uri))) is not None:
            raise PathRefused(f"{quoted(place.shown)} {reason}")

    def check_readable(self, place: Place) -> None:
        """Raises PathRefused for a place whose text tools may not see."""
        parts = place.path.parts if place.path is not None else path_parts(place.uri)
        rules = place.root.protected if place.root is not None else self._protected
        if (reason := rules.reading_refused(parts)) is not None:
            raise PathRefused(f"{quoted(place.shown)} {reason}")

    def listing(self, place: Place) -> Listing | None:
        """Names on disk, None where there is no such folder."""
        return None if place.root is None or place.path is None else place.root.list(place.path)

    def document_places(self) -> tuple[Place, ...]:
        """Every open document, with or without a path in a folder."""
        return tuple(self._known_place(key) for key in self._documents)

    def unlike_disk(self) -> tuple[Place, ...]:
        """Places below a folder whose text may differ from disk: open documents."""
        return tuple(place for place in self.document_places() if place.root is not None)

    def _text(self, place: Place, *, keep: bool) -> FileText | None:
        self.check_readable(place)
        if (document := self._documents.get(place.key)) is not None:
            return FileText(self._without_logins(place, document.text), "document", document.version)
        if place.key in self._disk:
            return self._disk[place.key]
        found = self._from_disk(place)
        if keep:
            self._disk[place.key] = found
        return found

    def _without_logins(self, place: Place, text: str) -> str:
        """What `Root.read` does for files, done for an open document."""
        if place.root is not None and place.path is not None:
            is_config = place.root.is_git_config(place.path.parts)
        else:
            is_config = is_git_config(folded(path_parts(place.uri)))
        if not is_config:
            return text
        return without_logins(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def _from_disk(self, place: Place) -> FileText | None:
        if place.root is None or place.path is None:
            return None
        data = place.root.read(place.path)
        if data is None:
            return None
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise PathRefused(
                f"{quoted(place.shown)} is not UTF-8 text; it can be used only while it is open in the editor."
            ) from None
        return FileText(text.removeprefix(_BOM), "disk", bom=text.startswith(_BOM))

    def _relative(self, written: str) -> Place:
        parts = tuple(part for part in written.split("/") if part not in ("", "."))
        if ".." in parts:
            return self._beside(written)
        if not self._all:
            raise PathRefused(f"No folder is open, so {quoted(written)} names nothing.{self._open_ones()}")
        if len(self._all) == 1:
            return self._below(self._all[0].root, parts)
        folder = next((folder for folder in self._all if parts and folder.name == parts[0]), None)
        if folder is None:
            raise PathRefused(f"{quoted(written)} is in none of the workspace folders.{self._advice()}")
        return self._below(folder.root, parts[1:])

    def _beside(self, written: str) -> Place:
        """A path with `..`, which can name a file of an extra folder, from the first workspace folder on."""
        if self.folders and self.extra:
            found = self._where.of_path(os.path.normpath(os.path.join(self.folders[0].root.path, written)))
            if found is not None and any(found[0] is folder.root for folder in self.extra):
                return self.place_in(*found)
        raise PathRefused(f"{quoted(written)} holds `..`; give the path from the workspace folder on.")

    def _absolute(self, path: str) -> Place:
        found = self._where.of_path(path)
        if found is not None:
            return self.place_in(*found)
        if ".." in path.split("/"):
            raise PathRefused(f"{quoted(path)} holds `..`; name the file by its own path.")
        document = self._documents.get(uri_key(path_to_uri(path)))
        if document is None:
            raise PathRefused(f"{quoted(path)} is outside the workspace folders.{self._advice()}")
        return self._document_place(document)

    def _below(self, root: Root, parts: tuple[str, ...]) -> Place:
        """Folders may lie in one another: a file belongs to the innermost."""
        RelPath.of(parts)
        found = self._where.of_path(os.path.join(root.path, *parts))
        return self.place_in(*(found or (root, parts)))

    def _known_place(self, key: str) -> Place:
        uri = self._spelled[key]
        found = self._where.of_uri(uri)
        try:
            return Place(key, uri, uri) if found is None else self.place_in(*found)
        except PathRefused:
            return Place(key, uri, uri)

    def _document_place(self, document: DocumentSnapshot) -> Place:
        return self._known_place(self._where.key(document.uri))

    def _advice(self) -> str:
        """A sentence that says which paths there are."""
        if not self._all:
            return self._open_ones()
        names = ", ".join(f"{folder.name}/" for folder in self._all)
        how = "is relative to the workspace folder" if len(self._all) == 1 else f"begins with one of {names}"
        return f" The path of a file {how}.{self._open_ones()}"

    def _open_ones(self) -> str:
        """A sentence with the URIs of documents that have no path; those in folders can be listed."""
        outside = [place.shown for key in self._documents if (place := self._known_place(key)).root is None]
        return f" Open documents: {', '.join(map(quoted, outside[:10]))}." if outside else ""


def _named(folders: Sequence[tuple[WorkspaceFolder, Root]]) -> tuple[FolderView, ...]:
    """Folders of the same name get `-2`, `-3`. A slash in a name would look like a path."""
    views: list[FolderView] = []
    for folder, root in folders:
        plain = (folder.name or os.path.basename(root.written)).replace("/", "-").strip() or "folder"
        name, count = plain, 1
        while any(view.name == name for view in views):
            count += 1
            name = f"{plain}-{count}"
        views.append(FolderView(folder, root, name))
    return tuple(views)
