"""The folders, documents and files that a turn may read, as they were when the turn began.

If a file is open in the editor, the document's text is used instead of the file on disk. Each file is read once and
cached. The view never changes files and never follows links.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from itertools import repeat

from thinklsp.core.errors import PathRefused
from thinklsp.workspace.documents import (
    DocumentSnapshot,
    FileText,
    FolderView,
    OpenDocuments,
    Place,
    RootResolver,
    Source,
    build_key,
    format_notebook,
    list_name_parts,
    name_folders,
)
from thinklsp.workspace.paths import FileKind, Listing, Root
from thinklsp.workspace.protected import ProtectedPaths, fold_parts, is_git_config, strip_logins
from thinklsp.workspace.uri import (
    RelPath,
    escape_parts,
    extract_path_parts,
    is_encodable,
    normalize_uri,
    path_to_uri,
    quote_path,
    uri_to_path,
)

__all__ = ["DocumentSnapshot", "FileText", "FolderView", "Place", "Source", "WorkspaceView"]

_SCHEME = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:")
# A URI with a scheme other than `file`. File names may contain colons, but not before a slash or after `untitled`.
_FOREIGN = re.compile(r"untitled:|[A-Za-z][A-Za-z0-9+.-]+:/")
_BOM = "\ufeff"


class WorkspaceView:
    """The files and documents that a turn may read. Documents are copied when the turn begins."""

    def __init__(
        self,
        folders: Iterable[Root] = (),
        documents: Iterable[DocumentSnapshot] = (),
        *,
        protected: ProtectedPaths | None = None,
        extra: Iterable[Root] = (),
    ) -> None:
        """Initialize the view.

        `protected` contains the rules for documents outside all folders. `extra` contains read-only folders next to the
        workspace, whose names are part of their paths.
        """
        workspace = list(folders)
        self._all_folders = name_folders([*workspace, *extra])
        self.folders, self.extra = self._all_folders[: len(workspace)], self._all_folders[len(workspace) :]
        self._protected = protected or ProtectedPaths()
        self._disk: dict[str, FileText | None] = {}
        self._resolver = RootResolver([folder.root for folder in self._all_folders])
        self._open = OpenDocuments(self._resolver, documents)

    @property
    def documents(self) -> tuple[DocumentSnapshot, ...]:
        return tuple(self._open.by_key.values())

    def add_document(self, document: DocumentSnapshot) -> None:
        """Add a document that the client has just sent, unless the file was read before."""
        key = self._resolver.compute_key(document.uri)
        if key not in self._disk and key not in self._open.by_key:
            self._open.add(document)

    def has_read(self, place: Place) -> bool:
        return place.key in self._open.by_key or place.key in self._disk

    def resolve(self, path: str) -> Place:
        """Return the place for a relative path, an absolute path or a URI from the model. The file need not exist.

        Raises PathRefused with a message for the model.
        """
        if "\0" in path or not path.strip():
            raise PathRefused("The path is empty or contains a NUL character; give a path relative to the folder.")
        document = self._open.by_key.get(self._resolver.compute_key(path)) if _SCHEME.match(path) else None
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
        """Return the place for the URI of a document, an edit or an editor's answer, which may lead through a link.

        Paths from the model are never resolved in this way, because tools do not follow links.
        """
        self._resolver.follow(uri)
        return self.resolve(uri)

    def find_key(self, uri: str) -> str:
        """Return a key that is the same for all URIs of a file, also for those that lead through a link."""
        return self._resolver.follow(uri)[0]

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
        uri = self._open.uris.get(key, path_to_uri(os.path.join(root.given_path, *parts)))
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
        if self._open.uris:
            uris = [self._open.uris.get(key, uri) for key, uri in zip(keys, uris, strict=True)]
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
        if place.key in self._open.by_key or self._open.list_cells(place.key):
            return "file"
        status = place.stat()
        return None if status is None else status.kind

    def find_language_id(self, place: Place) -> str:
        """Return the editor's language id of an open document, or an empty string for other files."""
        document = self._open.by_key.get(place.key)
        return "" if document is None else document.language_id

    def check_writable(self, place: Place) -> None:
        """Raise PathRefused if tools may not change the file at this place."""
        for root, parts in self._open.list_linked_paths(place.key):
            _check_rule("/".join(parts), root.protected.explain_write_refusal(parts))
        self._check_notebook(place)
        if (problem := self.explain_ambiguity(place)) is not None:
            raise PathRefused(f"{problem} It cannot be changed until all but one of these documents are closed.")
        if place.root is not None and place.path is not None:
            place.root.check_writable(place.path)
            return
        for parts in list_name_parts(place.uri):
            _check_rule(place.label, self._protected.explain_write_refusal(parts))
        if self._open.shows_other_version(place.key):
            raise PathRefused(f"{quote_path(place.label)} shows another version of a file and cannot be changed.")

    def check_readable(self, place: Place) -> None:
        """Raise PathRefused if tools may not read the file at this place."""
        rules = place.root.protected if place.root is not None else self._protected
        for parts in [place.path.parts] if place.path is not None else list_name_parts(place.uri):
            _check_rule(place.label, rules.explain_read_refusal(parts))
        for root, link_parts in self._open.list_linked_paths(place.key):
            _check_rule("/".join(link_parts), root.protected.explain_read_refusal(link_parts))

    def list_cells(self, place: Place) -> tuple[Place, ...]:
        """Return the cells of a file that is open as a notebook."""
        return tuple(map(self._locate_key, self._open.list_cells(place.key)))

    def list_notebooks(self) -> tuple[Place, ...]:
        """Return the files that are open as notebooks, except those outside all folders."""
        places = (self._locate_key(key) for key in self._open.notebooks)
        return tuple(place for place in places if place.root is not None)

    def _check_notebook(self, place: Place) -> None:
        if cells := self._open.list_cells(place.key):
            names = ", ".join(quote_path(self._open.uris[key]) for key in cells[:10])
            raise PathRefused(
                f"{quote_path(place.label)} is open as a notebook, so it cannot be changed. Edit its cells ({names}), "
                "or ask the user to close the notebook."
            )

    def explain_ambiguity(self, place: Place) -> str | None:
        """Return a sentence about a file that is open under several names with different texts, or None."""
        copies = self._open.list_different_copies(place.key)
        names = " and ".join(quote_path(self._name_document(document)) for document in copies)
        return (
            f"{quote_path(place.label)} is open under several names with different texts: {names}." if names else None
        )

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
        return tuple(self._locate_key(key) for key in self._open.by_key)

    def list_open_places(self) -> tuple[Place, ...]:
        """Return the places of open documents in workspace folders. Their text may differ from the disk."""
        return tuple(place for place in self.list_documents() if place.root is not None)

    def _name_document(self, document: DocumentSnapshot) -> str:
        """Return the name of an open document, without following links."""
        given = self._resolver.find_given(document.uri)
        return document.uri if given is None else "/".join((*self.find_label_prefix(given[0]), *given[1]))

    def _read_text(self, place: Place, *, cache: bool) -> FileText | None:
        self.check_readable(place)
        if cells := self.list_cells(place):
            texts = ((cell.uri, self._read_text(cell, cache=cache)) for cell in cells)
            return FileText(format_notebook((uri, cell.text) for uri, cell in texts if cell is not None), "document")
        if (document := self._open.by_key.get(place.key)) is not None:
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
        if (data := place.load_bytes()) is None:
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
        document = self._open.by_key.get(normalize_uri(path_to_uri(path)))
        if document is None:
            raise PathRefused(f"{quote_path(path)} is outside the workspace folders.{self._suggest_paths()}")
        return self._locate_document(document)

    def _resolve_below(self, root: Root, parts: tuple[str, ...]) -> Place:
        """Resolve a path below a folder. If folders are nested, the innermost folder contains the file."""
        RelPath.build(parts)
        root_path = self._resolver.resolve_path(os.path.join(root.path, *parts))
        return self.build_place(*(root_path or (root, parts)))

    def _locate_key(self, key: str) -> Place:
        uri = self._open.uris.get(key, key)
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
        outside = [place.label for key in self._open.by_key if (place := self._locate_key(key)).root is None]
        return f" Open documents: {', '.join(map(quote_path, outside[:10]))}." if outside else ""


def _check_rule(name: str, reason: str | None) -> None:
    if reason is not None:
        raise PathRefused(f"{quote_path(name)} {reason}")
