"""The folders, documents and files that a turn may read, as they were when the turn began.

If a file is open in the editor, the document's text is used instead of the file on disk. Each file is read once and
cached. The view never changes files and never follows links.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Literal, NamedTuple

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.paths import FileKind, Listing, Root
from thinklsp.workspace.protected import ProtectedPaths, fold_parts, is_git_config, strip_logins
from thinklsp.workspace.relpath import RelPath, is_encodable, quote_path
from thinklsp.workspace.roots import RootResolver, build_key
from thinklsp.workspace.uri import escape_parts, extract_path_parts, normalize_uri, path_to_uri, uri_to_path

Source = Literal["document", "disk", "turn"]
_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
# A URI with a scheme other than `file`. File names may contain colons, but not before a slash or after `untitled`.
_FOREIGN = re.compile(r"untitled:|[A-Za-z][A-Za-z0-9+.-]+:/")
_BOM = "\ufeff"


@dataclass(frozen=True, slots=True)
class DocumentSnapshot:
    """An open document at `version`. `uri` is spelled as in the editor."""

    uri: str
    version: int
    text: str
    language_id: str = ""


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


class WorkspaceView:
    """The files and documents that a turn may read. Documents are copied when the turn begins."""

    def __init__(
        self,
        folders: Iterable[tuple[WorkspaceFolder, Root]] = (),
        documents: Iterable[DocumentSnapshot] = (),
        *,
        protected: ProtectedPaths | None = None,
        extra: Iterable[Root] = (),
    ) -> None:
        """Initialize the view. `protected` contains the rules for documents outside all folders. `extra` contains
        read-only folders next to the workspace, whose names are part of their paths."""
        workspace = list(folders)
        beside = [(WorkspaceFolder(path_to_uri(root.path), ""), root) for root in extra]
        self._all_folders = _name_folders([*workspace, *beside])
        self.folders, self.extra = self._all_folders[: len(workspace)], self._all_folders[len(workspace) :]
        self._protected = protected or ProtectedPaths()
        self._disk: dict[str, FileText | None] = {}
        self._resolver = RootResolver([folder.root for folder in self._all_folders])
        # The open documents of each file. One that is open under the file's own path comes last, and is preferred.
        self._copies: dict[str, list[DocumentSnapshot]] = {}
        for document in sorted(documents, key=lambda document: not self._resolver.add_link(document.uri)):
            self._copies.setdefault(self._resolver.compute_key(document.uri), []).append(document)
        self._documents = {key: copies[-1] for key, copies in self._copies.items()}
        # The URIs of open documents, in the editor's spelling.
        self._client_uris = {key: document.uri for key, document in self._documents.items()}

    @property
    def documents(self) -> tuple[DocumentSnapshot, ...]:
        return tuple(self._documents.values())

    def add_document(self, document: DocumentSnapshot) -> None:
        """Add a document that the client has just sent, unless the file was read before."""
        key = self._resolver.compute_key(document.uri)
        if key not in self._disk and key not in self._documents:
            self._client_uris.setdefault(key, document.uri)
            self._copies[key] = [document]
            self._documents = self._documents | {key: document}  # A tool in a thread may be listing the old ones.

    def has_read(self, place: Place) -> bool:
        return place.key in self._documents or place.key in self._disk

    def resolve(self, path: str) -> Place:
        """Return the place for a relative path, an absolute path or a URI from the model. The file need not exist.

        Raises PathRefused with a message for the model.
        """
        if "\0" in path or not path.strip():
            raise PathRefused("The path is empty or contains a NUL character; give a path relative to the folder.")
        document = self._documents.get(self._resolver.compute_key(path)) if _SCHEME.match(path) else None
        if document is not None:
            return self._locate_document(document)
        if not is_encodable(path):
            raise PathRefused(f"{quote_path(path)} contains a lone surrogate, which file names cannot contain.")
        if path.startswith("file:"):
            return self._resolve_absolute(uri_to_path(path))
        if _FOREIGN.match(path):
            raise PathRefused(f"No open document has the URI {quote_path(path)}.{self._suggest_paths()}")
        if path.startswith("/"):
            return self._resolve_absolute(os.path.normpath(path) if ".." not in path.split("/") else path)
        return self._resolve_relative(path)

    def locate(self, uri: str) -> Place:
        """Return the place for the URI of a document or of an edit, which may lead through a link.

        Paths from the model are never resolved in this way, because tools do not follow links.
        """
        self._resolver.add_link(uri)
        return self.resolve(uri)

    def find_key(self, uri: str) -> str:
        """Return a key that is the same for all URIs of a file, also for those that lead through a link."""
        self._resolver.add_link(uri)
        return self._resolver.compute_key(uri)

    def resolve_folder(self, path: str | None) -> tuple[Place, ...]:
        """Return the places where a listing or search starts. None, an empty path and `.` stand for all folders."""
        if path is None or path.strip() in ("", ".", "./", "/"):
            if not self.folders:
                raise PathRefused(f"No folder is open.{self._list_open_documents()}")
            return tuple(self.build_place(folder.root, ()) for folder in self.folders)
        return (self.resolve(path),)

    def build_place(self, root: Root, parts: tuple[str, ...]) -> Place:
        """Return the place for a path below a workspace folder."""
        if not any(folder.root is root for folder in self._all_folders):
            raise PathRefused("The workspace folder has been closed; its files can no longer be used.")
        label = "/".join((*self.find_label_prefix(root), *parts)) or "."
        key = build_key(root, parts)
        uri = self._client_uris.get(key, path_to_uri(os.path.join(root.given_path, *parts)))
        return Place(key, label, uri, root, "/".join(RelPath.build(parts, label).parts))

    def find_label_prefix(self, root: Root) -> tuple[str, ...]:
        """Return the prefix of all labels in a folder, which is empty if there is only one folder."""
        return (
            ()
            if len(self._all_folders) == 1
            else tuple(folder.name for folder in self._all_folders if folder.root is root)[:1]
        )

    def build_places(self, folder: Place, names: Sequence[str]) -> list[Place]:
        """Return the places for the names in a folder. This is faster than calling `build_place` for each name.

        Raises PathRefused if the folder has been closed or is nested too deeply.
        """
        if folder.root is None or folder.path is None:
            return []
        above, root = folder.path.parts, folder.root
        first = self.build_place(root, (*above, "-"))
        key, display = first.key[:-1], first.label[:-1]
        given_uri = path_to_uri(os.path.join(root.given_path, *above, "-"))[:-1]
        ends = escape_parts(names)
        keys, labels = [key + end for end in ends], [display + name for name in names]
        # A file's key and URI are usually equal, so they can share one string.
        uris = keys if given_uri == key else [given_uri + end for end in ends]
        inside = labels if first.inside == first.label else ["/".join((*above, name)) for name in names]
        if self._client_uris:
            uris = [self._client_uris.get(key, uri) for key, uri in zip(keys, uris, strict=True)]
        return list(map(Place, keys, labels, uris, repeat(root), inside))

    def read(self, place: Place) -> FileText | None:
        """Return the text of a file, or None if the file does not exist.

        Raises PathRefused if tools may not read the file or if it is not text.
        """
        return self._read_text(place, cache=True)

    def peek(self, place: Place) -> FileText | None:
        """Return the text of a file like `read`, but do not cache the text."""
        return self._read_text(place, cache=False)

    def find_kind(self, place: Place) -> FileKind | None:
        if place.key in self._documents:
            return "file"
        status = None if place.root is None or place.path is None else place.root.stat(place.path)
        return None if status is None else status.kind

    def is_on_disk(self, place: Place) -> bool:
        """Return True if the file exists on disk, whether it is open or not."""
        return place.root is not None and place.path is not None and place.root.stat(place.path) is not None

    def find_language_id(self, place: Place) -> str:
        """Return the editor's language id of an open document, or an empty string for other files."""
        document = self._documents.get(place.key)
        return "" if document is None else document.language_id

    def check_writable(self, place: Place) -> None:
        """Raise PathRefused if tools may not change the file at this place."""
        for name, root, parts in self._list_link_names(place):
            _check_rule(name, root.protected.explain_write_refusal(parts))
        if (problem := self.explain_ambiguity(place)) is not None:
            raise PathRefused(f"{problem} It cannot be changed until all but one of these documents are closed.")
        if place.root is not None and place.path is not None:
            place.root.check_writable(place.path)
        else:
            _check_rule(place.label, self._protected.explain_write_refusal(extract_path_parts(place.uri)))

    def check_readable(self, place: Place) -> None:
        """Raise PathRefused if tools may not read the file at this place."""
        parts = place.path.parts if place.path is not None else extract_path_parts(place.uri)
        rules = place.root.protected if place.root is not None else self._protected
        _check_rule(place.label, rules.explain_read_refusal(parts))
        for name, root, link_parts in self._list_link_names(place):
            _check_rule(name, root.protected.explain_read_refusal(link_parts))

    def explain_ambiguity(self, place: Place) -> str | None:
        """Return a sentence about a file that is open under several names with different texts, or None."""
        copies = self._copies.get(place.key, ())
        if len({document.text for document in copies}) < 2:
            return None
        names = " and ".join(quote_path(self._name_document(document)) for document in reversed(copies))
        return f"{quote_path(place.label)} is open under several names with different texts: {names}."

    def find_operation_uri(self, place: Place) -> str:
        """Return the URI with which an editor can delete or rename a file, and not a link to the file."""
        if place.root is None or place.path is None or not self._resolver.is_file_link(place.uri):
            return place.uri
        return path_to_uri(os.path.join(place.root.given_path, *place.path.parts))

    def list_folder(self, place: Place) -> Listing | None:
        """List a folder on disk. Return None if the folder does not exist."""
        return None if place.root is None or place.path is None else place.root.list(place.path)

    def list_documents(self) -> tuple[Place, ...]:
        """Return the places of all open documents, inside and outside the workspace folders."""
        return tuple(self._locate_key(key) for key in self._documents)

    def list_open_places(self) -> tuple[Place, ...]:
        """Return the places of open documents in workspace folders. Their text may differ from the disk."""
        return tuple(place for place in self.list_documents() if place.root is not None)

    def _list_link_names(self, place: Place) -> Iterator[tuple[str, Root, tuple[str, ...]]]:
        """Yield the names under which a file in a folder is open through links. The rules for names hold for them."""
        for document in self._copies.get(place.key, ()):
            given = self._resolver.find_given(document.uri)
            if place.path is not None and given is not None and given != (place.root, place.path.parts):
                yield self._name_document(document), *given

    def _name_document(self, document: DocumentSnapshot) -> str:
        """Return the name of an open document, without following links."""
        given = self._resolver.find_given(document.uri)
        return document.uri if given is None else "/".join((*self.find_label_prefix(given[0]), *given[1]))

    def _read_text(self, place: Place, *, cache: bool) -> FileText | None:
        self.check_readable(place)
        if (document := self._documents.get(place.key)) is not None:
            return FileText(self._strip_logins(place, document.text), "document", document.version)
        if place.key in self._disk:
            return self._disk[place.key]
        file_text = self._read_from_disk(place)
        if cache:
            self._disk[place.key] = file_text
        return file_text

    def _strip_logins(self, place: Place, text: str) -> str:
        """Remove logins from an open document that is a git configuration file, as `Root.read` does for files."""
        if place.root is not None and place.path is not None:
            is_config = place.root.is_git_config(place.path.parts)
        else:
            is_config = is_git_config(fold_parts(extract_path_parts(place.uri)))
        if not is_config:
            return text
        return strip_logins(text.encode("utf-8", "surrogatepass")).decode("utf-8", "surrogatepass")

    def _read_from_disk(self, place: Place) -> FileText | None:
        if place.root is None or place.path is None:
            return None
        data = place.root.read(place.path)
        if data is None:
            return None
        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            raise PathRefused(
                f"{quote_path(place.label)} is not UTF-8 text; it can be used only while it is open in the editor."
            ) from None
        return FileText(text.removeprefix(_BOM), "disk", has_bom=text.startswith(_BOM))

    def _resolve_relative(self, path: str) -> Place:
        parts = tuple(part for part in path.split("/") if part not in ("", "."))
        if ".." in parts:
            return self._resolve_extra(path)
        if not self._all_folders:
            raise PathRefused(f"No folder is open, so {quote_path(path)} does not exist.{self._list_open_documents()}")
        if len(self._all_folders) == 1:
            return self._resolve_below(self._all_folders[0].root, parts)
        folder = next((folder for folder in self._all_folders if parts and folder.name == parts[0]), None)
        if folder is None:
            raise PathRefused(f"{quote_path(path)} is not in a workspace folder.{self._suggest_paths()}")
        return self._resolve_below(folder.root, parts[1:])

    def _resolve_extra(self, path: str) -> Place:
        """Resolve a path with `..` that leads from the first workspace folder into a read-only folder."""
        if self.folders and self.extra:
            root_path = self._resolver.resolve_path(os.path.normpath(os.path.join(self.folders[0].root.path, path)))
            if root_path is not None and any(root_path[0] is folder.root for folder in self.extra):
                return self.build_place(*root_path)
        raise PathRefused(f"{quote_path(path)} contains `..`; give a path relative to the workspace folder.")

    def _resolve_absolute(self, path: str) -> Place:
        root_path = self._resolver.resolve_path(path)
        if root_path is not None:
            return self.build_place(*root_path)
        if ".." in path.split("/"):
            raise PathRefused(f"{quote_path(path)} contains `..`; use the file's own path.")
        document = self._documents.get(normalize_uri(path_to_uri(path)))
        if document is None:
            raise PathRefused(f"{quote_path(path)} is outside the workspace folders.{self._suggest_paths()}")
        return self._locate_document(document)

    def _resolve_below(self, root: Root, parts: tuple[str, ...]) -> Place:
        """Resolve a path below a folder. If folders are nested, the innermost folder contains the file."""
        RelPath.build(parts)
        root_path = self._resolver.resolve_path(os.path.join(root.path, *parts))
        return self.build_place(*(root_path or (root, parts)))

    def _locate_key(self, key: str) -> Place:
        uri = self._client_uris[key]
        root_path = self._resolver.resolve_uri(uri)
        try:
            return Place(key, uri, uri) if root_path is None else self.build_place(*root_path)
        except PathRefused:
            return Place(key, uri, uri)

    def _locate_document(self, document: DocumentSnapshot) -> Place:
        return self._locate_key(self._resolver.compute_key(document.uri))

    def _suggest_paths(self) -> str:
        """Return advice for the model about the valid forms of paths."""
        if not self._all_folders:
            return self._list_open_documents()
        names = ", ".join(f"{folder.name}/" for folder in self._all_folders)
        how = "is relative to the workspace folder" if len(self._all_folders) == 1 else f"begins with one of {names}"
        return f" The path of a file {how}.{self._list_open_documents()}"

    def _list_open_documents(self) -> str:
        """Return a note for the model about open documents outside all folders, because no tool can list them."""
        outside = [place.label for key in self._documents if (place := self._locate_key(key)).root is None]
        return f" Open documents: {', '.join(map(quote_path, outside[:10]))}." if outside else ""


def _check_rule(name: str, reason: str | None) -> None:
    if reason is not None:
        raise PathRefused(f"{quote_path(name)} {reason}")


def _name_folders(folders: Sequence[tuple[WorkspaceFolder, Root]]) -> tuple[FolderView, ...]:
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
